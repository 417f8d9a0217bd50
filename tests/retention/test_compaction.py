"""Compaction on both stores: killed at every step, racing pins and readers, in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, cast

import msgspec
import pytest

from gateway import cpu
from gateway.decide.edits import Delete, KeyEdit, MoveKey, Touch
from gateway.decide.settings import CompiledSettings
from gateway.errors import (
    AboveLimit,
    CatalogNotFound,
    PinHolds,
    PinNotFound,
    RevisionCompacted,
    RevisionNotFound,
    SnapshotExists,
    UnknownOutcome,
)
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import SETTINGS_KEY, HeadMove, Idempotency, PinRecord
from gateway.read.history import Filter, HistoryReads
from gateway.retention.compaction import Compactor, advance
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import ForeignRecord, Moved, Store, StoreUnreachable, Swept
from tests.memory_store import MemoryStore
from tests.retention.history_checks import (
    Killed,
    check_history,
    compaction_of,
    history_of,
    killed_at,
    settler_of,
    state_at,
    wait_until_written,
)
from tests.without_http import SetClock, WatchedStore, applied, once, patch, put

KEYS = ("a", "b", "c", "d")


def gateway_on(store: Store, runtime: ThreadRuntime | None = None, **limits: Any) -> GatewayService:
    retention = RetentionLimits(pause_ms=0, tombstone_grace_s=0, **limits)
    return GatewayService(
        store, runtime or ThreadRuntime(), ServiceLimits(full_value_every=3, retention=retention)
    )


# Twelve revisions of every kind of change.
HISTORY: list[list[KeyEdit]] = [
    [KeyEdit("a", put({"n": 1})), KeyEdit("b", put({"n": 1}))],
    [KeyEdit("a", patch({"op": "add", "path": "/m", "value": 1}))],
    [KeyEdit("b", Delete()), KeyEdit("c", put({"n": 2}))],
    [KeyEdit("d", put({"n": 3}))],
    [KeyEdit("a", Touch())],
    [KeyEdit("b", patch({"op": "add", "path": "", "value": {}}))],
    [KeyEdit("c", Delete())],
    [KeyEdit("a", MoveKey("c"))],
    [KeyEdit("c", patch({"op": "add", "path": "/o", "value": 1}))],
    [KeyEdit("d", put({"n": 4})), KeyEdit("b", Delete())],
    [KeyEdit("d", Delete())],
    [KeyEdit("a", put({"n": 5}))],
]


def write_history(gateway: GatewayService, store: Store, catalog: str = "c") -> Sequence[Any]:
    """``HISTORY``; the states, by revision."""
    for _ in _commits(gateway, catalog):
        pass
    wait_until_written(gateway, catalog)
    assert store.heads([catalog])[catalog].revision == len(HISTORY)
    return _states()


def _commits(gateway: GatewayService, catalog: str) -> Iterator[int]:
    """Makes them; their revisions."""
    for revision, each in enumerate(HISTORY, 1):
        name = None if revision % 2 else Idempotency("ann", f"{revision - 1}", "x")
        gateway.commit(gateway.request(catalog, each, idempotency=name))
        yield revision


@cache  # they are the same in all catalogs of all stores
def _states() -> Sequence[Any]:
    store = MemoryStore()
    states = [state_at(store, "c", revision) for revision in _commits(gateway_on(store), "c")]
    return ({}, *states)


def nothing() -> None:
    pass


def written(store: Store, *catalogs: str) -> GatewayService:
    """Each has the history."""
    gateway = gateway_on(store)
    for catalog in catalogs:
        write_history(gateway, store, catalog)
    return gateway


def test_a_compaction_killed_at_any_step_is_finished_by_the_next(store: Store) -> None:
    gateway = gateway_on(store)
    for kill_at in range(1, 60):
        catalog = f"c{kill_at}"
        states = write_history(gateway, store, catalog)
        compaction_of(store).compact(catalog, 5, nothing)
        seen: list[str] = []
        killed = compaction_of(store, step=killed_at(kill_at, seen=seen))
        try:
            killed.compact(catalog, 11, nothing)
        except Killed:
            assert check_history(store, catalog, states, KEYS) == 11
            compaction_of(store).compact(catalog, 12, nothing)
            assert check_history(store, catalog, states, KEYS) == 12
            retained = store.list_commits(catalog, 0, 12, 99, None, 10**9)
            assert [c.revision for c in retained] == [8, 9, 12]
        else:
            assert set(seen) == {
                *("raise_floor", "sweep_marker", "sweep_older", "sweep_window", "end_sweep"),
                *("purge_tombstones", "drop_replies"),
            }
            return
    pytest.fail("it has more steps than were killed at")


def test_a_compaction_that_has_begun_is_not_broken_off(store: Store) -> None:
    """However much of its request's time that takes."""
    states = write_history(gateway_on(store), store)
    cpu.begin(1.0)

    def draw(_: str) -> None:
        cpu.draw(0.4)

    try:
        compaction_of(store, step=draw).compact("c", 11, cpu.require_some_left)
    finally:
        cpu.work_for(None)
    assert check_history(store, "c", states, KEYS) == 11


