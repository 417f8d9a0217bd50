"""The table of options: every one is known, checked, and refused by name where it can't be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from patching.spark.options import OPTIONS, READ, READ_STREAM, WRITE, OptionRefused, Options

URL = {"url": "http://gateway:8080"}


def test_option_names_are_case_insensitive() -> None:
    options = Options.parse({"URL": "http://x", "batchsize": "7", "ONERROR": "Skip"}, WRITE)
    assert (options.url, options.batch_size, options.on_error) == ("http://x", 7, "skip")


def test_some_options_also_have_deltas_names() -> None:
    given = URL | {"catalog": "c"}
    assert Options.parse(given | {"versionAsOf": "7"}, READ).revision == 7
    at = "2026-11-21T10:00:00Z"
    assert Options.parse(given | {"timestampAsOf": at}, READ).timestamp == at
    for form in ("20261121T100000Z", "2026-11-21 11:00+01:00", "2026-11-21t10:00:00z"):
        known = Options.parse(given | {"timestamp": form}, READ).timestamp
        assert known in (at, "2026-11-21T11:00:00+01:00"), "as the gateway takes it"
    options = Options.parse(given | {"startingVersion": "3", "endingVersion": "9"}, READ)
    assert (options.starting_revision, options.ending_revision) == ("3", 9)
    with pytest.raises(
        OptionRefused, match="'versionAsOf': it means the same as revision, which is also given"
    ):
        Options.parse(given | {"versionAsOf": "7", "revision": "7"}, READ)


def test_options_of_spark_itself_are_ignored() -> None:
    given = URL | {"checkpointlocation": "/x", "queryName": "q"}
    assert Options.parse(given, WRITE) == Options.parse(URL, WRITE)


def test_defaults_are_those_of_the_table() -> None:
    parsed = Options.parse(URL | {"catalog": "c"}, READ)
    assert parsed == Options(url=URL["url"], catalog="c")
    assert len(dataclasses.fields(parsed)) == len(OPTIONS)


@pytest.mark.parametrize(
    ("given", "use", "said"),
    [
        ({}, WRITE, "'url': it is required"),
        ({"url": "gateway:8080"}, WRITE, "'url': .*not an http or https URL"),
        (URL, READ, "'catalog': it is required"),
        (URL | {"retryTimout": "1"}, WRITE, "unknown option; did you mean 'retryTimeout'"),
        (
            URL | {"table": "commits"},
            READ,
            "unknown option; known options: url, catalog, .*, type, ",
        ),
        (URL | {"path": "x"}, WRITE, "'path': .* use `catalog`"),
        (URL | {"prefix": "x"}, WRITE, "'prefix': it works only for read and readStream"),
        (URL | {"batchSize": "1"}, READ, "'batchSize': it works only for write"),
        (URL | {"batchSize": "0"}, WRITE, "'batchSize': it must be a whole number from 1"),
        (
            URL | {"txnAppId": "a", "txnVersion": str(2**63)},
            WRITE,
            "'txnVersion': it must be a whole number from 0 to 999999999999999999",
        ),
        (URL | {"timestamp": "2026-11-21"}, READ, "'timestamp': it must be a time such as"),
        (URL | {"timeout": "0"}, WRITE, "'timeout': it must be a number of seconds above 0"),
        (URL | {"timeout": "soon"}, WRITE, "'timeout': it must be a number of seconds above 0"),
        (URL | {"onError": "ignore"}, WRITE, "one of fail, skip, deadletter"),
        (URL | {"onError": "deadletter"}, WRITE, "'deadLetterPath'"),
        (URL | {"deadLetterPath": "/x"}, WRITE, "'deadLetterPath'"),
        (URL | {"token": "a\nb"}, WRITE, "'token': the token is empty, or has characters that"),
        (URL | {"token": "a", "tokenFile": "b"}, READ_STREAM, "can't be given together with token"),
        (URL | {"txnAppId": "x"}, WRITE, "'txnVersion': txnAppId and txnVersion need each other"),
        (
            URL | {"txnAppId": "x", "txnVersion": "1", "idempotency": "none"},
            WRITE,
            "'txnAppId': it can't be given together with idempotency=none",
        ),
        (
            URL | {"catalog": "c", "startingRevision": "1", "startingTimestamp": "2026-01-01T00Z"},
            READ,
            "'startingTimestamp': it can't be given together with startingRevision",
        ),
        (
            URL | {"startingTimestamp": "2026-01-01"},
            READ,
            "'startingTimestamp': it must be a time such as .*, not '2026-01-01'",
        ),
        (URL | {"failOnDataLoss": "no"}, READ_STREAM, "must be one of true, false, not 'no'"),
        (URL | {"keyFile": "x"}, WRITE, "'keyFile': certificateFile and keyFile need each other"),
        (URL | {"url": "http://a,b"}, WRITE, "'url': .*not an http or https URL .*'b'"),
        (URL | {"manager": "x "}, WRITE, "'manager': it must be 1 to 255 printable characters"),
        (URL | {"conflict": "drop"}, WRITE, "'conflict': it must be one of refuse, skip, force"),
        (URL | {"keys": "a,b"}, READ, "'keys': it must be a JSON array of keys, each once, not 'a"),
        (URL | {"keys": '["a", "a"]'}, READ, "'keys': it must be a JSON array of keys, each once"),
        (URL | {"deadLetters": "/x"}, READ, "'url': it has no effect with deadLetters"),
        ({"deadLetters": "s3a://x"}, READ, "'deadLetters': 's3a://x' can't be used"),
        ({"deadLetters": "/x"}, READ_STREAM, "'deadLetters': it works only for read"),
        (URL | {"partitions": "100001"}, READ, "'partitions': .* from 1 to 100000, not '100001'"),
        (
            URL | {"catalog": "c", "partitions": "2", "partitionBytes": "9"},
            READ,
            "'partitionBytes': it can't be given together with partitions",
        ),
        (
            URL | {"include": "after"},
            READ,
            "'include': it must be one or more of before, value, each once, not 'a",
        ),
        *(
            (URL | {name: f"{scheme}lake/dead"}, WRITE, f"'{name}': '{scheme}.* can't be used")
            for name in ("deadLetterPath", "reportPath")
            for scheme in ("s3a://", "hdfs://", "dbfs:/", "abfss://x@")
        ),
        (URL | {"message": "x" * 1001}, WRITE, "'message': it has 1001 characters"),
    ],
)
def test_an_invalid_option_is_refused_by_name(given: dict[str, str], use: str, said: str) -> None:
    with pytest.raises(OptionRefused, match=said):
        Options.parse(given, use)


def test_a_folder_option_may_be_a_path_or_a_file_url() -> None:
    for given, path in (
        ("/x/y", "/x/y"),
        ("x/a:b", "x/a:b"),
        ("c:/x", "c:/x"),
        ("file:/x%20y", "/x y"),
        ("FILE:///x/y", "/x/y"),
    ):
        assert Options.parse(URL | {"reportPath": given}, WRITE).report_path == path


def test_a_token_is_hidden_and_a_token_file_is_read_again(tmp_path: Path) -> None:
    assert "secret" not in repr(Options.parse(URL | {"token": "secret"}, WRITE))
    path = tmp_path / "token"
    ask = Options.parse(URL | {"tokenFile": str(path)}, WRITE)._token()
    assert callable(ask)
    for token in ("one", "two"):
        path.write_text(f"{token}\n")
        assert ask() == token
