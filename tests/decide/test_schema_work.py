"""What validating a document may take is bounded before it begins, whatever the schema says."""

from __future__ import annotations

import random
from typing import Any

import jsonschema_rs
import pytest

from gateway.decide.schemas import Load, SchemaTooHeavy, SchemaWeigher
from gateway.decide.settings import parse_settings
from gateway.errors import AboveLimit, SchemaViolation, SettingsInvalid

EVERYTHING = 10**15
HERE = {"$ref": "#"}
_NAMES = "ab"


def load_of(schema: Any) -> Load:
    return SchemaWeigher(strict=True).load_of(schema)


def fan(links: int) -> dict[str, Any]:
    """A chain of definitions in which each refers to the next one twice."""
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]}
        for n in range(links)
    }
    definitions[f"a{links}"] = {"type": "object"}
    return {"$ref": "#/$defs/a0", "$defs": definitions}


def nested(levels: int, leaf: Any = None) -> Any:
    value: Any = {} if leaf is None else leaf
    for _ in range(levels):
        value = {"a": value}
    return value


def unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": True}}
    for _ in range(levels):
        schema = {"anyOf": [schema], "unevaluatedProperties": False}
    return schema


def test_a_schema_whose_work_doubles_with_every_reference_is_refused() -> None:
    load_of(fan(8))
    for links in (16, 25, 64):
        with pytest.raises(SchemaTooHeavy):
            load_of(fan(links))
    with pytest.raises(SettingsInvalid) as refused:
        parse_settings({"schemas": {"*": fan(25)}})
    assert refused.value.pointer == "/schemas/*"


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"properties": {"a": HERE}}, {"properties": {"a": HERE}}]},
        {"anyOf": [{"properties": {"a": HERE}}, {"additionalProperties": HERE}]},
        {"properties": {"a": HERE}, "patternProperties": {"^a": HERE}},
        {"if": {"properties": {"a": HERE}}, "then": {"properties": {"a": HERE}}},
        {"items": HERE, "contains": HERE},
        {"oneOf": [{"items": {"not": HERE}}, {"prefixItems": [HERE]}]},
        {"$defs": {"n": {"items": HERE}}, "allOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}]},
        {
            "$dynamicAnchor": "n",
            "allOf": [{"items": {"$dynamicRef": "#n"}}, {"items": {"$ref": "#n"}}],
        },
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "items": {"allOf": [{"$recursiveRef": "#"}, {"$recursiveRef": "#"}]},
        },
        {"dependentSchemas": {"a": {"properties": {"b": HERE}}}, "additionalProperties": HERE},
        {"unevaluatedProperties": False, "anyOf": [{"properties": {"a": HERE}}]},
        unevaluated(20),
    ],
)
def test_two_recursive_references_to_one_part_of_a_document_are_refused(schema: Any) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        parse_settings({"schemas": {"some/*": schema}})
    assert refused.value.pointer == "/schemas/some~1*"
    assert "levels down" in str(refused.value)


def test_a_very_long_chain_of_references_is_refused() -> None:
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(5_000)}
    with pytest.raises(SchemaTooHeavy):
        load_of({"$ref": "#/$defs/a0", "$defs": {**chain, "a5000": True}})


@pytest.mark.parametrize(
    "schema", [HERE, {"allOf": [HERE]}, {"anyOf": [{"type": "string"}, {"not": HERE}]}]
)
def test_a_schema_that_refers_to_itself_for_the_same_value_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaTooHeavy, match="refers to itself"):
        load_of(schema)


