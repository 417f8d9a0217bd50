"""Rebase: a patch against an old state applies where nothing that concerns it has changed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as changed

from gateway.conflict import NotRebased, StateConflict
from gateway.decide.conditions import ANY_TAG, CatalogTag, Composite, Preconditions, Tag
from gateway.decide.edits import Delete, Edit, EditAttributes, Merge
from gateway.decide.request import Applied, Outcome, Unchanged, View
from gateway.errors import ConditionFailed
from gateway.model import SETTINGS_KEY, DocumentRecord
from tests.without_http import (
    NOW,
    add,
    applied,
    ask,
    extended,
    only,
    patch,
    put,
    refused,
    replace,
    run,
)
from tests.without_http import document as a_document


def attempt(
    edit: Edit,
    base: DocumentRecord,
    now: DocumentRecord | None,
    *,
    if_match: frozenset[Tag] | None = None,
    **fields: Any,
) -> Outcome:
    """The outcome of ``edit`` made against ``base``, where the document is ``now``."""
    state = View("c", 7, NOW - 1, {SETTINGS_KEY: None, "k": now}, bases={("k", base.token): base})
    conditions = fields.pop("conditions", None) or Preconditions(
        if_match=if_match or frozenset({base.token})
    )
    request = ask(edit, conditions=conditions, rebase=True, **fields)
    return only(run(state, request))


def states(before: Any, after: Any) -> tuple[DocumentRecord, DocumentRecord]:
    return a_document(before, revision=3), a_document(after, revision=5)


def failure(outcome: Outcome) -> StateConflict:
    return refused(outcome, ConditionFailed).conflict


BEFORE = {"a": 1, "b": 2, "o": {"x": 1, "y": 2}, "list": [1, 2, 3], "items": [{"n": 1}, {"n": 2}]}


@pytest.mark.parametrize(
    ("meanwhile", "edit"),
    [
        ({"a": 5}, replace("/b", 3)),
        ({"a": 5, "b": 2, "o": {"x": 9, "y": 2}}, replace("/o/y", 3)),
        ({"new": 1}, add("/other", 2)),
        ({"list": [1, 2, 3, 4]}, replace("/items/0/n", 5)),
        ({"items": [{"n": 1}, {"n": 9}]}, replace("/items/0/n", 5)),
        ({"a": 5}, Merge({"b": 3, "o": {"x": None}}, 9)),
        ({"a": 5}, patch({"op": "test", "path": "/b", "value": 2})),
        ({"a": 5}, extended({"op": "increment", "path": "/b"})),
    ],
)
def test_a_patch_that_does_not_overlap_is_applied(meanwhile: dict[str, Any], edit: Edit) -> None:
    base, now = states(BEFORE, BEFORE | meanwhile)
    outcome = attempt(edit, base, now)
    assert isinstance(outcome, Applied | Unchanged)
    if isinstance(outcome, Applied):
        assert outcome.commit.rebased_from == base.token
        content: Any = outcome.document and outcome.document.content
        for name, value in meanwhile.items():  # neither change undoes the other
            touched = {"items", "o"} & {name}
            assert touched or content[name] == value
    else:
        assert outcome.rebased_from == base.token


@pytest.mark.parametrize(
    ("meanwhile", "edit", "overlap"),
    [
        ({"a": 5}, replace("/a", 3), ["/a"]),
        ({"a": 5}, patch({"op": "test", "path": "/a", "value": 1}), ["/a"]),
        ({"a": 5}, patch({"op": "copy", "from": "/a", "path": "/z"}), ["/a"]),
        ({"o": {"x": 9, "y": 2}}, replace("/o", {}), ["/o"]),
        ({"o": 5}, replace("/o/x", 3), ["/o/x"]),
        ({"list": [1, 2, 3, 4]}, replace("/list/0", 3), ["/list/0"]),
        ({"items": [{"n": 0}, {"n": 1}, {"n": 2}]}, replace("/items/0/n", 5), ["/items/0/n"]),
        ({"items": [{"n": 1}, {"n": 9}]}, patch({"op": "remove", "path": "/items/0"}), ["/items"]),
        ({"a": 5}, Merge({"a": 1}, 9), ["/a"]),  # it says that a is to be 1: it is 5 by now
        ({"o": {"x": 9, "y": 2}}, Merge({"o": {"x": 1, "z": 0}}, 9), ["/o/x"]),
        ({"o": {"x": 9, "y": 2}}, Merge({"o": 1}, 9), ["/o"]),
        ({"new": 1}, Merge({"new": None}, 9), ["/new"]),
        ({"a": 5}, Merge([], 9), [""]),
        ({"a": 5}, extended({"op": "increment", "path": "/a"}), ["/a"]),
    ],
)
def test_a_patch_that_overlaps_is_refused_and_the_overlap_named(
    meanwhile: dict[str, Any], edit: Edit, overlap: list[str]
) -> None:
    base, now = states(BEFORE, BEFORE | meanwhile)
    failed = failure(attempt(edit, base, now))
    assert failed.overlap == tuple(overlap)
    assert failed.current == (now.token, now.revision)


def test_small_changes_are_compared_part_by_part_even_if_a_whole_replacement_is_shorter() -> None:
    """A diff that is short says "replace all"; what changed must be found part by part."""
    base, now = states({"a": 1, "b": 2, "c": 3}, {"a": 5, "b": 7, "c": 3})
    assert isinstance(attempt(replace("/c", 4), base, now), Applied)


@pytest.mark.parametrize(
    ("edit", "now", "reason"),
    [
        (put(1), a_document(2, revision=5), NotRebased.NO_PATCH),
        (Delete(), a_document(2, revision=5), NotRebased.NO_PATCH),
        (replace("", 1), None, NotRebased.DELETED),
    ],
)
def test_the_refusal_says_why_a_patch_was_not_rebased(
    edit: Edit, now: DocumentRecord | None, reason: NotRebased
) -> None:
    failed = failure(attempt(edit, a_document(1, revision=3), now))
    assert failed.not_rebased is reason


def test_a_re_created_document_is_another_document() -> None:
    base, now = states(BEFORE, BEFORE)
    failed = failure(attempt(replace("/a", 3), base, changed(now, create_revision=5)))
    assert failed.not_rebased is NotRebased.MADE_AGAIN


def test_a_compacted_base_cannot_be_rebased_from() -> None:
    base, now = states(BEFORE, BEFORE)
    for tag in ("2-ffffffff", "x", Composite((("k", "2-ff"),)), CatalogTag(2)):
        outcome = attempt(replace("/a", 3), base, now, if_match=frozenset({tag}))
        assert failure(outcome).not_rebased is NotRebased.BASE_UNKNOWN


def test_one_matching_token_of_several_is_enough() -> None:
    base, now = states(BEFORE, BEFORE | {"a": 5})
    tags = frozenset({"1-x", base.token, "z"})
    assert isinstance(attempt(replace("/b", 3), base, now, if_match=tags), Applied)


class TestOtherConditions:
    def test_a_false_if_none_match_refuses_a_patch_that_could_be_rebased(self) -> None:
        base, now = states(BEFORE, BEFORE | {"a": 5})
        conditions = Preconditions(
            if_match=frozenset({base.token}), if_none_match=frozenset({now.token})
        )
        outcome = attempt(replace("/b", 3), base, now, conditions=conditions)
        assert "If-None-Match" in failure(outcome).detail

    def test_a_false_if_none_match_refuses_a_patch_that_needs_no_rebase(self) -> None:
        now = a_document(BEFORE, revision=5)
        conditions = Preconditions(
            if_match=frozenset({now.token}),
            if_none_match=frozenset({Composite((("k", now.token),))}),
        )
        outcome = attempt(replace("/b", 3), now, now, conditions=conditions)
        assert "If-None-Match" in failure(outcome).detail

    def test_a_star_is_not_a_base(self) -> None:
        base = a_document(BEFORE, revision=3)
        outcome = attempt(replace("/b", 3), base, None, if_match=ANY_TAG)
        assert failure(outcome).expected == "*"

    def test_a_current_token_needs_no_rebase(self) -> None:
        now = a_document(BEFORE, revision=5)
        outcome = attempt(replace("/b", 3), now, now)
        assert applied(outcome).commit.rebased_from is None

    def test_a_stale_resource_version_is_not_rebased(self) -> None:
        base, now = states(BEFORE, BEFORE | {"a": 5})
        outcome = attempt(replace("/b", 3), base, now, resource_version=6)
        assert failure(outcome).since_revision == 6


class TestAttributes:
    def documents(self, before: Any, after: Any) -> tuple[DocumentRecord, DocumentRecord]:
        base, now = states({"a": 1}, {"a": 2})
        return changed(base, attributes=before), changed(now, attributes=after)

    def test_attributes_are_compared_for_a_patch_of_attributes(self) -> None:
        edit = EditAttributes(replace("/x", 2))
        base, now = self.documents({"x": 1}, {"x": 1, "y": 1})
        assert isinstance(attempt(edit, base, now), Applied)
        base, now = self.documents({"x": 1}, {"x": 3})
        assert failure(attempt(edit, base, now)).overlap == ("/x",)

    def test_attributes_are_ignored_for_a_patch_of_the_content(self) -> None:
        base, now = self.documents({"x": 1}, {"x": 3})
        outcome = attempt(add("/b", 2), base, now)
        after = applied(outcome).document
        assert after is not None
        assert after.attributes == {"x": 3}