def test_a_sweep_may_be_overtaken_by_another_at_any_step(store: Store) -> None:
    gateway = gateway_on(store)
    for number in range(1, 60):
        catalog = f"c{number}"
        states = write_history(gateway, store, catalog)
        seen: list[str] = []

        def overtake(name: str, seen: list[str] = seen, catalog: str = catalog) -> None:
            seen.append(name)
            if len(seen) == number:  # noqa: B023
                compaction_of(store).finish(catalog, nothing)
                compaction_of(store).compact(catalog, 11, nothing)

        compaction_of(store, step=overtake).compact(catalog, 7, nothing)
        if len(seen) < number:
            return
        assert check_history(store, catalog, states, KEYS) == 11


def test_times_above_the_floor_name_the_same_revisions_after_compaction(store: Store) -> None:
    gateway = written(store, "c")
    times = {n: gateway.encoded_commit("c", n, list).time_us for n in range(1, 13)}
    compaction_of(store).compact("c", 7, nothing)
    compaction_of(store).compact("c", 11, nothing)
    assert gateway.revision_at("c", times[11]).revision == 11
    assert gateway.revision_at("c", times[12] - 1).revision == 11
    assert gateway.revision_at("c", times[12]).revision == 12
    for n in (1, 7, 8, 10):
        with pytest.raises(RevisionCompacted):
            gateway.revision_at("c", times[n])


def test_errors_of_a_compaction(store: Store) -> None:
    gateway = gateway_on(store)
    with pytest.raises(CatalogNotFound):
        gateway.retention.compact("c", 1)
    write_history(gateway, store)
    with pytest.raises(RevisionNotFound):
        gateway.retention.compact("c", 13)
    gateway.retention.compact("c", 5)
    for revision in (0, 4, 5):
        with pytest.raises(SnapshotExists):
            gateway.retention.compact("c", revision)
    pin = gateway.retention.pin("c", 8, 100, "ann")
    with pytest.raises(PinHolds) as held:
        gateway.retention.compact("c", 9)
    assert held.value.pinned == 8
    assert gateway.retention.compact("c", 8).floor == 8
    gateway.retention.unpin("c", pin.id, "ann")
    assert gateway.retention.compact("c", 12).floor == 12