def test_a_schema_too_large_to_weigh_is_refused() -> None:
    wide = {"properties": {f"p{n}": {"type": "string"} for n in range(300_000)}}
    with pytest.raises(SchemaTooHeavy):
        load_of(wide)
    patterns = {"patternProperties": {f"^p{n}": True for n in range(5_000)}}
    with pytest.raises(SchemaTooHeavy):
        load_of(patterns)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"$ref": {"type": "string"}}},
        {"const": {"$ref": "http://example.com"}},
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "object"}}},
        {"$ref": "#node", "$defs": {"n": {"$anchor": "node", "items": {"$ref": "#node"}}}},
        {"anyOf": [{"type": "string"}, {"items": {"$ref": "#"}}]},
        {"properties": {"left": HERE, "right": HERE}, "required": ["left"]},
        {"anyOf": [{"items": HERE}, {"properties": {"a": HERE}}]},
        {"allOf": [{"properties": {"a": HERE}}, {"properties": {"b": HERE}}]},
        {"properties": {"id": {"type": "string"}, "$id": {"type": "string"}}},
        {"properties": {f"p{n}": {"type": "string", "maxLength": 9} for n in range(2_000)}},
        {
            "properties": {"op": {"enum": ["and", "not"]}, "args": {"items": HERE}},
            "oneOf": [
                {"properties": {"op": {"const": "and"}}},
                {"properties": {"op": {"const": "not"}, "args": {"maxItems": 1}}},
            ],
        },
        True,
    ],
)
def test_ordinary_schemas_are_accepted(schema: Any) -> None:
    assert max(load_of(schema).parts) < 10_000
    parse_settings({"schemas": {"*": schema}})


@pytest.mark.parametrize("reference", ["http://example.com/x", "other.json", "#/$defs/none"])
def test_an_unresolvable_reference_is_named(reference: str) -> None:
    with pytest.raises(SchemaTooHeavy, match=r"refers to|there is no"):
        load_of({"$ref": reference})


def test_a_nested_schema_must_not_be_a_resource_of_its_own() -> None:
    """Its references would be relative to it, and resolve to other places."""
    inner = {"$id": "http://inner", "$ref": "#/$defs/x", "$defs": {"x": fan(25)}}
    with pytest.raises(SchemaTooHeavy, match=r"\$id"):
        load_of({"$defs": {"x": True}, "properties": {"a": inner}})
    load_of({"$id": "http://outer", "properties": {"a": {"$id": "#anchor"}}})


class _CountingKeyword:
    """A keyword that counts how often the validator looks at it."""

    count = 0

    def __init__(self, *_: Any) -> None:
        pass

    def validate(self, _: Any) -> None:
        _CountingKeyword.count += 1


def _random_schema(chance: random.Random, depth: int) -> Any:
    """Every part of it has the keyword ``looks``, and at most three others."""
    if depth == 0:
        return {"looks": True, "type": chance.choice(["object", "array", "integer"])}

    def below() -> Any:
        return _random_schema(chance, depth - 1)

    makers: dict[str, Any] = {
        "allOf": lambda: [below() for _ in range(2)],
        "anyOf": lambda: [below() for _ in range(2)],
        "oneOf": lambda: [below() for _ in range(2)],
        "not": below,
        "if": below,
        "then": below,
        "dependentSchemas": lambda: {chance.choice(_NAMES): below()},
        "properties": lambda: {name: below() for name in _NAMES},
        "patternProperties": lambda: {"^[ab]": below(), "a": below()},
        "additionalProperties": below,
        "propertyNames": below,
        "prefixItems": lambda: [below(), below()],
        "items": below,
        "contains": below,
        "unevaluatedProperties": below,
        "unevaluatedItems": below,
        "$ref": lambda: chance.choice(["#/$defs/x", "#/$defs/y"]),
    }
    schema: dict[str, Any] = {"looks": True}
    for keyword in chance.sample(sorted(makers), 3):
        schema[keyword] = makers[keyword]()
    return schema


def _random_value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(3) if depth else 2
    if kind == 0:
        return {name: _random_value(chance, depth - 1) for name in _NAMES}
    if kind == 1:
        return [_random_value(chance, depth - 1) for _ in range(3)]
    return chance.choice([1, "a", None])


