"""Commits undone and documents brought back, on a catalog that others keep writing to."""

from __future__ import annotations

import copy
import random
import threading
from typing import Any

import pytest
from werkzeug.test import TestResponse

import patching
from gateway.http import create_app
from gateway.limits import RequestLimits, ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.http.conftest import Catalog, problem
from tests.http.test_differences import attributes, state_at, transact
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS

JSON = dict[str, Any]


def send(catalog: Catalog, body: Any, query: str = "", **headers: str) -> TestResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return catalog.client.post(f"{catalog.path}/reverts{query}", json=body, headers=named)


def revert(catalog: Catalog, *revisions: int, **body: Any) -> Any:
    asked = {"revisions": list(revisions), **body} if revisions else body
    answer = send(catalog, asked)
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()


def refused(catalog: Catalog, body: Any) -> list[JSON]:
    """The disputed places."""
    before = catalog.head_revision()
    found = problem(send(catalog, body), 409, "changed_since")["contested"]
    assert catalog.head_revision() == before
    return list(found)


def value(catalog: Catalog, key: str = "k") -> Any:
    read = catalog.get(key)
    return read.get_json() if read.status_code == 200 else None


def beside(catalog: Catalog, key: str = "k") -> Any:
    return catalog.client.get(f"{catalog.path}/attributes/{key}").get_json()


