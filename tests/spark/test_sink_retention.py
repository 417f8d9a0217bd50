"""A job or micro-batch that is older than the keys of its rows fails, and applies nothing again.

The session runs against a gateway in this process, whose clock is moved on.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.serving import make_server

from gateway.http.app import create_app
from gateway.limits import ServiceLimits
from gateway.service import GatewayService
from patching.client.transport import Transport
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS, WAIT_S
from tests.spark.written import Written
from tests.without_http import SetClock

DAY_S = 24 * 3600
TOO_OLD = "was begun more than 604800 seconds ago"
Rows = list[tuple[str, str]]


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def old(clock: SetClock) -> Iterator[Written]:
    """A catalog of a gateway that keeps keys as long as any does by default."""
    app = create_app(GatewayService(MemoryStore(), clock, ServiceLimits(deadline_ms=WAIT_MS)))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        with Transport(url) as transport:
            yield Written(url, "c", transport)
    finally:
        server.shutdown()
        serving.join(WAIT_S)
        server.server_close()


def appending(*numbers: int, broken: bool = False) -> Rows:
    patches = [json.dumps([{"op": "add", "path": "/log/-", "value": n}]) for n in numbers]
    return [("k", patch) for patch in [*patches, *["{"] * broken]]


def test_a_version_older_than_its_keys_fails_and_a_finished_one_is_skipped(
    frame: Callable[..., Any], spark: Any, old: Written, clock: SetClock, tmp_path: Path
) -> None:
    def log() -> list[int]:
        return list(old.routes.export().documents["k"]["log"])

    def write(rows: Rows, version: int, application: str = "nightly", **options: str) -> None:
        asked = {"url": old.url, "catalog": "c", "txnAppId": application, "txnVersion": version}
        made = frame(rows, "key string, patch string").coalesce(1)
        made.write.format("metadata").mode("append").options(**asked, **options).save()

    old.put("k", {"log": []})
    for application, numbers in (("nightly", (1, 2)), ("weekly", (3, 4))):
        with pytest.raises(Exception, match="it isn't JSON"):
            write(appending(*numbers, broken=True), 7, application)
    query_stops_in_a_batch(spark, old, tmp_path)
    assert log() == [1, 2, 3, 4, 5, 6]

    clock.passed_s = 7 * DAY_S - 3600
    write(appending(3, 4, -4), 7, "weekly")
    assert log() == [1, 2, 3, 4, 5, 6, -4], "so long it goes on"
    clock.passed_s = 7 * DAY_S + 1
    with pytest.raises(Exception, match=TOO_OLD) as failed:
        write(appending(1, 2, -2), 7)
    assert "begin another version with what is missing" in str(failed.value)
    query_is_too_old(spark, old, tmp_path)
    assert log() == [1, 2, 3, 4, 5, 6, -4], "nothing was applied again, nor the rest"

    write(appending(-2), 8)
    clock.passed_s = 400 * DAY_S
    for application, version in (("weekly", 7), ("nightly", 8), ("nightly", 7)):
        reports = tmp_path / f"{application}-{version}"
        write(appending(8, 9), version, application, reportPath=str(reports))
        (report,) = [json.loads(path.read_text()) for path in reports.iterdir()]
        assert (report["applied"], report["finished_before"]) == (0, ["c"])
    assert log() == [1, 2, 3, 4, 5, 6, -4, -2]
    query_skips_a_resolved_batch(spark, old, tmp_path)
    assert log() == [1, 2, 3, 4, 5, 6, -4, -2, 11]


def query_stops_in_a_batch(spark: Any, old: Written, folder: Path) -> None:
    (folder / "rows").mkdir()
    _fill(folder, "0.json", appending(5, 6, broken=True))
    with pytest.raises(Exception, match="it isn't JSON"):
        _run(spark, old, folder)


def query_is_too_old(spark: Any, old: Written, folder: Path) -> None:
    _fill(folder, "0.json", appending(5, 6, -6))
    with pytest.raises(Exception, match=TOO_OLD):
        _run(spark, old, folder)


def query_skips_a_resolved_batch(spark: Any, old: Written, folder: Path) -> None:
    path = f"{old.path}/applications"
    found = old.transport.request("GET", path).json()["applications"]
    (query,) = [each for each in found if each["application"].startswith("spark-query-")]
    asked = {"version": query["version"], "finished": True}
    old.transport.request("PUT", f"{path}/{query['application']}", json=asked)
    _fill(folder, "1.json", appending(11))
    _run(spark, old, folder)


def _fill(folder: Path, name: str, rows: Rows) -> None:
    lines = [json.dumps({"key": key, "patch": patch}) for key, patch in rows]
    (folder / "rows" / name).write_text("\n".join(lines))


def _run(spark: Any, old: Written, folder: Path) -> None:
    """The query, from its checkpoint."""
    source = spark.readStream.schema("key string, patch string").option("maxFilesPerTrigger", 1)
    writer = source.json(str(folder / "rows")).writeStream.format("metadata")
    writer = writer.option("url", old.url).option("catalog", "c")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)
