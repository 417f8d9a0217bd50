"""A worker that catches up from the log reads the floor last, so that it never applies history that
compaction has removed or reduced."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache as cached
from typing import Any, cast

import pytest

from gateway.limits import ServiceLimits
from gateway.model import DocumentRecord, Head
from gateway.runtime import ThreadRuntime
from gateway.state import cache as cache_module
from gateway.state.cache import Cache, CachedState
from gateway.state.heads import HeadReader
from gateway.state.replay import HistoryIncomplete, WrongBase, advance, rebuild
from gateway.store.contract import Store
from tests.memory_store import MemoryStore
from tests.retention.history_checks import Killed, compaction_of, killed_at, wait_until_written
from tests.retention.test_compaction import HISTORY, KEYS, gateway_on, nothing, write_history
from tests.state.sleeping import Noted
from tests.without_http import WatchedStore, applied, once, put

LAST = len(HISTORY) + 1  # in the head's tail alone
RAISED_ONLY = 0  # a compaction that is killed before it sweeps anything
STEPS_MAX = 20  # more than a sweep of the history takes
CALLS = [(when, call) for call in ("tails", "commits", "heads") for when in ("before", "after")]
# In one of them, a floor that isn't looked at last isn't looked at any more.
AMID = [("after", "tails"), ("before", "commits"), ("after", "commits"), ("before", "heads")]
States = dict[str, DocumentRecord | None]


def make_history(store: Store, catalog: str = "c") -> None:
    gateway = gateway_on(store)
    write_history(gateway, store, catalog)
    applied(gateway.write(catalog, "d", put({"n": 6})).outcome)
    wait_until_written(gateway, catalog)
    head = store.tails([catalog])[catalog]
    assert (head.written, head.revision) == (LAST - 1, LAST)


@cached
def _made() -> MemoryStore:
    store = MemoryStore()
    make_history(store)
    return store


@cached
def _pickled() -> bytes:
    records = {name: each for name, each in vars(_made()).items() if isinstance(each, dict)}
    return pickle.dumps(records)


def store_with_history() -> MemoryStore:
    store = MemoryStore()
    vars(store).update(pickle.loads(_pickled()))
    return store


def states(store: Store, catalog: str, revision: int) -> States:
    return {key: rebuild(store, catalog, key, revision) for key in KEYS}


class Remembering:
    """A worker that knows all documents of ``catalogs`` at ``revision``, and hears no news."""

    def __init__(self, store: Store, *catalogs: str, revision: int) -> None:
        limits = ServiceLimits()
        self.store = WatchedStore(store)
        self.meters = Noted()
        self._catalogs = catalogs
        self._cache = Cache(ThreadRuntime(), limits, self.meters)
        self._head_reader = HeadReader(cast(Store, self.store), self._cache, limits)
        for catalog in catalogs:
            (commit,) = store.commits({catalog: (revision - 1, revision)})[catalog]
            empty: Any = {"tail": (), "verdicts": ()}
            head = Head(
                catalog, revision, commit.time_us, written=revision, last=commit.id, **empty
            )
            self._cache.begin(head)
            self._cache.learn(catalog, revision, states(store, catalog, revision))

    def catch_up(self) -> CachedState:
        """What it knows of the last catalog afterwards."""
        for head in self._head_reader.observe(self._catalogs).values():
            assert head.revision == LAST
        seen = self._cache.view(self._catalogs[-1], KEYS)
        assert seen is not None
        assert seen.revision == LAST
        return seen


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What replaying refused: that is the guard behind the floor."""
    noted: list[Exception] = []

    def noting(*arguments: Any) -> DocumentRecord:
        try:
            return advance(*arguments)
        except (HistoryIncomplete, WrongBase) as error:
            noted.append(error)
            raise

    monkeypatch.setattr(cache_module, "advance", noting)
    return noted


