"""When a worker looks through all objects for cycles: not while requests hold many of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gateway.limits import MIB
from gateway.server.garbage import Garbage


class World:
    def __init__(self) -> None:
        self.held = self.resident = self.looks = self.collected = 0
        self.now = 0.0
        self.takes_s = 0.0
        self.paused: list[int] = []
        self.pauses = True
        self.garbage = Garbage(
            lambda: self.held, self.pause, lambda: self.resident, lambda: self.now
        )

    def pause(self, bytes_max: int) -> bool:
        self.paused.append(bytes_max)
        return self.pauses

    def look(self) -> int:
        """How often all was collected so far, after one more look."""
        self.garbage.look()
        return self.collected


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()

    def collect() -> None:
        made.collected += 1
        made.now += made.takes_s
        made.looks = 0

    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, made.looks))
    return made


def test_it_waits_until_requests_hold_little(world: World) -> None:
    world.looks, world.held = 50, 200 * MIB
    assert world.look() == 0
    world.held = 0
    assert world.look() == 1
    assert world.look() == 1  # there was nothing since


def test_where_they_always_hold_much_they_pause_after_two_minutes(world: World) -> None:
    world.looks, world.held = 50, 200 * MIB
    world.now = 120.0
    assert (world.look(), world.paused) == (0, [])
    world.now = 121.0
    assert (world.look(), world.paused) == (1, [8 * MIB])


def test_it_is_left_until_later_where_they_did_not_come_to_hold_little(world: World) -> None:
    world.looks, world.held, world.now, world.pauses = 50, 200 * MIB, 121.0, False
    assert (world.look(), world.paused) == (0, [8 * MIB])
    world.pauses = True
    assert world.look() == 1


def test_what_takes_long_is_done_the_less_often(world: World) -> None:
    world.looks, world.takes_s = 50, 0.2
    assert world.look() == 1
    world.looks, world.now = 50, 200.0
    assert world.look() == 1
    world.now = 200.3
    assert world.look() == 2


def test_it_waits_until_the_process_is_about_as_large_as_it_was(world: World) -> None:
    """What it has grown by is, as a rule, what somebody is about to free."""
    world.looks, world.resident = 50, 129 * MIB
    assert world.look() == 0
    world.resident = 128 * MIB
    assert world.look() == 1
    world.looks, world.resident = 50, 256 * MIB  # compared with what is there after the last time
    assert world.look() == 2


def test_python_itself_looks_at_young_objects_alone() -> None:
    before = gc.get_threshold()
    try:
        Garbage(lambda: 0, lambda _: True).start()
        young, younger, old = gc.get_threshold()
        assert young * younger <= 300_000
        assert old >= 1_000_000
    finally:
        gc.set_threshold(*before)
