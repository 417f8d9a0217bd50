"""A document after the tail, or its acl alone: an unknown acl is never open."""

from __future__ import annotations

import pytest

from gateway.model import BareDocument, ChangeRecord
from gateway.state.replay import HistoryIncomplete, advance_all, bare_after, rebuild
from tests.memory_store import MemoryStore
from tests.store.contract_suite import commit

CLOSED = {"acl": {"read": ["ann"]}}
STORED = BareDocument("k", 3, 1, True, CLOSED)  # type: ignore[arg-type]


def made(revision: int, **fields: object) -> object:
    given = {"key": "k", "action": "patch", "create_revision": 1, **fields}
    return commit(revision, changes=(ChangeRecord(**given),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "attributes"),
    [
        ({"patch": []}, CLOSED),
        (
            {"action": "attributes", "attributes": {"acl": {"read": []}, "x": 1}},
            {"acl": {"read": []}},
        ),
        ({"action": "attributes", "attributes": {"x": 1}}, None),
        ({"action": "put", "value": 1}, None),
        ({"action": "delete"}, None),
    ],
)
def test_the_last_change_of_a_document_decides_its_acl(
    change: dict[str, object], attributes: object
) -> None:
    after = bare_after(STORED, "k", [made(4, **change)])  # type: ignore[list-item]
    assert after is not None
    assert (after.revision, after.attributes) == (4, attributes)
    assert after.exists == (change.get("action") != "delete")


def test_changes_already_stored_and_of_other_keys_are_ignored() -> None:
    tail = [made(3, action="put", value=1), made(4, key="other")]
    assert bare_after(STORED, "k", tail) == STORED  # type: ignore[arg-type]


def test_without_the_earlier_state_the_acl_is_unknown() -> None:
    with pytest.raises(HistoryIncomplete):
        bare_after(None, "k", [made(4, patch=[])])  # type: ignore[list-item]


def test_a_tail_is_not_applied_without_the_earlier_state() -> None:
    """Simulation seed 7005486: a rebase from a state that was compacted away failed its round."""
    with pytest.raises(HistoryIncomplete):
        rebuild(MemoryStore(), "c", "k", 4, [made(4, patch=[])])  # type: ignore[list-item]


def test_a_change_of_content_alone_makes_no_document() -> None:
    """It says all of the content, but not of the attributes: an acl would be gone."""
    whole = [{"op": "add", "path": "", "value": {"n": 1}}]
    with pytest.raises(HistoryIncomplete):
        advance_all(None, "k", [made(4, patch=whole)])  # type: ignore[list-item]
    created = advance_all(None, "k", [made(4, patch=whole, create_revision=4)])  # type: ignore[list-item]
    assert created is not None
    assert created.content == {"n": 1}