class TestUndo:
    def test_a_change_is_undone_and_later_changes_are_kept(self, catalog: Catalog) -> None:
        catalog.put({"a": 1, "b": 1})
        catalog.merge({"a": 2})
        catalog.merge({"b": 2})
        done = revert(catalog, 2)
        assert value(catalog) == {"a": 1, "b": 2}
        assert (done["revision"], done["changed"], done["skipped"]) == (4, True, [])
        assert done["changes"][0]["patch"] == [{"op": "replace", "path": "/a", "value": 1}]
        commit = catalog.client.get(f"{catalog.path}/commits/4").get_json()
        assert commit["changes"] == done["changes"]
        assert commit["message"] == "reverts 2"

    def test_created_documents_are_deleted_and_deleted_ones_restored(
        self, catalog: Catalog
    ) -> None:
        catalog.put({"old": 1}, key="gone")
        attributes(catalog, "gone", {"team": "a"})
        revision = transact(
            catalog,
            {"action": "delete", "key": "gone"},
            {"action": "put", "key": "made", "value": 1},
        )
        revert(catalog, revision)
        assert (value(catalog, "gone"), beside(catalog, "gone")) == ({"old": 1}, {"team": "a"})
        assert value(catalog, "made") is None

    def test_a_move_is_undone_with_its_attributes(self, catalog: Catalog) -> None:
        catalog.put({"n": 1}, key="from")
        attributes(catalog, "from", {"team": "a"})
        revision = transact(catalog, {"action": "move", "from": "from", "to": "to"})
        catalog.merge({"m": 2}, key="to")
        assert [each["key"] for each in refused(catalog, {"revisions": [revision]})] == ["to"]
        revert(catalog, revision + 1, revision)
        assert (value(catalog, "from"), value(catalog, "to")) == ({"n": 1}, None)
        assert beside(catalog, "from") == {"team": "a"}

    def test_attributes_are_undone_without_the_content(self, catalog: Catalog) -> None:
        catalog.put({"n": 1})
        attributes(catalog, "k", {"team": "a"})
        attributes(catalog, "k", {"team": "b", "cost": 1})
        catalog.merge({"n": 2})
        done = revert(catalog, 3)
        assert (value(catalog), beside(catalog)) == ({"n": 2}, {"team": "a"})
        assert (done["changes"][0]["action"], done["changes"][0]["patch"]) == ("attributes", [])

    def test_several_commits_are_undone_in_one_commit(self, catalog: Catalog) -> None:
        for number in range(4):
            catalog.put({"n": number, "other": 0})
        catalog.merge({"other": 1})
        done = revert(catalog, 4, 3)
        assert (value(catalog), done["revision"]) == ({"n": 1, "other": 1}, 6)

    def test_items_of_declared_lists_are_undone_by_their_keys(self, catalog: Catalog) -> None:
        arrays = [{"keys": "*", "pointer": "/fields", "item_key": ["id"]}]
        catalog.client.put(catalog.path, json={"arrays": arrays})
        fields = [{"id": "a", "t": "int"}, {"id": "b", "t": "int"}]
        catalog.put({"fields": fields})
        catalog.put({"fields": [fields[0], {"id": "b", "t": "text"}]})
        catalog.put({"fields": [{"id": "new"}, {"id": "b", "t": "text", "doc": "x"}, fields[0]]})
        revert(catalog, 3)
        assert value(catalog) == {
            "fields": [{"id": "new"}, {"id": "b", "t": "int", "doc": "x"}, fields[0]]
        }

    def test_commits_that_are_not_adjacent_can_be_undone(self, catalog: Catalog) -> None:
        catalog.put({"a": 0, "b": 0, "c": 0})
        for name in ("a", "b", "c"):
            catalog.merge({name: 1})
        revert(catalog, 2, 4)
        assert value(catalog) == {"a": 0, "b": 1, "c": 0}

    def test_a_revert_can_be_reverted(self, catalog: Catalog) -> None:
        catalog.put({"a": 1})
        catalog.merge({"a": 2})
        revert(catalog, 2)
        revert(catalog, 3)
        assert value(catalog) == {"a": 2}
        catalog.delete()
        revert(catalog, 5)
        revert(catalog, 6)
        assert value(catalog) is None

    def test_force_applies_to_the_named_places_only(self, catalog: Catalog) -> None:
        catalog.put({"a": {"x": 1, "y": 1}, "b": 1, "c": 1})
        attributes(catalog, "k", {"team": "a"})
        catalog.put({"a": {"x": 2, "y": 2}, "b": 2, "c": 2})
        attributes(catalog, "k", {"team": "b"})
        catalog.put({"a": {"x": 3, "y": 3}, "b": 3, "c": 2})
        attributes(catalog, "k", {"team": "c"})
        named = [{"key": "k", "pointer": "/a"}, {"key": "other", "pointer": ""}]
        left = refused(catalog, {"revisions": [3, 4], "force": named})
        assert [(each["part"], each["pointer"]) for each in left] == [
            ("content", "/b"),
            ("attributes", "/team"),
        ]
        done = revert(catalog, 3, 4, conflict="skip", force=named, dry_run=True)
        assert [each["pointer"] for each in done["skipped"]] == ["/b", "/team"]
        named.append({"key": "k", "part": "attributes", "pointer": "/team"})
        done = revert(catalog, 3, 4, conflict="skip", force=named)
        assert [each["pointer"] for each in done["skipped"]] == ["/b"]
        assert value(catalog) == {"a": {"x": 1, "y": 1}, "b": 3, "c": 1}
        assert beside(catalog) == {"team": "a"}

    def test_a_document_is_deleted_only_if_all_its_places_are_forced(
        self, catalog: Catalog
    ) -> None:
        catalog.put({"a": 1, "b": 1})
        catalog.merge({"a": 2, "b": 2})
        attributes(catalog, "k", {"team": "a"})
        asked = {"revisions": [1], "force": [{"key": "k", "pointer": ""}]}
        assert [each["pointer"] for each in refused(catalog, asked)] == ["/team"]
        done = revert(catalog, 1, conflict="skip", force=asked["force"])
        assert (done["changed"], value(catalog)) == (False, {"a": 2, "b": 2})
        of_attributes = {"key": "k", "part": "attributes", "pointer": "/team"}
        revert(
            catalog,
            1,
            force=[{"key": "k", "pointer": "/a"}, {"key": "k", "pointer": "/b"}, of_attributes],
        )
        assert value(catalog) is None

    def test_places_in_declared_lists_of_a_document_to_delete_are_named_by_key(
        self, catalog: Catalog
    ) -> None:
        arrays = [
            {"keys": "*", "pointer": "/fields", "item_key": ["id"]},
            {"keys": "*", "pointer": "/tags", "set": True},
        ]
        catalog.client.put(catalog.path, json={"arrays": arrays})
        catalog.put({"fields": [{"id": "a", "t": 1}, {"id": "b", "t": 1}], "tags": ["x"]})
        catalog.put({"fields": [{"id": "c"}, {"id": "b", "t": 2}, {"id": "a"}], "tags": ["y"]})
        places = refused(catalog, {"revisions": [2]})
        assert {each["pointer"]: each.get("value") for each in places} == {
            "/fields/a/t": None,
            "/fields/b/t": 2,
            "/fields/c": {"id": "c"},
            '/tags/"x"': None,
            '/tags/"y"': "y",
        }
        named = [{"key": "k", "pointer": each["pointer"]} for each in places]
        assert refused(catalog, {"revisions": [2], "force": named[1:]}) == places[:1]
        revert(catalog, 2, force=named)
        assert value(catalog) is None

    @pytest.mark.parametrize(
        ("force", "pointer"),
        [
            ("/a", "/force"),
            ([1], "/force/0"),
            ([{"pointer": "/a"}], "/force/0/key"),
            ([{"key": "k", "pointer": "a"}], "/force/0/pointer"),
            ([{"key": "k", "pointer": "", "part": "owners"}], "/force/0/part"),
            ([{"key": "k", "pointer": ""}] * 1001, "/force"),
        ],
    )
    def test_an_invalid_forced_place_is_refused(
        self, catalog: Catalog, force: Any, pointer: str
    ) -> None:
        catalog.put({"a": 1})
        told = problem(send(catalog, {"revisions": [1], "force": force}), 400, "invalid_body")
        assert told["pointer"] == pointer

    def test_a_prefix_chooses_the_documents(self, catalog: Catalog) -> None:
        revision = transact(
            catalog, *({"action": "put", "key": key, "value": 1} for key in ("a/1", "b/1"))
        )
        done = revert(catalog, revision, prefix="a/")
        assert (value(catalog, "a/1"), value(catalog, "b/1")) == (None, 1)
        told = catalog.client.get(f"{catalog.path}/commits/{done['revision']}").get_json()
        assert told["message"] == "reverts 1 under 'a/'"

    def test_undoing_something_already_undone_makes_no_commit(self, catalog: Catalog) -> None:
        catalog.put({"a": 1})
        catalog.put({"a": 2})
        catalog.put({"a": 1})
        catalog.client.post(f"{catalog.path}/touch")
        for revisions in ([2], [4], [3, 2]):
            done = revert(catalog, *revisions)
            assert (done["changed"], done["commit_id"], done["revision"]) == (False, None, 4)

    def test_settings_are_undone_too(self, catalog: Catalog) -> None:
        catalog.put(1)
        catalog.client.put(catalog.path, json={"require_precondition": True})
        # A revert says what it is about: it needs no precondition.
        revert(catalog, 2)
        assert catalog.client.get(catalog.path).get_json()["settings"] is None

    def test_changed_settings_are_named_in_the_refusal(self, catalog: Catalog) -> None:
        for commits in (10, 20, 30):
            catalog.client.put(catalog.path, json={"retention": {"commits": commits}})
        refused = problem(send(catalog, {"revisions": [2]}), 409, "changed_since")
        assert refused["detail"] == (
            "'/retention/commits' of the catalog's settings changed after the commits to undo"
        )

    def test_a_deleted_catalog_is_restored(self, catalog: Catalog) -> None:
        catalog.client.put(catalog.path, json={"schemas": {"x": {}}})
        for key in "abc":
            catalog.put({"key": key}, key=key)
        catalog.client.delete(catalog.path)
        assert catalog.client.get(catalog.path).status_code == 404
        revert(catalog, 5)
        read = catalog.client.get(catalog.path).get_json()
        assert (read["settings"], read["revision"]) == ({"schemas": {"x": {}}}, 6)
        assert [value(catalog, key) for key in "abc"] == [{"key": key} for key in "abc"]

    def test_a_deleted_catalog_is_restored_with_the_owners_of_the_items_of_its_lists(
        self, catalog: Catalog
    ) -> None:
        settings = {"arrays": [{"keys": "*", "pointer": "/f", "item_key": ["id"]}]}
        catalog.client.put(catalog.path, json=settings)
        for n, manager in enumerate(("one", "two")):
            action = {
                "action": "apply",
                "key": "k",
                "manager": manager,
                "value": {"f": [{"id": n}]},
            }
            transact(catalog, action)
        owners = catalog.client.get(f"{catalog.path}/owners/k").get_json()["owners"]
        assert [len(each["owners"]) for each in owners] == [1, 1]
        catalog.client.delete(catalog.path)
        revert(catalog, 4)
        assert catalog.client.get(catalog.path).get_json()["settings"] == settings
        assert catalog.client.get(f"{catalog.path}/owners/k").get_json()["owners"] == owners

    def test_documents_and_the_list_that_forbids_them_are_undone_in_one_commit(
        self, catalog: Catalog
    ) -> None:
        catalog.put({"f": [1, 1]})
        catalog.put({"f": [1]})
        settings = {"arrays": [{"keys": "*", "pointer": "/f", "set": True}]}
        catalog.client.put(catalog.path, json=settings)
        problem(send(catalog, {"revisions": [2]}), 422, "list_violation")
        revert(catalog, 2, 3)
        assert value(catalog) == {"f": [1, 1]}

    def test_a_list_of_a_deleted_catalog_is_checked_when_it_is_restored(
        self, catalog: Catalog
    ) -> None:
        catalog.put({"f": [1, 1]})
        settings = {"arrays": [{"keys": "*", "pointer": "/f", "set": True}]}
        catalog.client.put(f"{catalog.path}?check_documents=false", json=settings)
        catalog.client.delete(catalog.path)
        problem(send(catalog, {"revisions": [3]}), 422, "list_violation")


