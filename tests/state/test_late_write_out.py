"""A worker that slept between moving a head and writing out must bring nothing back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from gateway.decide.request import Delete, KeyEdit, Unknown
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import Gateway
from gateway.state import late
from gateway.store.contract import Store, Unreachable
from gateway.store.memory import MemoryStore
from tests.asking import SetClock, WatchedStore, add, applied, content_of, once, put
from tests.patience import WAIT_S
from tests.retention.history_checks import compaction_of, findings, settler_of, state_at
from tests.retention.test_compaction import nothing

DAY_S = 86_400.0
KEYS = ("k", "other", "z")


def gateway_on(store: Any, runtime: ThreadRuntime | None = None) -> Gateway:
    limits = ServiceLimits(full_value_every=3, write_out_grace_ms=1, deadline_ms=60_000)
    return Gateway(cast(Store, store), runtime or ThreadRuntime(), limits)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)


def touch_nothing(_: Gateway) -> None:
    pass


def change(other: Gateway) -> None:
    other.write("c", "k", add("/m", 1))


def replace_it(other: Gateway) -> None:
    other.write("c", "k", put({"by": "other"}))


def delete(other: Gateway) -> None:
    other.write("c", "k", Delete())


# What others do to k before they compact, and after it.
MEANWHILE: dict[str, tuple[Callable[[Gateway], None], Callable[[Gateway], None]]] = {
    "compacted": (touch_nothing, touch_nothing),
    "changed": (change, touch_nothing),
    "changed above the floor": (touch_nothing, change),
    "replaced": (replace_it, touch_nothing),
    "deleted": (delete, touch_nothing),
    "deleted above the floor": (touch_nothing, delete),
    "deleted and made again": (delete, replace_it),
}


def begun(store: Store) -> Store:
    for key in ("k", "other"):
        gateway_on(store).write("c", key, put({"n": 0}))
    return store


def write_both(gateway: Gateway) -> object:
    edits = [KeyEdit("k", put({"n": 1})), KeyEdit("other", Delete())]
    return gateway.commit(gateway.request("c", edits)).outcome


class Sleeper:
    """Others work, compact and purge while it sleeps; then it wakes up."""

    def __init__(self, store: Store, clock: SetClock, meanwhile: str, sleep_s: float) -> None:
        self._store = store
        self._clock = clock
        self._before, self._after = MEANWHILE[meanwhile]
        self._sleep_s = sleep_s
        self.states: dict[int, Any] = {}

    def sleep(self) -> None:
        other = gateway_on(self._store)
        other.write("c", "other", put({"n": 1}))  # writes the sleeper's batch out first
        self._before(other)
        self._clock.passed_s += self._sleep_s
        head = self._store.heads(["c"])["c"].revision
        compaction = compaction_of(self._store, self._clock, tombstone_grace_s=int(DAY_S))
        compaction.compact("c", head, nothing)
        other.write("c", "z", put({"n": 1}))
        self._after(other)
        last = self._store.heads(["c"])["c"].revision
        self.states = {n: state_at(self._store, "c", n) for n in range(head, last + 1)}
        assert findings(self._store, "c") == []

    def check(self) -> None:
        """Everything is as it was before it woke up."""
        assert self.states, "nobody slept"
        assert self._store.heads(["c"])["c"].revision == max(self.states)
        for revision, state in self.states.items():
            assert state_at(self._store, "c", revision) == state
        assert findings(self._store, "c") == []


WRITING = [
    ("after", "move_heads"),
    ("before", "write_documents"),
    ("after", "write_documents"),
    ("before", "write_commits"),
    ("after", "write_commits"),
]
TAKING_OVER = [("after", "head_with_batch"), ("before", "documents"), *WRITING[1:]]


@pytest.mark.parametrize("sleep_s", [1.0, 2 * DAY_S])
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize(("when", "call"), WRITING)
def test_a_writer_that_slept_brings_nothing_back(
    when: str, call: str, meanwhile: str, sleep_s: float
) -> None:
    write_and_sleep(MemoryStore(), when, call, meanwhile, sleep_s)


@pytest.mark.parametrize(("when", "call"), WRITING)
def test_a_writer_that_slept_brings_nothing_back_to_either_store(
    store: Store, when: str, call: str
) -> None:
    write_and_sleep(store, when, call, "deleted", 2 * DAY_S)


def write_and_sleep(store: Store, when: str, call: str, meanwhile: str, sleep_s: float) -> None:
    clock = SetClock()
    begun(store)
    watched = WatchedStore(store)
    ours = gateway_on(watched, clock)
    sleeper = Sleeper(store, clock, meanwhile, sleep_s)
    getattr(watched, when)[call] = once(sleeper.sleep)
    applied(write_both(ours))
    sleeper.check()


@pytest.mark.parametrize("sleep_s", [0.0, 2 * DAY_S])
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize(("when", "call"), TAKING_OVER)
def test_one_who_takes_a_batch_over_and_sleeps_brings_nothing_back(
    when: str, call: str, meanwhile: str, sleep_s: float
) -> None:
    take_over_and_sleep(MemoryStore(), when, call, meanwhile, sleep_s)


@pytest.mark.parametrize(("when", "call"), TAKING_OVER)
def test_one_who_takes_over_and_sleeps_brings_nothing_back_to_either_store(
    store: Store, when: str, call: str
) -> None:
    take_over_and_sleep(store, when, call, "deleted", 2 * DAY_S)


def take_over_and_sleep(store: Store, when: str, call: str, meanwhile: str, sleep_s: float) -> None:
    dying = WatchedStore(begun(store))
    reached, held = threading.Event(), threading.Event()

    def die() -> None:
        reached.set()
        held.wait(WAIT_S)
        raise Unreachable("it is dead")

    dying.before["write_documents"] = die
    writer = threading.Thread(target=lambda: write_both(gateway_on(dying)))
    writer.start()
    assert reached.wait(WAIT_S)
    clock = SetClock()
    watched = WatchedStore(store)
    sleeper = Sleeper(store, clock, meanwhile, sleep_s)
    getattr(watched, when)[call] = once(sleeper.sleep)
    settler_of(cast(Store, watched), clock).settle("c")
    sleeper.check()
    held.set()
    writer.join(WAIT_S)
    sleeper.check()


class Stalls:
    """A writer stalls before it writes out, looks, and is overtaken between its writes."""

    def __init__(self, store: Store, when: str, call: str, grace_ms: int) -> None:
        self.clock, self.watched = SetClock(), WatchedStore(begun(store))
        limits = ServiceLimits(
            full_value_every=3, write_out_grace_ms=grace_ms, deadline_ms=3_600_000
        )
        self.gateway = Gateway(cast(Store, self.watched), self.clock, limits)
        self.sleeper = Sleeper(store, self.clock, "deleted", 0.0)
        self.watched.after["move_heads"] = once(lambda: self.stall(when, call, grace_ms))

    def stall(self, when: str, call: str, grace_ms: int) -> None:
        self.clock.passed_s += 2 * grace_ms / 1000
        getattr(self.watched, when)[call] = once(self.sleeper.sleep)

    def write(self) -> None:
        applied(write_both(self.gateway))
        self.sleeper.check()


@pytest.mark.parametrize("grace_ms", [10_000, 600_000])
@pytest.mark.parametrize(("when", "call"), [*WRITING[1:], ("after", "heads")])
def test_who_has_looked_once_is_alone_no_more(
    store: Store, when: str, call: str, grace_ms: int
) -> None:
    """It found its batch unfinished, after its time: from then on anybody may finish it."""
    Stalls(store, when, call, grace_ms).write()


@pytest.mark.parametrize("slept_s", [20.0, 2 * DAY_S])
def test_a_writer_that_is_late_looks_before_it_sends_commits(store: Store, slept_s: float) -> None:
    """Whoever reads meanwhile isn't shown what was deleted, and nothing is left if it dies."""
    clock, watched = SetClock(), WatchedStore(begun(store))
    sleeper = Sleeper(store, clock, "deleted", slept_s)
    watched.after["write_documents"] = once(sleeper.sleep)
    applied(gateway_on(watched, clock).write("c", "k", put(1)).outcome)
    assert "write_commits" not in watched.calls
    sleeper.check()


