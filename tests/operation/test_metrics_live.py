"""What all workers did is counted once, whichever of them is asked, and outlives each of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gateway.metrics.definitions import METRICS
from tests.failure.clients import send
from tests.http.event_stream import EventStream
from tests.operation.conftest import scraped, value
from tests.service import RunningGateway

pytestmark = pytest.mark.mongod
Eventually = Callable[..., Any]
ROUTE = "/v1/catalogs/{catalog}/documents/{key}"


def put(service: RunningGateway, key: str, content: Any, catalog: str = "shop") -> None:
    path = f"/v1/catalogs/{catalog}/documents/{key}"
    status, answer = send(service.port, "PUT", path, content, Content_Type="application/json")
    assert status in (200, 201), answer


def files_of(service: RunningGateway) -> dict[str, int]:
    """Sizes of the files that its workers count in, by name."""
    for place in (Path("/dev/shm"), Path("/tmp")):
        for directory in place.glob("gateway-metrics-*"):
            opened = {each.path for each in psutil.Process(service.master_pid).open_files()}
            if str(directory / "owner") in opened:
                return {path.name: path.stat().st_size for path in directory.iterdir()}
    raise AssertionError("the service has no directory for its metrics")


def test_requests_and_writes_are_counted_by_route_and_outcome(
    service: RunningGateway, eventually: Eventually
) -> None:
    # The second worker may be on its way yet.
    eventually(lambda: value(scraped(service.url), "gateway_workers") == 2)
    before = scraped(service.url)
    for number in range(20):
        put(service, f"k{number}", {"n": number})
    put(service, "k0", {"n": 0})
    path = "/v1/catalogs/shop/documents/k0"
    patch = [{"op": "test", "path": "/n", "value": 1}]
    patch_type = {"Content_Type": "application/json-patch+json"}
    assert send(service.port, "PATCH", path, patch, **patch_type)[0] == 409
    stale = {"If_Match": '"1-00000000"', "Content_Type": "application/json"}
    assert send(service.port, "PUT", path, {}, **stale)[0] == 412
    after = scraped(service.url)

    def more(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    def all_is_written_out() -> bool:
        """Behind the answers; by moves of heads, as batches are counted."""
        nonlocal after
        after = scraped(service.url)
        return more("gateway_write_out_seconds_count") == more("gateway_batch_commits_count")

    eventually(all_is_written_out)

    assert more("gateway_request_seconds_count", route=ROUTE, method="PUT", status="2xx") == 21
    assert more("gateway_request_seconds_count", route=ROUTE, method="PUT", status="4xx") == 1
    assert more("gateway_writes_total", outcome="applied") == 20
    assert more("gateway_writes_total", outcome="unchanged") == 1
    assert more("gateway_writes_total", outcome="test_failed") == 1
    assert more("gateway_writes_total", outcome="precondition_failed") == 1
    assert more("gateway_problems_total", code="test_failed") == 1
    assert more("gateway_write_attempts_count") == 23
    assert more("gateway_queue_wait_seconds_count") == 23
    assert more("gateway_batch_commits_sum") == 20
    assert 0 < more("gateway_commit_seconds_count") <= 20
    assert more("gateway_store_seconds_count", operation="move_heads") >= 1
    assert value(after, "gateway_cache_bytes") > 0
    assert value(after, "gateway_worker_resident_bytes", worker="1") > 1_000_000


def test_every_series_is_in_the_table_and_no_label_comes_from_clients(
    service: RunningGateway,
) -> None:
    put(service, "secret-key", {}, catalog="secret-catalog")
    assert send(service.port, "GET", "/secret-route")[0] == 404
    assert send(service.port, "SECRETMETHOD", "/v1/catalogs")[0] in (404, 405)
    found = scraped(service.url)
    known = {
        name: {*metric.labels, *(["le"] if name.endswith("_bucket") else [])}
        for metric in METRICS
        for name in metric.series
    }
    for name, labels in found:
        assert name in known, name
        assert {label for label, _ in labels} == known[name], name
        assert not [text for _, text in labels if "secret" in text.lower()], name
    assert value(found, "gateway_request_seconds_count", method="other") >= 1
    assert value(found, "gateway_request_seconds_count", route="(none)") >= 2


def test_feeds_are_measured(service: RunningGateway, eventually: Eventually) -> None:
    put(service, "k", 0, catalog="feed")
    before = value(scraped(service.url), "gateway_feed_delay_seconds_count")
    with EventStream(service.port, "/v1/catalogs/feed/changes?after=1") as stream:
        eventually(lambda: value(scraped(service.url), "gateway_watchers") == 1)
        put(service, "k", 1, catalog="feed")
        assert next(event for event in stream if event.name == "commit")
        eventually(lambda: value(scraped(service.url), "gateway_feed_delay_seconds_count") > before)
        assert value(scraped(service.url), "gateway_feed_lag_commits") == 0
    eventually(lambda: value(scraped(service.url), "gateway_watchers") == 0)


def test_a_killed_worker_leaves_its_counts_and_its_slot(
    service: RunningGateway, eventually: Eventually
) -> None:
    def written() -> float:
        return value(scraped(service.url), "gateway_writes_total", outcome="applied")

    def started() -> float:
        return value(scraped(service.url), "gateway_worker_starts_total")

    def running() -> bool:
        # Just killed, it may yet be the one that a connection is handed to.
        try:
            found = scraped(service.url)
        except OSError:
            return False
        return value(found, "gateway_workers") == 2

    before, files, starts = written(), files_of(service), started()
    for _ in range(3):
        put(service, "mortal", os.urandom(8).hex())
        known = set(service.worker_pids())
        os.kill(service.worker_pids()[0], signal.SIGKILL)
        eventually(lambda known=known: len(set(service.worker_pids()) - known) == 1)
        eventually(running)
    eventually(lambda: started() == starts + 3)
    assert written() == before + 3
    # The same files: a worker that replaces another goes on with those.
    assert files_of(service).keys() == files.keys()
    assert sum(files_of(service).values()) < 4_000_000


def test_the_directory_is_removed_with_the_service(mongodb_uri: str, database_name: str) -> None:
    def directories() -> set[Path]:
        places = (Path("/dev/shm"), Path("/tmp"))
        return {found for place in places for found in place.glob("gateway-metrics-*")}

    with RunningGateway(mongodb_uri, database_name, workers=1) as service:
        (mine,) = (
            Path(each.path).parent
            for each in psutil.Process(service.master_pid).open_files()
            if each.path.endswith("/owner")
        )
        assert mine.stat().st_mode & 0o777 == 0o700
        scraped(service.url)
    assert mine not in directories()


def test_the_types_are_those_of_the_table(
    service: RunningGateway, eventually: Callable[..., Any]
) -> None:
    names = {name for metric in METRICS if not metric.labels for name in metric.series}

    def all_are_there() -> bool:  # some are counted beside the requests, from time to time
        return names <= {name for name, _ in scraped(service.url)}

    eventually(all_are_there)
    counters = [metric.name for metric in METRICS if metric.kind == "counter"]
    assert {name.rpartition("_")[2] for name in counters} == {"total"}