class TestRestore:
    def test_documents_are_restored_to_an_earlier_revision(self, catalog: Catalog) -> None:
        catalog.put({"n": 1}, key="t/a")
        catalog.put({"n": 1}, key="t/gone")
        catalog.put({"n": 1}, key="u")
        catalog.put({"n": 2}, key="t/a")
        catalog.delete(key="t/gone")
        catalog.put({"n": 2}, key="t/new")
        catalog.put({"n": 2}, key="u")
        done = revert(catalog, to=3, prefix="t/")
        assert [value(catalog, key) for key in ("t/a", "t/gone", "t/new", "u")] == [
            {"n": 1}, {"n": 1}, None, {"n": 2},
        ]  # fmt: skip
        assert done["revision"] == 8
        told = catalog.client.get(f"{catalog.path}/differences?from=3&prefix=t/").get_json()
        assert told["differences"] == []

    def test_from_names_the_revision_that_the_client_saw(self, catalog: Catalog) -> None:
        catalog.put({"a": 1, "b": 1})
        catalog.merge({"a": 2})
        catalog.merge({"b": 2})
        assert revert(catalog, to=1, **{"from": 2})["changed"]
        assert value(catalog) == {"a": 1, "b": 2}
        catalog.merge({"a": 3})
        (place,) = refused(catalog, {"to": 1, "from": 2})
        assert (place["pointer"], place["value"]) == ("/a", 3)

    def test_settings_are_not_restored(self, catalog: Catalog) -> None:
        catalog.put(1)
        catalog.client.put(catalog.path, json={"retention": {"commits": 10}})
        catalog.put(2)
        revert(catalog, to=1)
        read = catalog.client.get(catalog.path).get_json()
        assert (value(catalog), read["settings"]) == (1, {"retention": {"commits": 10}})


