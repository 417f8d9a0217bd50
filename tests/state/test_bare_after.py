"""A document after the tail, or its acl alone: an unknown acl is never open."""

from __future__ import annotations

import pytest

from gateway.meters import NO_METERS
from gateway.model import BareDocument, ChangeRecord
from gateway.state.replay import HistoryIncomplete, advance_all, bare_laid_over, rebuild
from tests.counted import Counted
from tests.memory_store import MemoryStore
from tests.store.contract_suite import commit

CLOSED = {"acl": {"read": ["ann"]}}
STORED = BareDocument("k", 3, 1, True, CLOSED)  # type: ignore[arg-type]


def made(revision: int, **fields: object) -> object:
    given = {"key": "k", "action": "patch", "create_revision": 1, **fields}
    return commit(revision, changes=(ChangeRecord(**given),))  # type: ignore[arg-type]


def after_tail(stored: BareDocument | None, tail: list[object]) -> BareDocument | None:
    return bare_laid_over(MemoryStore(), NO_METERS, "c", {"k": stored}, tail)["k"]  # type: ignore[arg-type]


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
    after = after_tail(STORED, [made(4, **change)])
    assert after is not None
    assert (after.revision, after.attributes) == (4, attributes)
    assert after.exists == (change.get("action") != "delete")


def test_changes_already_stored_and_of_other_keys_are_ignored() -> None:
    tail = [made(3, action="put", value=1), made(4, key="other")]
    assert after_tail(STORED, tail) == STORED


def test_without_the_earlier_state_the_acl_is_unknown() -> None:
    with pytest.raises(HistoryIncomplete):
        after_tail(None, [made(4, patch=[])])


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


def test_a_large_tail_is_not_gone_through_for_each_key() -> None:
    """Readers of acls held their worker up for as long as the tail's keys, times theirs."""
    keys = [f"{number:03}" for number in range(300)]
    changes = Counted(ChangeRecord(key, "delete", 1) for key in keys)
    tail = [commit(4, changes=changes)]
    stored = dict.fromkeys((*keys, "other"), STORED)
    after = bare_laid_over(MemoryStore(), NO_METERS, "c", stored, tail)  # type: ignore[arg-type]
    assert changes.seen < 10 * len(changes)
    assert [key for key, each in after.items() if each is not None and each.exists] == ["other"]