def test_a_look_that_fails_is_made_up_for(store: Store) -> None:
    """It is owed until the store can be reached again, however long that takes."""
    clock = SetClock()
    begun(store)
    watched = WatchedStore(store)
    ours = gateway_on(watched, clock)
    sleeper = Sleeper(store, clock, "deleted", 1.0)
    back = threading.Event()

    def away() -> None:
        if not back.is_set():
            raise Unreachable("it is away")

    def overtaken() -> None:
        sleeper.sleep()
        for call in ("heads", "write_documents", "write_commits"):
            watched.before[call] = away

    watched.before["write_commits"] = once(overtaken)
    applied(write_both(ours))
    back.set()
    wait_until(lambda: not findings(store, "c"))
    sleeper.check()


def test_both_clocks_count() -> None:
    clock = SetClock()
    since = late.moment(clock)
    assert late.elapsed_s(clock, since) < 60
    asleep = late.Moment(since.monotonic, since.wall_us - 3_600_000_000)
    assert late.elapsed_s(clock, asleep) >= 3600
    set_back = late.Moment(since.monotonic - 3600, since.wall_us + 3_600_000_000)
    assert late.elapsed_s(clock, set_back) >= 3600


def test_whose_a_compacted_revision_was_is_unknown(store: Store) -> None:
    """The move broke off, and when it can be looked up its commit may have been swept."""
    gateway_on(store).write("c", "k", put(0))
    watched = WatchedStore(store)
    ours = gateway_on(watched)

    def meanwhile() -> None:
        other = gateway_on(store)
        for number in range(3):
            other.write("c", "k", put(number + 1))
        compaction_of(store).compact("c", 4, nothing)
        raise Unreachable("the answer is lost")

    watched.after["move_heads"] = once(meanwhile)
    written = ours.write("c", "k", put(9))
    assert written.outcome == Unknown(written.commit_id)


