"""When a worker looks through all objects for cycles: not while requests hold many of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import msgspec
import pytest

from gateway.limits import MIB
from gateway.memory import trees
from gateway.server.garbage import Garbage


class World:
    def __init__(self) -> None:
        self.held = self.resident = self.looks = self.collected = self.kept = 0
        self.objects = 1_000
        self.now = 0.0
        self.takes_s = 0.0
        self.paused: list[int] = []
        self.pauses = True
        self.garbage = Garbage(
            lambda: self.held, self.pause, self.drop, lambda: self.resident, lambda: self.now
        )

    def pause(self, bytes_max: int) -> bool:
        self.paused.append(bytes_max)
        return self.pauses

    def drop(self) -> None:
        self.objects -= self.kept
        self.kept = 0

    def look(self) -> int:
        """How often all was collected so far, after one more look."""
        self.garbage.check()
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
    monkeypatch.setattr(gc, "get_objects", lambda **_: [])
    monkeypatch.setattr(gc, "get_freeze_count", lambda: made.objects)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    return made


def test_collection_waits_until_requests_hold_little_memory(world: World) -> None:
    world.looks, world.held = 50, 200 * MIB
    assert world.look() == 0
    world.held = 0
    assert world.look() == 1
    assert world.look() == 1  # there was nothing since


def test_if_requests_always_hold_much_memory_they_pause_after_two_minutes(world: World) -> None:
    world.looks, world.held = 50, 200 * MIB
    world.now = 120.0
    assert (world.look(), world.paused) == (0, [])
    world.now = 121.0
    assert (world.look(), world.paused) == (1, [8 * MIB])


def test_collection_is_postponed_if_memory_does_not_drop_during_the_pause(world: World) -> None:
    world.looks, world.held, world.now, world.pauses = 50, 200 * MIB, 121.0, False
    assert (world.look(), world.paused) == (0, [8 * MIB])
    world.pauses = True
    assert world.look() == 1


def test_a_slow_collection_runs_less_often(world: World) -> None:
    world.looks, world.takes_s = 50, 0.2
    assert world.look() == 1
    world.looks, world.now = 50, 200.0
    assert world.look() == 1
    world.now = 200.3
    assert world.look() == 2


def test_collection_waits_until_the_process_is_about_as_large_as_before(world: World) -> None:
    """What it has grown by is, as a rule, what somebody is about to free."""
    world.looks, world.resident = 50, 129 * MIB
    assert world.look() == 0
    world.resident = 128 * MIB
    assert world.look() == 1
    world.looks, world.resident = 50, 256 * MIB  # compared with what is there after the last time
    assert world.look() == 2


def test_with_many_objects_caches_are_dropped_first(world: World) -> None:
    world.looks, world.objects, world.kept = 50, 1_000_000, 900_000
    assert (world.look(), world.objects) == (1, 100_000)


def test_with_many_objects_left_collection_is_postponed(world: World) -> None:
    world.looks, world.objects = 50, 1_000_000
    assert world.look() == 0
    world.objects, world.now = 1_000, 119.0
    assert world.look() == 0
    world.now = 120.0
    assert world.look() == 1


def test_many_objects_are_collected_if_the_process_has_grown_far(world: World) -> None:
    world.looks, world.objects, world.resident, world.now = 50, 1_000_000, 513 * MIB, 121.0
    assert world.look() == 1


def test_python_itself_collects_young_objects_only() -> None:
    before, alone = gc.get_threshold(), trees.are_left_alone
    try:
        Garbage(lambda: 0, lambda _: True, lambda: None).start()
        young, younger, old = gc.get_threshold()
        assert young * (younger + 1) <= 100_000
        assert old >= 1_000_000
        assert trees.are_left_alone
    finally:
        gc.set_threshold(*before)
        trees.are_left_alone = alone


def test_a_large_tree_is_never_scanned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trees, "are_left_alone", True)
    parsed, looked = trees.parsed, []
    text = b"[" + b",".join([b"[[]]"] * 50_000) + b"]"

    def looks(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            looked.append(about["generation"])

    gc.collect()
    gc.callbacks.append(looks)
    try:
        held = trees.parse(msgspec.json.decode, text, len(text))
        assert looked == []
        gc.collect()
        assert trees.parsed == parsed + 1
        assert gc.get_freeze_count() > 100_000
        assert not any(each is held for each in gc.get_objects())
        assert gc.isenabled()
    finally:
        gc.callbacks.remove(looks)
        gc.unfreeze()


def test_a_small_tree_is_tracked_like_any_other_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "are_left_alone", True)
    held = trees.parse(msgspec.json.decode, b"[[1]]", 5)
    assert any(each is held for each in gc.get_objects())
