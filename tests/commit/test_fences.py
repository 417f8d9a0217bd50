"""A fence holds on the very state that is written, whatever a worker remembers of it."""

from __future__ import annotations

import pytest

import patching
from gateway.access import Grant, Principal, Role
from gateway.decide.applications import Application, Term, application, fence_of
from gateway.decide.edits import ApplyPatch
from gateway.decide.request import ApplicationStep, Applied, Fence, Refused, parse_fence, scope_of
from gateway.errors import ApplicationConflict, DocumentNotFound, RefusedBefore
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.model import APPLICATIONS_KEY, Idempotency
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.memory_store import MemoryStore
from tests.without_http import SetClock, WatchedStore, once, put

ANN = Principal("ann", (Grant(Role.WRITE, "*"),))


def begin(gateway: GatewayService, version: int, *, finished: bool = False) -> object:
    asked = ApplicationStep("c", "etl", version, finished)
    return gateway.commit(gateway.request("c", (), by=ANN, step=asked)).outcome


def step(gateway: GatewayService, version: int, *, finished: bool = False) -> Fence:
    outcome = begin(gateway, version, finished=finished)
    assert isinstance(outcome, Applied)
    record = application(outcome.documents[APPLICATIONS_KEY], "etl")
    assert record is not None
    assert fence_of("etl", record) == f"{version}.{record.scope}.etl"
    return Fence(version, record.scope, "etl")


def write(gateway: GatewayService, fence: Fence, value: int, key: str) -> object:
    own = Idempotency(scope_of(fence, "ann"), key, str(value))
    return gateway.write(
        "c", "k", put(value), by=ANN, fence=fence, idempotency=own, once=True
    ).outcome


@pytest.mark.parametrize("before_the_move", [False, True])
def test_a_version_finished_by_another_worker_is_over_at_once(before_the_move: bool) -> None:
    """This worker has just written under the fence, so it decides on what it remembers; or it has
    decided already, and the head moves before its own move."""
    store = MemoryStore()
    watched = WatchedStore(store)
    gateway = GatewayService(watched, ThreadRuntime(), ServiceLimits())  # type: ignore[arg-type]
    other = GatewayService(store, ThreadRuntime(), ServiceLimits())
    fence = step(gateway, 7)
    assert isinstance(write(gateway, fence, 1, "a"), Applied)
    assert isinstance(write(gateway, fence, 2, "b"), Applied)
    finish = once(lambda: step(other, 7, finished=True))
    if before_the_move:
        watched.before["move_heads"] = finish
    else:
        finish()
    refused = write(gateway, fence, 3, "c")
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, ApplicationConflict)
    found = other.read("c", "k").document
    assert found is not None
    assert found.content == 2


DAY_S = 86_400


def remembering(store: MemoryStore, clock: SetClock, days: int) -> GatewayService:
    retention = RetentionLimits(idempotency_s=days * DAY_S)
    return GatewayService(store, clock, ServiceLimits(retention=retention))


@pytest.mark.parametrize(("begun", "decided"), [(1, 7), (7, 1)])
def test_a_version_ends_by_the_shorter_key_retention(begun: int, decided: int) -> None:
    """The setting was raised, or lowered, while it was open: the keys may be forgotten by then."""
    store, clock = MemoryStore(), SetClock()
    fence = step(remembering(store, clock, begun), 7)
    gateway = remembering(store, clock, decided)
    clock.passed_s += DAY_S - 60
    assert isinstance(write(gateway, fence, 1, "a"), Applied)
    clock.passed_s += 120
    for refused in (write(gateway, fence, 2, "b"), begin(gateway, 7)):
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, ApplicationConflict)
        assert f"more than {DAY_S} seconds ago" in refused.error.detail
    assert isinstance(write(gateway, step(gateway, 8), 2, "c"), Applied)


def test_a_version_begun_by_an_earlier_gateway_ends_by_the_setting() -> None:
    """Its record doesn't say for how long keys were remembered."""
    record = Application("5b1f", ("ann",), version=7, begun_us=0)
    assert not Term(DAY_S * 1_000_000, DAY_S).is_over(record)
    assert Term(DAY_S * 1_000_000 + 1, DAY_S).is_over(record)


def applied(gateway: GatewayService, key: str, fence: Fence, once: str) -> object:
    own = Idempotency(scope_of(fence, "ann"), once, "patch")
    edit = ApplyPatch(patching.parse([{"op": "add", "path": "/log/-", "value": once}]))
    return gateway.write("c", key, edit, by=ANN, fence=fence, idempotency=own, once=True).outcome


@pytest.mark.parametrize("written_out", [False, True])
def test_a_refusal_is_recorded_for_the_run_that_got_it(written_out: bool) -> None:
    """Whether what was decided is in the head still, or written out."""
    store, clock = MemoryStore(), SetClock()
    gateway = GatewayService(store, clock, ServiceLimits())

    def settled() -> GatewayService:
        if not written_out:
            return gateway
        clock.passed_s += 3_600
        gateway.janitor.run_round()
        return GatewayService(store, clock, ServiceLimits())

    fence = step(gateway, 7)
    first, second = (fence._replace(run=run) for run in ("a", "b"))
    for _ in range(2):
        refused = applied(settled(), "k", first, "x")
        assert isinstance(refused, Refused)
    assert isinstance(refused.error, RefusedBefore)
    refused = applied(settled(), "k", second, "x")
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, DocumentNotFound), "it was decided again"
    refused = applied(settled(), "k", second, "x")
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, RefusedBefore)
    gateway.write("c", "k", put({"log": []}))
    done = applied(settled(), "k", first, "x")
    assert isinstance(done, Applied)
    assert not done.replayed
    for run in (first, second, first._replace(run=None)):
        again = applied(settled(), "k", run, "x")
        assert isinstance(again, Applied)
        assert again.replayed, "what was applied stands for every run"
    found = gateway.read("c", "k").document
    assert found is not None
    assert found.content == {"log": ["x"]}


def test_without_a_run_a_refusal_is_recorded_for_the_version() -> None:
    """As clients of before have it."""
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    fence = step(gateway, 7)
    assert isinstance(applied(gateway, "k", fence, "x"), Refused)
    gateway.write("c", "k", put({"log": []}))
    assert isinstance(applied(gateway, "k", fence, "x"), Refused)


@pytest.mark.parametrize("text", ["7.5f0c.etl", "7-1f.5f0c.e.t-l", "7*.5f0c.etl", "0-a*.5f.\n"])
def test_a_fence_round_trips_through_its_text(text: str) -> None:
    fence = parse_fence(text)
    assert fence is not None
    assert fence.text == text
