"""Compaction in small steps, and what must hold of a catalog's history whatever was done to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from gateway.errors import DocumentNotFound, RevisionCompacted
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.meters import NO_METERS, Meters
from gateway.model import DocumentRecord
from gateway.read.history import HistoryReads
from gateway.read.listing import Listing, as_is
from gateway.retention.compaction import CatalogCompaction
from gateway.retention.verification import Second, Verification
from gateway.runtime import Runtime, ThreadRuntime
from gateway.service import GatewayService
from gateway.state.cache import Cache
from gateway.state.heads import HeadReader, Settler
from gateway.state.history_sweep import Sweeper
from gateway.state.replay import advance_all
from gateway.store.contract import Store
from tests.patience import WAIT_S

# key -> (content, attributes)
LIMITS = ServiceLimits(write_out_grace_ms=0, cache_bytes_max=0)
State = Mapping[str, tuple[Any, Any]]


def wait_until_written(gateway: GatewayService, catalog: str = "c") -> None:
    """Until the gateway itself has written out all that it has committed.

    Others may have done so before. Where history is swept without a grace, it mustn't be under way.
    """
    deadline = time.monotonic() + WAIT_S
    while gateway._write_out.moves(catalog):
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.001)


class Killed(BaseException):
    """What a test ends a compaction with, where SIGKILL would."""


def settler_of(store: Store, runtime: Runtime, meters: Meters = NO_METERS) -> Settler:
    cache = Cache(runtime, LIMITS, meters)
    return Settler(store, cache, HeadReader(store, cache, LIMITS), runtime, LIMITS)


def history_of(store: Store) -> HistoryReads:
    runtime = ThreadRuntime()
    cache = Cache(runtime, LIMITS)
    head_reader = HeadReader(store, cache, LIMITS)
    settler = Settler(store, cache, head_reader, runtime, LIMITS)
    return HistoryReads(store, head_reader, settler, runtime, LIMITS)


def compaction_of(
    store: Store,
    runtime: Runtime | None = None,
    *,
    step: Callable[[str], None] = lambda name: None,  # noqa: ARG005
    sweep_grace_s: float = 0.0,
    tombstone_grace_s: int = 0,
    idempotency_retention_s: int = 0,
) -> CatalogCompaction:
    runtime = runtime or ThreadRuntime()
    return CatalogCompaction(
        store,
        settler_of(store, runtime),
        runtime,
        RetentionLimits(tombstone_grace_s=tombstone_grace_s, idempotency_s=idempotency_retention_s),
        Sweeper(
            store,
            runtime.monotonic,
            step,
            window_commits=3,
            keys_at_once=2,
            swept_at_once=1,
            grace_s=sweep_grace_s,
        ),
    )


def killed_at(number: int, *, seen: list[str] | None = None) -> Callable[[str], None]:
    """A step that kills at the ``number``-th call."""
    names: list[str] = [] if seen is None else seen

    def step(name: str) -> None:
        names.append(name)
        if len(names) == number:
            raise Killed(name)

    return step


def live(documents: Sequence[DocumentRecord]) -> State:
    return {d.key: (d.content, d.attributes) for d in documents}


def state_at(store: Store, catalog: str, revision: int) -> State:
    """As a listing gives it."""
    runtime = ThreadRuntime()
    settler = settler_of(store, runtime)
    listing = Listing(store, settler, runtime, LIMITS, lambda _catalog, _owner: None)
    page = listing.page(catalog, as_is, prefix="", after="", limit=1000, revision=revision)
    return live(page.documents)


def check_history(store: Store, catalog: str, states: Sequence[State], keys: Sequence[str]) -> int:
    """Every retained revision reads as ``states`` (by revision) says; the floor."""
    head = store.heads([catalog])[catalog]
    assert head.revision == len(states) - 1
    history = history_of(store)
    for revision, expected in enumerate(states):
        if revision < head.floor:
            with pytest.raises(RevisionCompacted):
                history.document_at_revision(catalog, keys[0], revision)
            with pytest.raises(RevisionCompacted):
                state_at(store, catalog, revision)
            continue
        assert state_at(store, catalog, revision) == expected, revision
        for key in keys:
            found = history_document(history, catalog, key, revision)
            assert (found and (found.content, found.attributes)) == expected.get(key), revision
    check_replay(store, catalog, states, keys, head.floor)
    assert findings(store, catalog) == []
    return head.floor


def history_document(
    history: HistoryReads, catalog: str, key: str, revision: int
) -> DocumentRecord | None:
    try:
        return history.document_at_revision(catalog, key, revision)
    except DocumentNotFound:
        return None


def check_replay(
    store: Store, catalog: str, states: Sequence[State], keys: Sequence[str], floor: int
) -> None:
    """From every retained revision forward, the commits lead to the documents."""
    history = history_of(store)
    stored = store.documents({catalog: keys})
    for start in range(floor, len(states)):
        page = history.commits(catalog, after=start, limit=1000, key=None)
        assert [c.revision for c in page.commits] == list(range(start + 1, len(states)))
        for key in keys:
            base = history_document(history, catalog, key, start)
            after = advance_all(base, key, page.commits)
            document = stored.get((catalog, key))
            assert _comparable(after) == _comparable(document), (key, start)


def _comparable(document: DocumentRecord | None) -> object:
    """What replaying must lead to; it may have begun later than what counts the patches."""
    if document is None or not document.exists:
        return None
    return (
        document.content,
        document.attributes,
        document.revision,
        document.create_revision,
        document.commit_id,
        document.time_us,
    )


def findings(store: Store, catalog: str, second: Second | None = None) -> list[str]:
    runtime = ThreadRuntime()
    verification = Verification(store, settler_of(store, runtime), runtime, second)
    return [f"{found.key}: {found.detail}" for found in verification.verify(catalog)]
