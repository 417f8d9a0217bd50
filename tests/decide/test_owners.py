"""Applies in decisions: owners are committed with the document, and replaying gives them again."""

from __future__ import annotations

from dataclasses import replace as changed
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access import Grant, Principal, Role
from gateway.decide.compares import Compare, IsAbsent, IsUnchanged, TokenIs
from gateway.decide.conditions import Preconditions
from gateway.decide.edits import Delete, EditAttributes, KeyEdit, Merge, MoveKey
from gateway.decide.owning import ApplyWanted, LetGo
from gateway.decide.request import Applied, Request, Unchanged, View
from gateway.errors import (
    AboveLimit,
    ConditionFailed,
    DocumentForbidden,
    ItemsCollide,
    PatchDoesNotFit,
    code_of,
)
from gateway.model import SETTINGS_KEY, CommitRecord, DocumentRecord
from gateway.state.replay import advance, advance_all
from gateway.store.mongodb.records import commit_from, commit_record
from patching import ABSENT
from patching.list_rules import ArraySet
from patching.owners import Ownership, OwnerTree, changed_owners
from tests.cases import cases
from tests.without_http import (
    NOW,
    RULES,
    add,
    applied,
    ask,
    bounded,
    only,
    patch,
    put,
    refused,
    replace,
    run,
)
from tests.without_http import document as a_document

CASES = cases(200)


def want(wanted: Any, manager: str = "nightly", **terms: Any) -> ApplyWanted:
    return ApplyWanted(wanted, len(msgspec.json.encode(wanted)), manager, **terms)


class Catalog:
    """Decides one request after another."""

    def __init__(self) -> None:
        self.revision = 0
        self.documents: dict[str, DocumentRecord | None] = dict.fromkeys(("k", "other"))
        self.commits: list[CommitRecord] = []
        self.bases: dict[tuple[str, str], DocumentRecord] = {}
        self.settings: DocumentRecord | None = None

    def ask(self, request: Request, rules: Any = RULES) -> Any:
        known = {SETTINGS_KEY: self.settings, **self.documents}
        bases = {(each.key, each.token): each for each in known.values() if each}
        view = View("c", self.revision, NOW, known, bases=self.bases | bases)
        decision = run(view, request, rules=rules)
        self.bases |= bases
        self.documents |= decision.documents
        self.commits += decision.commits
        self.revision += len(decision.commits)
        return only(decision)

    def write(self, edit: Any, key: str = "k", **fields: Any) -> Any:
        return self.ask(ask(edit, key, **fields))

    def owners(self, key: str = "k") -> dict[str, list[tuple[str, int, bool]]]:
        document = self.documents[key]
        return shown(document.owners if document else None)

    def content(self, key: str = "k") -> Any:
        document = self.documents[key]
        return document and document.content


def shown(owners: OwnerTree | None) -> dict[str, list[tuple[str, int, bool]]]:
    return {
        "/".join(("", *tokens)): [(each.manager, each.since, each.plain) for each in by]
        for tokens, by in (owners.leaves() if owners else ())
    }


@pytest.fixture
def catalog() -> Catalog:
    return Catalog()


def test_an_apply_makes_a_document_and_owns_it(catalog: Catalog) -> None:
    commit = applied(catalog.write(want({"tier": 1, "by": {"team": "x"}}))).commit
    assert catalog.content() == {"tier": 1, "by": {"team": "x"}}
    assert catalog.owners() == {
        "/tier": [("nightly", 1, False)],
        "/by/team": [("nightly", 1, False)],
    }
    (change,) = commit.changes
    assert change.action == "put"
    assert change.owners_change is not None
    assert change.owners_change.pointers() == [("nightly", False, ["/by/team", "/tier"], [])]


def test_a_repeated_apply_changes_nothing(catalog: Catalog) -> None:
    catalog.write(want({"tier": 1}))
    assert isinstance(catalog.write(want({"tier": 1})), Unchanged)
    assert catalog.revision == 1


def test_owning_an_existing_value_is_a_change(catalog: Catalog) -> None:
    catalog.write(put({"tier": 1}))
    change = applied(catalog.write(want({"tier": 1.0}))).commit.changes[0]
    assert (change.action, change.patch) == ("patch", [])
    assert repr(catalog.content()) == "{'tier': 1}"
    assert catalog.owners() == {"/tier": [("nightly", 2, False)]}


