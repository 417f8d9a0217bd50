"""A writer that sleeps in the middle of writing out, and what others do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, cast

from gateway.decide.edits import Delete, KeyEdit
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import CommitRecord, DocumentRecord
from gateway.runtime import ThreadRuntime, moment
from gateway.service import GatewayService
from gateway.state import write_out
from gateway.store.contract import Store, StoreUnreachable
from tests.memory_store import MemoryStore
from tests.patience import WAIT_S
from tests.retention.history_checks import (
    compaction_of,
    findings,
    state_at,
    wait_until_written,
)
from tests.retention.test_compaction import nothing
from tests.without_http import SetClock, WatchedStore, add, applied, commit_each, put

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

    def watched(self, meters: Meters = NO_METERS) -> tuple[WatchedStore, GatewayService]:
        watched = WatchedStore(self.store)
        return watched, gateway_on(watched, self.clock, meters)


def gateway_on(
    store: Any,
    runtime: ThreadRuntime | None = None,
    meters: Meters = NO_METERS,
    deadline_ms: int = 60_000,
) -> GatewayService:
    limits = ServiceLimits(full_value_every=3, write_out_grace_ms=1, deadline_ms=deadline_ms)
    return GatewayService(cast(Store, store), runtime or ThreadRuntime(), limits, meters=meters)


class Noted(Meters):
    """What the guards behind the looks have refused."""

    def __init__(self) -> None:
        self.refused = 0
        self.went_back = 0

    def base_refused(self) -> None:
        self.refused += 1

    def head_went_back(self) -> None:
        self.went_back += 1


def sent_by(watched: WatchedStore, call: str) -> list[DocumentRecord | CommitRecord]:
    """What is given to the call from now on."""
    sent: list[DocumentRecord | CommitRecord] = []
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
        """An error in it must not look like a failure of the call around it."""
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


# A tail of four commits, from 3 on.
TAIL: list[list[KeyEdit]] = [
    [KeyEdit("k", add("/a", 1)), KeyEdit("other", add("/a", 1)), KeyEdit("gone", put(1))],
    [KeyEdit("k", add("/b", 1)), KeyEdit("other", add("/b", 1)), KeyEdit("gone", Delete())],
    [KeyEdit("k", add("/c", 1))],  # recorded in full
    [KeyEdit("k", add("/d", 1)), KeyEdit("z", put(1))],
]
FIRST, LAST = 3, 6


def write_tail(gateway: GatewayService, first: int = FIRST, last: int = LAST) -> None:
    """The commits of ``TAIL`` from ``first`` up to ``last``, by one move."""
    edits = TAIL[first - FIRST : last + 1 - FIRST]
    for written in commit_each(gateway, [gateway.request("c", each) for each in edits]):
        applied(written.outcome)


class Part(NamedTuple):
    """What others have written out of the head's tail: all up to ``through``, and then, as far as
    ``beyond``, the documents ``keys``. With 7, also what they added themselves before, if
    anything."""

    through: int
    beyond: int = 0
    keys: tuple[str, ...] = ()


PARTS = (
    Part(2, 4, ("k", "gone")),
    Part(3),
    Part(3, 4, ("k",)),
    Part(4),
    Part(4, 6, ("z",)),
    Part(5, 6, ("k",)),
    Part(7),
)


@cache
def _states_after(meanwhile: str) -> Mapping[int, Any]:
    """What each revision has where nobody sleeps."""
    world = World(MemoryStore())
    gateway = gateway_on(world.store)
    write_tail(gateway)
    before, after = MEANWHILE[meanwhile]
    before(gateway)
    gateway.write("c", "z", put({"n": 1}))
    after(gateway)
    wait_until_written(gateway)
    last = world.store.heads(["c"])["c"].revision
    return {revision: state_at(world.store, "c", revision) for revision in range(1, last + 1)}


class SleeperAmidParts:
    """While it sleeps others write out a part of its tail, compact up to there, sweep and purge.

    What they add themselves stays in the tail: their connection is dead until it wakes up.
    """

    def __init__(self, world: World, meanwhile: str, part: Part, sleep_s: float) -> None:
        self._world, self._part, self._sleep_s = world, part, sleep_s
        self._before, self._after = MEANWHILE[meanwhile]
        self._expected = _states_after(meanwhile)
        self._others, self._other = world.watched()
        self._others.before["write_documents"] = self._away
        self._compaction = compaction_of(
            world.store, world.clock, sweep_grace_s=GRACE_S, tombstone_grace_s=int(DAY_S)
        )
        self._failed: BaseException | None = None
        self.awake = threading.Event()

    def _away(self) -> None:
        raise StoreUnreachable("their connection is dead")

    def sleep(self) -> None:
        """As ``Sleeper.sleep``."""
        try:
            self._overtaken()
        except BaseException as error:  # noqa: BLE001
            self._failed = error
        self.awake.set()

    def _overtaken(self) -> None:
        store = self._world.store
        assert store.heads(["c"])["c"].revision == LAST
        self._before(self._other)
        floor = min(self._part.through, store.heads(["c"])["c"].revision)
        self._write_out(floor)
        assert store.raise_floor("c", floor, self._world.clock.now_us())
        self._compact()  # sees the floor, and that it is too early
        if self._part.keys:
            self._write_out(self._part.beyond, self._part.keys)
        self._world.pass_time(self._sleep_s)
        self._compact()
        bounds = store.retention("c")
        assert bounds is not None
        assert bounds.swept == (floor if self._sleep_s >= GRACE_S else 0)
        self._other.write("c", "z", put({"n": 1}))
        self._after(self._other)

    def _write_out(self, through: int, keys: tuple[str, ...] = ()) -> None:
        """Everything up to there; with ``keys`` their documents alone."""
        watched = WatchedStore(self._world.store)
        if keys:
            some = watched.write_documents
            watched.write_documents = lambda given: some(  # type: ignore[method-assign]
                {c: [d for d in documents if d.key in keys] for c, documents in given.items()}
            )
            watched.write_commits = lambda _: None  # type: ignore[method-assign]
        head = self._world.store.tails(["c"])["c"]
        theirs = write_out.Tail(moment(self._world.clock), head.written, list(head.tail or ()))
        theirs.leave(through + 1)
        write_out.write_out(
            cast(Store, watched), self._world.clock, {"c": theirs}, LATE_S, int(DAY_S)
        )

    def _compact(self) -> None:
        self._compaction.finish("c", lambda: None)
        self._compaction.tidy("c", lambda: None)

    def check_log(self) -> None:
        """Who slept has written out the rest."""
        store = self._world.store
        floor = store.heads(["c"])["c"].floor
        log = store.commits({"c": (floor, LAST)}).get("c", ())
        assert [commit.revision for commit in log] == list(range(floor + 1, LAST + 1))

    def check(self) -> None:
        """Everything is as if nobody had slept: before the others go on, and afterwards, also when
        all else is swept."""
        assert self.awake.wait(WAIT_S), "nobody slept"
        if self._failed is not None:
            raise self._failed
        self._check()
        self._others.before.clear()
        wait_until_written(self._other)
        self._check()
        self._world.pass_time(2 * DAY_S)
        self._compact()
        self._check()

    def _check(self) -> None:
        head = self._world.store.heads(["c"])["c"]
        assert head.revision == max(self._expected)
        for revision in range(head.floor, head.revision + 1):
            state = state_at(self._world.store, "c", revision)
            assert state == self._expected[revision], revision
        assert findings(self._world.store, "c") == []
