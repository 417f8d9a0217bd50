"""Digests of what a manager owns of documents: what it has to send, and where it has to let go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from patching import NO_LISTS, Lists, parse_lists
from patching.part_digests import part_digest
from tests.http.conftest import Catalog, problem

_APPLY = "application/vnd.metadata.apply+json"


class Managed:
    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def apply(self, key: str, wanted: Any, manager: str = "nightly", more: str = "") -> int:
        answer = self.catalog.client.patch(
            f"{self.catalog.document(key)}?manager={manager}{more}",
            data=json.dumps(wanted),
            content_type=_APPLY,
        )
        assert answer.status_code in (200, 201), answer.get_json()
        return int(answer.headers["Catalog-Revision"])

    def ask(self, query: str) -> Any:
        return self.catalog.client.get(f"{self.catalog.path}/documents?{query}")

    def digests(self, manager: str = "nightly", more: str = "") -> dict[str, str | None]:
        answer = self.ask(f"select=digest&manager={manager}{more}").get_json()
        assert answer["next"] is None
        return {each["key"]: each["digest"] for each in answer["documents"]}

    def in_step(self, key: str, wanted: Any, lists: Lists = NO_LISTS) -> bool:
        """Whether the digest says that ``nightly`` needn't apply this; if so, it is tried."""
        same = self.digests()[key] == part_digest(wanted, lists)
        if same:
            before = self.catalog.head_revision()
            assert self.apply(key, wanted) == before
        return same


@pytest.fixture
def managed(catalog: Catalog) -> Managed:
    return Managed(catalog)


def test_a_digest_covers_exactly_what_the_manager_owns(managed: Managed) -> None:
    managed.catalog.put({"by": "hand"}, "theirs")
    managed.apply("a", {"tier": 1, "by": {"team": "x"}})
    managed.apply("b", {"size": 2}, "sizes")
    assert managed.digests() == {
        "a": part_digest({"by": {"team": "x"}, "tier": 1.0}),
        "b": None,
        "theirs": None,
    }
    assert managed.digests("sizes") == {"a": None, "b": part_digest({"size": 2}), "theirs": None}
    assert managed.digests("nobody") == dict.fromkeys(["a", "b", "theirs"])
    token = managed.catalog.get("a").headers["ETag"].strip('"')
    (first,) = managed.ask("select=digest&manager=nightly&prefix=a").get_json()["documents"]
    assert (first["etag"], first["revision"]) == (token, 2)
    assert [*managed.digests(more="&contains=B").values()] == [None]
    named = managed.ask("select=digest&manager=sizes&key=b&key=none&key=a").get_json()["documents"]
    assert [each.get("digest") for each in named] == [part_digest({"size": 2}), None, None]
    inside = managed.ask("select=digest&manager=sizes&delimiter=/&limit=2").get_json()["documents"]
    assert [each["digest"] for each in inside] == [None, part_digest({"size": 2})]


def test_changes_by_others_to_the_managers_part_change_its_digest(managed: Managed) -> None:
    wanted = {"tier": 1, "note": "x", "labels": {}}
    head = managed.apply("k", wanted)
    assert managed.in_step("k", wanted)
    managed.apply("k", {"tier": 1, "size": 3}, "sizes")  # owned together, and beside it
    managed.catalog.patch({"op": "add", "path": "/more", "value": 1})
    assert managed.in_step("k", wanted)

    managed.catalog.patch({"op": "replace", "path": "/note", "value": "mine"})
    assert managed.digests()["k"] == part_digest({"tier": 1, "labels": {}})
    managed.apply("k", wanted, more="&conflict=skip")  # it stays another's, so it is reported again
    assert not managed.in_step("k", wanted)
    managed.apply("k", wanted, more="&conflict=force")
    assert managed.in_step("k", wanted)

    managed.apply("k", {"tier": 2}, "sizes", "&conflict=force")
    assert not managed.in_step("k", wanted)
    managed.apply("k", wanted, more="&conflict=force")
    managed.catalog.patch({"op": "add", "path": "/labels/x", "value": 1})
    assert not managed.in_step("k", wanted)  # whoever wants it empty doesn't own it any more

    now = managed.digests()
    managed.catalog.put({"tier": 1})
    assert managed.digests()["k"] == part_digest({"tier": 1})
    managed.catalog.delete("k")
    assert managed.digests() == {}
    assert managed.digests(more=f"&revision={head}") == {"k": part_digest(wanted)}
    before = managed.catalog.head_revision() - 2
    assert managed.digests(more=f"&revision={before}") == now


def test_items_of_lists_are_digested_in_any_order(managed: Managed) -> None:
    """These digests aren't stored; the lists are those of the revision."""
    rules: list[Any] = [{"keys": "*", "pointer": "/fields", "item_key": ["path"]}]
    lists = parse_lists([{"pointer": "/fields", "item_key": ["path"]}])
    wanted = {"fields": [{"path": "a", "type": 1}, {"path": "b", "type": 2}]}
    turned = {"fields": [*reversed(wanted["fields"])]}
    before = managed.apply("k", wanted)
    assert managed.in_step("k", wanted)
    settings = managed.catalog.client.put(managed.catalog.path, json={"arrays": rules})
    assert settings.status_code == 201
    assert not managed.in_step("k", wanted, lists)  # its owners are still those of an array
    managed.apply("k", wanted)
    managed.apply("k", {"fields": [{"path": "b", "note": "x"}, {"path": "c"}]}, "notes")
    assert managed.in_step("k", wanted, lists)
    assert managed.in_step("k", turned, lists)
    assert not managed.in_step("k", {"fields": wanted["fields"][:1]}, lists)
    assert managed.digests("notes", "&key=k") == {
        "k": part_digest({"fields": [{"path": "c"}, {"path": "b", "note": "x"}]}, lists)
    }
    assert managed.digests(more=f"&revision={before}") == {"k": part_digest(wanted)}


@pytest.mark.parametrize(
    "query", ["manager=nightly", "manager=nightly&key=a", "select=digest&manager=", "manager=%20"]
)
def test_a_manager_is_accepted_only_with_digests_and_must_be_a_name(
    managed: Managed, query: str
) -> None:
    managed.apply("a", {"tier": 1})
    refused = problem(managed.ask(query), 400, "invalid_parameter")
    assert refused["parameter"] == "manager"
