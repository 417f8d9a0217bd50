"""The client's applies, owners and letting go, on a real gateway."""

from __future__ import annotations

import pytest

from patching.client import Catalog, Conflict, Gateway, NotFound, contested
from patching.client.results import ContestedLeaf, LeafOwners, Owner
from patching.part_digests import part_digest


def test_a_manager_owns_what_it_applies_and_lets_go_of_values_left_out(catalog: Catalog) -> None:
    first = catalog.apply("k", {"tier": 1, "by": {"team": "x"}}, manager="nightly")
    assert (first.created, first.skipped) == (True, ())
    assert catalog.owners("k") == (
        LeafOwners("/by/team", (Owner("nightly", 1, False),)),
        LeafOwners("/tier", (Owner("nightly", 1, False),)),
    )
    assert not catalog.apply("k", {"tier": 1, "by": {"team": "x"}}, manager="nightly").changed
    catalog.apply("k", {"tier": 1}, manager="nightly")
    assert catalog.get("k").value == {"tier": 1}
    (change,) = catalog.commit(2).changes
    assert [(each.manager, each.lost) for each in change.owners] == [("nightly", ("/by/team",))]
    assert len(catalog.owners("k", revision=1)) == 2
    with pytest.raises(NotFound):
        catalog.owners("absent")


def test_a_conflict_lists_the_contested_places(catalog: Catalog) -> None:
    catalog.apply("k", {"tier": 1, "n": 1}, manager="a")
    with pytest.raises(Conflict) as raised:
        catalog.apply("k", {"tier": 2, "n": 1}, manager="b")
    assert raised.value.code == "owned_by_others"
    assert contested(raised.value) == (ContestedLeaf("/tier", (Owner("a", 1, False),), 1, 2),)
    skipped = catalog.apply("k", {"tier": 2, "n": 1}, manager="b", conflict="skip")
    assert skipped.skipped == (LeafOwners("/tier", (Owner("a", 1, False),)),)
    dry = catalog.apply("k", {"tier": 2}, manager="b", force=["/tier"], dry_run=True)
    assert (dry.changed, dry.changes[0]["patch"][0]["value"]) == (True, 2)
    catalog.apply("k", {"tier": 2}, manager="b", force=["/tier"])
    assert catalog.get("k").value == {"tier": 2, "n": 1}


def test_letting_go_with_prune_deletes_a_document_without_owners(catalog: Catalog) -> None:
    catalog.apply("k", {"x": 1}, manager="a")
    catalog.put("plain", {"x": 1})
    assert not catalog.let_go("plain", manager="a", prune=True).changed
    assert catalog.let_go("k", manager="a", prune=True).changed
    with pytest.raises(NotFound):
        catalog.get("k")
    with pytest.raises(ValueError, match="if_match"):
        catalog.apply("k", {}, rebase=True)


def test_lost_values_are_listed_and_can_be_given_back(catalog: Catalog) -> None:
    for key in ("k", "l"):
        catalog.apply(key, {"rows": 1, "n": 1}, manager="nightly")
        catalog.merge(key, {"rows": 2}, message="by hand")
    told = list(catalog.lost_by("nightly", page_size=1))
    assert [(each.key, each.revision, each.message) for each in told] == [
        ("l", 4, "by hand"),
        ("k", 2, "by hand"),
    ]
    assert told[1].fields == (LeafOwners("/rows", (Owner(told[1].author, 2, True),)),)
    assert [each.key for each in catalog.lost_by("nightly", after=2)] == ["l"]
    with pytest.raises(Conflict) as raised:
        catalog.let_go("k", manager=told[0].author)
    assert [each.pointer for each in contested(raised.value)] == ["/rows"]
    assert catalog.give_back("k", "/rows").changed
    assert not catalog.give_back("k", "/rows", "/n").changed
    transaction = catalog.transaction()
    transaction.then.give_back("l", "")
    transaction.run()
    assert list(catalog.lost_by("nightly")) == []
    assert catalog.apply("k", {"rows": 3, "n": 1}, manager="nightly").changed
    with pytest.raises(ValueError, match="at least one pointer"):
        catalog.give_back("k")


def test_transactions_and_bulk_lines_can_apply(connected: Gateway, catalog: Catalog) -> None:
    transaction = catalog.transaction()
    transaction.then.apply("k", {"x": 1}, manager="a").apply("l", {"x": 1}, conflict="skip")
    transaction.run()
    assert [each.pointer for each in catalog.owners("k")] == ["/x"]
    transaction = catalog.transaction()
    transaction.then.let_go("k", manager="a", prune=True)
    transaction.run()
    line = {"catalog": catalog.name, "key": "l", "op": "apply", "value": {"x": 2}, "manager": "b"}
    (answer,) = connected.bulk([line])
    assert isinstance(answer.error, Conflict)
    assert [each.pointer for each in contested(answer.error)] == ["/x"]


def test_digests_of_a_manager_cover_what_it_owns(catalog: Catalog) -> None:
    catalog.apply("a", {"x": 1, "y": 2}, manager="nightly")
    catalog.apply("b", {"x": 1}, manager="sizes")
    catalog.put("c", {"x": 1})
    catalog.apply("a", {"x": 1, "z": 3}, manager="sizes")
    owned = {each.key: each.digest for each in catalog.digests(manager="nightly")}
    assert owned == {"a": part_digest({"y": 2, "x": 1.0})}
    assert [each.key for each in catalog.digests(manager="sizes", prefix="b")] == ["b"]