@pytest.mark.parametrize("undone", [patch({"op": "remove", "path": "/tier"}), put({"n": 1})])
def test_a_change_undone_within_the_request_is_no_change_to_its_conditions(
    catalog: Catalog, undone: Any
) -> None:
    found = applied(catalog.write(put({"n": 1}))).document
    assert found is not None
    for when in (TokenIs("k", found.token), IsUnchanged("k", 1)):
        edits = (*(KeyEdit("k", each) for each in (want({"tier": 1}), undone)), noted(when))
        outcome = applied(catalog.write(put(0), edits=edits))
        assert [change.key for change in outcome.commit.changes] == ["other"]


def noted(when: Compare) -> KeyEdit:
    """Writes something, where ``when`` is true."""
    return KeyEdit("other", put({"at": repr(when)}), (when,))


def test_a_conflict_carries_the_document(catalog: Catalog) -> None:
    catalog.write(want({"tier": 1}, "a"))
    error = refused(catalog.write(want({"tier": 2}, "b")), PatchDoesNotFit)
    assert code_of(error) == "owned_by_others"
    assert error.document == catalog.documents["k"]
    assert catalog.revision == 1


def test_skipped_places_are_reported_even_without_another_change(catalog: Catalog) -> None:
    catalog.write(want({"tier": 1}, "a"))
    told = catalog.write(want({"tier": 2, "x": 1}, "b", conflict="skip"))
    assert [(each.pointer, each.owners) for each in applied(told).commit.skipped] == [
        ("/tier", (Ownership("a", 1),))
    ]
    again = catalog.write(want({"tier": 2, "x": 1}, "b", conflict="skip"))
    assert isinstance(again, Unchanged)
    assert again.skipped == applied(told).commit.skipped


@pytest.mark.parametrize(
    "edit", [put({"tier": 5}), replace("/tier", 5), Merge({"tier": 5}, 10)], ids=type
)
def test_a_plain_write_takes_over(catalog: Catalog, edit: Any) -> None:
    catalog.write(want({"tier": 1}))
    commit = applied(catalog.write(edit, author="ann")).commit
    assert catalog.owners() == {"/tier": [("ann", 2, True)]}
    assert commit.changes[0].owners_change.pointers() == [  # type: ignore[union-attr]
        ("ann", True, ["/tier"], []),
        ("nightly", False, [], ["/tier"]),
    ]
    refused(catalog.write(want({"tier": 1})), PatchDoesNotFit)


def test_a_plain_write_of_an_unowned_place_changes_no_owner(catalog: Catalog) -> None:
    catalog.write(want({"tier": 1}))
    commit = applied(catalog.write(add("/note", "x"))).commit
    assert commit.changes[0].owners_change is None
    assert catalog.owners() == {"/tier": [("nightly", 1, False)]}


def test_a_place_changed_and_changed_back_in_one_request_is_not_taken_over(
    catalog: Catalog,
) -> None:
    catalog.write(want({"tier": 1}))
    edits = tuple(KeyEdit("k", each) for each in (replace("/tier", 2), replace("/tier", 1)))
    assert isinstance(catalog.ask(ask(put(0), edits=edits)), Unchanged)
    edits = tuple(KeyEdit("k", each) for each in (replace("/tier", 2), want({"tier": 2}, "b")))
    catalog.ask(ask(put(0), edits=edits, author="ann"))
    assert catalog.owners() == {"/tier": [("ann", 2, True), ("b", 2, False)]}


def test_owners_move_with_a_document_and_end_with_its_deletion(catalog: Catalog) -> None:
    catalog.write(want({"tier": 1}))
    commit = applied(catalog.write(MoveKey("other"))).commit
    assert catalog.owners("other") == {"/tier": [("nightly", 1, False)]}
    moved = commit.change_of("other")
    assert moved.owners_change is not None
    assert changed_owners(None, moved.owners_change, commit.revision) == moved.owners
    catalog.write(Delete(), "other")
    catalog.write(put({"tier": 1}), "other")
    assert catalog.owners("other") == {}