def owned_apply(catalog: Catalog, wanted: Any, manager: str, query: str = "") -> TestResponse:
    return catalog.client.patch(
        f"{catalog.document('k')}?manager={manager}{query}",
        json=wanted,
        content_type="application/vnd.metadata.apply+json",
    )


def owners(catalog: Catalog, key: str = "k", query: str = "") -> dict[str, list[Any]]:
    told = catalog.client.get(f"{catalog.path}/owners/{key}{query}").get_json()
    return {
        each["pointer"]: [(by["manager"], by["since"], by["plain"]) for by in each["owners"]]
        for each in told["owners"]
    }


class TestOwners:
    """What a change took over is given back with it."""

    def test_a_takeover_that_is_undone_gives_the_field_back(self, catalog: Catalog) -> None:
        owned_apply(catalog, {"rows": 1}, "nightly")
        catalog.patch({"op": "replace", "path": "/rows", "value": 2})
        assert owners(catalog) == {"/rows": [("anonymous", 2, True)]}
        shown = revert(catalog, 2, dry_run=True)["changes"][0]
        done = revert(catalog, 2)["changes"][0]
        assert shown["owners"] == done["owners"] == [
            {"manager": "anonymous", "plain": True, "gained": [], "lost": ["/rows"]},
            {"manager": "nightly", "plain": False, "gained": ["/rows"], "lost": []},
        ]  # fmt: skip
        assert (value(catalog), owners(catalog)) == (
            {"rows": 1},
            {"/rows": [("nightly", 1, False)]},
        )
        assert owned_apply(catalog, {"rows": 7}, "nightly").status_code == 200
        assert value(catalog) == {"rows": 7}

    def test_undoing_a_takeover_gives_the_field_back_even_if_the_value_is_equal(
        self, catalog: Catalog
    ) -> None:
        """Whoever set the value back by hand has not given the field back."""
        owned_apply(catalog, {"rows": 1}, "nightly")
        catalog.merge({"rows": 2})
        catalog.merge({"rows": 1})
        back = revert(catalog, 2)
        assert (back["changed"], back["changes"][0]["patch"]) == (True, [])
        assert owners(catalog) == {"/rows": [("nightly", 1, False)]}
        assert revert(catalog, to=3)["changed"] is True
        assert owners(catalog) == {"/rows": [("anonymous", 2, True)]}

    def test_a_deleted_document_is_restored_with_its_owners(self, catalog: Catalog) -> None:
        owned_apply(catalog, {"rows": 1, "by": {"team": "x"}}, "nightly")
        owned_apply(catalog, {"rows": 1}, "b")
        before = owners(catalog)
        catalog.delete()
        revert(catalog, 3)
        assert owners(catalog) == before
        assert owners(catalog, query="?revision=4") == before
        revision = transact(catalog, {"action": "move", "from": "k", "to": "to"})
        revert(catalog, revision)
        assert (owners(catalog), value(catalog, "to")) == (before, None)

    def test_a_transaction_is_undone_with_the_owners_of_all_its_documents(
        self, catalog: Catalog
    ) -> None:
        applies = [
            {"action": "apply", "key": key, "value": {"n": 1}, "manager": "nightly"} for key in "ab"
        ]
        transact(catalog, *applies)
        revision = transact(
            catalog, *({"action": "merge", "key": key, "value": {"n": 2}} for key in "ab")
        )
        revert(catalog, revision)
        assert owners(catalog, "a") == owners(catalog, "b") == {"/n": [("nightly", 1, False)]}

    def test_letting_go_and_co_owning_are_undone(self, catalog: Catalog) -> None:
        owned_apply(catalog, {"rows": 1}, "a")
        owned_apply(catalog, {"rows": 1}, "b")
        owned_apply(catalog, {}, "a")
        owned_apply(catalog, {"rows": 1}, "c")
        revert(catalog, 3)
        assert owners(catalog) == {"/rows": [("a", 1, False), ("b", 2, False), ("c", 4, False)]}
        revert(catalog, 2)
        assert owners(catalog) == {"/rows": [("a", 1, False), ("c", 4, False)]}

    def test_a_later_owner_gets_a_conflict(self, catalog: Catalog) -> None:
        catalog.put({"rows": 1})
        catalog.merge({"rows": 2})
        owned_apply(catalog, {"rows": 2}, "late")
        revert(catalog, 2)
        assert value(catalog) == {"rows": 1}
        assert owners(catalog) == {"/rows": [("anonymous", 4, True)]}
        problem(owned_apply(catalog, {"rows": 2}, "late"), 409, "owned_by_others")

    def test_skipped_places_keep_their_owners_and_forced_ones_get_the_former_owners(
        self, catalog: Catalog
    ) -> None:
        owned_apply(catalog, {"a": 1, "b": 1}, "nightly")
        catalog.merge({"a": 2, "b": 2})
        catalog.merge({"a": 3})
        since = owned_apply(catalog, {"a": 4}, "late", "&conflict=force").get_json()["revision"]
        revert(catalog, 2, conflict="skip")
        nightly = [("nightly", 1, False)]
        assert owners(catalog) == {"/a": [("late", since, False)], "/b": nightly}
        revert(catalog, 2, conflict="force")
        assert (value(catalog), owners(catalog)) == (
            {"a": 1, "b": 1},
            {"/a": nightly, "/b": nightly},
        )


