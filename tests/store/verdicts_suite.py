"""What every store must do with verdicts; part of ``contract_suite``."""

from __future__ import annotations

from msgspec.structs import replace

from gateway.model import HeadMove, Idempotency, PinRecord, Verdict
from gateway.store.contract import Moved, Store
from tests.store.contract_suite import commit, move

_LATER_US = 1 << 50


def verdict(number: int, *, catalog: str = "c", revision: int = 1, key: str = "") -> Verdict:
    return Verdict(
        catalog=catalog,
        number=number,
        revision=revision,
        time_us=1_000_000_000 * number,
        id=f"{number:032x}",
        idempotency=Idempotency("ann", key or f"v{number}", "1"),
        attempts=1,
        outcome={"documents": {"k": None}},
    )


def judging(*verdicts: Verdict, base: int = 1, written: int = 0) -> HeadMove:
    """A move of the head of "c" at ``base`` by verdicts alone."""
    first = verdicts[0]
    last = f"{base:032x}" if base else ""
    return knowing(
        HeadMove(first.catalog, base, (), base, 0, verdicts, last=last), first.number - 1, written
    )


def knowing(move: HeadMove, judged: int, written: int = 0) -> HeadMove:
    """The move, of a head whose last verdict is the one that ``verdict`` makes for ``judged``."""
    last_verdict = f"{judged:032x}" if judged else ""
    return replace(move, judged=judged, last_verdict=last_verdict, judged_written=written)


