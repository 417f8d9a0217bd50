"""What every store must do: names in order."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.model import BareDocument, ChangeRecord, bare
from gateway.store.contract import Store
from patching import ABSENT, digest
from patching.owners import Ownership, OwnerTree
from tests.store.contract_suite import commit, document, head, move

_LAST = "\U0010ffff"
# By UTF-8, where U+FFFF comes before an emoji and UTF-16 has it behind.
NAMES = [
    "\x01",
    " ",
    "A",
    "a",
    "a\x01",
    "a/",
    "a/b",
    "ab",
    "a\ud7ff",
    "a\ue000",
    "a\uffff",
    "a😀",
    f"a{_LAST}",
    f"a{_LAST}{_LAST}",
    "b",
    "é",
    "\uffff",
    "😀",
    _LAST,
    f"{_LAST}x",
]
_MANY = 1_000_000_000


class ListingsContract:
    """Subclasses give the fixture ``store``."""

    @pytest.mark.parametrize("after", ["", "a", "a/", "a\uffff", "aa", "b", _LAST])
    @pytest.mark.parametrize(
        "prefix", ["", "a", "a/", "a\ud7ff", "a😀", f"a{_LAST}", _LAST, "no", "😀"]
    )
    def test_names_are_sorted_and_within_their_bounds(
        self, store: Store, after: str, prefix: str
    ) -> None:
        expected = [name for name in NAMES if name > after and name.startswith(prefix)]
        store.write_documents({"c": [document(1, key=name) for name in reversed(NAMES)]})
        store.write_documents({"c/": [document(1, key="a")], "b": [document(1, key="a")]})
        store.move_heads([move(commit(1, catalog=name)) for name in reversed(NAMES)])
        found = store.scan_documents("c", after, prefix, 99, _MANY)
        assert [d.key for d in found] == expected
        assert store.scan_keys("c", after, prefix, 99) == expected
        assert [h.catalog for h in store.list_heads(after, prefix, 99)] == expected
        assert [h.catalog for h in store.list_heads(after, prefix, 2)] == expected[:2]

    @pytest.mark.parametrize("limit", [1, 2, 99])
    def test_catalogs_without_a_head_are_listed_too(self, store: Store, limit: int) -> None:
        orphans = ["a\x02", "😁", "zz"]
        store.write_documents({name: [document(1)] for name in orphans[:2]})
        store.write_commits([commit(1, catalog=name) for name in orphans[1:]])
        store.write_documents({name: [document(1)] for name in NAMES})
        store.move_heads([move(commit(1, catalog=name)) for name in NAMES])
        named: list[str] = []
        while some := store.catalog_names(named[-1] if named else "", limit):
            assert len(some) <= limit
            named += some
        assert named == sorted({*NAMES, *orphans})

    def test_listed_heads_are_complete_except_for_their_tails(self, store: Store) -> None:
        store.move_heads([move(commit(1), commit(2, deletes_catalog=True))])
        store.raise_floor("c", 1, 0)
        made = head(commit(1), commit(2), written=1)
        assert store.list_heads("", "", 9) == [
            replace(made, tail=None, verdicts=None, floor=1, deleted=True)
        ]

    def test_a_scan_has_tombstones_but_not_the_settings(self, store: Store) -> None:
        """The settings have the empty key, and nothing comes before it to begin after."""
        gone = replace(document(7, key="gone"), content=ABSENT, size_bytes=0)
        kept = replace(document(3, key="kept"), attributes={"o": "ann"})
        store.write_documents({"c": [document(1, key=""), gone, kept]})
        assert store.scan_documents("c", "", "", 9, _MANY) == [gone, kept]

    def test_a_scan_of_digests_is_a_scan_without_contents(self, store: Store) -> None:
        gone = replace(document(7, key="gone"), content=ABSENT, size_bytes=0)
        acl = {"read": ["ann"], "write": []}
        kept = replace(document(3, key="kept"), attributes={"o": "ann", "acl": acl})
        last = document(9, key="last", content={"b": 1.0, "a": [10**18, None]})
        store.write_documents({"c": [document(1, key=""), gone, kept, last], "d": [kept]})
        found = store.scan_digests("c", "", "", 9)
        assert [bare(each) for each in (gone, kept, last)] == [
            BareDocument(d.key, d.revision, d.create_revision, d.exists, d.attributes)
            for d in found
        ]
        assert [d.digest for d in found] == [None, digest(kept.content), digest(last.content)]
        assert [d.size_bytes for d in found] == [0, kept.size_bytes, last.size_bytes]
        assert [d.token for d in found] == [gone.token, kept.token, last.token]
        assert [d.key for d in store.scan_digests("c", "gone", "", 1)] == ["kept"]
        assert [d.key for d in store.scan_digests("c", "", "la", 9)] == ["last"]

        assert store.digests_of("c", ["last", "none", "gone"]) == [found[0], found[2]]
        assert store.scan_keys("c", "", "", 9) == ["gone", "kept", "last"]
        assert store.scan_keys("c", "gone", "", 1) == ["kept"]
        assert store.scan_keys("c", "", "la", 9) == ["last"]

    def test_a_scan_of_digests_can_include_what_each_manager_owns(self, store: Store) -> None:
        """Not of items of lists, which it doesn't know, and only who asks for it."""
        content, items = {"a": 1, "b": {"x": 2}, "$.c": 3}, {"s": ["x"]}
        by = (
            (Ownership("Ann", 2), Ownership("p.q $", 1)),
            (Ownership("Ann", 2), Ownership("ann", 3, True)),
        )
        owned = replace(
            document(1, key="owned", content=content),
            owners=OwnerTree(by, {"a": 0, "b": {"x": 1}}),
        )
        listed = replace(
            document(2, key="listed", content=items),
            owners=OwnerTree(((Ownership("Ann", 2),),), {"s": {'"x"': 0}}),
        )
        gone = replace(document(7, key="gone"), content=ABSENT, size_bytes=0)
        store.write_documents({"c": [owned, listed, gone, document(3, key="plain")]})
        found = store.scan_digests("c", "", "", 9, parts=True)
        assert {each.key: each.parts for each in found} == {
            "gone": {},
            "listed": None,
            "owned": {"Ann": digest({"a": 1, "b": {"x": 2}}), "p.q $": digest({"a": 1})},
            "plain": {},
        }
        assert store.digests_of("c", ["owned", "listed"], parts=True) == found[1:3]
        assert [each.parts for each in store.scan_digests("c", "", "", 9)] == [None] * 4
        store.write_documents({"c": [replace(document(4, key="owned"), owners=None)]})
        assert store.digests_of("c", ["owned"], parts=True)[0].parts == {}

    def test_a_scan_of_digests_can_omit_old_documents(self, store: Store) -> None:
        gone = replace(document(7, key="gone"), content=ABSENT, size_bytes=0)
        others = [document(n, key=key) for key, n in (("a", 3), ("b", 8), ("c", 4), ("d", 5))]
        changed = {3: "a", 4: "c", 5: "d", 7: "gone", 8: "b", 9: "early", 10: ""}
        store.write_commits(
            [
                commit(n, changes=(ChangeRecord(key, "put", n, value=n),))
                for n, key in changed.items()
            ]
        )
        store.write_documents({"c": [gone, *others, document(2, key="early")]})
        assert [d.key for d in store.scan_digests("c", "", "", 9, above=4)] == ["b", "d", "gone"]
        assert [d.key for d in store.scan_digests("c", "", "", 3, above=4)] == ["b", "d", "gone"]
        assert [d.key for d in store.scan_digests("c", "b", "g", 9, above=4)] == ["gone"]
        assert [d.key for d in store.scan_digests("c", "b", "", 1, above=4)] == ["d"]
        assert store.scan_digests("c", "", "", 9, above=8) == []

    def test_a_digest_belongs_to_the_stored_content(self, store: Store) -> None:
        """Late and repeated writes leave the newer state and its digest alone."""
        for revision in (2, 5, 3, 5):
            store.write_documents({"c": [document(revision, content={"at": revision})]})
        (found,) = store.scan_digests("c", "", "", 9)
        assert (found.revision, found.digest) == (5, digest({"at": 5}))

    def test_a_scan_is_bounded_in_count_and_bytes(self, store: Store) -> None:
        heavy = [document(n, key=f"k{n}", content="x" * 1000) for n in range(1, 9)]
        store.write_documents({"c": heavy})
        assert store.scan_documents("c", "k1", "k", 3, _MANY) == heavy[1:4]
        assert store.scan_documents("c", "k1", "k", 9, 2800) == heavy[1:4]
        assert store.scan_documents("c", "k6", "k", 9, 1) == heavy[6:7]