@pytest.mark.parametrize("seed", range(150))
def test_the_validator_never_does_more_than_estimated(seed: int) -> None:
    chance = random.Random(seed)
    schema = _random_schema(chance, 3)
    schema["$defs"] = {
        "x": {"looks": True, "properties": {"a": {"$ref": "#/$defs/x"}}, "items": HERE},
        "y": _random_schema(chance, 1),
    }
    try:
        load = load_of(schema)
    except SchemaTooHeavy:
        return
    validator = jsonschema_rs.validator_for(schema, keywords={"looks": _CountingKeyword})
    for _ in range(10):
        value = _random_value(chance, 4)
        _CountingKeyword.count = 0
        validator.is_valid(value)
        assert _CountingKeyword.count <= load.work_on(value, EVERYTHING).units
        _CountingKeyword.count = 0
        errors = list(validator.iter_errors(value))
        # An alternative is asked before its errors are told, and so are those within it.
        assert _CountingKeyword.count <= 5 * load.work_on(value, EVERYTHING).units
        assert len(errors) <= load.work_on(value, EVERYTHING).error_values


def test_many_subschemas_over_many_items_are_refused_before_validation() -> None:
    schema = {"items": {"allOf": [{"type": "integer"}] * 20_000}}
    settings = parse_settings({"schemas": {"*": schema}})
    settings.require_valid("k", [1] * 100, 200)
    with pytest.raises(AboveLimit) as refused:
        settings.require_valid("k", [1] * 16_000, 32_000)
    assert refused.value.limit == "schema_steps_max"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"enum": [[n] for n in range(2_000)]}}, [[1_999]] * 5_000),
        ({"pattern": "(.{0,200}a){20}[^ab]"}, "ab" * 25_000),
        (
            {"additionalProperties": False, "patternProperties": {"(.{0,99}a){9}y": {}}},
            {"xa" * 30_000: 1},
        ),
    ],
)
def test_comparisons_of_values_and_patterns_over_long_texts_are_refused_before_they_begin(
    schema: Any, value: Any
) -> None:
    settings = parse_settings({"schemas": {"*": schema}})
    with pytest.raises(AboveLimit):
        settings.require_valid("k", value, len(str(value)))


def test_ordinary_patterns_are_cheap_even_with_length_bounds() -> None:
    names = ["^[a-z][a-z0-9_-]{0,62}$", r"^\d{4}-\d{2}-\d{2}$", "^.{1,255}$", r"^\S+@\S+$"]
    rows = [{str(n): "ab" * 10 for n in range(4)}] * 5_000
    schema = {"items": {"properties": {str(n): {"pattern": each} for n, each in enumerate(names)}}}
    settings = parse_settings({"schemas": {"*": {**schema, "maxItems": 1}}})
    with pytest.raises(SchemaViolation):  # and not AboveLimit
        settings.require_valid("k", rows, 600_000)


def test_settings_accepted_by_an_earlier_release_apply_as_far_as_possible() -> None:
    both = [{"properties": {"a": HERE}}, {"properties": {"a": HERE}}]
    settings = parse_settings({"schemas": {"*": {"type": "object", "allOf": both}}}, accepted=True)
    settings.require_valid("k", nested(3), 20)
    with pytest.raises(SchemaViolation):
        settings.require_valid("k", nested(3, 1), 20)
    with pytest.raises(AboveLimit):
        settings.require_valid("k", nested(24), 150)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"allOf": [{"type": "string"}] * 200}}, [1] * 2_000),
        ({"allOf": [{"type": "object"}] * 50}, [[1] * 10] * 10_000),
        ({"items": {"anyOf": [{"type": "string"}, {"type": "object"}]}}, [1] * 100_000),
        ({"items": {"enum": [{"a": index} for index in range(100)]}}, [{"a": 200}] * 4_000),
    ],
)
def test_errors_too_large_to_list_are_replaced_by_a_note(schema: Any, value: Any) -> None:
    settings = parse_settings({"schemas": {"*": schema}})
    with pytest.raises(SchemaViolation) as refused:
        settings.require_valid("k", value, len(str(value)))
    (error,) = refused.value.errors
    assert error["pointer"] == ""
    assert "too large" in error["message"]


def test_at_most_twenty_errors_of_a_document_are_listed() -> None:
    settings = parse_settings({"schemas": {"*": {"items": {"type": "string"}}}})
    with pytest.raises(SchemaViolation) as refused:
        settings.require_valid("k", [1] * 5_000, 10_000)
    assert len(refused.value.errors) == 20
