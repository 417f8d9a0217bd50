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
        self.garbage = Garbage(lambda: self.held, lambda: self.resident, lambda: self.now)

    def look(self) -> int:
        """How often all was collected so far, after one more look."""
        self.garbage.look()
        return self.collected


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()

    def collect() -> None:
        made.collected += 1
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


def test_where_they_always_hold_much_it_waits_for_ten_minutes(world: World) -> None:
    world.looks, world.held = 50, 200 * MIB
    world.now = 600.0
    assert world.look() == 0
    world.now = 601.0
    assert world.look() == 1


def test_what_the_process_has_grown_by_beyond_what_they_hold_may_be_garbage(world: World) -> None:
    world.looks, world.held, world.resident = 50, 200 * MIB, 300 * MIB
    assert world.look() == 0
    world.resident = 350 * MIB
    assert world.look() == 1
    world.looks = 50
    world.resident = 600 * MIB  # with what is there after the last time
    assert world.look() == 1


def test_python_itself_looks_at_young_objects_alone() -> None:
    before = gc.get_threshold()
    try:
        Garbage(lambda: 0).start()
        young, younger, old = gc.get_threshold()
        assert young * younger <= 300_000
        assert old >= 1_000_000
    finally:
        gc.set_threshold(*before)
