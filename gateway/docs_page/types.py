"""What a JSON Schema demands, in words that fit into the cell of a table."""

from __future__ import annotations

import json
from typing import Any, Final

from markupsafe import Markup

from gateway.docs_page.anchors import Object, anchor_of

_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} members",
}


def type_of(schema: Object) -> Markup:
    """The type with its bounds; schemas that have a name are links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Markup('<a href="#{}">{}</a>').format(anchor_of(schema["$ref"]), name)
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return Markup(" or ").join(type_of(each) for each in schema[several])
    words = [_kind(schema), *_bounds(schema)]
    return Markup(", ").join(words)


def _kind(schema: Object) -> Markup:
    if "const" in schema:
        return _value(schema["const"])
    if "enum" in schema:
        return Markup(" or ").join(_value(each) for each in schema["enum"])
    kinds = schema.get("type", "any JSON value")
    kind = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if "items" in schema:
        return Markup("{} of {}").format(kind, type_of(schema["items"]))
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        return Markup("{} of {}").format(kind, type_of(values))
    return Markup("{}").format(kind)


def _bounds(schema: Object) -> list[Markup]:
    found = [
        Markup(words).format(schema[name]) for name, words in _BOUNDS.items() if name in schema
    ]
    if "format" in schema:
        found.append(Markup("{}").format(schema["format"]))
    if "pattern" in schema:
        found.append(Markup("like <code>{}</code>").format(schema["pattern"]))
    if "default" in schema:
        found.append(Markup("by default {}").format(_value(schema["default"])))
    return found


def _value(value: Any) -> Markup:
    return Markup("<code>{}</code>").format(json.dumps(value, ensure_ascii=False))
