"""Writes one by one and in bulk, to a real gateway whose workers are killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from patching.client import BulkAnswer, BulkLine, BulkTerms, Gateway, RequestError, Retry
from patching.client.bulk_writer import BulkWriter
from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport
from tests.patience import WAIT_S
from tests.service import RunningGateway

_COUNT = 1500


@pytest.fixture
def gateway(mongodb_uri: str, database_name: str) -> Iterator[RunningGateway]:
    with RunningGateway(mongodb_uri, database_name) as running:
        yield running


@pytest.fixture
def transport(gateway: RunningGateway) -> Iterator[Transport]:
    with Transport(gateway.url) as opened:
        opened.request("PUT", "/v1/catalogs/c/documents/k", json={"log": []})
        yield opened


def lines(count: int) -> list[BulkLine]:
    """Each appends its number, under a key of its own."""

    def text(number: int) -> bytes:
        operation = {"op": "add", "path": "/log/-", "value": number}
        asked = {"catalog": "c", "key": "k", "op": "patch", "patch": [operation]}
        return json.dumps({**asked, "idempotency_key": f"key-{number}"}).encode()

    return [BulkLine(text(number), keyed=True) for number in range(count)]


def log(transport: Transport) -> Any:
    return transport.request("GET", "/v1/catalogs/c/documents/k").json()["log"]


def kill_all(gateway: RunningGateway) -> None:
    for pid in gateway.worker_pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_workers(gateway: RunningGateway, transport: Transport, done: threading.Event) -> None:
    """All that there are, as soon as so many lines were applied."""
    for count in (110, 530, 1010):
        reached = False
        while not reached and not done.is_set():
            with suppress(RequestError):
                reached = CatalogRoutes(transport, "c").read().revision > count
        if reached:
            kill_all(gateway)


def test_each_line_is_applied_once_and_in_order_while_workers_are_killed(
    gateway: RunningGateway, transport: Transport
) -> None:
    done = threading.Event()
    killing = threading.Thread(target=kill_workers, args=(gateway, transport, done))
    killing.start()
    try:
        answered = list(BulkWriter(transport, BulkTerms(lines_max=50)).write(lines(_COUNT)))
    finally:
        done.set()
        killing.join()
    assert [answer.decided for answer in answered] == [True] * _COUNT
    assert all(answer.changed for answer in answered)
    assert any(answer.sends > 1 for answer in answered)
    assert log(transport) == list(range(_COUNT))


def test_two_writers_of_the_same_lines_both_learn_that_they_are_applied(
    transport: Transport,
) -> None:
    found: list[list[BulkAnswer]] = []
    barrier = threading.Barrier(2)

    def write() -> None:
        barrier.wait()
        found.append(list(BulkWriter(transport, BulkTerms(lines_max=100)).write(lines(500))))

    writers = [threading.Thread(target=write) for _ in range(2)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert all(answer.changed for answers in found for answer in answers)
    assert sum(answer.replayed for answers in found for answer in answers) == 500
    assert log(transport) == list(range(500))


def test_writes_survive_the_death_of_a_worker(
    gateway: RunningGateway, transport: Transport, eventually: Callable[..., Any]
) -> None:
    """None is lost, none is done twice, whatever the connection was doing."""
    done = threading.Event()
    with Gateway(gateway.url, timeout_s=WAIT_S, retry=Retry(retries_max=None)) as client:
        catalog = client.catalog("c")

        def append() -> None:
            try:
                for number in range(60):
                    catalog.patch("k", [{"op": "add", "path": "/log/-", "value": number}])
            finally:
                done.set()

        writer = threading.Thread(target=append)
        writer.start()
        eventually(lambda: catalog.read().revision > 20 or done.is_set())
        kill_all(gateway)
        writer.join()
        assert log(transport) == list(range(60))
        assert catalog.read().revision == 61
