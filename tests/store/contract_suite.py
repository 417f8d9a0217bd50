"""What every store must do: one suite, run by an empty subclass per store."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from gateway.model import (
    WITHHELD,
    BareDocument,
    ChangeRecord,
    Claim,
    CommitRecord,
    DocumentRecord,
    Head,
    HeadMove,
    HeadPosition,
    Idempotency,
    Skipped,
)
from gateway.store.contract import CLAIMS_MAX, Moved, Rejected, Store
from patching import ABSENT, Json
from patching.owners import Ownership, OwnerTree, change_between

# Names as MongoDB has them in no document: so they are kept as text.
OWNERS = OwnerTree(
    ((Ownership("ann", 4, True), Ownership("nightly", 2)), (Ownership("nightly", 2),)),
    {"$a": 0, "a.b": {"": 1, "\0": 1}},
)


def commit(revision: int, *, catalog: str = "c", key: str = "k", **fields: object) -> CommitRecord:
    made = CommitRecord(
        catalog=catalog,
        revision=revision,
        time_us=1_000 + revision,
        id=f"{revision:032x}",
        author="ann",
        message=None,
        idempotency=None,
        attempts=1,
        changes=(ChangeRecord(key, "patch", 1, [{"op": "add", "path": "/n", "value": revision}]),),
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def move(*commits: CommitRecord, written: int = 0) -> HeadMove:
    """Of a head whose last commit is the one that ``commit`` makes for its revision."""
    catalog, base = commits[0].catalog, commits[0].revision - 1
    return HeadMove(catalog, base, commits, written, last=f"{base:032x}" if base else "")


def head(*commits: CommitRecord, written: int = 0) -> Head:
    """What the moves by ``commits`` make of a head that was written out to ``written``."""
    last = commits[-1]
    tail = tuple(each for each in commits if each.revision > written)
    return Head(
        *(last.catalog, last.revision, last.time_us, written),
        tail=tail,
        verdicts=(),
        last=last.id,
    )


def document(revision: int, *, key: str = "k", content: object = None) -> DocumentRecord:
    return DocumentRecord(
        key=key,
        content={"n": revision} if content is None else content,  # type: ignore[arg-type]
        revision=revision,
        create_revision=1,
        commit_id=f"{revision:032x}",
        time_us=1_000 + revision,
        size_bytes=10,
    )


def line(store: Store) -> tuple[Claim, ...]:
    return store.tails(["c"])["c"].claims


class StoreContract:
    """Subclasses give the fixture ``store``."""

    def test_a_catalog_never_written_has_no_head(self, store: Store) -> None:
        assert store.heads(["c"]) == {}
        assert store.tails(["c"]) == {}

    def test_the_first_move_makes_the_head(self, store: Store) -> None:
        assert store.move_heads([move(commit(1), commit(2))]) == {"c": Moved.WON}
        made = head(commit(1), commit(2))
        assert store.heads(["c", "other"]) == {"c": replace(made, tail=None, verdicts=None)}
        assert store.tails(["c", "other"]) == {"c": made}

    def test_a_move_appends_to_the_tail_and_drops_what_is_written_out(self, store: Store) -> None:
        commits = [commit(n) for n in range(1, 8)]
        for first, last, written in ((0, 2, 0), (2, 3, 0), (3, 5, 2), (5, 6, 5)):
            store.move_heads([move(*commits[first:last], written=written)])
            assert store.tails(["c"])["c"] == head(*commits[:last], written=written)
        # One that knows less takes nothing back.
        store.move_heads([move(commits[6], written=1)])
        assert store.tails(["c"])["c"] == head(*commits, written=5)

    def test_a_tail_is_ended_only_in_the_head_it_was_read_from(self, store: Store) -> None:
        commits = [commit(n) for n in range(1, 5)]
        store.move_heads([move(*commits[:2])])
        store.end_tails({"c": (1, 0), "other": (3, 0)})
        assert store.tails(["c"])["c"] == head(*commits[:2])
        store.end_tails({"c": (2, 1)})
        assert store.tails(["c"])["c"] == head(*commits[:2])
        store.end_tails({"c": (2, 0)})
        assert store.tails(["c"])["c"] == head(*commits[:2], written=2)
        # Its next mover may not know of it.
        store.move_heads([move(*commits[2:], written=0)])
        assert store.tails(["c"])["c"] == head(*commits, written=2)
        store.end_tails({})

    def test_heads_with_a_tail_are_found_by_their_age(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            store.move_heads([move(commit(1, catalog=name))])
        store.move_heads([move(commit(2, catalog="b"))])
        store.end_tails({"c": (1, 0)})
        age_us = commit(2).time_us
        assert [each.catalog for each in store.open_tails(age_us, 9)] == ["a"]
        found = store.open_tails(age_us + 1, 9)
        assert sorted(each.catalog for each in found) == ["a", "b"]
        assert all(each.tail is None for each in found)
        assert len(store.open_tails(age_us + 1, 1)) == 1
        later = store.open_tails(0, 9, after_us=age_us - 1)
        assert [each.catalog for each in later] == ["b"]

    def test_an_existing_commit_shows_that_everything_up_to_it_is_written_out(
        self, store: Store
    ) -> None:
        store.write_commits([commit(1), commit(2), commit(1, catalog="d")])
        assert store.last_written({"c": [2], "d": [2], "e": [1]}) == {"c": 2}
        assert store.last_written({"c": [2, 1, 3], "d": [1]}) == {"c": 2, "d": 1}

    def test_a_move_from_another_revision_is_lost_and_changes_nothing(self, store: Store) -> None:
        store.move_heads([move(commit(1))])
        before = store.tails(["c"])
        late = commit(1, id="f" * 32)
        assert store.move_heads([move(late)]) == {"c": Moved.LOST}
        assert store.move_heads([move(commit(3))]) == {"c": Moved.LOST}
        assert store.tails(["c"]) == before

    def test_a_move_is_lost_where_another_commit_is_at_its_revision(self, store: Store) -> None:
        """As when a database was restored, and others continued from there."""
        store.move_heads([move(commit(1)), move(commit(1, catalog="d"), commit(2, catalog="d"))])
        store.move_heads([move(commit(2, id="f" * 32))])
        before = store.tails(["c"])
        assert before["c"].position == HeadPosition(2, "f" * 32, 0, "")
        assert store.move_heads([move(commit(3)), move(commit(3, catalog="d"))]) == {
            "c": Moved.LOST,
            "d": Moved.WON,
        }
        assert store.move_heads([replace(move(commit(3)), last="")]) == {"c": Moved.LOST}
        assert store.tails(["c"]) == before
        assert store.move_heads([replace(move(commit(3)), last="f" * 32)]) == {"c": Moved.WON}

    def test_a_move_from_a_revision_makes_no_head(self, store: Store) -> None:
        """As where the database was dropped under a gateway that knows what it was."""
        store.move_heads([move(commit(1))])
        other = replace(move(commit(8, catalog="d")), judged=3)
        for gone in (move(commit(8, catalog="d")), other):
            assert store.move_heads([move(commit(2)), gone])["d"] is Moved.LOST
        assert store.heads(["c"])["c"].revision == 2
        assert store.heads(["d"]) == {}

    def test_the_same_move_is_won_only_once(self, store: Store) -> None:
        assert store.move_heads([move(commit(1))]) == {"c": Moved.WON}
        assert store.move_heads([move(commit(1))]) == {"c": Moved.LOST}

    def test_a_claim_is_queued_after_earlier_ones(self, store: Store) -> None:
        store.claim(["c"], Claim("a", 50))
        assert store.tails(["c"]) == {}, "there is no head to claim"
        store.move_heads([move(commit(1))])
        made = store.tails(["c"])["c"]
        store.claim(["c"], Claim("a", 50))
        assert store.tails(["c"])["c"] == replace(made, claims=(Claim("a", 50),))
        store.claim(["c"], Claim("a", 70))
        store.claim(["c"], Claim("b", 60))
        assert line(store) == (Claim("a", 50), Claim("b", 60))
        store.drop_claims(["c"], "a")
        store.drop_claims(["c"], "nobody")
        assert line(store) == (Claim("b", 60),)

    def test_many_heads_are_claimed_and_released_at_once(self, store: Store) -> None:
        store.move_heads([move(commit(1, catalog=catalog)) for catalog in "abc"])
        store.claim(["b"], Claim("ours", 70))
        store.claim(["a", "b", "none"], Claim("ours", 50))
        store.claim(["b", "c"], Claim("theirs", 60))
        ours, theirs = Claim("ours", 50), Claim("theirs", 60)
        lines = {each: head.claims for each, head in store.tails("abc").items()}
        assert lines == {"a": (ours,), "b": (Claim("ours", 70), theirs), "c": (theirs,)}
        store.drop_claims(["a", "b", "none"], "ours")
        lines = {each: head.claims for each, head in store.tails("abc").items()}
        assert lines == {"a": (), "b": (theirs,), "c": (theirs,)}

    def test_the_number_of_claims_is_bounded(self, store: Store) -> None:
        store.move_heads([move(commit(1))])
        for number in range(CLAIMS_MAX):
            store.claim(["c"], Claim(f"{number}", 50))
        store.claim(["c"], Claim("late", 50))
        assert [each.by for each in line(store)] == [f"{each}" for each in range(CLAIMS_MAX)]

    def test_a_move_is_lost_while_another_claim_is_first(self, store: Store) -> None:
        store.move_heads([move(commit(1))])
        for by in ("a", "b"):
            store.claim(["c"], Claim(by, 50))
        second = move(commit(2))
        assert store.move_heads([second]) == {"c": Moved.LOST}
        assert store.move_heads([replace(second, passed=("b",))]) == {"c": Moved.LOST}
        assert store.move_heads([replace(second, passed=("a", "x"))]) == {"c": Moved.WON}
        assert line(store) == (Claim("b", 50),)
        third = replace(move(commit(3)), passed=("a", "b"))
        assert store.move_heads([third]) == {"c": Moved.WON}
        assert store.tails(["c"])["c"].claims == ()

    def test_a_move_that_passes_all_claims_removes_its_own(self, store: Store) -> None:
        """Left in line, it would lose the worker's next races to itself."""
        store.move_heads([move(commit(1))])
        for by in ("other", "own"):
            store.claim(["c"], Claim(by, 50))
        again = replace(move(commit(2)), passed=("own",), passes_all=True)
        assert store.move_heads([again]) == {"c": Moved.WON}
        assert line(store) == (Claim("other", 50),)
        assert store.move_heads([again]) == {"c": Moved.LOST}

    def test_moves_of_a_bulk_are_independent(self, store: Store) -> None:
        store.move_heads([move(commit(1, catalog="b"))])
        moved = store.move_heads([move(commit(1, catalog=c)) for c in ("a", "b", "c")])
        assert moved == {"a": Moved.WON, "b": Moved.LOST, "c": Moved.WON}

    def test_a_move_that_is_too_large_is_rejected_alone(self, store: Store) -> None:
        """For the tail that it joins; it isn't made, and the others of the bulk are."""
        large = 9 * 1024 * 1024
        edited = (ChangeRecord("k", "put", 1, value="x" * large),)
        heavy = [commit(n, catalog="b", changes=edited, size_bytes=large) for n in (1, 2)]
        assert store.move_heads([move(heavy[0])]) == {"b": Moved.WON}
        for expected in (Moved.WON, Moved.LOST):
            others = [move(commit(1, catalog=name)) for name in "ac"]
            moved = dict(store.move_heads([others[0], move(heavy[1]), others[1]]))
            rejected = moved.pop("b")
            assert isinstance(rejected, Rejected)
            assert rejected.too_large
            assert moved == {"a": expected, "c": expected}
            assert store.heads(["b"])["b"].revision == 1
        assert store.move_heads([move(heavy[1], written=1)]) == {"b": Moved.WON}

    def test_open_tails_are_listed_page_by_page(self, store: Store) -> None:
        store.move_heads([move(commit(1, catalog=name)) for name in "abcde"])
        pages = [store.open_tails(1 << 60, 2, skip) for skip in (0, 2, 4, 6)]
        told = [head.catalog for page in pages for head in page]
        assert (len(told), set(told)) == (5, set("abcde"))

    def test_exactly_one_of_several_racing_moves_is_won(self, store: Store) -> None:
        barrier = threading.Barrier(8)
        results: list[object] = []

        def race(number: int) -> None:
            mine = commit(1, id=f"{number:032x}")
            barrier.wait()
            results.append(store.move_heads([move(mine)])["c"])

        threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results.count(Moved.WON) == 1
        assert results.count(Moved.LOST) == 7

    def test_commits_are_ascending_and_within_their_span(self, store: Store) -> None:
        store.write_commits([commit(n) for n in range(1, 20)])
        store.write_commits([commit(7, catalog="d")])
        found = store.commits({"c": (9, 17), "d": (6, 7), "e": (0, 3)})
        assert [c.revision for c in found["c"]] == list(range(10, 18))
        assert [c.revision for c in found["d"]] == [7]
        assert not found.get("e")

    def test_commits_after_a_missing_one_are_omitted(self, store: Store) -> None:
        store.write_commits([commit(1), commit(2), commit(4)])
        assert [c.revision for c in store.commits({"c": (0, 4)})["c"]] == [1, 2]
        assert not store.commits({"c": (2, 4)}).get("c")

    def test_an_existing_commit_is_not_overwritten(self, store: Store) -> None:
        store.write_commits([commit(1), commit(2)])
        store.write_commits([commit(n, id="f" * 32) for n in (1, 2)] + [commit(3)])
        found = store.commits({"c": (0, 3)})["c"]
        assert [c.id for c in found] == [commit(n).id for n in (1, 2, 3)]

    def test_a_commit_comes_back_as_it_was_written(self, store: Store) -> None:
        value = {"$ref": "#/x", "$id": 7, "a.b": [1, 1.5, -0.0, True, None, "\0", "é😀"], "": {}}
        changes = (
            ChangeRecord("k/ü", "put", 3, None, value, 99),
            ChangeRecord("gone", "delete", 1),
            ChangeRecord("p", "patch", 2, [{"op": "replace", "path": "/$ref", "value": 2**62}]),
            ChangeRecord("null", "put", 3, None, None, 4),
            ChangeRecord(
                "owned", "attributes", 2, attributes={"$ref": {"a.b": [1, None]}, "": "x"}
            ),
            ChangeRecord("bare", "attributes", 2, attributes={}),
            ChangeRecord("kept", "put", 2, None, {"$a": 1}, owners=OWNERS),
            ChangeRecord("taken", "patch", 2, [], owners_change=change_between(None, OWNERS)),
            ChangeRecord("based", "patch", 1, [], base_revision=2, base_id="ab" * 16),
            ChangeRecord("managed", "put", 3, None, 1, managers=("nightly", "ann")),
        )
        full = commit(
            3,
            message="why",
            idempotency=Idempotency("ann", "key-1", "abc"),
            attempts=4,
            changes=changes,
            succeeded=False,
            rebased_from="2-abc",
            deletes_catalog=True,
            skipped=(Skipped("kept", "/$a", OWNERS.by[0]),),
            parent=commit(2).id,
        )
        store.write_commits([full])
        assert store.commits({"c": (2, 3)})["c"] == [full]
        store.move_heads([move(commit(1)), move(commit(1, catalog="d"))])
        store.move_heads([move(commit(2))])
        store.move_heads([move(full, written=2)])
        assert store.tails(["c"])["c"].tail == (full,)

    def test_a_document_comes_back_with_its_owners(self, store: Store) -> None:
        owned = replace(document(4), owners=OWNERS)
        store.write_documents({"c": [owned, document(5, key="plain")]})
        for bytes_max in (None, 1_000_000):
            found = store.documents({"c": ["k", "plain"]}, bytes_max)
            assert found["c", "k"] == owned
            assert found["c", "plain"].owners is None

    def test_a_commit_without_changes_is_stored_like_any_other(self, store: Store) -> None:
        touch = commit(2, changes=(), idempotency=Idempotency("ann", "x", "1"))
        store.write_commits([commit(1), touch, commit(3)])
        assert store.commits({"c": (0, 3)})["c"] == [commit(1), touch, commit(3)]
        assert store.replies({"c": [("ann", "x")]}) == {("c", "ann", "x"): touch}
        assert store.commit_at("c", touch.time_us) == touch
        assert store.list_commits("c", 0, 9, 9, None, 1_000_000)[1] == touch
        assert [c.revision for c in store.changes_of("c", "k", 9)] == [3, 1]

    def test_a_bare_document_has_its_acl_and_no_other_attribute(self, store: Store) -> None:
        acl: Json = {"read": ["ann"], "$ref": 1}
        narrowed = replace(document(4), attributes={"acl": acl, "team": "x"})
        plain = replace(document(5, key="other"), attributes={"team": "x"})
        tombstone = replace(document(6, key="gone"), content=ABSENT)
        store.write_documents({"c": [narrowed, plain, tombstone]})
        names = [("c", key) for key in ("k", "other", "gone", "never")]
        found, left = store.bare_documents(names)
        assert not left
        assert found == {
            ("c", "k"): BareDocument("k", 4, 1, True, {"acl": acl}),
            ("c", "other"): BareDocument("other", 5, 1, True),
            ("c", "gone"): BareDocument("gone", 6, 1, False),
        }

    def test_the_content_of_large_documents_can_be_withheld(self, store: Store) -> None:
        small = replace(document(1, key="small"), content={"$x": [None]}, size_bytes=9)
        large = replace(document(2, key="large"), content="x" * 90, size_bytes=92)
        narrowed = replace(large, key="narrowed", attributes={"acl": {"read": ["$ref"]}})
        null = replace(document(3, key="null"), content=None, size_bytes=4)
        gone = replace(document(4, key="gone"), content=ABSENT, size_bytes=92)
        stored = [small, large, narrowed, null, gone]
        store.write_documents({"c": stored})
        keys = {"c": [each.key for each in stored] + ["never"]}
        withheld = [
            replace(each, content=WITHHELD) if each in (large, narrowed) else each
            for each in stored
        ]
        assert store.documents(keys, 91) == {("c", each.key): each for each in withheld}
        assert store.documents(keys) == {("c", each.key): each for each in stored}

    def test_a_deleted_catalog_is_marked_until_it_is_written_again(self, store: Store) -> None:
        store.move_heads([move(commit(1))])
        deletion = commit(2, deletes_catalog=True)
        store.move_heads([move(deletion, written=1)])
        gone = replace(head(deletion, written=1), deleted=True)
        assert store.heads(["c"]) == {"c": replace(gone, tail=None, verdicts=None)}
        assert store.tails(["c"]) == {"c": gone}
        store.move_heads([move(commit(3))])
        assert not store.heads(["c"])["c"].deleted

    @pytest.mark.parametrize(
        "content",
        [
            {"$ref": "x", "$id": 5, "$db": {"$ref": 7, "n": [2**62, {"$ref": "y", "$id": 2**40}]}},
            {"a.b": {"$set": 1}, "$where": "x", "": 0, "_id": 1, "é": "\0"},
            {"of 5 kB": "x" * 5_000, "n": 2**40, "to": {"$ref": "x", "$id": 5}},
            [1, [2.0, []], {"x": None}],
            "text",
            0,
            False,
            None,
            {"big": 2**63 - 1, "small": -(2**63), "float": 1e308},
        ],
    )
    def test_a_document_comes_back_as_it_was_written(self, store: Store, content: object) -> None:
        written = document(5, key="päth/../k", content=content)
        written = replace(written, content=content)
        store.write_documents({"c": [written]})
        found = store.documents({"c": ["päth/../k", "other"], "d": ["k"]})
        assert found == {("c", "päth/../k"): written}
        assert repr(found["c", "päth/../k"].content) == repr(content)

    @pytest.mark.parametrize("content", [{"n": 1}, ABSENT])
    @pytest.mark.parametrize(
        "attributes",
        [
            {},
            {"a.b": {"$set": 1}, "$ref": "x", "$id": 2**62, "": None, "é": [1, 1.5, "\0"]},
            {"revision": 99, "deleted": True},
        ],
    )
    def test_attributes_come_back_as_they_were_written(
        self, store: Store, content: Json, attributes: dict[str, Json]
    ) -> None:
        written = replace(document(5), content=content, attributes=attributes)
        store.write_documents({"c": [replace(document(4), attributes={"old": 1}), written]})
        found = store.documents({"c": ["k"]})["c", "k"]
        assert found == written
        assert repr(found.attributes) == repr(attributes)
        store.write_documents({"c": [document(6)]})
        assert store.documents({"c": ["k"]})["c", "k"].attributes is None

    def test_a_document_is_written_only_over_an_older_one(self, store: Store) -> None:
        store.write_documents({"c": [document(5)]})
        store.write_documents({"c": [document(4), document(9, key="other")]})
        store.write_documents({"c": [document(5)]})
        assert store.documents({"c": ["k"]})["c", "k"].content == {"n": 5}
        store.write_documents({"c": [document(6)]})
        assert store.documents({"c": ["k", "other"]}) == {
            ("c", "k"): document(6),
            ("c", "other"): document(9, key="other"),
        }

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"patches": 1}, {"patches": 3, "content": {}}),
            ({"commit_id": "a" * 32, "patches": 9}, {"commit_id": "b" * 32}),
            ({"create_revision": 1, "commit_id": "b" * 32}, {"create_revision": 2}),
            ({"time_us": 1, "patches": 9}, {"time_us": 2}),
        ],
    )
    def test_of_two_states_at_one_revision_the_same_one_wins_in_any_order(
        self, store: Store, one: dict[str, object], other: dict[str, object]
    ) -> None:
        """There must never be two such states. If a defect makes them, MongoDB stores the same one
        in any order."""
        lower, higher = (replace(document(5), **fields) for fields in (one, other))  # type: ignore[arg-type]
        store.write_documents({"c": [lower], "d": [higher]})
        store.write_documents({"c": [higher], "d": [lower]})
        assert store.documents({"c": ["k"], "d": ["k"]}) == {
            ("c", "k"): higher,
            ("d", "k"): higher,
        }

    def test_many_new_documents_are_written_only_where_no_newer_ones_are(
        self, store: Store
    ) -> None:
        """As a load that is written out twice meets them, or one of keys that were deleted."""
        new = [replace(document(n, key=f"k{n}"), create_revision=n) for n in range(10, 40)]
        newer, older, again = replace(new[0], revision=50), document(3, key="k11"), new[2]
        gone = replace(document(4, key="k13"), content=ABSENT, size_bytes=0)
        store.write_documents({"c": [newer, older, again, gone]})
        store.write_documents({"c": [*new, document(60, key="changed")], "d": new})
        wanted = {("c", each.key): each for each in [newer, *new[1:], document(60, key="changed")]}
        keys = [each.key for each in wanted.values()]
        assert store.documents({"c": keys}) == wanted
        assert store.documents({"d": keys}) == {("d", each.key): each for each in new}

    def test_a_tombstone_has_no_content_and_can_be_written_over(self, store: Store) -> None:
        store.write_documents({"c": [document(5)]})
        tombstone = replace(document(6), content=ABSENT, size_bytes=0)
        store.write_documents({"c": [tombstone]})
        assert store.documents({"c": ["k"]})["c", "k"] == tombstone
        store.write_documents({"c": [document(5), document(7)]})
        assert store.documents({"c": ["k"]})["c", "k"] == document(7)

    def test_names_with_a_common_prefix_do_not_mix(self, store: Store) -> None:
        store.write_commits([commit(1, catalog=c) for c in ("c", "c/", "cc", "c1")])
        assert [c.catalog for c in store.commits({"c": (0, 99)})["c"]] == ["c"]
        store.write_documents({"c": [document(1, key="/k")], "c/": [document(2, key="k")]})
        assert store.documents({"c": ["/k"]})["c", "/k"].revision == 1

    def test_replies_are_found_by_catalog_principal_and_key(self, store: Store) -> None:
        ann = commit(1, idempotency=Idempotency("ann", "x", "1"))
        bob = commit(2, idempotency=Idempotency("bob", "x", "2"))
        other = commit(1, catalog="d", idempotency=Idempotency("ann", "x", "3"))
        store.write_commits([ann, bob, other, commit(3)])
        assert store.replies({"c": [("ann", "x"), ("ann", "y")], "d": [("bob", "x")]}) == {
            ("c", "ann", "x"): ann
        }

    def test_changes_of_a_key_are_newest_first_back_to_a_whole_value(self, store: Store) -> None:
        whole = (ChangeRecord("a", "put", 1, None, {"n": 0}, 7),)
        store.write_commits([commit(n, key="ab"[n % 2]) for n in range(2, 7)])
        store.write_commits([commit(8, changes=whole), commit(10, key="a"), commit(12, key="a")])
        assert [c.revision for c in store.changes_of("c", "a", 6)] == [6, 4, 2]
        assert [c.revision for c in store.changes_of("c", "a", 12)] == [12, 10, 8]
        assert [c.revision for c in store.changes_of("c", "a", 11)] == [10, 8]
        assert store.changes_of("c", "none", 8) == []

    @pytest.mark.parametrize("length", [3, 4, 5, 8, 9, 150])
    def test_each_change_of_a_key_is_returned_once_however_many_there_are(
        self, store: Store, length: int
    ) -> None:
        """A store may fetch them in several looks."""
        whole = (ChangeRecord("k", "put", 1, None, {"n": 0}, 7),)
        store.write_commits([commit(1), commit(2, changes=whole)])
        store.write_commits([commit(n) for n in range(3, length + 2)])
        found = [c.revision for c in store.changes_of("c", "k", 1000)]
        assert found == list(range(length + 1, 1, -1))

    def test_the_commit_at_a_time_is_the_last_one_by_then(self, store: Store) -> None:
        store.write_commits([commit(n, time_us=100 * n) for n in (1, 2, 3)])
        for time_us, revision in ((100, 1), (199, 1), (200, 2), (9999, 3)):
            found = store.commit_at("c", time_us)
            assert found is not None
            assert found.revision == revision
        assert store.commit_at("c", 99) is None

    def test_listed_commits_are_bounded_and_filtered(self, store: Store) -> None:
        store.write_commits([commit(n, key="ab"[n % 2]) for n in range(1, 11)])
        full = 1_000_000
        assert [c.revision for c in store.list_commits("c", 2, 9, 4, None, full)] == [3, 4, 5, 6]
        assert [c.revision for c in store.list_commits("c", 2, 9, 9, "a", full)] == [4, 6, 8]
        of_some = store.list_commits("c", 2, 9, 5, ["a", "b", "none"], full)
        assert [c.revision for c in of_some] == [3, 4, 5, 6, 7]
        assert [c.revision for c in store.list_commits("c", 2, 9, 9, ["b"], full)] == [3, 5, 7, 9]
        assert [store.count_commits("c", *span) for span in ((2, 9), (0, 99), (9, 9))] == [7, 10, 0]
        newest = store.list_commits("c", 2, 9, 2, "a", full, newest_first=True)
        assert [c.revision for c in newest] == [8, 6]
        store.write_commits([commit(n, author="bob", key="a") for n in (11, 12)])
        for author, found in (("bob", [12, 11]), ("ann", [10]), ("an", [])):
            by_them = store.list_commits(
                "c", 9, 12, 9, None, full, author=author, newest_first=True
            )
            assert [c.revision for c in by_them] == found
        assert store.list_commits("c", 0, 12, 9, "b", full, author="bob") == []

    def test_a_list_of_commits_ends_at_its_size_limit(self, store: Store) -> None:
        heavy = (ChangeRecord("k", "put", 1, None, "x" * 1000),)
        store.write_commits([commit(n, changes=heavy) for n in range(1, 9)])
        assert [c.revision for c in store.list_commits("c", 0, 8, 8, None, 2500)] == [1, 2, 3]
        assert [c.revision for c in store.list_commits("c", 3, 8, 8, None, 1)] == [4]

    def test_a_large_document_is_measured_as_it_is_stored(self, store: Store) -> None:
        assert store.stored_bytes({"a": "x" * 1000}) > 1000

    def test_the_store_answers_a_ping(self, store: Store) -> None:
        store.ping()