class TestConflict:
    @pytest.fixture
    def changed(self, catalog: Catalog) -> Catalog:
        """Revision 2 changed a, b and an attribute, which 3 and 4 have changed since."""
        catalog.put({"a": 1, "b": 1, "c": 1})
        transact(
            catalog,
            {"action": "merge", "key": "k", "value": {"a": 2, "b": 2}},
            {"action": "attributes", "key": "k", "value": {"team": "x", "cost": 1}},
        )
        catalog.merge({"a": 3, "c": 3})
        attributes(catalog, "k", {"team": "y", "cost": 1})
        return catalog

    def test_a_later_change_of_the_same_place_refuses_the_revert(self, changed: Catalog) -> None:
        assert refused(changed, {"revisions": [2]}) == [
            {
                "key": "k",
                "part": "content",
                "pointer": "/a",
                "revision": 4,
                "value": 3,
                "wanted": 1,
            },
            {
                "key": "k",
                "part": "attributes",
                "pointer": "/team",
                "revision": 4,
                "value": "y",
            },
        ]

    def test_a_place_is_named_once_for_commits_that_follow_each_other(
        self, catalog: Catalog
    ) -> None:
        for number in (1, 2, 3, 9):
            catalog.put({"a": number})
        (place,) = refused(catalog, {"revisions": [2, 3]})
        assert (place["value"], place["wanted"]) == (9, 1)

    def test_a_contested_place_can_be_skipped(self, changed: Catalog) -> None:
        done = revert(changed, 2, conflict="skip")
        assert value(changed) == {"a": 3, "b": 1, "c": 3}
        assert beside(changed) == {"team": "y"}
        assert done["skipped"] == [
            {"key": "k", "part": "content", "pointer": "/a"},
            {"key": "k", "part": "attributes", "pointer": "/team"},
        ]

    def test_a_contested_place_can_be_forced(self, changed: Catalog) -> None:
        done = revert(changed, 2, conflict="force")
        assert (value(changed), beside(changed)) == ({"a": 1, "b": 1, "c": 3}, {})
        assert done["skipped"] == []

    def test_a_document_to_delete_lists_what_changed_in_it(self, catalog: Catalog) -> None:
        catalog.put({"a": 1, "l": [1]})
        catalog.merge({"a": 2, "new": 1})
        attributes(catalog, "k", {"team": "x"})
        places = refused(catalog, {"revisions": [1]})
        assert [(each["part"], each["pointer"]) for each in places] == [
            ("content", "/a"), ("content", "/new"), ("attributes", "/team"),
        ]  # fmt: skip
        assert ["wanted" in each for each in places] == [False] * 3
        assert revert(catalog, 1, conflict="skip")["changed"] is False
        revert(catalog, 1, conflict="force")
        assert value(catalog) is None

    def test_a_document_deleted_since_is_one_contested_place(self, catalog: Catalog) -> None:
        catalog.put({"a": 1})
        catalog.merge({"a": 2})
        catalog.delete()
        (place,) = refused(catalog, {"revisions": [2]})
        assert (place["pointer"], place["wanted"], "value" in place) == ("", {"a": 1}, False)
        assert revert(catalog, 2, conflict="skip")["changed"] is False
        revert(catalog, 2, conflict="force")
        assert value(catalog) == {"a": 1}

    def test_a_document_re_created_since_is_one_contested_place(self, catalog: Catalog) -> None:
        catalog.put({"a": 1})
        catalog.delete()
        catalog.put("another")
        (place,) = refused(catalog, {"revisions": [2]})
        assert (place["value"], place["wanted"]) == ("another", {"a": 1})

    def test_one_conflict_refuses_the_whole_revert(self, catalog: Catalog) -> None:
        catalog.put(1, key="a")
        catalog.put(1, key="b")
        revision = transact(
            catalog, *({"action": "put", "key": key, "value": 2} for key in ("a", "b"))
        )
        catalog.put(3, key="b")
        assert [each["key"] for each in refused(catalog, {"revisions": [revision]})] == ["b"]
        assert value(catalog, "a") == 2
        done = revert(catalog, revision, conflict="skip")
        assert (value(catalog, "a"), value(catalog, "b")) == (1, 3)
        assert [each["key"] for each in done["skipped"]] == ["b"]

    def test_a_large_value_is_not_repeated(self, catalog: Catalog) -> None:
        catalog.put("x" * 5000)
        catalog.put("y" * 5000)
        catalog.put("z" * 5000)
        (place,) = refused(catalog, {"revisions": [2]})
        assert (place["pointer"], "value" in place, "wanted" in place) == ("", False, False)


