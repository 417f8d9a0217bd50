"""A schema whose references fan out is refused before it is used."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.commits.catalog_settings import parse_settings
from gateway.commits.errors import SettingsInvalid
from gateway.commits.schema_work import SchemaTooHeavy, refuse_heavy_schema


def fan(links: int) -> dict[str, Any]:
    """A chain of definitions in which each refers to the next one twice."""
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]}
        for n in range(links)
    }
    definitions[f"a{links}"] = {"type": "object"}
    return {"$ref": "#/$defs/a0", "$defs": definitions}


def test_a_schema_that_doubles_with_every_link_is_refused() -> None:
    refuse_heavy_schema(fan(8))
    for links in (14, 25, 64):
        with pytest.raises(SchemaTooHeavy):
            refuse_heavy_schema(fan(links))
    with pytest.raises(SettingsInvalid) as refused:
        parse_settings({"schemas": {"*": fan(25)}})
    assert refused.value.pointer == "/schemas/*"


def test_a_chain_without_an_end_in_sight_is_refused() -> None:
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(5_000)}
    with pytest.raises(SchemaTooHeavy):
        refuse_heavy_schema({"$ref": "#/$defs/a0", "$defs": {**chain, "a5000": True}})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"$ref": {"type": "string"}}},
        {"const": {"$ref": "http://example.com"}},
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "object"}}},
        {"$ref": "#node", "$defs": {"n": {"$anchor": "node", "items": {"$ref": "#node"}}}},
        {"anyOf": [{"type": "string"}, {"items": {"$ref": "#"}}]},
        True,
    ],
)
def test_schemas_that_people_write_are_let_through(schema: Any) -> None:
    refuse_heavy_schema(schema)
    parse_settings({"schemas": {"*": schema}})


@pytest.mark.parametrize("reference", ["http://example.com/x", "other.json", "#/$defs/none"])
def test_a_reference_that_leads_nowhere_is_named(reference: str) -> None:
    with pytest.raises(SchemaTooHeavy, match=r"refers to|there is no"):
        refuse_heavy_schema({"$ref": reference})
