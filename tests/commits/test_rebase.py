"""Rebase: a patch against an old state applies where nothing that concerns it has changed."""

from __future__ import annotations

from typing import Any

import pytest

import patching
from gateway.conflict import Conflict, NotRebased
from gateway.decide.conditions import ANY_TAG, CatalogTag, Composite, Conditions, Tag
from gateway.decide.decide import decide
from gateway.decide.request import (
    Applied,
    ApplyPatch,
    Bounds,
    Delete,
    Edit,
    EditAttributes,
    Merge,
    Outcome,
    Refused,
    Unchanged,
    View,
)
from gateway.errors import PreconditionFailed
from gateway.model import SETTINGS_KEY, Document
from tests.commits.conftest import Ask, patch, put, replace
from tests.commits.conftest import document as a_document

NOW = 1_800_000_000_000_000


def attempt(
    bounds: Bounds,
    ask: Ask,
    edit: Edit,
    base: Document,
    now: Document | None,
    *,
    if_match: frozenset[Tag] | None = None,
    **fields: Any,
) -> Outcome:
    """The outcome of ``edit`` made against ``base``, where the document is ``now``."""
    state = View("c", 7, NOW - 1, {SETTINGS_KEY: None, "k": now}, bases={("k", base.token): base})
    conditions = fields.pop("conditions", None) or Conditions(
        if_match=if_match or frozenset({base.token})
    )
    request = ask(edit, conditions=conditions, rebase=True, **fields)
    (outcome,) = decide(state, [request], [1], now_us=NOW, bounds=bounds).outcomes
    return outcome


def states(before: Any, after: Any) -> tuple[Document, Document]:
    return a_document(before, revision=3), a_document(after, revision=5)


def failure(outcome: Outcome) -> Conflict:
    assert isinstance(outcome, Refused), outcome
    assert isinstance(outcome.error, PreconditionFailed)
    return outcome.error.conflict


def add(path: str, value: Any) -> ApplyPatch:
    return patch({"op": "add", "path": path, "value": value})


BEFORE = {"a": 1, "b": 2, "o": {"x": 1, "y": 2}, "list": [1, 2, 3], "items": [{"n": 1}, {"n": 2}]}


@pytest.mark.parametrize(
    ("changed", "edit"),
    [
        ({"a": 5}, replace("/b", 3)),
        ({"a": 5, "b": 2, "o": {"x": 9, "y": 2}}, replace("/o/y", 3)),
        ({"new": 1}, add("/other", 2)),
        ({"list": [1, 2, 3, 4]}, replace("/items/0/n", 5)),
        ({"items": [{"n": 1}, {"n": 9}]}, replace("/items/0/n", 5)),
        ({"a": 5}, Merge({"b": 3, "o": {"x": None}}, 9)),
        ({"a": 5}, patch({"op": "test", "path": "/b", "value": 2})),
        (
            {"a": 5},
            ApplyPatch(patching.parse_extended({"patch": [{"op": "increment", "path": "/b"}]})),
        ),
    ],
)
def test_what_doesnt_meet_is_applied(
    bounds: Bounds, ask: Ask, changed: dict[str, Any], edit: Edit
) -> None:
    base, now = states(BEFORE, BEFORE | changed)
    outcome = attempt(bounds, ask, edit, base, now)
    assert isinstance(outcome, Applied | Unchanged)
    if isinstance(outcome, Applied):
        assert outcome.commit.rebased_from == base.token
        assert outcome.document is not None
        content = outcome.document.content
        assert isinstance(content, dict)
        for name, value in changed.items():  # neither change undoes the other
            touched = {"items", "o"} & {name}
            assert touched or content[name] == value
    else:
        assert outcome.rebased_from == base.token


@pytest.mark.parametrize(
    ("changed", "edit", "overlap"),
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
        (
            {"a": 5},
            ApplyPatch(patching.parse_extended({"patch": [{"op": "increment", "path": "/a"}]})),
            ["/a"],
        ),
    ],
)
def test_what_meets_is_refused_and_named(
    bounds: Bounds, ask: Ask, changed: dict[str, Any], edit: Edit, overlap: list[str]
) -> None:
    base, now = states(BEFORE, BEFORE | changed)
    failed = failure(attempt(bounds, ask, edit, base, now))
    assert failed.overlap == tuple(overlap)
    assert failed.current == (now.token, now.revision)


def test_small_changes_of_small_documents_dont_count_as_one_of_the_whole(
    bounds: Bounds, ask: Ask
) -> None:
    """A diff that is short says "replace all"; what changed must be found part by part."""
    base, now = states({"a": 1, "b": 2, "c": 3}, {"a": 5, "b": 7, "c": 3})
    assert isinstance(attempt(bounds, ask, replace("/c", 4), base, now), Applied)


