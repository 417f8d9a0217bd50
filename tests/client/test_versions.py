"""The copy keeps what its history needs, and no more."""

from __future__ import annotations

from datetime import timedelta

from patching.client import Change, Commit, History
from patching.client._local_copy import VersionedCopy
from tests.client.fake_gateway import EPOCH


def commit(revision: int, key: str, *patch: dict[str, object]) -> Commit:
    change = Change(key, "patch", 1, list(patch), None)
    time = EPOCH + timedelta(seconds=revision)
    return Commit(revision, time, f"id-{revision}", "me", None, None, 1, (change,))


def test_documents_deleted_before_the_earliest_state_leave_nothing_behind() -> None:
    versions = VersionedCopy(0, None, {})
    for n in range(1, 100):
        made = {"op": "add", "path": "", "value": n}
        versions.commit(commit(2 * n - 1, f"k{n}", made))
        versions.commit(commit(2 * n, f"k{n}", {"op": "remove", "path": ""}))
        versions.prune(History(commits=4), EPOCH)
    assert len(versions._chains) <= 3
    assert len(versions._log) == 4
    assert not versions._unpruned


def test_a_hot_document_keeps_one_value_per_retained_revision() -> None:
    versions = VersionedCopy(0, None, {"k": 0})
    for n in range(1, 100):
        versions.commit(commit(n, "k", {"op": "replace", "path": "", "value": n}))
        versions.prune(History(commits=4), EPOCH)
    assert versions._chains["k"].values == [95, 96, 97, 98, 99]


def test_an_unreferenced_snapshot_holds_nothing() -> None:
    versions = VersionedCopy(0, None, {"k": 0})
    held = versions.current()
    for n in range(1, 10):
        versions.commit(commit(n, "k", {"op": "replace", "path": "", "value": n}))
        versions.prune(History(commits=1), EPOCH)
    assert held.documents["k"] == 0
    del held
    versions.prune(History(commits=1), EPOCH)
    assert versions._chains["k"].values == [8, 9]
