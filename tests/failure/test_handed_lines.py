"""Lines of bulk requests that a worker hands over to another one, which dies, stands still or ends.

Real workers and signals. What happens when is driven by what the streams were told.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any

import pytest

from tests.failure.clients import send
from tests.patience import WAIT_S
from tests.service import RunningGateway

pytestmark = pytest.mark.mongod

CATALOG = "lines"
STREAMS = 4
LINES = 30  # of a request
# A worker is left alone until so many more lines are done.
LINES_BETWEEN = STREAMS * LINES
TRIES = 40


class Stream(threading.Thread):
    """Appends numbers to a list, in order and each until it is told that it is there."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__()
        self.path = f"/v1/catalogs/{CATALOG}/documents/{number}"
        self.done = 0
        self.doubts = 0  # lines that a worker that lives knows nothing of
        self.refused: list[Any] = []
        self.is_over = False
        self._port = port
        self._number = number

    def run(self) -> None:
        while not self.is_over:
            answers: list[Any] = []
            with suppress(OSError, http.client.HTTPException, ValueError):
                answers = self._send(range(self.done, self.done + LINES))
            codes = [each.get("problem", {}).get("code") for each in answers]
            self.doubts += codes.count("outcome_unknown")
            known = (None, "outcome_unknown", "held_back", "deadline_exceeded")
            self.refused += [code for code in codes if code not in known]
            count = len(list(takewhile(lambda code: code is None, codes)))
            self.done += count
            self.refused += ["done behind one that may come again"] * codes[count:].count(None)

    def _send(self, numbers: range) -> list[Any]:
        """The answers, as far as they came."""
        lines = [
            {
                "catalog": CATALOG,
                "key": str(self._number),
                "op": "patch",
                "patch": [{"op": "add", "path": "/-", "value": number}],
                "idempotency_key": f"{self._number}.{number}",
            }
            for number in numbers
        ]
        body = "".join(json.dumps(line) + "\n" for line in lines)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=WAIT_S)
        try:
            headers = {"Content-Type": "application/x-ndjson"}
            connection.request("POST", "/v1/bulk", body, headers)
            return [json.loads(line) for line in connection.getresponse().read().splitlines()]
        finally:
            connection.close()


class Streams(list[Stream]):
    def total(self, name: str) -> int:
        return sum(getattr(each, name) for each in self)


@contextmanager
def streams(port: int) -> Any:
    """They run as long as the block; then each list has every number once, in order."""
    for number in range(STREAMS):
        path = f"/v1/catalogs/{CATALOG}/documents/{number}"
        assert send(port, "PUT", path, [], Content_Type="application/json")[0] == 201
    running = Streams(Stream(port, number) for number in range(STREAMS))
    for each in running:
        each.start()
    try:
        yield running
    finally:
        for each in running:
            each.is_over = True
        for each in running:
            each.join()
    for each in running:
        status, numbers = send(port, "GET", each.path)
        assert status == 200
        assert numbers[: each.done] == list(range(each.done))
        # The last request may have been broken off.
        assert numbers == list(range(len(numbers)))
        assert len(numbers) <= each.done + LINES


def the_one_it_is_handed_to(service: RunningGateway) -> int | None:
    """The one of the lower number, while there are two."""
    pids = service.worker_pids()
    return min(pids) if len(pids) == 2 else None


def test_lines_that_a_worker_is_killed_with_are_in_doubt_and_come_once(
    mongodb_uri: str, database_name: str, eventually: Callable[..., Any]
) -> None:
    with RunningGateway(mongodb_uri, database_name) as service, streams(service.port) as running:
        for _ in range(TRIES):
            progress(running, eventually)
            with suppress(ProcessLookupError):
                os.kill(eventually(lambda: the_one_it_is_handed_to(service)), signal.SIGKILL)
            progress(running, eventually)
            if running.total("doubts"):
                break
    assert running.total("doubts") > 0, "no lines were handed over: nothing was tested"
    assert not any(each.refused for each in running)


def test_lines_that_a_worker_stands_still_with_are_in_doubt_and_come_once(
    mongodb_uri: str, database_name: str, eventually: Callable[..., Any]
) -> None:
    """It wakes up and writes them, while they are sent again."""
    settings = {"deadline_ms": 500, "store_timeout_ms": 500}
    with (
        RunningGateway(mongodb_uri, database_name, **settings) as service,
        streams(service.port) as running,
    ):
        told_by_the_other = 0
        for _ in range(TRIES):
            progress(running, eventually)
            before = running.total("doubts")
            victim = eventually(lambda: the_one_it_is_handed_to(service))
            os.kill(victim, signal.SIGSTOP)
            # Longer than a line has time, and than is waited for its answer.
            until = time.monotonic() + 5
            try:
                eventually(
                    lambda before=before, until=until: (
                        running.total("doubts") > before or time.monotonic() > until
                    )
                )
                told_by_the_other = running.total("doubts") - before
            finally:
                os.kill(victim, signal.SIGCONT)
            progress(running, eventually)
            if told_by_the_other:
                break
    assert told_by_the_other > 0, "no lines were handed over: nothing was tested"


def test_a_worker_that_is_told_to_end_leaves_no_line_in_doubt(
    mongodb_uri: str, database_name: str, eventually: Callable[..., Any]
) -> None:
    with RunningGateway(mongodb_uri, database_name) as service, streams(service.port) as running:
        for _ in range(3):
            progress(running, eventually)
            with suppress(ProcessLookupError):
                os.kill(eventually(lambda: the_one_it_is_handed_to(service)), signal.SIGTERM)
            progress(running, eventually)
    assert running.total("doubts") == 0
    assert not any(each.refused for each in running)


def progress(running: Streams, eventually: Callable[..., Any]) -> None:
    """Wait until more lines are done."""
    enough = running.total("done") + LINES_BETWEEN
    eventually(lambda: running.total("done") >= enough)
