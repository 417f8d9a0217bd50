"""A write-out is for no more than a call of the store can well be for, and less after a failure. No
failure ends a writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from gateway.decide.edits import KeyEdit
from gateway.limits import ServiceLimits
from gateway.meters import Meters
from gateway.model import ChangeRecord, CommitRecord, DocumentRecord, HeadMove
from gateway.runtime import ThreadRuntime, moment
from gateway.state import write_out
from gateway.state.cache import Cache
from gateway.state.write_out import WriteOut
from gateway.store.contract import StoreUnreachable
from tests.memory_store import MemoryStore
from tests.retention.history_checks import findings, wait_until_written
from tests.state.sleeping import gateway_on
from tests.without_http import SetClock, applied, commit_each, put

ID = "0" * 32


def waiting(clock: ThreadRuntime, commit_bytes: int, document_bytes: int) -> WriteOut:
    """A move of each of the catalogs a to g is to be written out."""
    waits = WriteOut(MemoryStore(), Cache(clock, ServiceLimits()), clock, ServiceLimits())
    for name in "abcdefg":
        change = ChangeRecord("k", "put", 1, value="x")
        commit = CommitRecord(
            name, 1, 1, ID, "a", None, None, 1, (change,), size_bytes=commit_bytes
        )
        document = DocumentRecord("k", "x", 1, 1, ID, 1, size_bytes=document_bytes)
        waits.add(moment(clock), HeadMove(name, 0, (commit,), 0), documents={"k": document})
    return waits


@pytest.mark.parametrize(
    ("commit_bytes", "document_bytes", "taken"),
    [
        (1, 1, ["abc", "def", "g"]),
        (60, 1, ["ab", "cd", "ef", "g"]),
        (1, 60, ["ab", "cd", "ef", "g"]),
        (1_000, 1, list("abcdefg")),
    ],
)
def test_a_write_out_is_bounded_in_catalogs_and_bytes(
    monkeypatch: pytest.MonkeyPatch, commit_bytes: int, document_bytes: int, taken: list[str]
) -> None:
    """What is left is taken next, in the order that it came."""
    monkeypatch.setattr(write_out, "_CATALOGS_MAX", 3)
    monkeypatch.setattr(write_out, "_BYTES_MAX", 100)
    clock = SetClock()
    waits = waiting(clock, commit_bytes, document_bytes)
    clock.passed_s += 1.0
    found = []
    while waits._line.later:
        found.append("".join(waits._take(waits._line, clock.event())[0]))
    assert found == taken


class Slow(MemoryStore):
    """No call with more than two commits ends in time."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[int] = []

    def write_commits(self, commits: object) -> None:
        assert isinstance(commits, list)
        self.sent.append(len(commits))
        if len(commits) > 2:
            raise StoreUnreachable("it took too long")
        super().write_commits(commits)


def test_a_failed_write_out_of_one_catalog_is_retried_with_half_of_its_commits() -> None:
    store = Slow()
    gateway = gateway_on(store)
    requests = [gateway.request("c", [KeyEdit(f"k{n}", put(n))]) for n in range(8)]
    for written in commit_each(gateway, requests):
        applied(written.outcome)
    wait_until_written(gateway)
    assert store.sent[:3] == [8, 4, 2]
    assert [each.revision for each in store.commits({"c": (0, 9)})["c"]] == list(range(1, 9))
    assert findings(store, "c") == []


class Threadless(SetClock):
    def spawn(self, run: Callable[[], None], name: str) -> None:
        """The test runs the writers itself."""


def test_a_damaged_tail_of_others_is_tried_less_and_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In between, its makers get their time again, as they may be the ones that can write it out.
    The log names `gateway verify`, without a traceback for each try."""
    clock, store = Threadless(), MemoryStore()
    waits = WriteOut(store, Cache(clock, ServiceLimits()), clock, ServiceLimits())
    change = ChangeRecord("gone", "patch", 1, patch=[])
    commits = [
        CommitRecord("c", revision, 1, f"{revision:032}", "a", None, None, 1, (change,))
        for revision in (1, 2, 3)
    ]
    store.move_heads([HeadMove("c", 0, tuple(commits), 0)])
    waits.add(moment(clock), HeadMove("c", 2, (commits[2],), 1), [commits[1]])
    for _ in range(9):
        clock.passed_s += 60.0
        for line in (waits._line, waits._apart):
            if tails := waits._due(line, clock.monotonic()):
                waits._write(tails)
                waits._let_go(tails, None)
    assert waits._outstanding["c"].failures == 4
    failed = [each for each in caplog.records if each.levelname == "ERROR"]
    assert len(failed) == 4
    assert all("gateway verify" in each.message and not each.exc_info for each in failed)


class Broken(Meters):
    """Fails once for each writer."""

    def __init__(self) -> None:
        self.failures_left = write_out._WRITERS

    def written_out(self, moves: Sequence[float]) -> None:
        super().written_out(moves)
        if self.failures_left:
            self.failures_left -= 1
            raise ValueError("a defect")


def test_a_writer_survives_a_defect_after_its_write_out() -> None:
    meters = Broken()
    gateway = gateway_on(MemoryStore(), meters=meters)
    for n in range(write_out._WRITERS + 1):
        gateway.write(f"c{n}", "k", put(n))
        wait_until_written(gateway, f"c{n}")
    assert meters.failures_left == 0
