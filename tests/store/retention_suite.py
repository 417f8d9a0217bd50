"""What every store must do: pins, the floor, and the removal of what is below it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gateway.model import ChangeRecord, CommitRecord, Idempotency, PinRecord, Retention
from gateway.store.contract import Moved, Store, Swept
from patching import ABSENT
from tests.store.contract_suite import commit, document, move

_NOW_US = 1_000_000
_MANY = 1_000_000


def pin(revision: int, *, name: str = "p", expires_us: int = _NOW_US + 1) -> PinRecord:
    return PinRecord(name, revision, expires_us, "$ann")


def two_keys(revision: int, **fields: object) -> CommitRecord:
    changes = (
        ChangeRecord("a", "put", 1, None, {"n": revision}, 9),
        ChangeRecord("b", "delete", 1),
    )
    return commit(revision, changes=changes, **fields)


def reduced(full: CommitRecord, *keys: str) -> CommitRecord:
    """``full`` as compaction leaves it: whole under ``keys`` alone."""
    changes = tuple(
        change
        if change.key in keys
        else ChangeRecord(change.key, change.action, change.create_revision)
        for change in full.changes
    )
    return replace(full, changes=changes)


class RetentionContract:
    """Subclasses give the fixture ``store``."""

    @pytest.fixture
    def at_ten(self, store: Store) -> Store:
        store.move_heads([move(*(commit(n) for n in range(1, 11)))])
        return store

    def test_a_catalog_without_a_head_keeps_nothing(self, store: Store) -> None:
        assert store.retention("c") is None
        assert not store.set_pin("c", pin(0))
        assert not store.drop_pin("c", "p")
        assert not store.raise_floor("c", 1, _NOW_US)
        store.end_sweep("c", 5)
        assert store.retention("c") is None
        assert store.heads(["c"]) == {}

    def test_a_new_catalog_keeps_everything(self, at_ten: Store) -> None:
        assert at_ten.retention("c") == Retention(10, 0, 0, ())

    def test_a_pin_can_only_be_set_from_the_floor_to_the_head(self, at_ten: Store) -> None:
        assert at_ten.raise_floor("c", 4, _NOW_US)
        allowed = [n for n in range(12) if at_ten.set_pin("c", pin(n, name=f"{n}"))]
        assert allowed == [4, 5, 6, 7, 8, 9, 10]

    def test_a_head_advances_only_from_its_known_position(self, at_ten: Store) -> None:
        at_ten.write_commits([commit(n) for n in range(1, 11)])
        at_ten.set_pin("c", pin(10))
        before = at_ten.heads(["c"])["c"]
        far = commit(5_000, changes=(), message="$far", parent=before.last)
        elsewhere = before.position._replace(last="another")
        assert not at_ten.advance_head(elsewhere, replace(far, id="lost"))
        assert at_ten.heads(["c"])["c"] == before
        assert at_ten.advance_head(before.position, far)
        head = at_ten.tails(["c"])["c"]
        assert (head.revision, head.last, head.floor, head.written) == (5_000, far.id, 5_000, 5_000)
        assert (head.tail, head.time_us, head.deleted) == ((), far.time_us, False)
        assert at_ten.retention("c") == Retention(5_000, 5_000, 0, ())
        assert at_ten.list_commits("c", 10, 5_000, 9, None, _MANY) == [far]
        after = commit(5_001, parent=far.id)
        later = replace(move(after), base=5_000, last=far.id)
        assert at_ten.move_heads([later]) == {"c": Moved.WON}

    def test_a_pin_is_replaced_by_one_with_its_id(self, at_ten: Store) -> None:
        pins = [pin(3, name="x"), pin(5, name="y"), pin(7, name="x", expires_us=9)]
        assert [at_ten.set_pin("c", each) for each in pins] == [True] * 3
        assert at_ten.retention("c") == Retention(10, 0, 0, (pins[1], pins[2]))
        assert at_ten.drop_pin("c", "y")
        assert not at_ten.drop_pin("c", "y")
        assert at_ten.retention("c") == Retention(10, 0, 0, (pins[2],))

    def test_a_renewal_replaces_exactly_the_pin_it_was_made_of(self, at_ten: Store) -> None:
        first, short, long = (pin(3, expires_us=_NOW_US + n) for n in (1, 2, 9))
        at_ten.set_pin("c", first)
        assert at_ten.set_pin("c", long, first)
        assert not at_ten.set_pin("c", short, first)
        assert at_ten.retention("c") == Retention(10, 0, 0, (long,))
        assert at_ten.drop_pin("c", long.id)
        assert not at_ten.set_pin("c", short, long)
        assert at_ten.retention("c") == Retention(10, 0, 0, ())

    def test_a_refused_pin_keeps_the_earlier_one(self, at_ten: Store) -> None:
        at_ten.set_pin("c", pin(3))
        assert not at_ten.set_pin("c", pin(11))
        assert at_ten.retention("c") == Retention(10, 0, 0, (pin(3),))

    def test_the_floor_rises_no_higher_than_a_pin(self, at_ten: Store) -> None:
        at_ten.set_pin("c", pin(6))
        assert not at_ten.raise_floor("c", 7, _NOW_US)
        assert at_ten.raise_floor("c", 6, _NOW_US)
        assert at_ten.retention("c") == Retention(10, 6, 0, (pin(6),))

    def test_expired_pins_hold_nothing_and_are_dropped(self, at_ten: Store) -> None:
        at_ten.set_pin("c", pin(2, name="over", expires_us=_NOW_US))
        at_ten.set_pin("c", pin(8, name="high"))
        assert not at_ten.raise_floor("c", 3, _NOW_US - 1)
        assert at_ten.raise_floor("c", 3, _NOW_US)
        assert at_ten.retention("c") == Retention(10, 3, 0, (pin(8, name="high"),))

    def test_the_floor_rises_only_and_not_above_the_head(self, at_ten: Store) -> None:
        assert at_ten.raise_floor("c", 5, _NOW_US)
        at_ten.end_sweep("c", 5)
        assert [n for n in (0, 4, 5, 11) if at_ten.raise_floor("c", n, _NOW_US)] == []
        assert at_ten.raise_floor("c", 10, _NOW_US)
        assert at_ten.heads(["c"])["c"].floor == 10

    def test_a_raised_floor_has_an_age_until_it_is_swept(self, at_ten: Store) -> None:
        def bounds() -> Retention:
            found = at_ten.retention("c")
            assert found is not None
            return found

        for floor in (5, 6, 8):
            assert at_ten.raise_floor("c", floor, _NOW_US)
        assert [floor for floor, _ in bounds().raises] == [5, 6, 8]
        assert all(0 <= age_s < 3600 for _, age_s in bounds().raises)
        assert (bounds().sweepable(0), bounds().sweepable(3600)) == (8, 0)
        at_ten.end_sweep("c", 6)
        at_ten.end_sweep("c", 5)
        assert bounds() == Retention(10, 8, 6, ())
        assert [floor for floor, _ in bounds().raises] == [8]
        assert (bounds().sweepable(0), bounds().sweepable(3600)) == (8, 6)

    def test_raising_the_floor_ends_the_tail_up_to_it(self, at_ten: Store) -> None:
        assert at_ten.raise_floor("c", 8, _NOW_US)
        head = at_ten.tails(["c"])["c"]
        assert head.written == 8
        assert [each.revision for each in head.tail or ()] == [9, 10]

    def test_the_floor_rises_only_while_the_head_has_not_moved(self, at_ten: Store) -> None:
        assert not at_ten.raise_floor("c", 5, _NOW_US, 9)
        assert not at_ten.raise_floor("c", 5, _NOW_US, 11)
        assert at_ten.raise_floor("c", 5, _NOW_US, 10)
        at_ten.end_sweep("c", 5)
        assert not at_ten.raise_floor("c", 5, _NOW_US, 10)
        assert not at_ten.raise_floor("c", 11, _NOW_US, 10)
        at_ten.move_heads([move(commit(11))])
        assert not at_ten.raise_floor("c", 6, _NOW_US, 10)

    def test_a_move_of_the_head_does_not_change_retention(self, at_ten: Store) -> None:
        at_ten.raise_floor("c", 5, _NOW_US)
        at_ten.end_sweep("c", 5)
        at_ten.set_pin("c", pin(7))
        at_ten.move_heads([move(commit(11))])
        assert at_ten.retention("c") == Retention(11, 5, 5, (pin(7),))

    def test_of_a_racing_pin_and_compaction_one_is_refused(self, store: Store) -> None:
        for number in range(20):
            catalog = f"c{number}"
            store.move_heads([move(*(commit(n, catalog=catalog) for n in range(1, 9)))])
            done = race(
                lambda c=catalog: store.set_pin(c, pin(3)),
                lambda c=catalog: store.raise_floor(c, 5, _NOW_US),
            )
            assert sorted(done) == [False, True]

    def test_a_swept_commit_is_found_under_its_keys_alone(self, store: Store) -> None:
        full = two_keys(2, idempotency=Idempotency("ann", "x", "1"))
        left = reduced(full, "a")
        store.write_commits([commit(1, key="b"), full, commit(3, key="a")])
        store.sweep("c", [Swept(1, None), Swept(2, left, frozenset({"a"}))])
        assert store.commits({"c": (1, 3)})["c"] == [left, commit(3, key="a")]
        assert not store.commits({"c": (0, 3)}).get("c")
        assert store.replies({"c": [("ann", "x")]}) == {("c", "ann", "x"): left}
        assert store.changes_of("c", "b", 9) == []
        of_a = replace(left, changes=(left.change_of("a"),))
        assert store.changes_of("c", "a", 9) == [commit(3, key="a"), of_a]
        assert store.list_commits("c", 0, 9, 9, "b", _MANY) == []
        assert store.list_commits("c", 0, 9, 9, "a", _MANY) == [left, commit(3, key="a")]
        assert store.commits_of_keys("c", ["b"], 9) == []

    def test_a_repeated_or_late_sweep_restores_nothing(self, store: Store) -> None:
        full = two_keys(1, idempotency=Idempotency("ann", "x", "1"))
        store.write_commits([full, commit(2)])
        first = [Swept(1, reduced(full, "a"), frozenset({"a"}))]
        second = [Swept(1, reduced(full)), Swept(2, None)]
        for sweep in (first, first, second, second, first):
            store.sweep("c", sweep)
        assert store.commits({"c": (0, 2)})["c"] == [reduced(full)]
        assert store.commits_of_keys("c", ["a", "b", "k"], 9) == []
        store.sweep("c", [Swept(1, None)])
        store.sweep("c", second)
        assert not store.commits({"c": (0, 2)}).get("c")
        store.sweep("c", [])

    def test_a_late_write_out_does_not_overwrite_a_swept_commit(self, store: Store) -> None:
        full = two_keys(1)
        store.write_commits([full])
        store.sweep("c", [Swept(1, reduced(full, "b"), frozenset({"b"}))])
        store.write_commits([full, commit(2)])
        assert store.commits({"c": (0, 2)})["c"] == [reduced(full, "b"), commit(2)]
        assert store.changes_of("c", "a", 9) == []

    def test_commits_of_keys_are_ascending_and_listed_once(self, store: Store) -> None:
        store.write_commits([commit(1, key="x"), two_keys(2), commit(3, key="a")])
        store.write_commits([commit(4, key="b"), commit(5, key="a"), commit(2, catalog="d")])
        found = store.commits_of_keys("c", {"a", "b", "none"}, 4)
        assert [c.revision for c in found] == [2, 3, 4]
        assert store.commits_of_keys("c", [], 9) == []

    def test_replies_are_dropped_once_nothing_else_needs_them(self, store: Store) -> None:
        asked = [two_keys(n, idempotency=Idempotency("ann", f"{n}", "1")) for n in range(1, 8)]
        store.write_commits([*asked, replace(asked[0], catalog="d")])
        store.sweep("d", [Swept(1, replace(reduced(asked[0]), catalog="d"))])
        store.sweep("c", [Swept(n, reduced(asked[n - 1])) for n in (1, 2, 4, 5)])
        store.sweep("c", [Swept(3, reduced(asked[2], "a"), frozenset({"a"}))])
        assert store.drop_replies("c", 5, asked[3].time_us) == 2
        assert store.drop_replies("c", 5, asked[3].time_us) == 0
        left = store.replies({"c": [("ann", f"{n}") for n in range(1, 8)], "d": [("ann", "1")]})
        assert sorted(left) == [*(("c", "ann", f"{n}") for n in range(3, 8)), ("d", "ann", "1")]
        assert store.drop_replies("c", 5, _MANY) == 1

    def test_old_tombstones_are_purged_and_nothing_else(self, store: Store) -> None:
        gone = [
            replace(document(n, key=f"k{n}"), content=ABSENT, size_bytes=0) for n in range(1, 7)
        ]
        store.write_documents({"c": [*gone, document(1, key="lives")], "d": gone[:1]})
        assert store.purge_tombstones("c", 5, gone[3].time_us, 2) == 2
        assert store.purge_tombstones("c", 5, gone[3].time_us, 2) == 1
        assert store.purge_tombstones("c", 5, gone[3].time_us, 2) == 0
        assert store.purge_tombstones("c", 4, _MANY, 9) == 1
        left = store.documents({"c": [*(d.key for d in gone), "lives"], "d": ["k1"]})
        assert sorted(left) == [("c", "k5"), ("c", "k6"), ("c", "lives"), ("d", "k1")]


def race(*calls: Callable[[], bool]) -> list[bool]:
    barrier = threading.Barrier(len(calls))
    results: list[bool] = []

    def run(call: Callable[[], bool]) -> None:
        barrier.wait()
        results.append(call())

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
