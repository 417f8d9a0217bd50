"""Lists that a catalog declares, as the commit loop holds writes to them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as changed

from gateway.decide.compares import Equals, IsAbsent, IsUnchanged, RevisionIs, TokenIs
from gateway.decide.conditions import ANY_TAG, CatalogTag, Composite, Preconditions
from gateway.decide.edits import Edit, EditAttributes, KeyEdit, Merge, MoveKey
from gateway.decide.rebase import overlapping
from gateway.decide.request import Applied, Outcome, Refused, Request, Unchanged
from gateway.decide.reverting import Revert, Undo
from gateway.errors import (
    ConditionFailed,
    DocumentsBreakSettings,
    ItemsCollide,
    ListsUnchecked,
    PatchDoesNotFit,
    SettingsInvalid,
    code_of,
)
from gateway.model import SETTINGS_KEY, WITHHELD, Idempotency
from patching.list_declarations import parse_declarations
from tests.without_http import ask, extended, patch, put, refused, replace, view
from tests.without_http import document as a_document
from tests.without_http import run as decided

FIELDS = {"keys": "t*", "pointer": "/fields", "item_key": ["path"]}
TAGS = {"keys": "*", "pointer": "/tags", "set": True}
SETTINGS = {"arrays": [FIELDS, TAGS]}
ORDERS = {"fields": [{"path": "id", "n": 1}, {"path": "user", "n": 1}], "tags": ["x"]}


def state(settings: Any, **documents: Any) -> Any:
    known = [a_document(value, key) for key, value in documents.items()]
    return view(
        a_document(settings, SETTINGS_KEY, revision=4), *known, keys=("t", "t2", "other", "k")
    )


def run(*requests: Request, settings: Any = SETTINGS, **documents: Any) -> list[Outcome]:
    return list(decided(state(settings, **documents), *requests).outcomes)


def only(*requests: Request, **documents: Any) -> Outcome:
    return run(*requests, **documents)[-1]


def content(outcome: Outcome) -> Any:
    assert isinstance(outcome, Applied)
    assert outcome.document is not None
    return outcome.document.content


DOUBLE = {"fields": [{"path": "id"}, {"path": "id"}]}


@pytest.mark.parametrize(
    "edit",
    [
        put(DOUBLE),
        Merge(DOUBLE, 9),
        patch({"op": "add", "path": "/fields/-", "value": {"path": "user"}}),
        extended({"op": "replace", "path": "/fields/user/path", "value": "id"}),
        extended({"op": "add", "path": "/tags/-", "value": "x"}),
        patch({"op": "add", "path": "/fields/0", "value": {"n": 1}}),
    ],
)
def test_every_kind_of_write_that_leaves_a_repeated_or_missing_key_is_refused(edit: Edit) -> None:
    error = refused(only(ask(edit, key="t"), t=ORDERS), ItemsCollide)
    assert code_of(error) == "list_violation"
    assert error.key == "t"
    assert error.pointer.startswith(("/fields/", "/tags/"))
    assert error.other.startswith(("/fields/", "/tags/"))


def test_a_moved_document_must_keep_the_lists_of_its_new_key() -> None:
    refused(only(ask(MoveKey("t"), key="other"), other=DOUBLE), ItemsCollide)
    assert isinstance(only(ask(MoveKey("other"), key="t"), t=ORDERS), Applied)


def test_the_final_state_counts_not_the_states_on_the_way() -> None:
    edits = (KeyEdit("t", put(DOUBLE)), KeyEdit("t", put({"fields": []})))
    assert isinstance(only(ask(put(1), edits=edits)), Applied)


def test_other_keys_attributes_and_untouched_lists_are_not_checked() -> None:
    assert isinstance(only(ask(put(DOUBLE), key="other")), Applied)
    assert isinstance(only(ask(EditAttributes(put(DOUBLE)), key="t"), t=ORDERS), Applied)
    aside = only(ask(patch({"op": "add", "path": "/n", "value": 1}), key="t"), t=DOUBLE)
    assert isinstance(aside, Applied)


def test_extended_patches_name_items_by_key() -> None:
    by_key = extended({"op": "replace", "path": "/fields/user/n", "value": 2})
    assert content(only(ask(by_key, key="t"), t=ORDERS))["fields"][1] == {"path": "user", "n": 2}


SECOND = replace("/fields/1/n", 2)


def test_an_index_needs_a_test() -> None:
    error = refused(only(ask(SECOND, key="t"), t=ORDERS), PatchDoesNotFit)
    assert code_of(error) == "index_needs_test"
    tested = patch(
        {"op": "test", "path": "/fields/1/path", "value": "user"},
        {"op": "replace", "path": "/fields/1/n", "value": 2},
    )
    assert content(only(ask(tested, key="t"), t=ORDERS))["fields"][1]["n"] == 2
    assert isinstance(only(ask(SECOND, key="other"), other=ORDERS), Applied)


TOKEN = a_document(ORDERS, "t").token
OTHERS = a_document(1, "k").token


@pytest.mark.parametrize(
    "terms",
    [
        {"conditions": Preconditions(if_match=frozenset({TOKEN}))},
        {"conditions": Preconditions(if_match=frozenset({CatalogTag(7)}))},
        {"conditions": Preconditions(if_match=frozenset({Composite((("t", TOKEN), ("k", None)))}))},
        {"resource_version": 7},
        {"compare": (RevisionIs(7),)},
        {"compare": (TokenIs("t", TOKEN),)},
        {"compare": (IsUnchanged("t", 7),)},
        {"compare": (Equals("t", ORDERS),)},
    ],
)
def test_an_index_is_allowed_with_a_token(terms: Any) -> None:
    assert isinstance(only(ask(SECOND, key="t", **terms), t=ORDERS), Applied)


def test_an_index_is_allowed_with_a_token_in_the_condition_of_its_action() -> None:
    pinned = KeyEdit("t", SECOND, when=(TokenIs("t", TOKEN),))
    assert isinstance(only(ask(SECOND, edits=(pinned,)), t=ORDERS), Applied)
    otherwise = (KeyEdit("t", SECOND, when=(TokenIs("t", TOKEN),)),)
    absent = ask(put(1), compare=(IsAbsent("t"),), otherwise=otherwise)
    assert isinstance(only(absent, t=ORDERS), Applied)
    guarded = KeyEdit("t", SECOND, when=(TokenIs("k", OTHERS),))
    error = refused(only(ask(SECOND, edits=(guarded,)), t=ORDERS, k=1), PatchDoesNotFit)
    assert code_of(error) == "index_needs_test"


@pytest.mark.parametrize(
    "terms",
    [
        {"conditions": Preconditions(if_match=ANY_TAG)},
        {"conditions": Preconditions(if_unmodified_since=2**40)},
        {"conditions": Preconditions(if_match=frozenset({Composite((("k", OTHERS),))}))},
        {"compare": (TokenIs("k", OTHERS),)},
        {"compare": (IsAbsent("other"),)},
        {"compare": (TokenIs("t", "9-x"),), "otherwise": (KeyEdit("t", SECOND),)},
    ],
)
def test_an_index_needs_a_token_of_its_own_document(terms: Any) -> None:
    error = refused(only(ask(SECOND, key="t", **terms), t=ORDERS, k=1), PatchDoesNotFit)
    assert code_of(error) == "index_needs_test"


class TestDeclaring:
    """A decision sees the documents that were written since all were checked."""

    REQUEST = ask(put(SETTINGS), key=SETTINGS_KEY)

    def outcome(
        self, request: Request, changed_keys: Any = None, before: Any = None, **documents: Any
    ) -> Outcome:
        seen = state(before or {}, **documents)
        if changed_keys is not None:
            seen = changed(seen, changed_since=5, changed=frozenset(changed_keys))
        (outcome,) = decided(seen, request).outcomes
        return outcome

    def test_declaring_needs_a_check_of_all_documents(self) -> None:
        refused(self.outcome(self.REQUEST), ListsUnchecked)

    def test_an_unchecked_declaration_is_not_recorded_as_refused(self) -> None:
        named = changed(self.REQUEST, once=True, idempotency=Idempotency("ann", "key", "f"))
        decision = decided(state({}), named)
        assert not decision.verdicts

    def test_an_unchecked_declaration_by_a_revert_is_recorded_as_refused(self) -> None:
        target = a_document(SETTINGS, SETTINGS_KEY)
        undone = Revert((Undo(a_document({}, SETTINGS_KEY), target),))
        named = ask(undone, SETTINGS_KEY, once=True, idempotency=Idempotency("ann", "key", "f"))
        decision = decided(state({}), named)
        refused(decision.outcomes[0], ListsUnchecked)
        assert [each.idempotency.key for each in decision.verdicts] == ["key"]

    def test_documents_written_since_the_check_are_checked_by_the_decision(self) -> None:
        looked = changed(self.REQUEST, lists_checked=5)
        assert isinstance(self.outcome(looked, ["t"], t=ORDERS), Applied)
        error = refused(self.outcome(looked, ["t", "other"], t=DOUBLE), DocumentsBreakSettings)
        assert [each["key"] for each in error.documents] == ["t"]
        assert error.complete

    def test_documents_written_earlier_in_the_batch_are_checked_by_the_decision(self) -> None:
        looked = changed(self.REQUEST, lists_checked=5)
        seen = changed(state({}), changed_since=5)
        first, second = decided(seen, ask(put(DOUBLE), key="t"), looked).outcomes
        assert isinstance(first, Applied)
        refused(second, DocumentsBreakSettings)

    @pytest.mark.parametrize("since", [None, 4])
    def test_the_check_is_repeated_if_the_changes_since_are_unknown(
        self, since: int | None
    ) -> None:
        looked = changed(self.REQUEST, lists_checked=since)
        refused(self.outcome(looked, []), ListsUnchecked)

    def test_the_check_is_repeated_if_a_changed_document_is_too_large(self) -> None:
        looked = changed(self.REQUEST, lists_checked=5)
        seen = state({}, t=1)
        large = changed(seen.documents["t"], content=WITHHELD)
        seen = changed(
            seen,
            documents={**seen.documents, "t": large},
            changed_since=5,
            changed=frozenset({"t"}),
        )
        (outcome,) = decided(seen, looked).outcomes
        refused(outcome, ListsUnchecked)

    def test_no_check_is_needed_without_a_new_list(self) -> None:
        fewer = ask(put({"arrays": [TAGS], "require_precondition": True}), key=SETTINGS_KEY)
        assert isinstance(self.outcome(fewer, before=SETTINGS), Applied)
        assert isinstance(self.outcome(self.REQUEST, before=SETTINGS), Unchanged)
        refused(self.outcome(self.REQUEST, before={"arrays": [TAGS]}), ListsUnchecked)

    def test_no_check_is_made_if_the_request_waives_it(self) -> None:
        without = changed(self.REQUEST, checks_lists=False)
        assert isinstance(self.outcome(without, t=DOUBLE), Applied)

    def test_a_declaration_applies_to_the_next_request_of_the_batch(self) -> None:
        without = changed(self.REQUEST, checks_lists=False)
        outcomes = run(without, ask(put(DOUBLE), key="t"), settings={})
        assert [type(each) for each in outcomes] == [Applied, Refused]


BASE = {"fields": [{"path": "id", "n": 1}, {"path": "user", "n": 1}], "tags": ["x"], "n": 1}
FIRST = {**BASE, "fields": [{"path": "new"}, *BASE["fields"]]}  # type: ignore[misc]
LAST = {**BASE, "fields": [*BASE["fields"], {"path": "new"}]}  # type: ignore[misc]
OTHER = {**BASE, "fields": [{"path": "id", "n": 2}, {"path": "user", "n": 1}], "tags": ["y"]}
BY_KEY = extended({"op": "replace", "path": "/fields/user/n", "value": 3})
NEW = extended({"op": "add", "path": "/fields/mine", "value": {}})
TAGGED = extended({"op": "add_to_set", "path": "/tags", "value": "z"})


class TestRebase:
    """Items are compared by key, and by their places where the patch goes by index."""

    @pytest.mark.parametrize(
        ("edit", "now", "overlap"),
        [
            (BY_KEY, FIRST, []),
            (BY_KEY, OTHER, []),
            (NEW, FIRST, []),
            (TAGGED, OTHER, []),
            (SECOND, LAST, []),
            (SECOND, OTHER, []),
            (SECOND, FIRST, ["/fields"]),
            (extended({"op": "remove", "path": "/fields/id"}), OTHER, ["/fields/id"]),
            (extended({"op": "add", "path": "/fields/new", "value": {}}), LAST, ["/fields/new"]),
            (extended({"op": "pull", "path": "/tags", "value": "x"}), OTHER, ['/tags/"x"']),
            (Merge({"fields": []}, 9), OTHER, ["/fields"]),
            (extended({"op": "remove", "path": "/tags/0"}), OTHER, []),  # refused by its patch
        ],
    )
    def test_only_changes_of_the_same_item_overlap(
        self, edit: Any, now: Any, overlap: list[str]
    ) -> None:
        lists = parse_declarations(SETTINGS["arrays"]).lists_of("t")
        assert overlapping(edit, BASE, now, lists=lists) == overlap

    def test_an_index_of_an_older_state_edits_no_other_item(self) -> None:
        older = a_document(BASE, "t", revision=5)
        now = a_document(FIRST, "t", revision=6, commit_id="cd" * 16)
        seen = view(a_document(SETTINGS, SETTINGS_KEY, revision=4), now, keys=("t",))
        seen = changed(seen, bases={("t", older.token): older})
        stale = Preconditions(if_match=frozenset({older.token}))
        by_index = ask(SECOND, key="t", conditions=stale, rebase=True)
        error = refused(decided(seen, by_index).outcomes[0], ConditionFailed)
        assert error.conflict.overlap == ("/fields",)
        by_key = ask(BY_KEY, key="t", conditions=stale, rebase=True)
        assert content(decided(seen, by_key).outcomes[0])["fields"][2]["n"] == 3


WRONG = [
    ({"arrays": {}}, "/arrays"),
    ({"arrays": [1]}, "/arrays/0"),
    ({"arrays": [{"pointer": "/a", "set": True}]}, "/arrays/0/keys"),
    ({"arrays": [{**TAGS, "keys": ""}]}, "/arrays/0/keys"),
    ({"arrays": [{**TAGS, "more": 1}]}, "/arrays/0"),
    ({"arrays": [{**FIELDS, "item_key": "path"}]}, "/arrays/0/item_key"),
    ({"arrays": [TAGS, {**TAGS, "pointer": "tags"}]}, "/arrays/1/pointer"),
    ({"arrays": [TAGS, {**FIELDS, "pointer": "/tags"}]}, "/arrays/1"),
]


@pytest.mark.parametrize(("content", "pointer"), WRONG)
def test_invalid_settings_are_refused_with_their_pointer(content: Any, pointer: str) -> None:
    error = refused(only(ask(put(content), key=SETTINGS_KEY)), SettingsInvalid)
    assert error.pointer == pointer


def test_contradictory_lists_are_refused_if_a_document_can_match_both() -> None:
    apart = {"arrays": [{**TAGS, "keys": "a/*"}, {**FIELDS, "keys": "b/*", "pointer": "/tags"}]}
    without = changed(ask(put(apart), key=SETTINGS_KEY), checks_lists=False)
    assert isinstance(only(without), Applied)
