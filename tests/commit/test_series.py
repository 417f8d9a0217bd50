"""Requests that come window by window, the next one while the last one is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import cast

import pytest

from gateway.commit import series as series_module
from gateway.commit.series import Series
from gateway.decide.edits import KeyEdit
from gateway.decide.request import Outcome, Request, Unknown
from gateway.errors import HeldBack, StoreUnavailable
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from tests.forced_outcomes import force_outcomes
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS, WAIT_S
from tests.without_http import WatchedStore, applied, content_of, once, put, refused


class Held:
    """A gateway whose first move waits for ``go``, with a series of ann's."""

    def __init__(self, **limits: int) -> None:
        self.moves, self.go = threading.Event(), threading.Event()
        self.store = WatchedStore(cast(Store, MemoryStore()))
        self.store.before["move_heads"] = once(self._hold)
        limits = {"deadline_ms": WAIT_MS, "leaders": 1} | limits
        self.gateway = GatewayService(
            cast(Store, self.store), ThreadRuntime(), ServiceLimits(**limits)
        )
        self.series = self.gateway.series("ann")

    def _hold(self) -> None:
        self.moves.set()
        assert self.go.wait(WAIT_S)

    def asked(self, keys: Sequence[str], first: int = 0) -> list[Request]:
        return [
            self.gateway.request("c", (KeyEdit(key, put(n)),)) for n, key in enumerate(keys, first)
        ]


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.go.set()
    made.series.close()


def taken(series: Series) -> list[Outcome]:
    return [each.outcome for each in series.take()]


def test_the_next_window_waits_in_the_queue_while_one_is_moved(held: Held) -> None:
    """And is decided behind it: a document has what came last."""
    assert held.series.put(held.asked("kl"))
    assert held.moves.wait(WAIT_S)
    assert held.series.put(held.asked("kk", 2))
    assert held.gateway.readings().queue_requests == 4
    assert not held.series.is_answered(unless=lambda: True)
    held.go.set()
    for _ in range(2):
        for outcome in taken(held.series):
            applied(outcome)
    assert content_of(held.gateway) == 3
    assert held.gateway.readings().queue_requests == 0


def test_a_line_refused_for_the_moment_holds_back_its_document_in_queued_windows(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in later windows; other documents are written."""
    failing = {"k": "away"}
    force_outcomes(monkeypatch, lambda request: failing.pop(request.key, "done"))
    held.series.put(held.asked("f"))
    assert held.moves.wait(WAIT_S)
    held.series.put(held.asked("kl", 1))
    held.series.put(held.asked("kl", 3))
    held.go.set()
    assert [type(outcome).__name__ for outcome in taken(held.series)] == ["Applied"]
    for error in (StoreUnavailable, HeldBack):
        first, other = taken(held.series)
        refused(first, error)
        applied(other)
    held.series.put(held.asked("lk", 5))
    other, again = taken(held.series)
    applied(other)
    refused(again, HeldBack)
    assert held.gateway.read("c", "k").document is None


def test_a_done_request_after_one_in_doubt_is_in_doubt_too(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulation seed 21000383: of two requests in one window, the second was reported as done,
    while the first, in doubt, was sent again after it. The same can happen in the next window;
    after that, none is done."""
    lost = {0: "lost"}
    force_outcomes(
        monkeypatch, lambda request: lost.pop(0, "done") if request.key == "k" else "done"
    )
    held.series.put(held.asked("kkjk"))
    assert held.moves.wait(WAIT_S)
    held.series.put(held.asked("jk", 4))
    held.go.set()
    told = [type(outcome).__name__ for _ in range(2) for outcome in taken(held.series)]
    assert told == ["Unknown", "Unknown", "Applied", "Unknown", "Applied", "Unknown"]
    held.series.put(held.asked("k"))
    refused(taken(held.series)[0], HeldBack)


def test_a_held_back_catalog_or_too_many_held_back_documents_hold_back_everything(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.go.set()
    held.series.hold_back("c")
    other = held.gateway.request("d", (KeyEdit("k", put(1)),))
    held.series.put([*held.asked("k"), other])
    first, second = taken(held.series)
    refused(first, HeldBack)
    applied(second)
    monkeypatch.setattr(series_module, "_HELD_BACK_MAX", 1)
    held.series.put([other])
    refused(taken(held.series)[0], HeldBack)


def test_a_series_with_a_window_under_way_does_not_wait_for_another_callers_turn(
    held: Held,
) -> None:
    """Who has the turn may wait for the room that it holds."""
    held.series.put(held.asked("k"))
    assert held.moves.wait(WAIT_S)
    with held.gateway._loop._callers.turn("bob"):
        assert not held.series.put(held.asked("l"))
        held.go.set()
        applied(taken(held.series)[0])
    assert held.series.put(held.asked("l"))
    applied(taken(held.series)[0])


def test_windows_of_the_same_series_make_room_in_a_full_queue() -> None:
    """They are let go of before they are taken: nobody else waits for their room."""
    held = Held(queue_requests_max=4)
    with closing(held.series):
        held.series.put(held.asked("ab"))
        assert held.moves.wait(WAIT_S)
        threading.Timer(0.05, held.go.set).start()
        assert held.series.put(held.asked("cd", 2)), "only where the first ones have answers"
        for _ in range(2):
            for outcome in taken(held.series):
                applied(outcome)
    assert held.gateway.readings().queue_requests == 0


def test_a_closed_series_frees_the_room_of_answers_not_taken(held: Held) -> None:
    held.series.put(held.asked("ab"))
    assert held.moves.wait(WAIT_S)
    held.series.put(held.asked("ab", 2))
    held.series.close()
    assert held.gateway.readings().queue_requests == 0
    held.go.set()


def test_a_woken_caller_checks_its_condition_and_keeps_waiting(held: Held) -> None:
    held.series.put(held.asked("a"))
    assert held.moves.wait(WAIT_S)
    looks = iter([False, False, True])

    def look() -> bool:
        held.series.stirred.set()
        return next(looks)

    assert not held.series.is_answered(unless=look)
    held.go.set()
    assert held.series.is_answered()
    assert not isinstance(taken(held.series)[0], Unknown)
