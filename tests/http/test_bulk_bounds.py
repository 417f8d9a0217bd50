"""Bulk requests that would shut others out or fill the disk: what bounds each, over the wire."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.http.test_bulk_live import GONE, Client, connected, put
from tests.patience import WAIT_S
from tests.service import RunningGateway

Eventually = Callable[..., Any]
MIB = 1024 * 1024
REFUSALS_MAX = 300
STALL_S = 2
# Answered by two kilobytes, and by nothing that takes long.
LONG_ANSWER = json.dumps({"op": "delete", "x" * 1500: 1}).encode() + b"\n"
SHORT = b"1\n"


@pytest.fixture(scope="module")
def gateway(mongodb_uri: str) -> Iterator[RunningGateway]:
    settings: dict[str, Any] = {
        "workers": 1,
        "bulk_requests_max": 4,
        "bulk_answers_bytes_max": 8 * MIB,
        "bulk_refused_lines_max": REFUSALS_MAX,
        "send_stall_s": STALL_S,
    }
    with RunningGateway(mongodb_uri, f"test_bulk_bounds_{os.getpid()}", **settings) as running:
        yield running


def on_disk_bytes(gateway: RunningGateway) -> int:
    """Of the worker's files that have no name, as spools are, and the log of a test."""
    (worker,) = gateway.worker_pids()
    size = 0
    for name in set(os.listdir(f"/proc/{worker}/fd")) - {"0", "1", "2"}:
        try:
            found = os.stat(f"/proc/{worker}/fd/{name}")
        except OSError:  # closed meanwhile
            continue
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
            size += found.st_size
    return size


def flood(client: Client, piece: bytes, pieces: int) -> None:
    """Send, without reading, until everything is sent or the server takes no more."""
    client.socket.settimeout(STALL_S / 4)
    try:
        client.begin()
        for _ in range(pieces):
            client.chunk(piece)
    except OSError:
        pass
    client.socket.settimeout(WAIT_S)


def admitted(gateway: RunningGateway) -> bool:
    with connected(gateway) as client:
        line = put(1)
        client.begin(length=len(line))
        client.socket.sendall(line)
        client.response.begin()
        return client.response.status == 200


def test_too_many_refused_lines_in_a_row_end_the_request(gateway: RunningGateway) -> None:
    """However many are sent: each takes two bytes, and hundreds to answer."""
    with connected(gateway) as client:
        flood(client, SHORT * 1000, 20)
        *refused, last = client.answers()
    assert {line["status"] for line in refused} == {400}
    assert len(refused) == REFUSALS_MAX
    assert (last["status"], last["index"]) == (400, REFUSALS_MAX)
    assert last["problem"]["code"] == "too_many_refused"
    assert (last["problem"]["applied"], last["problem"]["retryable"]) == ("no", False)
    assert "bulk_refused_lines_max" in last["problem"]["detail"]


def test_too_many_blank_lines_in_a_row_end_the_request(gateway: RunningGateway) -> None:
    """Whatever a blank line looks like, and wherever the body is cut into pieces."""
    for blank in (b"\n", b" \r\n"):
        with connected(gateway) as client:
            flood(client, put(1) + blank * 5_000, 1)
            client.socket.settimeout(WAIT_S)
            first, last = client.answers()
        assert first["status"] in (200, 201)
        assert (last["index"], last["problem"]["code"]) == (1, "too_many_refused")


def test_blank_lines_between_others_do_not_end_the_request(gateway: RunningGateway) -> None:
    piece = b"\n" * (REFUSALS_MAX - 1) + put(1)
    with connected(gateway) as client:
        client.begin()
        for _ in range(3):
            client.chunk(piece)
        client.chunk(b"\n" * (REFUSALS_MAX - 1))
        client.end()
        statuses = [line["status"] for line in client.answers()]
    assert len(statuses) == 3


def test_refused_lines_between_others_do_not_end_the_request(gateway: RunningGateway) -> None:
    piece = SHORT * (REFUSALS_MAX - 1) + put(1)
    with connected(gateway) as client:
        client.begin()
        for _ in range(3):
            client.chunk(piece)
        client.chunk(SHORT * REFUSALS_MAX)
        client.end()
        statuses = [line["status"] for line in client.answers()]
    assert len(statuses) == 4 * REFUSALS_MAX
    assert [status for status in statuses if status != 400][1:] == [200, 200]


def test_a_client_that_reads_no_answers_is_cut_off_and_frees_its_seat(
    gateway: RunningGateway, eventually: Eventually
) -> None:
    piece = (LONG_ANSWER * (REFUSALS_MAX - 1) + put(1, dry_run=True)) * 2
    with ExitStack() as stack:
        for _ in range(4):
            flood(stack.enter_context(connected(gateway, receive_bytes=4096)), piece, 40)
        eventually(lambda: admitted(gateway))
        # Its spool is gone with it.
        eventually(lambda: on_disk_bytes(gateway) == 0)


def test_a_client_that_sends_slowly_and_reads_late_is_not_cut_off(
    gateway: RunningGateway, eventually: Eventually
) -> None:
    """It takes nothing for longer than the limit, but what it sends shows that it is there. Where
    this machine sends nothing for as long, it gets another chance."""
    piece = LONG_ANSWER * (REFUSALS_MAX - 1) + put(1, dry_run=True)
    more = 2 * STALL_S * 4

    def is_answered() -> bool:
        with suppress(*GONE), connected(gateway, receive_bytes=4096) as client:
            client.begin()
            for _ in range(8):
                client.chunk(piece)
            for _ in range(more):
                client.chunk(put(1, dry_run=True))
                time.sleep(0.25)
            client.end()
            return len(list(client.answers())) == 8 * REFUSALS_MAX + more
        return False

    eventually(is_answered)


def test_waiting_answers_of_all_requests_share_one_budget(gateway: RunningGateway) -> None:
    """Four that don't read took four times as much."""
    piece = (LONG_ANSWER * (REFUSALS_MAX - 1) + put(1, dry_run=True)) * 2
    most = 0
    with ExitStack() as stack:
        for _ in range(4):
            flood(stack.enter_context(connected(gateway, receive_bytes=4096)), piece, 12)
            most = max(most, on_disk_bytes(gateway))
    # One window of answers more for each, which may have been written to an empty spool.
    assert 0 < most <= 8 * MIB + 4 * 2 * MIB
