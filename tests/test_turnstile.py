"""Requests that wait unread: in which order, for how long, and what gets in between."""

from __future__ import annotations

from itertools import pairwise

import gevent
import pytest

from gateway.server.time_slices import Turnstile, WaitingRoom
from tests.patience import WAIT_S


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("full", "at_a_time"), [(False, 32), (True, 8)])
def test_only_some_requests_pass_per_round_in_order(full: bool, at_a_time: int) -> None:
    turnstile = Turnstile(lambda: full)
    passed: list[int] = []
    looked: list[int] = []

    def request(number: int) -> None:
        turnstile.go_through()
        passed.append(number)

    def look() -> None:
        while len(passed) < 200:
            looked.append(len(passed))
            gevent.sleep(0.000001)  # a timer, as data on a socket: after the next look

    waiting = [gevent.spawn(request, number) for number in range(200)]
    gevent.joinall([*waiting, gevent.spawn(look)], timeout=WAIT_S, raise_error=True)
    assert passed == list(range(200))
    assert max(after - before for before, after in pairwise(looked)) <= 4 * at_a_time


def test_the_last_to_come_is_admitted_first() -> None:
    clock = Clock()
    room = WaitingRoom(clock)
    entered: list[int] = []

    def wait(number: int) -> None:
        room.wait()
        entered.append(number)

    _refuse_at_once(room)
    waiting = [gevent.spawn(wait, number) for number in range(3)]
    gevent.sleep(0)
    for _ in range(4):  # one more than there are
        room.let_one_in_unless(lambda: False)
        gevent.sleep(0)
    gevent.joinall(waiting, timeout=WAIT_S, raise_error=True)
    assert entered == [2, 1, 0]


def test_the_number_of_refusals_per_second_is_bounded() -> None:
    clock = Clock()
    room = WaitingRoom(clock)
    at_once = _refuse_at_once(room)
    assert at_once == 150
    clock.now += 0.1
    assert 14 <= _refuse_at_once(room) <= 16


def test_no_request_waits_long() -> None:
    room = WaitingRoom(Clock())
    for _ in range(10_000):
        assert room.until_refusal_s() <= 15


def _refuse_at_once(room: WaitingRoom) -> int:
    """Let as many be refused as needn't wait for it; how many that were."""
    count = 0
    while room.until_refusal_s() <= 0:
        count += 1
    return count
