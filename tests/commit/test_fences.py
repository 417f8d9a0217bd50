"""A fence holds on the very state that is written, whatever a worker remembers of it."""

from __future__ import annotations

import pytest

from gateway.access import Grant, Principal, Role
from gateway.decide.application_steps import ApplicationStep, Fence, scope_of
from gateway.decide.applications import application, fence_of
from gateway.decide.request import Applied, Refused
from gateway.errors import ApplicationConflict
from gateway.limits import ServiceLimits
from gateway.model import APPLICATIONS_KEY, Idempotency
from gateway.runtime import ThreadRuntime
from gateway.service import Gateway
from gateway.store.memory import MemoryStore
from tests.asking import WatchedStore, once, put

ANN = Principal("ann", (Grant(Role.WRITE, "*"),))


def step(gateway: Gateway, version: int, *, finished: bool = False) -> Fence:
    asked = ApplicationStep("c", "etl", version, finished)
    outcome = gateway.commit(gateway.request("c", (), by=ANN, step=asked)).outcome
    assert isinstance(outcome, Applied)
    record = application(outcome.documents[APPLICATIONS_KEY], "etl")
    assert record is not None
    assert fence_of("etl", record) == f"{version}.{record.scope}.etl"
    return Fence(version, record.scope, "etl")


def write(gateway: Gateway, fence: Fence, value: int, key: str) -> object:
    own = Idempotency(scope_of(fence), key, str(value))
    return gateway.write(
        "c", "k", put(value), by=ANN, fence=fence, idempotency=own, once=True
    ).outcome


@pytest.mark.parametrize("before_the_move", [False, True])
def test_a_version_that_another_worker_finished_is_over_at_once(before_the_move: bool) -> None:
    """This one has just written under the fence, so it decides on what it remembers; or it has
    decided already, and the head moves on before its own move."""
    store = MemoryStore()
    watched = WatchedStore(store)
    gateway = Gateway(watched, ThreadRuntime(), ServiceLimits())  # type: ignore[arg-type]
    other = Gateway(store, ThreadRuntime(), ServiceLimits())
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
