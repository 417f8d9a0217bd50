"""What is exported can be imported, once or again, whole or in part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from patching.client import Catalog
from tests.commandline.canned import Asked, Canned, Reply
from tests.commandline.conftest import Commands

DOCUMENTS: dict[str, Any] = {"a/1": {"text": "x\ny", "big": 2**62}, "a/2": [1.5, None], "b": "ü"}


def write_export(path: Path, documents: dict[str, Any], **members: Any) -> str:
    path.write_text(json.dumps({"metadata": documents, **members}, indent=2))
    return str(path)


def write_lines(path: Path, *lines: Any) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def contents(run: Commands, catalog: str) -> dict[str, Any]:
    return dict(run("export", catalog).json()["metadata"])


def tally(ran: Any) -> dict[str, int]:
    """What isn't 0."""
    counts = ("written", "unchanged", "kept", "conflicts", "refused", "deleted")
    return {name: ran.json()[name] for name in counts if ran.json()[name]}


@pytest.mark.parametrize("form", ["export", "ndjson"])
def test_an_exported_catalog_can_be_imported_under_another_name(
    run: Commands, catalog: str, tmp_path: Path, form: str
) -> None:
    for key, value in DOCUMENTS.items():
        run("put", "-q", catalog, key, json.dumps(value))
    run("put", "-q", catalog, "b", '{"team": "sales"}', "--attributes")
    file = tmp_path / f"out.{form}"
    told = run("export", catalog, "-o", str(file), "--format", form)
    assert told.stdout == ""
    assert "3 documents" in told.error()
    assert "without their owners" in told.error()
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
    assert run("export", catalog, "--format", form).stdout == file.read_text()
    copy = catalog + "copy"
    assert tally(run("import", copy, str(file))) == {"written": 3}
    assert contents(run, copy) == DOCUMENTS
    expected = {"team": "sales"} if form == "ndjson" else {}
    assert run("get", copy, "b", "--attributes").json() == expected


def test_an_export_is_of_one_revision(run: Commands, catalog: str) -> None:
    run("put", "-q", catalog, "a", "1")
    run("put", "-q", catalog, "b", "2")
    assert run("export", catalog).json() == {"resource_version": 2, "metadata": {"a": 1, "b": 2}}
    assert run("export", catalog, "--revision=1").json()["metadata"] == {"a": 1}
    assert run("export", catalog, "--prefix=b").json()["metadata"] == {"b": 2}
    lines = run("export", catalog, "--format=ndjson", "--revision=1").lines()
    assert lines == [{"key": "a", "value": 1}]