def test_pins(store: Store) -> None:
    clock = SetClock()
    gateway = gateway_on(store, clock, pins_max=3, pin_seconds_max=1000)
    retention = gateway.retention
    with pytest.raises(CatalogNotFound):
        retention.pin("c", None, 10, "ann")
    write_history(gateway, store)
    retention.compact("c", 4)
    assert retention.pin("c", None, 10, "ann").revision == 12
    with pytest.raises(RevisionNotFound):
        retention.pin("c", 13, 10, "ann")
    with pytest.raises(RevisionCompacted):
        retention.pin("c", 3, 10, "ann")
    with pytest.raises(AboveLimit):
        retention.pin("c", 5, 1001, "ann")
    low = retention.pin("c", 4, 100, "bob")
    retention.pin("c", 5, 10, "bob")
    with pytest.raises(AboveLimit):
        retention.pin("c", 5, 10, "bob")
    assert [pin.revision for pin in retention.pins("c")] == [4, 5, 12]
    clock.passed_s += 50
    assert retention.pins("c") == [low]
    renewed = retention.renew("c", low.id, 1000, "bob")
    assert retention.read_pin("c", low.id) == renewed
    clock.passed_s += 60
    with pytest.raises(PinHolds):
        retention.compact("c", 5)
    assert retention.pin("c", 5, 10, "bob")  # those that ended long ago count no more
    clock.passed_s += 1000
    for call in (
        lambda: retention.renew("c", low.id, 1, "bob"),
        lambda: retention.unpin("c", low.id, "bob"),
    ):
        with pytest.raises(PinNotFound):
            call()
    assert retention.compact("c", 12).floor == 12