def test_attributes_have_no_owners(catalog: Catalog) -> None:
    catalog.write(want({"tier": 1}))
    change = applied(catalog.write(EditAttributes(put({"x": 1})))).commit.changes[0]
    assert (change.action, change.owners_change) == ("attributes", None)
    assert catalog.owners() == {"/tier": [("nightly", 1, False)]}


def test_letting_go_keeps_values_of_other_owners_and_prunes_the_rest(catalog: Catalog) -> None:
    catalog.write(want({"x": 1, "y": 1}, "a"))
    catalog.write(want({"y": 1}, "b"))
    catalog.write(LetGo("a", prune=True))
    assert catalog.content() == {"y": 1}
    catalog.write(LetGo("b"))
    assert (catalog.content(), catalog.owners()) == ({}, {})
    assert isinstance(catalog.write(LetGo("b", prune=True)), Unchanged)  # it owned nothing
    catalog.write(want({"y": 1}, "b"))
    catalog.write(LetGo("b", prune=True))
    assert catalog.content() is ABSENT


def test_an_empty_document_of_another_is_not_pruned(catalog: Catalog) -> None:
    catalog.write(want({}, "a"))
    assert isinstance(catalog.write(LetGo("b", prune=True)), Unchanged)
    catalog.write(want({}, "b"))
    catalog.write(LetGo("b", prune=True))
    assert catalog.content() == {}
    assert catalog.owners() == {"": [("a", 1, False)]}
    catalog.write(LetGo("a", prune=True))
    assert catalog.content() is ABSENT


def test_values_of_plain_writes_are_not_pruned(catalog: Catalog) -> None:
    """Such a value has no owner, because nobody applied it. If it were pruned, nobody would
    notice."""
    catalog.write(want({"y": 1}, "b"))
    catalog.write(add("/note", 1))
    catalog.write(LetGo("b", prune=True))
    assert (catalog.content(), catalog.owners()) == ({"note": 1}, {})


def test_letting_go_of_nothing_changes_nothing(catalog: Catalog) -> None:
    assert isinstance(catalog.write(LetGo("a", prune=True)), Unchanged)


def test_an_apply_needs_read_access(catalog: Catalog) -> None:
    acl = {"acl": {"write": ["bob"], "read": ["ann"]}}
    catalog.write(want({"x": 1}))
    catalog.write(EditAttributes(put(acl)))
    bob = Principal("bob", (Grant(Role.WRITE, "*"),))
    for edit in (want({"x": 2}), LetGo("nightly")):
        refused(catalog.write(edit, by=bob), DocumentForbidden)


def test_an_apply_is_rebased_if_nothing_it_touches_has_changed(catalog: Catalog) -> None:
    catalog.write(want({"x": 1, "y": 1}))
    token = catalog.documents["k"].token  # type: ignore[union-attr]
    terms = {"conditions": Preconditions(if_match=frozenset({token})), "rebase": True}
    catalog.write(add("/note", 1))
    assert isinstance(catalog.write(want({"x": 2, "y": 1}), **terms), Applied)
    # /y is the manager's, too, though it wants it no longer
    catalog.write(replace("/y", 5))
    failed = refused(catalog.write(want({"x": 3}), **terms), ConditionFailed)
    assert set(failed.conflict.overlap) == {"/x", "/y"}


def test_an_apply_is_not_rebased_over_what_its_manager_came_to_own_since(catalog: Catalog) -> None:
    """It would remove a value that another run of the manager wants, and somebody else wrote."""
    arrays: list[dict[str, Any]] = [{"keys": "*", "pointer": "/tags", "set": True}]
    catalog.settings = a_document({"arrays": arrays}, SETTINGS_KEY, revision=0)
    catalog.write(put({"x": 1, "y": 1, "tags": ["a"], "o": {"p": 1}}))
    token = catalog.documents["k"].token  # type: ignore[union-attr]
    terms = {"conditions": Preconditions(if_match=frozenset({token})), "rebase": True}
    catalog.write(want({"y": 1, "tags": ["a"], "o": {"p": 1}}))
    for wanted, overlap in (
        ({"x": 2}, ("/y", '/tags/"a"', "/o/p")),
        ({"x": 2, "y": 1, "tags": [], "o": {}}, ('/tags/"a"', "/o/p")),
    ):
        failed = refused(catalog.write(want(wanted), **terms), ConditionFailed)
        assert set(failed.conflict.overlap) == set(overlap)
    assert isinstance(catalog.write(want({"y": 1, "tags": ["a"], "o": 5}), **terms), Applied)


