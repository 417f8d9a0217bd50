"""A job lets itself in at a gateway with access control and TLS, the next of two where one is gone.

One whose token isn't taken fails, and says which option is at fault; no row is skipped. A named job
that broke off may go on under the accounts that share it, and no others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.access.principal import parse_grant
from gateway.store.mongodb import connect
from gateway.tokens.issued import Tokens
from patching.client.routes import CatalogRoutes
from patching.spark.options import WRITE, Options
from patching.spark.version_steps import (
    Version,
    VersionRefused,
    applications,
    finish,
    give_up,
    is_there,
)
from tests.access.certificates import Authority
from tests.patience import WAIT_MS
from tests.ports import refusing_url
from tests.service import RunningGateway

EXPIRED_S = 3600


@pytest.fixture
def closed(mongodb_uri: str, database_name: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options of a gateway that wants tokens and certificates, behind one that is gone."""
    authority = Authority(tmp_path, "authority")
    server, client = authority.sign("server"), authority.sign("client")
    settings: dict[str, Any] = {
        "access": True,
        "tls_certificate": server.certificate,
        "tls_key": server.key,
        "tls_client_ca": authority.certificate,
    }
    with RunningGateway(mongodb_uri, database_name, **settings) as running:
        yield {
            "url": f"{refusing_url('https')},{running.url}",
            "caFile": str(authority.certificate),
            "certificateFile": str(client.certificate),
            "keyFile": str(client.key),
        }


@pytest.fixture
def issue(mongodb_uri: str, database_name: str) -> Iterator[Callable[..., str]]:
    """`issue(age_s, *grants, name=…)`: a token that was made so long ago, for an hour."""
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)

    def make(age_s: int, *grants: str, name: str = "job") -> str:
        made_us = time.time_ns() // 1000 - age_s * 1_000_000
        tokens = Tokens(store.tokens(), now_us=lambda: made_us)
        return tokens.issue(name, [parse_grant(each) for each in grants], EXPIRED_S).text

    yield make
    store.close()


@pytest.mark.usefixtures("small_batches")
def test_jobs_authenticate_over_tls_with_tokens(
    spark: Any, closed: dict[str, str], issue: Callable[..., str], tmp_path: Path
) -> None:
    """One gateway for all of it."""
    the_error_names_the_token_option(spark, closed, issue, tmp_path)
    forbidden_rows_are_not_skipped(spark, closed, issue)
    a_job_continues_under_another_account(spark, closed, issue, tmp_path)


def the_error_names_the_token_option(
    spark: Any, closed: dict[str, str], issue: Callable[..., str], tmp_path: Path
) -> None:
    """A token that expired."""
    good, expired = (issue(age_s, "write:c") for age_s in (0, EXPIRED_S + 1))
    rows = spark.createDataFrame([("k", "1")], "key string, document string")
    asked = {**closed, "catalog": "c"}
    file = tmp_path / "token"
    file.write_text(expired)

    def write(**options: str) -> None:
        rows.write.format("metadata").mode("append").options(**asked, **options).save()

    def read(**options: str) -> int:
        return int(spark.read.format("metadata").options(**asked, **options).load().count())

    for use, options in (
        (write, {"token": expired, "onError": "skip"}),  # of no row, but of all
        (read, {"tokenFile": str(file)}),
    ):
        with pytest.raises(Exception, match=r"401 unauthenticated: the token expired") as failed:
            use(**options)
        assert "(option 'token' or 'tokenFile')" in str(failed.value)
        assert expired not in str(failed.value)
    refused = Options.parse({**asked, "token": expired}, WRITE)
    with pytest.raises(VersionRefused, match="401 unauthenticated"):
        finish(refused, Version("nightly", 7), {"c": None})  # though all its rows were refused
    file.write_text(good)
    write(tokenFile=str(file))
    assert read(tokenFile=str(file)) == 1


def forbidden_rows_are_not_skipped(
    spark: Any, closed: dict[str, str], issue: Callable[..., str]
) -> None:
    """A job whose principal may only read fails, also one that skips what is refused; and a sync,
    which otherwise counts that."""
    from patching.spark.sync import sync

    rows = spark.createDataFrame([("k", "2"), ("l", "2")], "key string, document string")
    asked = {**closed, "token": issue(0, "read:c", name="reader")}

    def write() -> None:
        writer = rows.write.format("metadata").mode("append")
        writer.options(**asked, catalog="c", onError="skip").save()

    options = {name: value for name, value in asked.items() if name != "url"}
    for job in (write, lambda: sync(rows, "c", url=asked["url"], options=options)):
        with pytest.raises(Exception, match=r"403 forbidden: the line needs the role 'wri"):
            job()