class HeldBack:
    """The first renewal of a pin breaks off, and is carried out when a test says so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.late: Callable[[], bool] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def set_pin(self, catalog: str, pin: PinRecord, *held: PinRecord) -> bool:
        if self.late is None and self._store.retention(catalog).pins:  # type: ignore[union-attr]
            self.late = lambda: self._store.set_pin(catalog, pin, *held)
            raise StoreUnreachable("the connection broke")
        return self._store.set_pin(catalog, pin, *held)


@pytest.mark.parametrize("then", ["renewed", "dropped"])
def test_a_renewal_that_arrives_late_changes_nothing(store: Store, then: str) -> None:
    held_back = HeldBack(store)
    gateway = gateway_on(held_back)  # type: ignore[arg-type]
    write_history(gateway, store)
    retention = gateway.retention
    pin = retention.pin("c", 4, 100, "ann")
    with pytest.raises(UnknownOutcome):
        retention.renew("c", pin.id, 1, "ann")
    if then == "renewed":
        retention.renew("c", pin.id, 1000, "ann")
    else:
        retention.unpin("c", pin.id, "ann")
    before = retention.pins("c")
    assert held_back.late is not None
    held_back.late()
    assert retention.pins("c") == before


class OvertakenStore:
    """Compacts the catalog right after a call of ``name`` has read."""

    def __init__(self, store: Store, name: str, revision: int) -> None:
        self._store = store
        self._name = name
        self._revision = revision

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._store, name)
        if name != self._name:
            return method

        def overtaken(*arguments: Any, **named: Any) -> Any:
            self._name = ""
            before = method(*arguments, **named)
            compaction_of(self._store).compact("c", self._revision, nothing)
            after = method(*arguments, **named)
            return after if self._revision % 2 else before

        return overtaken


READS: list[tuple[str, Callable[[HistoryReads, int], object]]] = [
    ("changes_of", lambda history, _: history.document_at_revision("c", "b", 6)),
    ("commit_at", lambda history, time_us: history.revision_at("c", time_us)),
    ("list_commits", lambda history, _: history.commits("c", after=6, limit=9, key=None)),
    ("list_commits", lambda history, _: history.encoded_commit("c", 6, list)),
]


@pytest.mark.parametrize("revision", [11, 12])
@pytest.mark.parametrize(("call", "read"), READS)
def test_a_reader_overtaken_by_compaction_gets_revision_compacted(
    store: Store, call: str, read: Callable[[HistoryReads, int], object], revision: int
) -> None:
    gateway = gateway_on(store)
    write_history(gateway, store)
    time_us = gateway.encoded_commit("c", 6, list).time_us
    slow: Any = OvertakenStore(store, call, revision)
    with pytest.raises(RevisionCompacted):
        read(history_of(slow), time_us)


@pytest.mark.parametrize("revision", [9, 12])
def test_a_page_in_descending_order_ends_at_the_floor(store: Store, revision: int) -> None:
    """Also where compaction overtook it: nothing below the floor, no gap above it."""
    write_history(gateway_on(store), store)
    slow: Any = OvertakenStore(store, "list_commits", revision)
    newest = Filter(newest_first=True)
    for history in (history_of(slow), history_of(store)):
        page = history.commits("c", after=0, limit=99, key=None, only=newest)
        head = page.head_revision
        assert [each.revision for each in page.commits] == list(range(head, revision, -1))
        assert page.next_after is None
    with pytest.raises(RevisionCompacted):
        history_of(store).commits(
            "c", after=0, limit=9, key=None, only=Filter(before=8, newest_first=True)
        )


def test_replies_outlive_history_by_their_retention(store: Store) -> None:
    gateway = written(store, "c")
    compaction_of(store, idempotency_retention_s=1000).compact("c", 12, nothing)
    reply = gateway.reply("c", "ann", "1")
    assert reply is not None
    assert reply.revision == 2
    compaction_of(store).tidy("c", nothing)
    assert gateway.reply("c", "ann", "1") is None
    assert gateway.reply("c", "ann", "11") is not None


def test_tombstones_are_kept_for_their_grace_period(store: Store) -> None:
    written(store, "c")
    compaction_of(store, tombstone_grace_s=1000).compact("c", 12, nothing)
    assert {key for _, key in store.documents({"c": KEYS})} == set(KEYS)
    compaction_of(store).tidy("c", nothing)
    assert {key for _, key in store.documents({"c": KEYS})} == {"a", "c"}


def revisions(store: Store) -> list[int]:
    return [each.revision for each in store.list_commits("c", 0, 12, 99, None, 10**9)]


def bounds_of(store: Store) -> tuple[int, int]:
    bounds = store.retention("c")
    assert bounds is not None
    return bounds.floor, bounds.swept


def test_history_is_kept_for_a_grace_period_after_the_floor_is_raised(store: Store) -> None:
    """Nobody reads it any more, and the floor may rise further meanwhile."""
    states = write_history(gateway_on(store), store)
    unhurried = compaction_of(store, sweep_grace_s=3600)
    for floor in (5, 11):
        compacted = unhurried.compact("c", floor, nothing)
        assert (compacted.floor, compacted.swept, compacted.tombstones) == (floor, 0, 0)
        assert bounds_of(store) == (floor, 0)
        assert revisions(store) == list(range(1, 13))
        assert {key for _, key in store.documents({"c": KEYS})} == set(KEYS)
        assert check_history(store, "c", states, KEYS) == floor
    compaction_of(store).finish("c", nothing)
    assert bounds_of(store) == (11, 11)
    assert check_history(store, "c", states, KEYS) == 11
    assert revisions(store) == [8, 9, 11, 12]


def test_history_is_swept_only_up_to_floors_raised_long_ago() -> None:
    clock = SetClock()
    store = MemoryStore(clock.monotonic)
    states = write_history(gateway_on(store), store)
    compaction = compaction_of(store, clock, sweep_grace_s=100)
    reached = []
    for floor, wait_s in ((5, 60), (11, 41), (12, 60), (None, 41)):
        if floor is not None:
            compaction.compact("c", floor, nothing)
        clock.passed_s += wait_s
        compaction.finish("c", nothing)
        reached.append(bounds_of(store))
        assert check_history(store, "c", states, KEYS) == reached[-1][0]
    assert reached == [(5, 0), (11, 5), (12, 11), (12, 12)]


def test_a_new_primary_with_a_clock_ahead_shortens_no_grace_period() -> None:
    """It takes the floors for older than they are; the one that sweeps knows better."""
    clock, primary = SetClock(), SetClock()
    store = MemoryStore(primary.monotonic)
    states = write_history(gateway_on(store), store)
    compaction = compaction_of(store, clock, sweep_grace_s=100)
    compaction.compact("c", 5, nothing)
    primary.passed_s += 3600
    for by_own_clock in (compaction, compaction_of(store, clock, sweep_grace_s=100)):
        by_own_clock.finish("c", nothing)
        assert bounds_of(store) == (5, 0)
    assert check_history(store, "c", states, KEYS) == 5
    clock.passed_s += 101
    compaction.finish("c", nothing)
    assert bounds_of(store) == (5, 5)


class CountingMeters(Meters):
    failed = 0

    def compaction_failed(self) -> None:
        self.failed += 1


def compactor_of(
    store: Store,
    runtime: ThreadRuntime,
    meters: Meters = NO_METERS,
    sweep_grace_s: float = 0.0,
    **rules: int,
) -> Compactor:
    compaction = compaction_of(store, runtime, sweep_grace_s=sweep_grace_s)
    limits = RetentionLimits(interval_s=300, pause_ms=0, **rules)
    settings = CompiledSettings(nullcontext())
    return Compactor(store, runtime, compaction, limits, settings.of, meters)


def floor(store: Store, catalog: str = "c") -> int:
    return store.heads([catalog])[catalog].floor


class TestInTheBackground:
    def test_nothing_is_compacted_without_a_rule(self, store: Store) -> None:
        write_history(gateway_on(store), store)
        assert compactor_of(store, ThreadRuntime()).run_round()
        assert floor(store) == 0

    def test_the_last_commits_are_kept(self, store: Store) -> None:
        states = write_history(gateway_on(store), store)
        compactor_of(store, ThreadRuntime(), commits=4).run_round()
        assert check_history(store, "c", states, KEYS) == 8

    def test_young_commits_are_kept(self, store: Store) -> None:
        clock = SetClock()
        gateway = gateway_on(store, clock)
        write_history(gateway, store)
        clock.passed_s += 100
        gateway.write("c", "a", put({"n": 6}))
        compactor_of(store, clock, age_s=50).run_round()
        assert floor(store) == 12

    def test_with_both_rules_a_commit_stays_if_either_keeps_it(self, store: Store) -> None:
        clock = SetClock()
        write_history(gateway_on(store, clock), store)
        compactor = compactor_of(store, clock, age_s=50, commits=3)
        compactor.run_round()
        assert floor(store) == 0
        clock.passed_s += 100
        compactor.run_round()
        assert floor(store) == 9

    def test_the_settings_of_a_catalog_override_the_default(self, store: Store) -> None:
        gateway = written(store, "c", "d")
        gateway.write("c", SETTINGS_KEY, put({"retention": {"commits": 2}}))
        compactor_of(store, ThreadRuntime(), commits=5).run_round()
        assert (floor(store), floor(store, "d")) == (11, 7)

    def test_the_floor_stays_at_the_lowest_pin(self, store: Store) -> None:
        clock = SetClock()
        gateway = gateway_on(store, clock)
        write_history(gateway, store)
        gateway.retention.pin("c", 6, 100, "ann")
        compactor = compactor_of(store, clock, commits=2)
        compactor.run_round()
        assert floor(store) == 6
        clock.passed_s += 100 + RetentionLimits().sweep_grace_s + 1
        compactor.run_round()
        assert floor(store) == 10

    def test_a_pin_lasts_by_the_clock_of_the_gateway_that_made_it(self, store: Store) -> None:
        """The clock of the one that compacts may be ahead by ``sweep_grace_s``."""
        behind, ahead = SetClock(), SetClock()
        write_history(gateway_on(store, behind), store)
        ahead.passed_s = RetentionLimits().sweep_grace_s
        pin = gateway_on(store, behind).retention.pin("c", 6, 100, "ann")
        theirs = gateway_on(store, ahead).retention
        theirs.pin("c", 7, 100, "ann")
        behind.passed_s += 99
        ahead.passed_s += 99
        compactor_of(store, ahead, commits=2).run_round()
        assert floor(store) == 6
        assert gateway_on(store, behind).retention.read_pin("c", pin.id) == pin

    def test_an_error_in_one_catalog_affects_no_other(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        written(store, "a", "b", "c")
        compactor = compactor_of(store, ThreadRuntime(), commits=2)
        compact = compactor._compaction.compact_as_wanted

        def failing(catalog: str, *arguments: Any) -> Any:
            if catalog == "b":
                raise RuntimeError("a defect")
            return compact(catalog, *arguments)

        monkeypatch.setattr(compactor._compaction, "compact_as_wanted", failing)
        with caplog.at_level(logging.INFO):
            assert compactor.run_round()
        assert [floor(store, catalog) for catalog in ("a", "b", "c")] == [10, 0, 10]
        assert "compacted catalog 'a' from 0 to 10 of 12" in caplog.text
        assert "catalog 'b' could not be compacted" in caplog.text

    def test_a_catalog_that_cannot_be_swept_stops_no_other_compaction(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The store is there; it refuses what one catalog needs."""
        written(store, "a", "b", "c")
        sweep = store.sweep

        def refuse(catalog: str, swept: Any) -> None:
            if catalog == "b":
                raise StoreUnreachable("a bulk write failed")
            sweep(catalog, swept)

        monkeypatch.setattr(store, "sweep", refuse)
        meters = CountingMeters()
        compactor = compactor_of(store, ThreadRuntime(), meters, commits=2)
        assert compactor.run_round()
        assert [store.retention(c).swept for c in ("a", "b", "c")] == [10, 0, 10]  # type: ignore[union-attr]
        assert meters.failed == 1

    def test_unreadable_settings_stop_no_other_compaction(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody has edited them by hand, and their history, too."""
        gateway = written(store, "a", "b", "c")
        gateway.write("b", SETTINGS_KEY, put({"retention": {"commits": 8}}))
        change = {"op": "replace", "path": "/retention/commits", "value": 9}
        gateway.write("b", SETTINGS_KEY, patch(change))
        wait_until_written(gateway, "b")
        store.sweep("b", [Swept(13, None)])
        documents = store.documents

        def edited(keys: Mapping[str, Collection[str]], *arguments: Any) -> Any:
            if SETTINGS_KEY in keys.get("b", ()):
                raise ForeignRecord("b", SETTINGS_KEY, "its settings can't be read")
            return documents(keys, *arguments)

        monkeypatch.setattr(store, "documents", edited)
        meters = CountingMeters()
        assert compactor_of(store, ThreadRuntime(), meters, commits=2).run_round()
        assert [floor(store, catalog) for catalog in ("a", "b", "c")] == [10, 0, 10]
        assert meters.failed == 1

    def test_a_round_ends_if_the_store_is_unreachable(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It isn't waited for once for each catalog."""
        written(store, "a", "b", "c")
        asked: list[str] = []

        def away(*arguments: Any) -> None:
            asked.append(arguments[0] if arguments else "ping")
            raise StoreUnreachable("it is away")

        monkeypatch.setattr(store, "retention", away)
        monkeypatch.setattr(store, "ping", away)
        with pytest.raises(StoreUnreachable):
            compactor_of(store, ThreadRuntime(), commits=2).run_round()
        assert asked == ["a", "ping"]

    @pytest.mark.parametrize(
        ("when", "call"),
        [
            *(("after", "documents"), ("after", "list_heads"), ("before", "retention")),
            *(("before", "raise_floor"), ("after", "tails")),
        ],
    )
    def test_a_longer_retention_applies_from_its_acknowledgement(
        self, store: Store, when: str, call: str
    ) -> None:
        gateway = written(store, "c", "d")
        watched = WatchedStore(store)

        def keep_more() -> None:
            gateway.write("c", SETTINGS_KEY, put({"retention": {"commits": 8}}))
            gateway.write("d", SETTINGS_KEY, put({"retention": {"commits": 9}}))

        getattr(watched, when)[call] = once(keep_more)
        assert compactor_of(cast(Store, watched), ThreadRuntime(), commits=2).run_round()
        assert (floor(store), floor(store, "d")) == (5, 4)

    def test_constant_writers_pause_for_a_compaction(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        gateway = written(store, "c", "d")
        watched = WatchedStore(store)
        lost = 0

        def write_unless_to_wait() -> None:
            nonlocal lost
            if not floor(store) and not store.tails(["c"])["c"].claims:
                gateway.write("c", "a", Touch())
                lost += 1

        watched.before["raise_floor"] = write_unless_to_wait
        with caplog.at_level(logging.INFO):
            assert compactor_of(cast(Store, watched), ThreadRuntime(), commits=2).run_round()
        assert lost >= 1
        assert (floor(store), floor(store, "d")) == (10 + lost, 10)
        assert "was not compacted" not in caplog.text
        assert store.tails(["c"])["c"].claims == (), "nobody waits any longer"

    def test_only_the_lease_holder_compacts_and_it_stops_when_it_loses_the_lease(
        self, store: Store
    ) -> None:
        written(store, "a", "b", "c")
        clock = SetClock()
        first = compactor_of(store, clock, commits=2)
        second = compactor_of(store, ThreadRuntime(), commits=2)
        compact = first._compact

        def then_sleep(*arguments: Any) -> None:
            # It sleeps so long that its lease ends and is taken by another.
            compact(*arguments)
            assert store.take_lease("compactor", first._holder, 0)
            assert store.take_lease("compactor", "another", 600)
            clock.passed_s += 1000
            first._rest()

        first._compact = then_sleep  # type: ignore[method-assign]
        assert not first.run_round()
        assert [floor(store, catalog) for catalog in ("a", "b", "c")] == [10, 0, 0]
        assert not first.run_round()
        assert store.take_lease("compactor", "another", 0)
        assert second.run_round()
        assert [floor(store, catalog) for catalog in ("a", "b", "c")] == [10, 10, 10]

    def test_an_interrupted_compaction_is_finished_by_the_next_round(self, store: Store) -> None:
        states = write_history(gateway_on(store), store)
        with pytest.raises(Killed):
            compaction_of(store, step=killed_at(3)).compact("c", 11, nothing)
        compactor_of(store, ThreadRuntime()).run_round()
        bounds = store.retention("c")
        assert bounds is not None
        assert (bounds.floor, bounds.swept) == (11, 11)
        assert check_history(store, "c", states, KEYS) == 11

    def test_a_later_round_sweeps_what_is_below_the_floor(self) -> None:
        clock = SetClock()
        store = MemoryStore(clock.monotonic)
        write_history(gateway_on(store), store)
        compactor = compactor_of(store, clock, sweep_grace_s=100, commits=2)
        for expected in ((10, 0), (10, 0), (10, 10)):
            assert compactor.run_round()
            assert bounds_of(store) == expected
            clock.passed_s += 60


def test_a_pin_made_while_compaction_runs_holds_or_is_refused(store: Store) -> None:
    gateway = gateway_on(store)
    states = write_history(gateway, store)
    refused: list[bool] = []

    def pin_now(_: str) -> None:
        refused.append(not store.set_pin("c", PinRecord(f"{len(refused)}", 6, 2**50, "ann")))

    compaction_of(store, step=pin_now).compact("c", 11, nothing)
    assert refused
    assert all(refused)
    assert check_history(store, "c", states, KEYS) == 11


class Contested(MemoryStore):
    """Whose head another writer moves whenever an advance has read it, unless it has to wait."""

    rivals = 0

    def list_commits(self, *given: Any) -> Sequence[Any]:
        head = self.tails(["c"])["c"]
        number = head.revision + 1
        (last,) = self.commits({"c": (head.revision - 1, head.revision)})["c"]
        commit = msgspec.structs.replace(
            last, revision=number, id=f"rival-{number}", parent=head.last, changes=()
        )
        move = HeadMove("c", head.revision, (commit,), number, last=head.last)
        if self.move_heads([move])["c"] is Moved.WON:
            self.write_commits([commit])
            self.rivals += 1
        return super().list_commits(*given)


def test_an_advance_that_lost_a_race_makes_other_writers_wait() -> None:
    store, runtime = Contested(), ThreadRuntime()
    gateway = gateway_on(store)
    applied(gateway.write("c", "a", put(1)).outcome)
    wait_until_written(gateway, "c")
    was, now = advance(store, settler_of(store, runtime), runtime, "c", 100) or (0, 0)
    assert (store.rivals, now - was) == (1, 100)
    assert store.heads(["c"])["c"].revision == now
    assert store.tails(["c"])["c"].claims == (), "nobody waits any longer"
