"""What every store must do: ranges of documents, and what changed them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.model import OWN_KEYS, SETTINGS_KEY, BareDocument, ChangeRecord, bare
from gateway.store.contract import Store, Swept
from patching import ABSENT
from tests.store.contract_suite import commit, document
from tests.store.listings_suite import NAMES


class RangesContract:
    """Subclasses give the fixture ``store``."""

    @pytest.mark.parametrize("prefix", ["", "a", "a/", "a\ud7ff", "a😀", "\U0010ffff", "no"])
    def test_a_range_has_the_keys_with_its_prefix(self, store: Store, prefix: str) -> None:
        keys = [*OWN_KEYS, *reversed(NAMES)]
        store.write_documents({"c": [document(3, key=name) for name in keys]})
        store.write_documents({"c/": [document(3, key="a")], "b": [document(3, key="a")]})
        store.write_commits(
            [commit(3, changes=tuple(ChangeRecord(k, "put", 3, None, 1) for k in keys))]
        )
        expected = [name for name in NAMES if name.startswith(prefix)]
        assert [each.key for each in store.list_range("c", prefix, 9, 99)] == expected
        assert [each.key for each in store.list_range("c", prefix, 9, 2)] == expected[:2]
        assert store.range_changed("c", prefix, 2, 3) == (3 if expected else None)

    def test_a_range_has_live_documents_and_newer_tombstones_without_contents(
        self, store: Store
    ) -> None:
        acl = {"acl": {"read": ["ann"]}}
        closed = replace(document(4, key="a/2"), attributes={**acl, "team": "sales"})
        gone = [replace(document(n, key=f"a/gone{n}"), content=ABSENT) for n in (5, 6)]
        store.write_documents({"c": [document(3, key="a/1"), closed, *gone, document(9, key="b")]})
        found = store.list_range("c", "a/", 5, 99)
        assert list(found) == [bare(each) for each in (document(3, key="a/1"), closed, gone[1])]
        assert found[1] == BareDocument("a/2", 4, 1, True, acl)
        assert [each.key for each in store.list_range("c", "a/", 6, 99)] == ["a/1", "a/2"]

    def test_a_written_out_commit_is_found_by_its_revision(self, store: Store) -> None:
        written = commit(3)
        store.write_commits([written])
        assert store.commit_id("c", 3) == written.id
        assert store.commit_id("c", 2) is None

    @pytest.mark.parametrize("before", [0, 2_000])
    def test_a_change_is_found_between_two_revisions(self, store: Store, before: int) -> None:
        """However far apart they are."""
        both = (ChangeRecord("b/1", "delete", 1), ChangeRecord("a/1", "put", 1, None, 1))
        commits = [
            commit(before + 3, key="a/1"),
            commit(before + 4, key="b/1"),
            commit(before + 5, changes=()),
            commit(before + 6, changes=both),
            commit(before + 7, key=SETTINGS_KEY),
        ]
        store.write_commits([*commits, commit(before + 4, catalog="d", key="a/1")])

        def changed(prefix: str, after: int, through: int) -> int | None:
            found = store.range_changed(
                "c", prefix, before + after if after else 0, before + through
            )
            return None if found is None else found - before

        assert changed("a/", 3, 5) is None
        assert changed("a/", 3, 6) == 6
        assert changed("a/", 0, 5) == 3
        assert changed("a/", 6, 7) is changed("", 6, 7) is None
        assert changed("", 3, 5) == 4
        assert changed("b", 4, 6) == 6
        assert store.range_changed("e", "", 0, 9) is None

    def test_a_swept_commit_changes_only_the_ranges_of_its_remaining_keys(
        self, store: Store
    ) -> None:
        both = (ChangeRecord("b/1", "put", 3, None, 1), ChangeRecord("a/1", "put", 3, None, 1))
        made = commit(3, changes=both)
        store.write_commits([made])
        store.sweep("c", [Swept(3, made, frozenset(["b/1"]))])
        assert store.range_changed("c", "a/", 0, 9) is None
        assert store.range_changed("c", "b/", 0, 9) == 3
