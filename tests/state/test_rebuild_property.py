"""Whatever is written, pinned and compacted: each retained revision reads as it was."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.decide.edits import Delete, EditAttributes, KeyEdit, Merge, MoveKey, Touch
from gateway.decide.request import Applied, Refused, Unchanged
from gateway.errors import PinHolds, SnapshotExists
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.model import Idempotency
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.memory_store import MemoryStore
from tests.retention.history_checks import (
    Killed,
    check_history,
    compaction_of,
    killed_at,
    wait_until_written,
)
from tests.without_http import patch, put

KEYS = ("a", "b", "c")
_keys = st.sampled_from(KEYS)
_values = st.integers(0, 2)

_edits = st.one_of(
    st.tuples(st.just("put"), _keys, _values),
    st.tuples(st.just("patch"), _keys, _values),
    st.tuples(st.just("patch"), _keys, _values),
    st.tuples(st.just("create"), _keys, _values),
    st.tuples(st.just("merge"), _keys, _values),
    st.tuples(st.just("delete"), _keys, _values),
    st.tuples(st.just("attributes"), _keys, _values),
    st.tuples(st.just("move"), _keys, _keys),
)
_requests = st.one_of(
    st.lists(_edits, min_size=1, max_size=1),
    st.lists(_edits, min_size=1, max_size=4),
    st.just([("touch", "a", 0)]),
)
_steps = st.one_of(
    st.tuples(st.just("request"), _requests, st.booleans()),
    st.tuples(st.just("request"), _requests, st.booleans()),
    st.tuples(st.just("request"), _requests, st.booleans()),
    # Of which revision (a share of those above the floor), and at which step it is killed.
    st.tuples(st.just("compact"), st.floats(0, 1), st.integers(0, 12)),
    st.tuples(st.just("pin"), st.floats(0, 1), st.booleans()),
)

_store = MemoryStore()
_gateway = GatewayService(
    _store, ThreadRuntime(), ServiceLimits(full_value_every=3, retention=RetentionLimits())
)
_names = (f"catalog-{number}" for number in itertools.count())


class CannotApply(Exception):
    pass


def key_edit(kind: str, key: str, value: Any) -> KeyEdit:
    edits: Mapping[str, Any] = {
        "put": lambda: put({"n": value}),
        "patch": lambda: patch({"op": "add", "path": "/m", "value": value}),
        "create": lambda: patch({"op": "add", "path": "", "value": {"m": value, "by": "patch"}}),
        "merge": lambda: Merge({"n": None, "o": value}, 20),
        "delete": Delete,
        "attributes": lambda: EditAttributes(put({"v": value} if value else {})),
        "move": lambda: MoveKey(value),
        "touch": Touch,
    }
    return KeyEdit(key, edits[kind]())


def model_edit(state: dict[str, tuple[Any, Any]], kind: str, key: str, value: Any) -> None:
    """The same on a plain dict; CannotApply where the gateway must refuse."""
    content, attributes = state.get(key, (None, None))
    if kind == "put":
        state[key] = ({"n": value}, attributes)
    elif kind == "create":
        state[key] = ({"m": value, "by": "patch"}, attributes)
    elif kind == "delete":
        state.pop(key, None)
    elif kind == "touch":
        return
    elif key not in state:
        raise CannotApply
    elif kind == "patch":
        state[key] = ({**content, "m": value}, attributes)
    elif kind == "merge":
        merged = {**content, "o": value}
        merged.pop("n", None)
        state[key] = (merged, attributes)
    elif kind == "attributes":
        state[key] = (content, {"v": value} if value else None)
    elif value in state:
        raise CannotApply
    else:
        state[value] = state.pop(key)


_asked = itertools.count()


def run_request(catalog: str, states: list[Any], edits: list[Any], replied: bool) -> None:
    after: Any = deepcopy(states[-1])
    try:
        for edit in edits:
            model_edit(after, *edit)
    except CannotApply:
        after = None
    name = Idempotency("ann", f"{next(_asked)}", "print") if replied else None
    request = _gateway.request(catalog, [key_edit(*edit) for edit in edits], idempotency=name)
    outcome = _gateway.commit(request).outcome
    if after is None:
        assert isinstance(outcome, Refused), (edits, outcome)
    elif isinstance(outcome, Unchanged):
        assert after == states[-1]
    else:
        assert isinstance(outcome, Applied), (edits, outcome)
        assert outcome.commit.revision == len(states)
        states.append(after)


def run_compaction(catalog: str, share: float, kill_at: int) -> None:
    """Somewhere between the floor and the head; with luck broken off at some step."""
    wait_until_written(_gateway, catalog)
    bounds = _store.retention(catalog)
    if bounds is None:
        return
    revision = bounds.floor + round(share * (bounds.revision - bounds.floor))
    compaction = compaction_of(_store, step=killed_at(kill_at), idempotency_retention_s=kill_at % 2)
    held = min((pin.revision for pin in bounds.pins), default=None)
    try:
        compaction.compact(catalog, revision, lambda: None)
    except SnapshotExists:
        assert revision == bounds.floor
    except PinHolds:
        assert held is not None
        assert held < revision
    except Killed:
        pass
    else:
        assert held is None or held >= revision
        after = _store.retention(catalog)
        assert after is not None
        assert (after.floor, after.swept) == (revision, revision)


@given(st.lists(_steps, min_size=1, max_size=30))
def test_every_retained_revision_reads_as_before(steps: list[Any]) -> None:
    catalog = next(_names)
    states: list[Any] = [{}]
    for kind, what, how in steps:
        if kind == "request":
            run_request(catalog, states, what, how)
        elif kind == "compact":
            run_compaction(catalog, what, how)
            if len(states) > 1:
                check_history(_store, catalog, states, KEYS)
        elif len(states) > 1:
            bounds = _store.retention(catalog)
            assert bounds is not None
            revision = bounds.floor + round(what * (bounds.revision - bounds.floor))
            pin = _gateway.retention.pin(catalog, revision, 1000, "a test")
            if how:
                _gateway.retention.unpin(catalog, pin.id, "a test")
    if len(states) > 1:
        check_history(_store, catalog, states, KEYS)
        compaction = compaction_of(_store)
        compaction.finish(catalog, lambda: None)
        check_history(_store, catalog, states, KEYS)


@settings(max_examples=50)
@given(st.lists(_requests, min_size=2, max_size=25), st.data())
def test_history_that_no_retained_revision_needs_is_removed(
    requests: list[Any], data: st.DataObject
) -> None:
    """At the floor, each live key has its chain and nothing else; deletions leave nothing."""
    catalog = next(_names)
    states: list[Any] = [{}]
    for edits in requests:
        run_request(catalog, states, edits, replied=False)
    if len(states) == 1:
        return
    wait_until_written(_gateway, catalog)
    for floor in sorted(data.draw(st.sets(st.integers(1, len(states) - 1), max_size=4))):
        compaction_of(_store).compact(catalog, floor, lambda: None)
        retained = {
            key: [c.revision for c in _store.commits_of_keys(catalog, [key], floor)] for key in KEYS
        }
        for key in KEYS:
            if key not in states[floor]:
                assert retained[key] == []
            else:
                chain = [c.revision for c in reversed(_store.changes_of(catalog, key, floor))]
                assert retained[key] == chain
        below = [c.revision for c in _store.list_commits(catalog, 0, floor, 999, None, 10**9)]
        assert below == sorted({floor}.union(*retained.values()))
        tombstones = _store.documents({catalog: KEYS}).values()
        assert all(d.exists or d.revision > floor for d in tombstones)
