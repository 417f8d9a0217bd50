"""The rule of what compaction leaves, on commits alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.model import ChangeRecord, CommitRecord, Idempotency
from gateway.state.history_sweep import (
    SweepRules,
    chain,
    found_under,
    left_of,
    sweep_older,
    sweep_window,
)
from gateway.store.contract import Swept
from patching import ABSENT

NOBODY = 10**9


def commit(revision: int, *changes: ChangeRecord, reply: str | None = None) -> CommitRecord:
    asked = None if reply is None else Idempotency("ann", reply, "print")
    name = f"{revision:032x}"
    return CommitRecord("c", revision, 1000 * revision, name, "ann", None, asked, 1, changes)


def put(key: str, created: int) -> ChangeRecord:
    return ChangeRecord(key, "put", created, None, {"n": created}, 9)


def patched(key: str, created: int) -> ChangeRecord:
    return ChangeRecord(key, "patch", created, [{"op": "add", "path": "/m", "value": 1}], ABSENT, 9)


def kth(key: str, created: int) -> ChangeRecord:
    return replace(patched(key, created), value={"n": 1})


def deleted(key: str, created: int) -> ChangeRecord:
    return ChangeRecord(key, "delete", created)


def attributes(key: str, created: int) -> ChangeRecord:
    return ChangeRecord(key, "attributes", created, attributes={"a": 1})


def keeping(floor: int, replies_since_us: int = NOBODY) -> SweepRules:
    return SweepRules(floor, replies_since_us)


def left(*commits: CommitRecord, floor: int, replies_since_us: int = NOBODY) -> dict[int, set[str]]:
    """By revision the keys that are left, of those commits that are left at all."""
    swept = sweep_window(commits, keeping(floor, replies_since_us)).swept
    assert [each.revision for each in swept] == sorted(each.revision for each in swept)
    kept = {each.revision: {change.key for change in each.changes} for each in commits}
    for each in swept:
        kept[each.revision] = set(each.keys)
        if each.commit is None:
            del kept[each.revision]
    return kept


def test_the_worked_example() -> None:
    commits = [
        commit(1, put("a", 1)),
        commit(2, put("b", 2)),
        commit(3, patched("a", 1)),
        commit(4, deleted("b", 4)),
        commit(5, put("a", 1)),
        commit(6, patched("a", 1)),
    ]
    assert sweep_window(commits, keeping(6)).swept == [Swept(n, None) for n in (1, 2, 3, 4)]
    assert sweep_window(commits, keeping(6)).superseded == {"a", "b"}


def test_a_state_needs_its_commits_back_to_the_last_whole_value() -> None:
    for begin in (put("a", 2), kth("a", 1), patched("a", 2)):
        commits = [commit(1, put("a", 1)), commit(2, begin), commit(3, attributes("a", 2))]
        assert left(*commits, floor=3) == {2: {"a"}, 3: {"a"}}, begin
    assert left(commit(7, patched("a", 1)), commit(8, attributes("a", 1)), floor=8) == {
        7: {"a"},
        8: {"a"},
    }


def test_a_key_whose_state_began_before_the_window_keeps_its_older_commits() -> None:
    window = sweep_window([commit(8, patched("a", 1)), commit(9, put("b", 1))], keeping(9))
    assert window.superseded == {"b"}


def test_a_swept_commit_keeps_only_the_keys_that_need_it() -> None:
    both = commit(1, put("a", 1), put("b", 1))
    swept = sweep_window([both, commit(2, put("a", 1))], keeping(2)).swept
    assert swept == [
        Swept(
            1, replace(both, changes=(ChangeRecord("a", "put", 1), put("b", 1))), frozenset({"b"})
        )
    ]


def test_the_commit_at_the_floor_stays_until_the_next_sweep() -> None:
    gone = commit(2, deleted("a", 2))
    assert left(commit(1, put("a", 1)), gone, floor=2) == {2: set()}
    assert left(commit(1), commit(2), commit(3), floor=3) == {3: set()}


def test_the_end_of_a_window_is_not_treated_as_the_floor() -> None:
    assert left(commit(1, put("a", 1)), commit(2, deleted("a", 2)), floor=9) == {}


def test_a_young_reply_stays_without_its_values() -> None:
    commits = [commit(n, put("a", 1), reply=f"{n}") for n in (1, 2, 3)]
    assert left(*commits, floor=3, replies_since_us=2000) == {2: set(), 3: {"a"}}
    kept = left_of(commits[1], (), keeping(3, 2000)).commit
    assert kept is not None
    assert kept.idempotency == commits[1].idempotency
    assert kept.changes == (ChangeRecord("a", "put", 1),)


def test_older_commits_lose_superseded_keys() -> None:
    older = [
        commit(1, put("a", 1), put("b", 1)),
        commit(2, patched("a", 1)),
        commit(3, put("c", 3)),
    ]
    swept = sweep_older(older, {"a"}, keeping(9))
    assert [(each.revision, each.keys, each.commit is None) for each in swept] == [
        (1, frozenset({"b"}), False),
        (2, frozenset(), True),
    ]


def test_the_commit_at_the_last_floor_is_swept_the_next_time() -> None:
    kept_for_its_time = commit(4, ChangeRecord("a", "delete", 4))
    assert sweep_older([kept_for_its_time], set(), keeping(9)) == [Swept(4, None)]
    assert sweep_older([commit(4, put("a", 4))], set(), keeping(9)) == []


@pytest.mark.parametrize("done", range(5))
def test_an_interrupted_sweep_ends_with_the_same_result(done: int) -> None:
    commits = [
        commit(1, put("a", 1), put("b", 1)),
        commit(2, put("b", 1), put("c", 2)),
        commit(3, deleted("c", 3), put("b", 1)),
        commit(4, patched("b", 1), deleted("a", 4)),
        commit(5, put("d", 5)),
    ]
    whole = sweep_window(commits, keeping(5)).swept
    stored = {each.revision: each for each in commits}
    for each in whole[:done]:
        stored.pop(each.revision)
        if each.commit is not None:
            stored[each.revision] = each.commit
    rest = [stored[revision] for revision in sorted(stored)]
    for each in sweep_window(rest, keeping(5)).swept:
        stored.pop(each.revision)
        if each.commit is not None:
            stored[each.revision] = each.commit
    found = {revision: found_under(each) for revision, each in stored.items()}
    assert found == {3: {"b"}, 4: {"b"}, 5: {"d"}}


def test_a_change_kept_for_a_reply_only_is_recognizable() -> None:
    for change in (put("a", 1), patched("a", 1), kth("a", 1), attributes("a", 1)):
        assert not change.is_reduced
        assert ChangeRecord(change.key, change.action, change.create_revision).is_reduced


def test_a_chain_without_its_beginning_is_incomplete() -> None:
    begun = [commit(1, put("a", 1)), commit(2, put("a", 1)), commit(3, patched("a", 1))]
    assert chain("a", begun) == [3, 2]
    assert chain("a", begun[2:]) == []
    assert chain("a", [*begun, commit(4, deleted("a", 4))]) == []