def test_a_cache_below_the_floor_starts_again(store: Store) -> None:
    """It holds a document that was deleted since, and one that was made again."""
    ours, other = gateway_on(store), gateway_on(store)
    for key in KEYS:
        ours.write("c", key, put({"n": 0}))
        ours.read("c", key)
    other.write("c", "k", Delete())
    edits = [KeyEdit("other", put({"n": 1})), KeyEdit("z", Delete())]
    other.commit(other.request("c", edits))
    other.write("c", "z", put({"n": 2}))
    compaction_of(store).compact("c", 5, nothing)
    compaction_of(store).compact("c", 6, nothing)
    assert ours.read("c", "k").document is None
    added = add("/m", 1)
    for key, expected in (("other", {"n": 1, "m": 1}), ("z", {"n": 2, "m": 1})):
        ours.write("c", key, added)
        assert content_of(ours, key) == expected
    assert findings(store, "c") == []


def test_a_look_that_finds_nothing_wrong_lets_the_write_out_go_on(store: Store) -> None:
    """Two days asleep, and nobody was there meanwhile."""
    clock = SetClock()
    watched = WatchedStore(store)
    ours = gateway_on(watched, clock)

    def sleep() -> None:
        clock.passed_s += 2 * DAY_S

    watched.after["move_heads"] = once(sleep)
    ours.write("c", "k", put({"n": 1}))
    assert [c.revision for c in store.commits({"c": (0, 1)})["c"]] == [1]
    assert findings(store, "c") == []


def test_what_others_have_written_out_isnt_written_again(store: Store) -> None:
    clock = SetClock()
    gateway_on(store).write("c", "k", put({"n": 0}))
    watched = WatchedStore(store)
    ours = gateway_on(watched, clock)
    sleeper = Sleeper(store, clock, "deleted", 1.0)
    watched.after["move_heads"] = once(sleeper.sleep)
    applied(ours.write("c", "k", put({"n": 1})).outcome)
    assert not {"write_documents", "write_commits"} & set(watched.calls)
