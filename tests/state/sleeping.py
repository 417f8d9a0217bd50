"""A writer that sleeps in the middle of writing out, and what others do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, cast

from gateway.decide.edits import Delete, KeyEdit
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.model import Commit, Document
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from tests.asking import SetClock, WatchedStore, add, put
from tests.memory_store import MemoryStore
from tests.patience import WAIT_S
from tests.retention.history_checks import (
    compaction_of,
    findings,
    state_at,
    wait_until_written,
)
from tests.retention.test_compaction import nothing

GRACE_S = RetentionLimits().sweep_grace_s
LATE_S = RetentionLimits().late_s
DAY_S = 86_400.0


class World:
    """A store whose time and that of its writers a test moves on."""

    def __init__(self, store: Store, move_on: Callable[[float], None] = lambda _: None) -> None:
        self.store = store
        self.clock = SetClock()
        self._move_on = move_on
        if isinstance(store, MemoryStore):
            store._monotonic = self.clock.monotonic
        gateway = gateway_on(store)
        for key in ("k", "other"):
            gateway.write("c", key, put({"n": 0}))
        wait_until_written(gateway)

    def pass_time(self, seconds: float) -> None:
        self.clock.passed_s += seconds
        self._move_on(seconds)

    def watched(self) -> tuple[WatchedStore, GatewayService]:
        watched = WatchedStore(self.store)
        return watched, gateway_on(watched, self.clock)


def gateway_on(store: Any, runtime: ThreadRuntime | None = None) -> GatewayService:
    limits = ServiceLimits(full_value_every=3, write_out_grace_ms=1, deadline_ms=60_000)
    return GatewayService(cast(Store, store), runtime or ThreadRuntime(), limits)


def sent_by(watched: WatchedStore, call: str) -> list[Document | Commit]:
    """What is given to the call from now on."""
    sent: list[Document | Commit] = []
    method = getattr(watched, call)

    def noted(given: Any) -> None:
        sent.extend(chain(*given.values()) if isinstance(given, Mapping) else given)
        method(given)

    setattr(watched, call, noted)
    return sent


def touch_nothing(_: GatewayService) -> None:
    pass


def change(other: GatewayService) -> None:
    other.write("c", "k", add("/m", 1))


def replace_it(other: GatewayService) -> None:
    other.write("c", "k", put({"by": "other"}))


def delete(other: GatewayService) -> None:
    other.write("c", "k", Delete())


# What others do to k before they compact, and after it.
MEANWHILE: dict[str, tuple[Callable[[GatewayService], None], Callable[[GatewayService], None]]] = {
    "compacted": (touch_nothing, touch_nothing),
    "changed": (change, touch_nothing),
    "changed above the floor": (touch_nothing, change),
    "replaced": (replace_it, touch_nothing),
    "deleted": (delete, touch_nothing),
    "deleted above the floor": (touch_nothing, delete),
    "deleted and made again": (delete, replace_it),
}


def write_both(gateway: GatewayService) -> object:
    edits = [KeyEdit("k", put({"n": 1})), KeyEdit("other", Delete())]
    return gateway.commit(gateway.request("c", edits)).outcome


class Sleeper:
    """Others work, compact, sweep and purge while it sleeps; then it wakes up."""

    def __init__(self, world: World, meanwhile: str, sleep_s: float) -> None:
        self._world = world
        self._store = world.store
        self._other = gateway_on(world.store)
        self._before, self._after = MEANWHILE[meanwhile]
        self._sleep_s = sleep_s
        self._compaction = compaction_of(
            world.store, world.clock, sweep_grace_s=GRACE_S, tombstone_grace_s=int(DAY_S)
        )
        self._floor = 0
        self._below_s = 0.0  # since the floor was raised
        self._failed: BaseException | None = None
        self.awake = threading.Event()
        self.states: dict[int, Any] = {}

    def sleep(self) -> None:
        """What fails in it would be taken for a failure of the call that it is done in."""
        try:
            if not self._floor:
                self._raise_floor()
            self._pass_time(self._sleep_s)
            self._look()
        except BaseException as error:  # noqa: BLE001
            self._failed = error
        self.awake.set()

    def nap(self, seconds: float) -> None:
        """It is overtaken, and will sleep once more."""
        try:
            self._raise_floor()
            self._pass_time(seconds)
        except BaseException as error:  # noqa: BLE001
            self._failed = error

    def _raise_floor(self) -> None:
        self._other.write("c", "other", put({"n": 1}))  # carries the sleeper's tail along
        self._before(self._other)
        self._floor = self._store.heads(["c"])["c"].revision
        self._compaction.compact("c", self._floor, nothing)

    def _pass_time(self, seconds: float) -> None:
        wait_until_written(self._other)  # the others don't sleep
        self._world.pass_time(seconds)
        self._below_s += seconds
        self._compaction.finish("c", nothing)
        self._compaction.tidy("c", nothing)
        bounds = self._store.retention("c")
        assert bounds is not None
        assert bounds.swept == (self._floor if self._below_s >= GRACE_S else 0)

    def _look(self) -> None:
        self._other.write("c", "z", put({"n": 1}))
        self._after(self._other)
        last = self._store.heads(["c"])["c"].revision
        self.states = {n: state_at(self._store, "c", n) for n in range(self._floor, last + 1)}
        assert findings(self._store, "c") == []

    def check(self) -> None:
        """Everything is as it was before it woke up, also when all else is swept."""
        assert self.awake.wait(WAIT_S), "nobody slept"
        if self._failed is not None:
            raise self._failed
        self._check()
        wait_until_written(self._other)
        self._world.pass_time(2 * DAY_S)
        self._compaction.finish("c", nothing)
        self._compaction.tidy("c", nothing)
        self._check()

    def _check(self) -> None:
        assert self._store.heads(["c"])["c"].revision == max(self.states)
        for revision, state in self.states.items():
            assert state_at(self._store, "c", revision) == state
        assert findings(self._store, "c") == []