class TestTerms:
    def test_a_dry_run_shows_the_patch_and_changes_nothing(self, catalog: Catalog) -> None:
        catalog.put({"a": 1})
        catalog.merge({"a": 2})
        for asked, query in (
            ({"revisions": [2], "dry_run": True}, ""),
            ({"to": 1}, "?dry_run=true"),
        ):
            found = send(catalog, asked, query)
            assert found.status_code == 200
            told = found.get_json()
            assert (told["dry_run"], told["changed"], told["commit_id"]) == (True, True, None)
            assert told["changes"][0]["patch"] == [{"op": "replace", "path": "/a", "value": 1}]
        assert (value(catalog), catalog.head_revision()) == ({"a": 2}, 2)

    def test_a_key_decides_once(self, catalog: Catalog) -> None:
        catalog.put({"a": 1, "b": 1})
        catalog.merge({"a": 2, "b": 2})
        catalog.merge({"a": 3})
        asked = {"revisions": [2], "conflict": "skip"}
        first = send(catalog, asked, Idempotency_Key="x")
        catalog.put({"a": 9, "b": 9})
        again = send(catalog, asked, Idempotency_Key="x")
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.get_json() == first.get_json()
        assert [each["pointer"] for each in first.get_json()["skipped"]] == ["/a"]
        other = send(catalog, {"revisions": [3]}, Idempotency_Key="x")
        problem(other, 422, "idempotency_key_reused")
        # Its history may be gone by then.
        catalog.client.post(f"{catalog.path}/compactions", json={"revision": 5})
        again = send(catalog, asked, Idempotency_Key="x")
        assert again.headers["Idempotency-Replayed"] == "true"
        gone = send(catalog, asked, Idempotency_Key="y")
        assert problem(gone, 410, "revision_compacted")["oldest_revision"] == 5
        told = catalog.client.get(f"{catalog.path}/outcomes/y").get_json()
        assert (told["applied"], told["problem"]["code"]) == (False, "revision_compacted")

    def test_a_refused_revert_to_a_future_revision_stays_refused_under_its_key(
        self, catalog: Catalog
    ) -> None:
        catalog.put(1)
        problem(send(catalog, {"to": 2}, Idempotency_Key="x"), 404, "revision_not_found")
        catalog.put(2)
        catalog.put(3)
        again = send(catalog, {"to": 2}, Idempotency_Key="x")
        problem(again, 404, "revision_not_found")
        assert again.headers["Idempotency-Replayed"] == "true"
        assert catalog.get().get_json() == 3

    def test_a_refused_revert_is_replayed_under_its_key(self, catalog: Catalog) -> None:
        for number in range(3):
            catalog.put(number)
        first = send(catalog, {"revisions": [2]}, Idempotency_Key="x")
        catalog.put(1)
        again = send(catalog, {"revisions": [2]}, Idempotency_Key="x")
        told = [problem(each, 409, "changed_since")["contested"] for each in (first, again)]
        assert told[0] == told[1]

    def test_a_revert_may_have_a_message_an_author_and_conditions(self, catalog: Catalog) -> None:
        catalog.put(1)
        catalog.put(2)
        asked = {"revisions": [2], "message": "back"}
        stale = send(catalog, asked, "?resource_version=1")
        problem(stale, 412, "precondition_failed")
        stale = send(catalog, asked, If_Match='"@1"')
        problem(stale, 412, "precondition_failed")
        done = send(catalog, asked, "?resource_version=2", Commit_Author="anonymous")
        assert done.headers["ETag"] == '"@3"'
        told = catalog.client.get(f"{catalog.path}/commits/3").get_json()
        assert (told["message"], told["author"]) == ("back", "anonymous")

    def test_a_minimal_answer_omits_the_changes(self, catalog: Catalog) -> None:
        catalog.put(1)
        done = send(catalog, {"revisions": [1]}, Prefer="return=minimal").get_json()
        assert (done["changed"], "changes" in done) == (True, False)

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({}, ""),
            ({"revisions": [1], "to": 1}, ""),
            ({"revisions": []}, "/revisions"),
            ({"revisions": [0]}, "/revisions"),
            ({"revisions": [True]}, "/revisions"),
            ({"revisions": list(range(1, 102))}, "/revisions"),
            ({"revisions": [1], "from": 1}, "/from"),
            ({"to": 2, "from": 1}, "/from"),
            ({"to": -1}, "/to"),
            ({"to": 1, "conflict": "merge"}, "/conflict"),
            ({"to": 1, "prefix": 1}, "/prefix"),
            ({"to": 1, "keys": "k"}, "/keys"),
        ],
    )
    def test_a_bad_body_is_refused(self, catalog: Catalog, body: Any, pointer: str) -> None:
        catalog.put(1)
        assert problem(send(catalog, body), 400, "invalid_body")["pointer"] == pointer

    def test_unknown_and_compacted_revisions_are_refused(self, catalog: Catalog) -> None:
        problem(send(catalog, {"to": 0}), 404, "catalog_not_found")
        for number in range(5):
            catalog.put(number)
        for body in ({"revisions": [6]}, {"to": 6}, {"to": 2, "from": 6}):
            assert problem(send(catalog, body), 404, "revision_not_found")["head_revision"] == 5
        catalog.client.post(f"{catalog.path}/compactions", json={"revision": 3})
        for body in ({"revisions": [3]}, {"to": 2}):
            assert problem(send(catalog, body), 410, "revision_compacted")["oldest_revision"] == 3
        revert(catalog, 4, conflict="force")
        assert value(catalog) == 2

    def test_schemas_and_limits_apply(
        self, catalog: Catalog, memory_gateway: GatewayService
    ) -> None:
        catalog.put({"n": 1}, key="t")
        catalog.put({"m": 1}, key="t")
        catalog.client.put(catalog.path, json={"schemas": {"t": {"required": ["m"]}}})
        problem(send(catalog, {"revisions": [2]}), 422, "schema_violation")
        small = create_app(memory_gateway, RequestLimits(transaction_actions_max=2)).test_client()
        few = Catalog(small, catalog.name)
        for key in "abc":
            few.put(1, key=key)
        found = problem(send(few, {"to": 3}), 413, "over_limit")
        assert (found["limit"], found["maximum"]) == ("transaction_actions_max", 2)
        assert send(few, {"to": 3, "prefix": "a"}).status_code == 200

    def test_states_that_are_too_large_together_are_refused(self, catalog: Catalog) -> None:
        for _ in range(2):
            for number in range(12):
                catalog.put([random.random(), "x" * 3_000_000], key=f"k{number}")
        found = problem(send(catalog, {"to": 12}), 413, "over_limit")
        assert found["limit"] == "documents_bytes_max"