class VerdictsContract:
    """Subclasses give the fixture ``store``."""

    def test_verdicts_can_move_a_head_without_a_commit(self, store: Store) -> None:
        store.move_heads([move(commit(1))])
        assert store.move_heads([judging(verdict(1), verdict(2))]) == {"c": Moved.WON}
        found = store.tails(["c"])["c"]
        assert (found.revision, found.judged) == (1, 2)
        assert found.verdicts == (verdict(1), verdict(2))
        assert store.heads(["c"])["c"].judged == 2

    def test_a_move_that_does_not_know_of_verdicts_is_lost(self, store: Store) -> None:
        store.move_heads([move(commit(1))])
        store.move_heads([judging(verdict(1))])
        assert store.move_heads([judging(verdict(1))]) == {"c": Moved.LOST}
        assert store.move_heads([move(commit(2))]) == {"c": Moved.LOST}
        informed = knowing(move(commit(2)), 1)
        assert store.move_heads([informed]) == {"c": Moved.WON}
        assert store.tails(["c"])["c"].verdicts == (verdict(1),)

    def test_a_move_with_an_already_used_verdict_number_is_lost(self, store: Store) -> None:
        store.move_heads([move(commit(1))])
        store.move_heads([judging(replace(verdict(1), id="f" * 32))])
        assert store.tails(["c"])["c"].last_verdict == "f" * 32
        assert store.move_heads([judging(verdict(2))]) == {"c": Moved.LOST}
        assert store.move_heads([knowing(move(commit(2)), 1)]) == {"c": Moved.LOST}
        informed = replace(judging(verdict(2)), last_verdict="f" * 32)
        assert store.move_heads([informed]) == {"c": Moved.WON}
        assert store.tails(["c"])["c"].last_verdict == verdict(2).id

    def test_of_a_commit_and_a_verdict_under_one_key_the_commit_is_returned(
        self, store: Store
    ) -> None:
        """The verdict was over, and was written out late."""
        made = commit(2, idempotency=verdict(1).idempotency)
        for catalog in ("c", "d"):
            mine = replace(made, catalog=catalog)
            late = verdict(1, catalog=catalog)
            if catalog == "c":
                store.write_commits([mine])
            store.write_verdicts([late], 1 << 30)
            store.write_commits([mine])
            assert store.replies({catalog: [("ann", "v1")]}) == {(catalog, "ann", "v1"): mine}

    def test_of_two_verdicts_under_one_key_the_later_is_returned(self, store: Store) -> None:
        """Whichever is written out last: another run of a version was refused, too."""
        first, second = verdict(1, key="k"), verdict(2, key="k")
        for both in ([first, second], [second, first], [first]):
            store.write_verdicts(both, 1 << 30)
            if second in both:
                assert store.replies({"c": [("ann", "k")]}) == {("c", "ann", "k"): second}
        assert store.replies({"c": [("ann", "k")]}) == {("c", "ann", "k"): second}

    def test_a_move_drops_the_verdicts_that_are_written_out(self, store: Store) -> None:
        store.move_heads([move(commit(1))])
        store.move_heads([judging(verdict(1), verdict(2))])
        store.move_heads([judging(verdict(3), written=1)])
        found = store.tails(["c"])["c"]
        assert (found.judged_written, found.verdicts) == (1, (verdict(2), verdict(3)))
        store.move_heads([knowing(move(commit(2)), 3, 3)])
        assert store.tails(["c"])["c"].verdicts == ()

    def test_a_catalog_may_have_verdicts_and_no_commit(self, store: Store) -> None:
        assert store.move_heads([judging(verdict(1), base=0)]) == {"c": Moved.WON}
        assert store.list_heads("", "", 9) == []
        store.move_heads([knowing(move(commit(1)), 1)])
        assert store.tails(["c"])["c"].tail == (commit(1),)

    def test_a_head_without_a_commit_is_found_by_its_last_verdict(self, store: Store) -> None:
        for catalog, count in (("a", 2), ("b", 1), ("c", 1)):
            verdicts = [verdict(n + 1, catalog=catalog) for n in range(count)]
            store.move_heads([judging(*verdicts, base=0)])
        store.move_heads([judging(verdict(2, catalog="b"), base=0)])
        store.move_heads([judging(verdict(3, catalog="b"), base=0)])
        store.move_heads([move(commit(1, catalog="made"))])
        store.move_heads([judging(verdict(1, catalog="made"))])
        assert found(store) == ["c", "a", "b"]
        assert [each.catalog for each in store.uncommitted(verdict(3).time_us, 9)] == ["c", "a"]
        assert [each.catalog for each in store.uncommitted(_LATER_US, 1)] == ["c"]
        store.move_heads([knowing(move(commit(1, catalog="a")), 2)])
        assert found(store) == ["c", "b"]

    def test_a_head_without_a_commit_ends_when_no_verdict_is_kept(self, store: Store) -> None:
        store.move_heads([judging(verdict(1), base=0), judging(verdict(1, catalog="d"), base=0)])
        heads = store.uncommitted(_LATER_US, 9)
        store.drop_uncommitted(heads)
        assert sorted(found(store)) == ["c", "d"]  # not written out
        store.write_verdicts([verdict(1)], 1 << 30)
        store.end_tails({"c": (0, 1), "d": (0, 1)})
        store.drop_uncommitted(heads)
        assert found(store) == ["c"]  # it is kept
        assert store.heads(["c", "d"]).keys() == {"c"}
        store.drop_uncommitted([])

    def test_a_head_ends_only_at_its_known_position(self, store: Store) -> None:
        """Meanwhile there was a first commit, or another verdict."""
        for catalog in "cde":
            store.move_heads([judging(verdict(1, catalog=catalog), base=0)])
            store.end_tails({catalog: (0, 1)})
        heads = store.uncommitted(_LATER_US, 9)
        store.move_heads([knowing(move(commit(1)), 1)])
        store.move_heads([judging(verdict(2, catalog="d"), base=0)])
        store.end_tails({"c": (1, 1), "d": (0, 2)})
        store.drop_uncommitted([*heads, *store.heads(["c"]).values()])
        assert store.heads(["c", "d", "e"]).keys() == {"c", "d"}
        assert store.heads(["c"])["c"].revision == 1

    def test_after_a_head_has_ended_exactly_one_move_wins(self, store: Store) -> None:
        """By whoever knew it, or found none."""
        for catalog, first in (
            ("c", knowing(move(commit(1)), 1)),
            ("d", move(commit(1, catalog="d"))),
        ):
            store.move_heads([judging(verdict(1, catalog=catalog), base=0)])
            store.end_tails({catalog: (0, 1)})
            store.drop_uncommitted(store.uncommitted(_LATER_US, 9))
            assert not store.heads([catalog])
            assert store.move_heads([first]) == {catalog: Moved.WON}
            for late in (judging(verdict(1, catalog=catalog), base=0), first):
                assert store.move_heads([late]) == {catalog: Moved.LOST}
            assert store.heads([catalog])[catalog].revision == 1
        assert store.uncommitted(_LATER_US, 9) == []

    def test_without_a_commit_there_is_no_retention(self, store: Store) -> None:
        store.move_heads([judging(verdict(1), base=0)])
        assert store.retention("c") is None
        assert not store.set_pin("c", PinRecord("p", 0, _LATER_US, "ann"))

    def test_a_head_with_verdicts_is_listed_as_open_until_they_are_written_out(
        self, store: Store
    ) -> None:
        store.move_heads([move(commit(1))])
        store.end_tails({"c": (1, 0)})
        store.move_heads([judging(verdict(1))])
        assert [each.judged for each in store.open_tails(_LATER_US, 9)] == [1]
        store.end_tails({"c": (1, 1)})
        assert store.open_tails(_LATER_US, 9) == []
        found = store.tails(["c"])["c"]
        assert (found.judged_written, found.verdicts) == (1, ())

    def test_verdicts_are_found_like_replies(self, store: Store) -> None:
        store.write_verdicts([verdict(1), verdict(2)], 60)
        store.write_verdicts([replace(verdict(1, key="v2"), id="another")], 60)
        asked = {"c": [("ann", "v1"), ("ann", "v2"), ("bob", "v1")], "d": [("ann", "v1")]}
        assert store.replies(asked) == {
            ("c", "ann", "v1"): verdict(1),
            ("c", "ann", "v2"): verdict(2),
        }


def found(store: Store) -> list[str]:
    """The catalogs without a commit, oldest first."""
    return [each.catalog for each in store.uncommitted(_LATER_US, 9)]
