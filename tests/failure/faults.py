"""What happens to two gateways and their replica set while clients write and read.

Driven by progress and by what the members say of themselves, not by the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.failure.replica_set import ReplicaSet
from tests.failure.wire import Cut, Wire
from tests.failure.workload import Workload


@dataclass(frozen=True)
class Scene:
    """Two gateways on the replica set, each behind a network of its own, and their clients."""

    replica_set: ReplicaSet
    wires: Mapping[str, Wire]
    workload: Workload


def kill(scene: Scene) -> None:
    """Kill the primary while it has a write that no other member has; it comes back without it."""
    killed = scene.replica_set.kill_primary_with_a_write_of_its_own()
    scene.replica_set.await_primary(other_than=killed)
    scene.workload.await_writes(10)
    killed.start()
    scene.replica_set.await_healthy()


def stop_and_wake(scene: Scene) -> None:
    """It wakes up as a primary, long after both gateways have met the next one."""
    with scene.replica_set.await_primary().stopped() as stopped:
        scene.replica_set.await_primary(other_than=stopped)
        scene.workload.await_writes(10)
    scene.replica_set.await_healthy()


def step_down(scene: Scene) -> None:
    stepped_down = scene.replica_set.step_down()
    scene.replica_set.await_primary(other_than=stepped_down)


def cut_answers(scene: Scene) -> None:
    """Heads are moved, and the answers get lost: in silence, then on broken connections."""
    cuts: tuple[Cut, ...] = ("silent", "closed")
    for how in cuts:
        before = {name: wire.lost_moves for name, wire in scene.wires.items()}
        for wire in scene.wires.values():
            wire.cut_answers(how)
        scene.workload.await_that(
            lambda so_far=before: all(
                wire.lost_moves >= so_far[name] + 3 for name, wire in scene.wires.items()
            )
        )
        for wire in scene.wires.values():
            wire.heal()
        scene.workload.await_writes(10)


_NOT_DONE = ("unknown", "not-applied")


def partition(scene: Scene) -> None:
    """One gateway from all members, with a move of a head under way, which arrives in the end."""
    near, far = scene.wires
    wire = scene.wires[near]
    wire.partition()
    scene.workload.await_that(lambda: wire.is_partitioned)
    begun = time.monotonic()
    scene.workload.await_that(
        lambda: any(
            call.gateway == near and call.returned > begun and call.outcome.kind in _NOT_DONE
            for call in list(scene.workload.calls)
        )
    )
    scene.workload.await_writes(10, far)
    wire.heal()


FAULTS: Final[Mapping[str, Callable[[Scene], None]]] = {
    "primary-killed": kill,
    "primary-stopped-and-woken": stop_and_wake,
    "primary-stepped-down": step_down,
    "answers-cut": cut_answers,
    "gateway-partitioned": partition,
}