def compacts(
    store: Store, catalog: str, floor: int, kill_at: int, *, keeps_replies: bool
) -> Callable[[], None]:
    """A compaction that is killed at its ``kill_at``-th step, if it takes as many."""
    compaction = compaction_of(
        store,
        step=killed_at(kill_at),
        sweep_grace_s=1e9 if kill_at == RAISED_ONLY else 0.0,
        idempotency_retention_s=86_400 if keeps_replies else 0,
    )

    def compact() -> None:
        try:
            compaction.compact(catalog, floor, nothing)
        except Killed:
            return

    return compact


@pytest.mark.parametrize("keeps_replies", [True, False])
@pytest.mark.parametrize("where", CALLS)
def test_catching_up_never_applies_commits_reduced_by_compaction(
    where: tuple[str, str], keeps_replies: bool, refused: list[Exception]
) -> None:
    """From every revision, to every floor, broken off anywhere."""
    right = states(_made(), "c", LAST)
    for known in range(1, LAST - 1):
        for floor in range(known + 1, LAST + 1, 2):
            for kill_at in range(STEPS_MAX):
                store = store_with_history()
                ours = Remembering(store, "c", revision=known)
                when, call = where
                compact = compacts(store, "c", floor, kill_at, keeps_replies=keeps_replies)
                getattr(ours.store, when)[call] = once(compact)
                found = ours.catch_up().documents
                case = (known, floor, kill_at)
                assert found == {key: right[key] for key in found}, case
                assert refused == [], f"{case}: it was left to the second guard"
                assert ours.meters.refused == ours.meters.went_back == 0, case


@pytest.mark.parametrize("where", CALLS)
def test_a_floor_at_or_below_the_cached_revision_removes_nothing(
    where: tuple[str, str],
) -> None:
    right = states(_made(), "c", LAST)
    for known in range(2, LAST - 1):
        store = store_with_history()
        ours = Remembering(store, "c", revision=known)
        when, call = where
        compact = compacts(store, "c", known, STEPS_MAX, keeps_replies=True)
        getattr(ours.store, when)[call] = once(compact)
        assert ours.catch_up().documents == right, known
        assert ours.store.calls.count("commits") == 1


@pytest.mark.parametrize("where", AMID)
def test_catching_up_never_applies_commits_reduced_by_compaction_in_either_store(
    store: Store, where: tuple[str, str], refused: list[Exception]
) -> None:
    make_history(store)
    right = states(store, "c", LAST)
    ours = Remembering(store, "c", revision=1)
    when, call = where
    compact = compacts(store, "c", LAST - 1, STEPS_MAX, keeps_replies=True)
    getattr(ours.store, when)[call] = once(compact)
    found = ours.catch_up().documents
    assert found == {key: right[key] for key in found}
    assert refused == [], "it was left to the second guard"
    assert ours.meters.refused == ours.meters.went_back == 0


def test_all_catalogs_of_a_round_catch_up_with_one_read_of_the_log(store: Store) -> None:
    catalogs = ("a", "b", "c")
    for catalog in catalogs:
        make_history(store, catalog)
    ours = Remembering(store, *catalogs, revision=1)
    assert ours.catch_up().documents == states(store, "c", LAST)
    assert [ours.store.calls.count(call) for call in ("tails", "commits")] == [1, 1]
    assert ours.store.calls.count("heads") == 2, "before, and for the floors"


def test_a_catalog_whose_history_is_gone_hinders_no_other(store: Store) -> None:
    for catalog in ("a", "b", "c"):
        make_history(store, catalog)
    ours = Remembering(store, "a", "b", "c", revision=1)
    gone = compacts(store, "b", LAST - 1, STEPS_MAX, keeps_replies=False)
    ours.store.after["tails"] = once(gone)
    assert ours.catch_up().documents == states(store, "c", LAST)
    assert ours.store.calls.count("tails") == 2, "b alone is looked at again"
    assert ours.meters.refused == ours.meters.went_back == 0