def test_a_revert_can_be_of_one_document_alone(catalog: Catalog) -> None:
    """Not of those whose keys begin with its key; also of a commit that changed several."""
    for number, key in enumerate(("k", "k2", "k/x"), 1):
        catalog.put(number, key)
    transact(catalog, *({"action": "put", "key": key, "value": 9} for key in ("k", "k2", "k/x")))
    done = revert(catalog, 4, key="k")
    assert [change["key"] for change in done["changes"]] == ["k"]
    assert [value(catalog, key) for key in ("k", "k2", "k/x")] == [1, 9, 9]
    done = revert(catalog, to=2, key="k/x")
    assert [value(catalog, key) for key in ("k", "k2", "k/x")] == [1, 9, None]
    assert done["changes"][0]["action"] == "delete"
    message = catalog.client.get(f"{catalog.path}/commits/6").get_json()["message"]
    assert message == "reverts to revision 2 of 'k/x'"
    assert revert(catalog, to=2, key="never")["changed"] is False
    problem(send(catalog, {"to": 1, "key": "k", "prefix": "k"}), 400, "invalid_body")
    for key in ("", "\0applications"):
        problem(send(catalog, {"to": 1, "key": key}), 400, "invalid_name")


def random_write(rng: random.Random, catalog: Catalog) -> None:
    """Also several documents at once, and moves."""
    key = rng.choice("abc")
    made = {name: rng.choice((rng.randrange(4), [1], {"in": rng.randrange(3)})) for name in "xyz"}
    keep = rng.sample("xyz", rng.randrange(4))
    new = {name: made[name] for name in keep}
    there = value(catalog, key) is not None
    free = [other for other in "abc" if value(catalog, other) is None]
    match rng.randrange(7):
        case 0:
            catalog.delete(key=key)
        case 1 if there:
            attributes(catalog, key, new)
        case 2 if there:
            catalog.merge({**new, "x": None}, key=key)
        case 3 if there and free:
            transact(catalog, {"action": "move", "from": key, "to": free[0]})
        case 4:
            transact(catalog, *({"action": "put", "key": each, "value": new} for each in "ab"))
        case _:
            catalog.put(new, key=key)