def a_job_continues_under_another_account(
    spark: Any, closed: dict[str, str], issue: Callable[..., str], tmp_path: Path
) -> None:
    """The first start's processes died in the middle of a batch. The next start is on a cluster of
    another size, with another message, and its rows come in another order and spelling: each row is
    still one commit. A principal that doesn't share the job can't continue it."""
    tokens = {name: issue(0, "write:jobs", name=name) for name in ("ann", "bob", "mallory")}
    numbers = range(60)

    def write(name: str, rows: Any, partitions: int, dies: Any = None, **options: Any) -> None:
        frame = spark.createDataFrame(rows, "key string, patch string")
        frame = frame.repartition(partitions, "key").sortWithinPartitions("key", "patch")
        if dies is not None:
            frame = frame.mapInArrow(dies, frame.schema)
        asked = {**closed, "catalog": "jobs", "token": tokens[name], "batchSize": 5}
        asked |= {"txnAppId": "nightly", "txnVersion": 7, **options}
        frame.write.format("metadata").mode("append").options(**asked).save()

    def patches(spelled: str) -> list[tuple[str, str]]:
        operation = '[{"op": "add", "path": "/log/-", "value": %s}]'
        return [(f"k{n % 3}", operation % (spelled % n)) for n in numbers]

    asked = {**closed, "catalog": "jobs", "token": tokens["ann"]}
    with Options.parse(asked, WRITE).open_transport() as transport:
        routes = CatalogRoutes(transport, "jobs")
        routes.transact(
            [], [{"action": "put", "key": f"k{n}", "value": {"log": []}} for n in range(3)]
        )

        def logs() -> dict[str, list[int]]:
            return {key: value["log"] for key, value in routes.export().documents.items()}

        ann, bob = {"txnPrincipals": "bob"}, {"txnPrincipals": "ann", "message": "of bob"}
        with pytest.raises(Exception, match="Python worker"):
            write("ann", patches("1%02d"), 3, dying_when_some_are_applied(asked), **ann)
        assert 0 < sum(map(len, logs().values())) < 60
        with pytest.raises(
            Exception, match=r"403 forbidden: .* shared by 'ann', 'bob', not by 'mall"
        ):
            write("mallory", patches("1%02d"), 2)
        reports = tmp_path / "reports"
        write("bob", list(reversed(patches("1%02d.0"))), 2, **bob, reportPath=str(reports))
        expected = {f"k{n}": [100 + each for each in numbers if each % 3 == n] for n in range(3)}
        assert logs() == expected
        write("ann", patches("9%02d"), 4, **ann)
        assert logs() == expected, "it was finished"
        elsewhere = Options.parse({**asked, "catalog": "elsewhere"}, WRITE)
        assert not is_there(elsewhere, "elsewhere"), "ann may not know"
        give_up(elsewhere, Version("late", 3, open=True), {"jobs": False}, "elsewhere")
        (late,) = [each for each in applications(elsewhere, "jobs") if each["open"]]
        assert (late["application"], late["finished"]) == ("late", 3)
        finish(elsewhere, Version("nightly", 7), {"jobs": True, "elsewhere": None})

        (report,) = [json.loads(path.read_text()) for path in reports.iterdir()]
        commits = transport.request("GET", "/v1/catalogs/jobs/commits?limit=1000").json()["commits"]
        made = [each["author"] for each in commits if each["changes"]]
        assert len(made) == 1 + len(numbers)
        assert report["applied"] == len(numbers)
        assert 0 < report["replayed"] == made.count("ann") - 1 < len(numbers)


def dying_when_some_are_applied(asked: dict[str, str]) -> Callable[[Any], Any]:
    """For `mapInArrow`: the session's workers die, all of them and in each attempt, where half of a
    partition's rows were passed on and a request of them was applied."""

    def run(batches: Any) -> Any:
        import os

        import psutil
        import pyarrow as pa

        rows = [row for batch in batches for row in batch.to_pylist()]
        for row in rows[: len(rows) // 2]:
            # So large that Spark's buffers pass it on at once.
            yield pa.RecordBatch.from_pylist([{**row, "patch": row["patch"] + " " * 70_000}])
        with Options.parse(asked, WRITE).open_transport() as transport:
            routes = CatalogRoutes(transport, asked["catalog"])
            while rows and not any(each["log"] for each in routes.export().documents.values()):
                pass
        workers = psutil.Process(os.getppid()).children() if rows else []
        for worker in sorted(workers, key=lambda each: each.pid == os.getpid()):
            worker.kill()

    return run