@pytest.mark.parametrize(
    ("edit", "now", "reason"),
    [
        (put(1), a_document(2, revision=5), NotRebased.NO_PATCH),
        (Delete(), a_document(2, revision=5), NotRebased.NO_PATCH),
        (replace("", 1), None, NotRebased.DELETED),
    ],
)
def test_it_is_told_why_not(
    bounds: Bounds, ask: Ask, edit: Edit, now: Document | None, reason: NotRebased
) -> None:
    failed = failure(attempt(bounds, ask, edit, a_document(1, revision=3), now))
    assert failed.not_rebased is reason


def test_a_document_made_again_is_another_one(bounds: Bounds, ask: Ask) -> None:
    base, now = states(BEFORE, BEFORE)
    again = Document(**{n: getattr(now, n) for n in now.__slots__} | {"create_revision": 5})
    failed = failure(attempt(bounds, ask, replace("/a", 3), base, again))
    assert failed.not_rebased is NotRebased.MADE_AGAIN


def test_a_state_that_is_compacted_away_cant_be_rebased_from(bounds: Bounds, ask: Ask) -> None:
    base, now = states(BEFORE, BEFORE)
    for tag in ("2-ffffffff", "x", Composite((("k", "2-ff"),)), CatalogTag(2)):
        outcome = attempt(bounds, ask, replace("/a", 3), base, now, if_match=frozenset({tag}))
        assert failure(outcome).not_rebased is NotRebased.BASE_UNKNOWN


def test_one_of_several_tokens_is_enough(bounds: Bounds, ask: Ask) -> None:
    base, now = states(BEFORE, BEFORE | {"a": 5})
    tags = frozenset({"1-x", base.token, "z"})
    assert isinstance(attempt(bounds, ask, replace("/b", 3), base, now, if_match=tags), Applied)


class TestOtherConditions:
    def test_a_none_match_that_is_false_refuses_what_could_be_rebased(
        self, bounds: Bounds, ask: Ask
    ) -> None:
        base, now = states(BEFORE, BEFORE | {"a": 5})
        conditions = Conditions(
            if_match=frozenset({base.token}), if_none_match=frozenset({now.token})
        )
        outcome = attempt(bounds, ask, replace("/b", 3), base, now, conditions=conditions)
        assert "If-None-Match" in failure(outcome).detail

    def test_a_none_match_that_is_false_refuses_what_needs_no_rebase(
        self, bounds: Bounds, ask: Ask
    ) -> None:
        now = a_document(BEFORE, revision=5)
        conditions = Conditions(
            if_match=frozenset({now.token}),
            if_none_match=frozenset({Composite((("k", now.token),))}),
        )
        outcome = attempt(bounds, ask, replace("/b", 3), now, now, conditions=conditions)
        assert "If-None-Match" in failure(outcome).detail

    def test_any_document_is_no_base(self, bounds: Bounds, ask: Ask) -> None:
        base = a_document(BEFORE, revision=3)
        outcome = attempt(bounds, ask, replace("/b", 3), base, None, if_match=ANY_TAG)
        assert failure(outcome).expected == "*"

    def test_a_current_token_needs_no_rebase(self, bounds: Bounds, ask: Ask) -> None:
        now = a_document(BEFORE, revision=5)
        outcome = attempt(bounds, ask, replace("/b", 3), now, now)
        assert isinstance(outcome, Applied)
        assert outcome.commit.rebased_from is None

    def test_a_stale_resource_version_stays_one(self, bounds: Bounds, ask: Ask) -> None:
        base, now = states(BEFORE, BEFORE | {"a": 5})
        outcome = attempt(bounds, ask, replace("/b", 3), base, now, resource_version=6)
        assert failure(outcome).since_revision == 6


class TestAttributes:
    def documents(self, before: Any, after: Any) -> tuple[Document, Document]:
        base, now = states({"a": 1}, {"a": 2})
        made = [
            Document(**{n: getattr(each, n) for n in each.__slots__} | {"attributes": attributes})
            for each, attributes in ((base, before), (now, after))
        ]
        return made[0], made[1]

    def test_they_are_compared_for_a_patch_of_them(self, bounds: Bounds, ask: Ask) -> None:
        edit = EditAttributes(replace("/x", 2))
        base, now = self.documents({"x": 1}, {"x": 1, "y": 1})
        assert isinstance(attempt(bounds, ask, edit, base, now), Applied)
        base, now = self.documents({"x": 1}, {"x": 3})
        assert failure(attempt(bounds, ask, edit, base, now)).overlap == ("/x",)

    def test_they_dont_concern_a_patch_of_the_content(self, bounds: Bounds, ask: Ask) -> None:
        base, now = self.documents({"x": 1}, {"x": 3})
        outcome = attempt(bounds, ask, add("/b", 2), base, now)
        assert isinstance(outcome, Applied)
        assert outcome.document is not None
        assert outcome.document.attributes == {"x": 3}