def test_what_a_manager_gained_is_compared_with_a_list_once_however_much_it_is(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took time that grew with the square: some thousand items were too much work for ever."""
    arrays: list[dict[str, Any]] = [{"keys": "*", "pointer": "/tags", "set": True}]
    catalog.settings = a_document({"arrays": arrays}, SETTINGS_KEY, revision=0)
    tags = [str(number) for number in range(40)]
    catalog.write(put({"x": 1, "tags": tags}))
    token = catalog.documents["k"].token  # type: ignore[union-attr]
    terms = {"conditions": Preconditions(if_match=frozenset({token})), "rebase": True}
    catalog.write(want({"tags": tags}))
    named: list[Any] = []
    address_of = ArraySet.address_of
    monkeypatch.setattr(
        ArraySet, "address_of", lambda rule, item: named.append(item) or address_of(rule, item)
    )
    assert isinstance(catalog.write(want({"x": 2, "tags": tags}), **terms), Applied)
    assert len(named) < len(tags) ** 2


def test_newly_declared_lists_do_not_turn_a_no_op_into_a_change(catalog: Catalog) -> None:
    catalog.write(want({"tags": ["x"]}))
    arrays: list[dict[str, Any]] = [{"keys": "*", "pointer": "/tags", "set": True}]
    catalog.settings = a_document({"arrays": arrays}, SETTINGS_KEY, revision=0)
    for same in (put({"tags": ["x"]}), replace("/tags", ["x"]), LetGo("other")):
        assert isinstance(catalog.write(same), Unchanged)
    catalog.write(add("/n", 1))
    assert catalog.owners() == {'/tags/"x"': [("nightly", 1, False)]}


def test_items_of_declared_lists_are_owned_separately(catalog: Catalog) -> None:
    arrays: list[dict[str, Any]] = [
        {"keys": "*", "pointer": "/fields", "item_key": ["path"]},
        {"keys": "*", "pointer": "/tags", "set": True},
    ]
    catalog.settings = a_document({"arrays": arrays}, SETTINGS_KEY, revision=0)
    catalog.write(want({"fields": [{"path": "a", "type": 1}], "tags": ["x"]}, "a"))
    catalog.write(want({"fields": [{"path": "b", "type": 1}], "tags": ["y"]}, "b"))
    assert catalog.content() == {
        "fields": [{"path": "a", "type": 1}, {"path": "b", "type": 1}],
        "tags": ["x", "y"],
    }
    refused(catalog.write(want({"fields": [{"path": "a", "type": 2}]}, "b")), PatchDoesNotFit)
    catalog.write(put(catalog.content() | {"tags": ["y", "z"]}), author="ann")
    assert '/tags/"x"' not in catalog.owners()
    token = catalog.documents["k"].token  # type: ignore[union-attr]
    catalog.write(add("/note", 1))
    terms = {"conditions": Preconditions(if_match=frozenset({token})), "rebase": True}
    assert isinstance(catalog.write(want({"tags": ["x"]}, "a"), **terms), Applied)
    assert catalog.content() == {
        "fields": [{"path": "b", "type": 1}],
        "tags": ["y", "z", "x"],
        "note": 1,
    }
    catalog.write(put(catalog.content() | {"tags": ["z"]}), author="ann")
    failed = refused(catalog.write(want({"tags": ["x"]}, "a"), **terms), ConditionFailed)
    assert failed.conflict.overlap == ("/fields", "/tags")  # it has let go of a field since
    refused(catalog.write(want({"tags": ["x", "x"]}, "a")), ItemsCollide)


def test_replaying_gives_the_same_owners_where_lists_were_declared_later(catalog: Catalog) -> None:
    """What was one leaf is many then, or the other way round; they are owned as long as before."""
    catalog.write(want({"fields": [{"path": "a", "type": 1}]}, "a"))
    declared = [{"keys": "*", "pointer": "/fields", "item_key": ["path"]}]
    for revision, arrays in enumerate((declared, [])):
        catalog.settings = a_document({"arrays": arrays}, SETTINGS_KEY, revision=revision)
        catalog.write(add("/n", revision))
        assert ("/fields" in catalog.owners()) is (not arrays)
        assert all(owners == [("a", 1, False)] for owners in catalog.owners().values())
        assert advance_all(None, "k", catalog.commits) == catalog.documents["k"]


def test_too_many_owned_leaves_are_refused(catalog: Catalog) -> None:
    limits = bounded(patch=changed(RULES.limits.patch, owned_leaves_max=2))  # type: ignore[arg-type]
    error = refused(catalog.ask(ask(want({"a": 1, "b": 1, "c": 1})), limits), AboveLimit)
    assert (error.limit, error.maximum, error.actual) == ("owned_leaves_max", 2, 3)
    assert catalog.revision == 0


def test_a_branch_that_is_not_taken_is_not_refused_for_its_owners(catalog: Catalog) -> None:
    """A compare is false: ``then`` is only compared with the state, and ``else`` is done."""
    catalog.write(want({"a": 1}))
    limits = bounded(patch=changed(RULES.limits.patch, owned_leaves_max=2))  # type: ignore[arg-type]
    many = put({"a": {"x": 1, "y": 1, "z": 1}})
    request = ask(many, compare=(IsAbsent("k"),), otherwise=(KeyEdit("k", put({"a": 2})),))
    assert not applied(catalog.ask(request, limits)).commit.succeeded
    assert catalog.content() == {"a": 2}


seeds = st.integers(0, 2**24 - 1).map(Random)


def an_object(random: Random, depth: int = 2) -> dict[str, Any]:
    def value() -> Any:
        if depth and random.random() < 0.5:
            return an_object(random, depth - 1)
        return random.choice([1, 2, None, [1], {}])

    return {name: value() for name in random.sample("abc", random.randint(0, 3))}


def random_edit(random: Random, catalog: Catalog, key: str) -> Any:
    document = catalog.documents[key]
    content = document.content if document is not None else ABSENT
    manager = random.choice(["a", "b", "c"])
    kind = random.choice(
        ["apply"] * 5 + ["patch"] * 3 + ["put", "merge", "attributes", "delete", "move", "let go"]
    )
    if kind == "apply":
        how = random.choice(["refuse", "skip", "force"])
        return want(an_object(random), manager, conflict=how)
    if kind == "patch" and isinstance(content, dict) and content:
        name = random.choice(sorted(content))
        removal = patch({"op": "remove", "path": f"/{name}"})
        return random.choice([add(f"/{name}", 3), add("/d", an_object(random)), removal])
    if kind == "patch" and content is ABSENT:
        return add("", an_object(random))
    if kind == "merge":
        return Merge(an_object(random), 100)
    if kind == "attributes":
        return EditAttributes(put({"v": random.randrange(3)}))
    if kind == "delete":
        return Delete()
    if kind == "move":
        return MoveKey("other" if key == "k" else "k")
    if kind == "let go":
        return LetGo(manager, prune=random.random() < 0.5)
    return put(an_object(random))


@CASES
@given(st.lists(seeds, min_size=4, max_size=14))
def test_replaying_the_commits_gives_the_same_owners(randoms: list[Random]) -> None:
    catalog = Catalog()
    states: dict[str, DocumentRecord | None] = {"k": None, "other": None}
    for random in randoms:
        key = random.choice(["k", "k", "other"])
        edits = tuple(
            KeyEdit(key, random_edit(random, catalog, key))
            for _ in range(random.choice([1, 1, 1, 2, 3]))
        )
        catalog.ask(ask(put(0), edits=edits, author=random.choice(["ann", "a"])))
        for commit in catalog.commits[-1:]:
            stored = commit_from(commit_record(commit))
            assert stored == commit
            for change in stored.changes:
                states[change.key] = advance(states[change.key], stored, change)
        assert {key: state and (state.content, state.owners) for key, state in states.items()} == {
            key: each and (each.content, each.owners) for key, each in catalog.documents.items()
        }
    for key in states:
        assert advance_all(None, key, catalog.commits) == catalog.documents[key]
