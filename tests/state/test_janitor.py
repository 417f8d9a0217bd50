"""What the janitor ends: heads of catalogs that never had a commit."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from gateway.decide.request import Applied, Outcome, Refused
from gateway.errors import DocumentNotFound, RefusedBefore
from gateway.limits import ServiceLimits
from gateway.model import Idempotency
from gateway.service import GatewayService
from tests.memory_store import MemoryStore
from tests.retention.history_checks import wait_until_written
from tests.without_http import (
    SetClock,
    WatchedStore,
    applied,
    content_of,
    once,
    put,
    replace,
    wait_until,
)

KEPT_S = ServiceLimits().retention.idempotency_s
HOUR_S = 3600


class World:
    """Two gateways on one store, of which the first one has the janitor."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = SetClock()
        self.watched = WatchedStore(self.store)
        self.ours = GatewayService(self.watched, self.clock, ServiceLimits())  # type: ignore[arg-type]
        self.other = GatewayService(self.store, self.clock, ServiceLimits())

    def patch_under_key(self, gateway: GatewayService) -> Outcome:
        """Refused where there is no document."""
        own = Idempotency("ann", "x", "f")
        return gateway.write("c", "k", replace("/n", 2), idempotency=own, once=True).outcome

    def pass_time(self, seconds: float) -> None:
        self.clock.passed_s += seconds
        self.store.expire_verdicts(self.clock.now_us())
        self.ours.janitor.run_round()
        self.ours.janitor.end_uncommitted()

    def settle(self) -> None:
        """All is written out, and the janitor has seen it."""

        def is_ended() -> bool:
            self.pass_time(10)
            return not self.store.open_tails(1 << 60, 9)

        for gateway in (self.ours, self.other):
            wait_until_written(gateway)
        wait_until(is_ended)

    @property
    def has_head(self) -> bool:
        return "c" in self.store.heads(["c"])


@pytest.fixture
def world() -> World:
    return World()


def test_the_tail_of_a_clock_that_was_ahead_is_emptied(world: World) -> None:
    """The next commits of the catalog get later times, until the other clocks have caught up."""
    ahead = SetClock()
    ahead.passed_s = 24 * HOUR_S
    applied(GatewayService(world.store, ahead, ServiceLimits()).write("c", "k", put(1)).outcome)

    def is_ended() -> bool:
        world.pass_time(0)
        return not world.store.open_tails(1 << 60, 9)

    wait_until(is_ended)


def refused_with(outcome: Outcome, error: type[Exception]) -> None:
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, error)


def test_a_head_without_a_commit_ends_with_its_verdicts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then, the key decides once. Afterwards, a worker no longer uses what it remembers."""
    refused_with(world.patch_under_key(world.ours), DocumentNotFound)
    refused_with(world.patch_under_key(world.other), RefusedBefore)
    world.settle()
    world.pass_time(KEPT_S - HOUR_S)
    assert world.has_head
    refused_with(world.patch_under_key(world.other), RefusedBefore)
    world.pass_time(2 * HOUR_S)
    assert not world.has_head
    caplog.clear()
    for gateway in (world.ours, world.other):
        refused_with(
            world.patch_under_key(gateway),
            DocumentNotFound if gateway is world.ours else RefusedBefore,
        )
    applied(world.other.write("c", "k", put({"n": 1})).outcome)
    assert content_of(world.ours) == {"n": 1}
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def write(world: World) -> Outcome:
    return world.other.write("c", "k", put({"n": 1})).outcome


def refuse(world: World) -> Outcome:
    own = Idempotency("ann", "y", "f")
    return world.other.write("c", "k", replace("/n", 2), idempotency=own, once=True).outcome


@pytest.mark.parametrize("meanwhile", [write, refuse])
def test_a_head_written_to_at_that_moment_stays(
    world: World, meanwhile: Callable[[World], Outcome]
) -> None:
    world.patch_under_key(world.ours)
    world.settle()
    done: list[Outcome] = []
    world.watched.before["drop_uncommitted"] = once(lambda: done.append(meanwhile(world)))
    world.pass_time(KEPT_S + HOUR_S)
    assert done
    assert world.has_head
    assert isinstance(done[0], Applied) is (content_of(world.ours) == {"n": 1})


def test_a_worker_with_a_cached_head_that_has_ended_can_make_the_first_commit(
    world: World,
) -> None:
    world.patch_under_key(world.other)
    world.settle()
    world.pass_time(KEPT_S + HOUR_S)
    assert not world.has_head
    assert applied(write(world)).commit.revision == 1
    refused_with(refuse_other_key(world), DocumentNotFound)
    assert content_of(world.ours) == {"n": 1}


def refuse_other_key(world: World) -> Outcome:
    own = Idempotency("ann", "z", "f")
    return world.ours.write("c", "nothing", replace("/n", 2), idempotency=own, once=True).outcome