def test_a_failed_export_keeps_the_old_file(run: Commands, catalog: str, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    file.write_text("kept")
    run("export", catalog + "none", "-o", str(file), code=3)
    assert file.read_text() == "kept"
    assert [each.name for each in tmp_path.iterdir()] == ["kept.json"]
    run("put", "-q", catalog, "a", "1")
    assert (
        "can't write to the folder"
        in run("export", catalog, "-o", "/does/not/exist", code=1).error()
    )


def test_the_same_import_again_changes_nothing(run: Commands, catalog: str, tmp_path: Path) -> None:
    file = write_export(tmp_path / "in.json", DOCUMENTS, resource_version=7)
    assert tally(run("import", catalog, file, "--dry-run")) == {"written": 3}
    run("get", catalog, code=3)
    assert tally(run("import", catalog, file, "-m", "imported")) == {"written": 3}
    assert {each["message"] for each in run("log", catalog).lines()} == {"imported"}
    for mode in ((), ("--replace",)):
        assert tally(run("import", catalog, file, *mode)) == {"unchanged": 3}
    assert tally(run("import", catalog, file, "--if-absent")) == {"kept": 3}
    assert len(run("log", catalog).lines()) == 3


def test_an_import_can_be_resumed(run: Commands, catalog: str, tmp_path: Path) -> None:
    first = write_export(tmp_path / "first.json", dict(list(DOCUMENTS.items())[:2]))
    whole = write_export(tmp_path / "whole.json", DOCUMENTS)
    run("import", catalog, first)
    assert tally(run("import", catalog, whole)) == {"written": 1, "unchanged": 2}
    assert contents(run, catalog) == DOCUMENTS


def test_different_contents_are_conflicts_without_replace_or_skip(
    run: Commands, catalog: str, tmp_path: Path
) -> None:
    lines = (
        {"key": "plain", "value": 1},
        {"key": "with", "value": 1, "attributes": {"team": "a"}},
        {"key": "new", "value": 1},
    )
    file = write_lines(tmp_path / "in.ndjson", *lines)
    run("put", "-q", catalog, "plain", "9")
    run("put", "-q", catalog, "with", "1")
    ran = run("import", catalog, file, code=4)
    assert tally(ran) == {"written": 1, "conflicts": 2}
    assert ran.stderr.count("left alone") == 2
    assert tally(run("import", catalog, file, "--if-absent")) == {"kept": 3}
    assert contents(run, catalog)["plain"] == 9
    assert tally(run("import", catalog, file, "--replace")) == {"written": 2, "unchanged": 1}
    assert contents(run, catalog)["plain"] == 1
    assert run("get", catalog, "with", "--attributes").json() == {"team": "a"}


def test_delete_others_deletes_documents_not_in_the_file(
    run: Commands, catalog: str, tmp_path: Path
) -> None:
    for key in ("a/1", "a/old", "b/old"):
        run("put", "-q", catalog, key, "1")
    file = write_export(tmp_path / "in.json", {"a/1": 1, "a/2": 2, "c": 3})
    dry = run("import", catalog, file, "--prefix=a/", "--delete-others", "--dry-run")
    assert tally(dry) == {"written": 1, "unchanged": 1, "deleted": 1}
    assert sorted(contents(run, catalog)) == ["a/1", "a/old", "b/old"]
    run("import", catalog, file, "--prefix=a/", "--delete-others")
    assert sorted(contents(run, catalog)) == ["a/1", "a/2", "b/old"]
    run("import", catalog, file, "--delete-others")
    assert sorted(contents(run, catalog)) == ["a/1", "a/2", "c"]
    empty = write_export(tmp_path / "empty.json", {})
    assert "--allow-empty" in run("import", catalog, empty, "--delete-others", code=1).error()
    run("import", catalog, empty, "--delete-others", "--allow-empty")
    assert contents(run, catalog) == {}


def test_nothing_is_deleted_if_the_import_is_incomplete(
    run: Commands, catalog: str, tmp_path: Path
) -> None:
    run("put", "-q", catalog, "other", "1")
    run("put", "-q", catalog, "a", "1")
    file = write_export(tmp_path / "in.json", {"a": 2})
    ran = run("import", catalog, file, "--delete-others", code=4)
    assert "nothing was deleted" in ran.stderr
    assert contents(run, catalog) == {"other": 1, "a": 1}


def test_a_document_changed_while_others_are_deleted_is_kept(catalog: str) -> None:
    there = {"key": "k", "etag": "1-aa", "revision": 1, "create_revision": 1, "value": 1}
    refused = {"status": 412, "code": "precondition_failed", "applied": "no", "retryable": False}

    def reply(asked: Asked) -> Reply:
        if asked.method == "GET":
            return 200, {"revision": 1, "documents": [there], "next": None}
        line = json.loads(asked.body)
        assert (line["op"], line["key"], line["if_match"]) == ("delete", "k", "1-aa")
        return 200, {"index": 0, "status": 412, "problem": refused}

    command = ("import", catalog, "-", "--delete-others", "--allow-empty")
    with Canned(reply) as canned:
        ran = Commands(canned.url)(*command, stdin='{"metadata": {}}', code=4)
    assert tally(ran) == {"conflicts": 1}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.json", "{", "truncated"),
        ("x.json", "[]", "array"),
        ("x.json", '{"a": 1}', "field `a`"),
        ("x.json", "{}", "metadata"),
        ("x.json", '{"metadata": {"": 1}}', "the key is empty"),
        ("x.json", '{"metadata": {"k": 1e400}}', "key 'k'"),
        ("x.ndjson", '{"key": "k", "value": 1}\nx', "line 2"),
        ("x.ndjson", '{"key": "k"}', "value"),
        ("x.ndjson", '{"key": "k", "value": 1, "more": 2}', "more"),
        ("x.ndjson", '{"key": "k", "value": 1}\n\n{"key": "k", "value": 2}', "line 3: the key 'k'"),
        ("x.ndjson", b'{"key": "k", "value": "\xff"}', "line 1"),
        ("x.json", '{"metadata": {"k": 1, "k": 2}}', "it has the member '/metadata/k' twice"),
        ("x.json", '{"metadata": {"k": {"a": 1, "a": 2}}}', "it has the member '/a' twice"),
        (
            "x.ndjson",
            '{"key": "k", "value": 1, "key": "l"}',
            "line 1: it has the member '/key' twice",
        ),
        ("x.ndjson", '{"key": "k", "value": 1, "attributes": {"a": 1, "a": 2}}', "'/attributes/a'"),
    ],
)
def test_a_malformed_file_changes_nothing(
    run: Commands, catalog: str, tmp_path: Path, name: str, text: str | bytes, said: str
) -> None:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    error = run("import", catalog, str(file), code=1).error()
    assert said in error
    assert str(file) in error
    run("get", catalog, code=3)


def test_lines_refused_by_the_gateway_are_named(
    run: Commands, catalog: str, tmp_path: Path
) -> None:
    lines = [
        {"key": "good", "value": 1},
        {"key": "k" * 1025, "value": 1},
        {"key": "nul", "value": {"a\0b": 1}},
        {"key": "nul too", "value": {"a\0b": 1}, "attributes": {"a": 1}},
    ]
    ran = run("import", catalog, write_lines(tmp_path / "in.jsonl", *lines), code=1)
    assert tally(ran) == {"written": 1, "refused": 3}
    assert "'nul': 422 unstorable_value" in ran.stderr
    assert "'nul too': 422 unstorable_value" in ran.stderr
    assert contents(run, catalog) == {"good": 1}


def test_documents_with_attributes_are_sent_in_bulk_too(
    run: Commands, catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transact(*_: Any, **__: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(Catalog, "transact", transact)
    entries = [{"key": f"k{n}", "value": n, "attributes": {"n": n}} for n in range(50)]
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    assert tally(run("import", catalog, "-", "--format=ndjson", stdin=lines)) == {"written": 50}
    assert run("get", catalog, "k7", "--attributes").json() == {"n": 7}
    assert tally(run("import", catalog, "-", "--format=ndjson", stdin=lines)) == {"unchanged": 50}


def test_standard_input_is_imported_in_several_requests(run: Commands, catalog: str) -> None:
    lines = "".join(json.dumps({"key": f"k{n}", "value": n}) + "\n" for n in range(1100))
    ran = run("import", catalog, "-", "--format=ndjson", stdin=lines)
    assert tally(ran) == {"written": 1100}
    assert len(run("get", catalog).lines()) == 1100


def test_an_import_without_a_gateway_reports_what_was_done(catalog: str, tmp_path: Path) -> None:
    file = write_export(tmp_path / "in.json", DOCUMENTS)
    ran = Commands("http://127.0.0.1:1")("import", catalog, file, "--timeout=0.1", code=6)
    assert ran.json()["complete"] is False
    assert "the same import again" in ran.stderr
