"""Schemas and required preconditions of a catalog, as the commit loop holds writes to them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from gateway.decide.compares import IsAbsent
from gateway.decide.conditions import ANY_TAG, Preconditions
from gateway.decide.edits import Delete, Edit, EditAttributes, Get, KeyEdit, Merge, MoveKey, Touch
from gateway.decide.request import Applied, Outcome, Refused, Request, Unchanged
from gateway.decide.settings import CompiledSettings, parse_settings
from gateway.errors import ConditionRequired, SchemaViolation, SettingsInvalid
from gateway.model import SETTINGS_KEY, DocumentRecord
from tests.without_http import ask, extended, patch, put, refused, replace, view
from tests.without_http import document as a_document
from tests.without_http import run as decided

NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}}


def settings(content: Any) -> DocumentRecord:
    return a_document(content, SETTINGS_KEY, revision=4)


def run(content: Any, *requests: Request, **documents: Any) -> list[Outcome]:
    known = [a_document(value, key) for key, value in documents.items()]
    state = view(settings(content), *known, keys=("k", "other", "nx", "m"))
    return list(decided(state, *requests).outcomes)


class TestSchemas:
    SETTINGS = {"schemas": {"n*": NUMBERS, "*x": {"minProperties": 1}, "m": False}}  # noqa: RUF012

    def refused(self, request: Request, **documents: Any) -> SchemaViolation:
        (outcome,) = run(self.SETTINGS, request, **documents)
        return refused(outcome, SchemaViolation)

    @pytest.mark.parametrize(
        "edit",
        [
            put({"n": "1"}),
            replace("/n", 1.5),
            Merge({"n": []}, 9),
            extended({"op": "add", "path": "/n", "value": "1"}),
        ],
    )
    def test_every_kind_of_write_is_validated(self, edit: Edit) -> None:
        violation = self.refused(ask(edit, key="nx"), nx={"n": 0})
        assert (violation.key, violation.pattern) == ("nx", "n*")
        assert violation.errors[0]["pointer"] == "/n"
        assert violation.errors[0]["message"]

    def test_every_schema_whose_pattern_matches_counts(self) -> None:
        assert self.refused(ask(put({}), key="nx")).pattern == "*x"

    def test_a_moved_document_must_match_the_schemas_of_its_new_key(self) -> None:
        assert self.refused(ask(MoveKey("m"), key="k"), k={"n": 1}).key == "m"

    def test_the_final_state_counts_not_the_states_on_the_way(self) -> None:
        edits = (KeyEdit("nx", put({"n": "x"})), KeyEdit("nx", replace("/n", 1)))
        (outcome,) = run(self.SETTINGS, ask(Get(), edits=edits))
        assert isinstance(outcome, Applied)

    def test_attributes_and_deletions_are_not_validated(self) -> None:
        requests = [ask(EditAttributes(put({"n": "x"})), key="m"), ask(Delete(), key="m")]
        outcomes = run(self.SETTINGS, *requests, m={})
        assert [type(each) for each in outcomes] == [Applied, Applied]

    def test_an_equal_value_is_a_no_op_even_under_a_newer_schema(self) -> None:
        (outcome,) = run(self.SETTINGS, ask(put({}), key="m"), m={})
        assert isinstance(outcome, Unchanged)

    def test_new_settings_apply_to_the_next_request_of_the_batch(self) -> None:
        outcomes = run(
            {},
            ask(put({"n": "x"}), key="nx"),
            ask(put({"schemas": {"nx": NUMBERS}}), key=SETTINGS_KEY),
            ask(put({"n": "y"}), key="nx"),
        )
        assert [type(each) for each in outcomes] == [Applied, Applied, Refused]

    def test_invalid_settings_are_never_committed(self) -> None:
        for content in ([], {"schemas": {"a": {"type": "x"}}}, {"require_precondition": 1}):
            (outcome,) = run({}, ask(put(content), key=SETTINGS_KEY))
            refused(outcome, SettingsInvalid)


def test_compiled_settings_depend_on_the_content_not_only_on_the_commit_id() -> None:
    """A patch of the settings that lost its race is decided again, under the same commit id."""
    first = settings({"require_precondition": True})
    second = settings({"require_precondition": False})
    assert first.commit_id == second.commit_id
    settings_of = CompiledSettings(nullcontext()).of
    assert settings_of(first).require_precondition
    assert not settings_of(second).require_precondition
    assert settings_of(first).require_precondition


class TestRequiredPreconditions:
    SETTINGS = {"require_precondition": True}  # noqa: RUF012

    def outcome(self, request: Request) -> Outcome:
        (outcome,) = run(self.SETTINGS, request, k={"n": 1}, other=1)
        return outcome

    @pytest.mark.parametrize(
        "edit",
        [
            put(1),
            Delete(),
            replace("/n", 2),
            Merge({}, 2),
            MoveKey("m"),
            EditAttributes(put({})),
            EditAttributes(replace("", {})),
            extended({"op": "increment", "path": "/n"}),
        ],
    )
    def test_a_write_without_a_precondition_is_refused(self, edit: Edit) -> None:
        refused(self.outcome(ask(edit)), ConditionRequired)

    @pytest.mark.parametrize(
        "fields",
        [
            {"conditions": Preconditions(if_match=ANY_TAG)},
            {"conditions": Preconditions(if_unmodified_since=2**40)},
            {"resource_version": 7},
            {"compare": (IsAbsent("m"),)},
        ],
    )
    def test_any_precondition_is_enough(self, fields: Any) -> None:
        assert isinstance(self.outcome(ask(put(2), **fields)), Applied)

    @pytest.mark.parametrize(
        "edit",
        [
            patch({"op": "test", "path": "/n", "value": 1}, {"op": "remove", "path": "/n"}),
            extended({"op": "less", "path": "/n", "value": 2}, {"op": "increment", "path": "/n"}),
            EditAttributes(
                patch({"op": "test", "path": "", "value": {}}, {"op": "remove", "path": ""})
            ),
            Get(),
            Touch(),
        ],
    )
    def test_a_test_counts_and_edits_of_no_document_need_none(self, edit: Edit) -> None:
        assert isinstance(self.outcome(ask(edit)), Applied | Unchanged)

    @pytest.mark.parametrize("first", [("", Touch()), ("k", Get()), ("k", put({"n": 1}))])
    def test_every_edit_of_a_request_needs_a_precondition(self, first: tuple[str, Edit]) -> None:
        edits = (KeyEdit(*first), KeyEdit("other", put(2)))
        refused(self.outcome(ask(Get(), edits=edits)), ConditionRequired)

    def test_a_change_of_the_settings_needs_no_precondition(self) -> None:
        assert isinstance(self.outcome(ask(put({}), key=SETTINGS_KEY)), Applied)


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (5, ""),
        ({"schema": {}}, "/schema"),
        ({"schemas": {"": {}}}, "/schemas/"),
        ({"schemas": {"a/b": {"type": "x"}}}, "/schemas/a~1b/type"),
        ({"schemas": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "/schemas/a"),
        ({"require_precondition": None}, "/require_precondition"),
        ({"retention": {"commits": 0}}, "/retention/commits"),
        ({"retention": {"commits": True}}, "/retention/commits"),
        ({"retention": {"days": 1}}, "/retention/days"),
        ({"require_preconditions": True}, "/require_preconditions"),
        ({"schemas": []}, "/schemas"),
        ({"schemas": {"*": {"pattern": "(?=a)b"}}}, "/schemas/*/pattern"),
    ],
)
def test_an_invalid_member_of_settings_is_named(content: Any, pointer: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        parse_settings(content)
    assert caught.value.pointer == pointer


def test_compiled_settings_are_bounded_by_their_size() -> None:
    compiled = CompiledSettings(nullcontext(), bytes_max=190_000)

    def settings(number: int) -> DocumentRecord:
        content = {"schemas": {f"k{number}": {"type": "object"}}}
        return a_document(content, "", commit_id=f"{number:032x}", size_bytes=3_000)

    first = compiled.of(settings(0))
    assert compiled.of(settings(0)) is first
    for number in range(1, 50):
        compiled.of(settings(number))
    assert len(compiled._known) == 5
    assert compiled._bytes == 5 * (2_000 + 12 * 3_000)
    assert compiled.of(settings(0)) is not first
    huge = msgspec.structs.replace(settings(99), size_bytes=10**9)
    assert compiled.of(huge) is compiled.of(huge)
    assert len(compiled._known) == 1