@pytest.mark.parametrize("seed", range(8))
def test_the_last_commit_reverted_gives_exactly_the_state_before(
    catalog: Catalog, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        before_write = catalog.head_revision()
        random_write(rng, catalog)
        last = catalog.head_revision()
        if last == before_write:
            continue
        before, after = (state_at(catalog, each) if each else {} for each in (last - 1, last))
        done = revert(catalog, last)
        assert state_at(catalog, done["revision"]) == before
        assert done["revision"] == last + 1
        again = revert(catalog, last + 1)
        assert state_at(catalog, again["revision"]) == after
        back = revert(catalog, to=last - 1) if last > 1 else revert(catalog, last)
        assert state_at(catalog, back["revision"]) == before
        revert(catalog, back["revision"])


@pytest.mark.parametrize("seed", range(8))
def test_a_later_revert_gives_what_the_oracle_computes(catalog: Catalog, seed: int) -> None:
    """The oracle applies the recorded patches of each document without the undone commit."""
    rng = random.Random(100 + seed)
    catalog.put(dict.fromkeys("wxyz", 0))
    for _ in range(8):
        catalog.merge({rng.choice("wxyz"): rng.randrange(1, 5)})
    head = catalog.head_revision()
    commits = catalog.client.get(f"{catalog.path}/commits?limit=100").get_json()["commits"]
    for undone in rng.sample(range(2, head + 1), min(4, head - 1)):
        expected = replayed(commits, without=undone)
        here = copy.deepcopy(value(catalog))
        asked = {"revisions": [undone]}
        answer = send(catalog, asked)
        if expected is None:
            places = problem(answer, 409, "changed_since")["contested"]
            assert {each["pointer"] for each in places} == written(commits[undone - 1])
            continue
        assert answer.status_code == 200
        assert value(catalog) == expected
        if answer.get_json()["changed"]:
            revert(catalog, answer.get_json()["revision"])
        assert value(catalog) == here


def written(commit: Any) -> set[str]:
    return {operation["path"] for operation in commit["changes"][0]["patch"]}


def replayed(commits: list[Any], without: int) -> Any:
    """None where a later commit changed what that one did, and left it otherwise than it found."""
    state: Any = patching.ABSENT
    found = None
    for commit in commits:
        patch = commit["changes"][0]["patch"]
        if commit["revision"] == without:
            found = {operation["path"]: state[operation["path"][1:]] for operation in patch}
            continue
        state = patching.apply(state, patch)
    assert found is not None
    later = [c for c in commits if c["revision"] > without and written(c) & set(found)]
    if later and any(state[path[1:]] != before for path, before in found.items()):
        return None
    return state


def test_reverts_under_concurrent_disjoint_edits_keep_them() -> None:
    """Through two gateways, each of which has a cache and loses races to the other."""
    store = MemoryStore()
    limits = ServiceLimits(deadline_ms=WAIT_MS)
    catalog, other = (
        Catalog(create_app(GatewayService(store, ThreadRuntime(), limits)).test_client(), "c")
        for _ in range(2)
    )
    catalog.put({"undone": 0, **{f"w{number}": 0 for number in range(4)}})
    catalog.merge({"undone": 1})
    start = threading.Barrier(5)
    wrong: list[Any] = []

    def write(number: int) -> None:
        start.wait()
        for count in range(1, 21):
            if catalog.merge({f"w{number}": count}).status_code != 200:
                wrong.append((number, count))

    def undo() -> None:
        start.wait()
        target = 2
        for _ in range(20):
            answer = send(other, {"revisions": [target]})
            if answer.status_code != 200:
                wrong.append(answer.get_json())
                return
            target = answer.get_json()["revision"]

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    threads.append(threading.Thread(target=undo))
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    # 20 times undone and done again: as it was.
    assert value(catalog) == {"undone": 1, **{f"w{number}": 20 for number in range(4)}}
    assert catalog.head_revision() == 2 + 80 + 20
