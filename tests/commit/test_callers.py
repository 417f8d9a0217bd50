"""Whose turn it is to bring many requests."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from gateway.commit.series import Callers
from gateway.runtime import Event, Runtime, ThreadRuntime
from tests.patience import WAIT_S


def test_principals_take_turns() -> None:
    """Though one of them brings more, and was there before."""
    callers = Callers(ThreadRuntime())
    had: list[str] = []
    threads = []

    def call(principal: str) -> None:
        with callers.turn(principal):
            had.append(principal)

    with callers.turn("ann"):
        for principal in ("ann", "ann", "ann", "bob", "bob", "eve"):
            threads.append(threading.Thread(target=call, args=(principal,)))
            waiting = len(threads)
            threads[-1].start()
            while sum(map(len, callers._waiting.values())) < waiting:
                threads[-1].join(0.001)
        assert had == []
    for thread in threads:
        thread.join(WAIT_S)
    assert had == ["ann", "bob", "eve", "ann", "bob", "ann"]
    with callers.turn("ann"):
        pass


def test_a_turn_ends_on_an_error_too() -> None:
    callers = Callers(ThreadRuntime())
    try:
        with callers.turn("ann"):
            raise ValueError
    except ValueError:
        pass
    with callers.turn("bob"):
        pass


@pytest.mark.parametrize("given_it", [False, True])
def test_a_greenlet_killed_while_it_waits_for_a_turn_blocks_nobody(given_it: bool) -> None:
    """It may have been given its turn just before it is killed."""

    class BrokenOff:
        def set(self) -> None: ...

        def wait(self) -> bool:
            if given_it:
                holder.__exit__(None, None, None)
            raise SystemExit

    class Breaking(ThreadRuntime):
        def event(self) -> Event:
            return cast(Event, BrokenOff())

    callers = Callers(cast(Runtime, Breaking()))
    holder = callers.turn("ann")
    holder.__enter__()
    with pytest.raises(SystemExit), callers.turn("bob"):
        pass
    if not given_it:
        holder.__exit__(None, None, None)
    with callers.turn("eve"):  # would wait, and so raise, where someone still had the turn
        pass
