"""`gateway explain`: the fields of documents, as the catalog's JSON Schemas describe them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import click

from gateway.cli.command import Missing, ReadCommand, Session
from gateway.cli.names import CATALOG, KEY
from patching import ABSENT, InvalidPatch, join_pointer, split_pointer
from patching.list_declarations import key_pattern
from patching.pointers import Tokens, find

# The name of a field that stands for any member, or any item.
_ANY: Final = "*"
_SHOWN: Final = ("title", "description", "enum", "const", "default", "format", "pattern",
                 "minimum", "maximum", "minLength", "maxLength", "examples")  # fmt: skip


@click.command("explain", cls=ReadCommand)
@click.argument("catalog", type=CATALOG)
@click.argument("key", type=KEY)
@click.argument("pointer", default="")
@click.option("-r", "--recursive", is_flag=True, help="Also list the fields inside these fields.")
@click.pass_obj
def explain(session: Session, catalog: str, key: str, pointer: str, recursive: bool) -> None:
    """List the fields that the schemas of a catalog describe for a document.

    The document KEY needn't exist. With POINTER, lists the fields inside that field. In a pointer,
    * stands for any item of an array, and for any member that the schema doesn't name. Prints one
    JSON object per field, or a line on a terminal.
    """
    try:
        way = split_pointer(pointer)
    except InvalidPatch as error:
        raise click.UsageError(error.detail) from error
    settings = session.gateway.catalog(catalog).settings.get().settings or {}
    schemas = {
        pattern: schema
        for pattern, schema in settings.get("schemas", {}).items()
        if key_pattern(pattern)(key)
    }
    if not schemas:
        raise Missing(f"no schema of {catalog!r} applies to {key!r}")
    found = 0
    for pattern, schema in schemas.items():
        for place, field, required in _fields(schema, way, recursive):
            found += 1
            shape = _shape(place, field, required) | {"schema": pattern}
            session.output.record(shape, _line(shape))
    if not found:
        raise Missing(f"the schemas of {key!r} describe no fields in '{pointer}'")


_Schema = Any  # an object, or a boolean
_Field = tuple[Tokens, Mapping[str, Any], bool]


def _fields(root: _Schema, way: Tokens, recursive: bool) -> Iterator[_Field]:
    """Fields with their ways from the root: in the value at ``way``, and (``recursive``) below."""
    places = [root]
    for token in way:
        places = [
            below
            for place in places
            for name, below, _ in _inside(root, place)
            if name in (token, _ANY)
        ]
    for place in places:
        yield from _below(root, place, way, recursive, ())


def _below(
    root: _Schema, place: _Schema, way: Tokens, recursive: bool, above: tuple[int, ...]
) -> Iterator[_Field]:
    for name, below, required in _inside(root, place):
        merged = _whole(root, below)
        yield (*way, name), merged, required
        # A schema that refers to itself is described already.
        if recursive and id(below) not in above:
            yield from _below(root, below, (*way, name), recursive, (*above, id(below)))


def _inside(root: _Schema, place: _Schema) -> Iterator[tuple[str, _Schema, bool]]:
    """The name, schema and whether it is required, of each field in a value."""
    for part in _parts(root, place):
        required = part.get("required", ())
        for name, below in part.get("properties", {}).items():
            yield name, below, name in required
        for keyword in ("items", "additionalProperties"):
            if isinstance(part.get(keyword), dict):
                yield _ANY, part[keyword], False


def _parts(root: _Schema, place: _Schema) -> Iterator[Mapping[str, Any]]:
    """``place`` and all schemas that it refers to or is composed of, each once."""
    waiting, seen = [place], set()
    while waiting:
        part = waiting.pop(0)
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            waiting.append(_referred(root, reference[1:]))
        for keyword in ("allOf", "anyOf", "oneOf"):
            waiting += part.get(keyword, ())


def _referred(root: _Schema, fragment: str) -> _Schema:
    """The schema to which ``fragment`` refers, a pointer or an anchor; None if there is none."""
    named = unquote(fragment)
    if named and not named.startswith("/"):
        return _anchored(root, named)
    with suppress(InvalidPatch):
        found = find(root, split_pointer(named))
        return None if found is ABSENT else found
    return None


def _anchored(root: _Schema, name: str) -> _Schema:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            anchors = (node.get("$anchor"), node.get("$dynamicAnchor"))
            if name in anchors or f"#{name}" in (node.get("$id"), node.get("id")):
                return node
        if isinstance(node, dict | list):
            waiting += node.values() if isinstance(node, dict) else node
    return None


def _whole(root: _Schema, place: _Schema) -> Mapping[str, Any]:
    """The keywords of ``place`` and its parts; the first one of a name counts."""
    merged: dict[str, Any] = {}
    for part in _parts(root, place):
        merged = {**part, **merged}
    return merged


def _shape(way: Tokens, field: Mapping[str, Any], required: bool) -> dict[str, Any]:
    shape: dict[str, Any] = {"pointer": join_pointer(way), "type": _type(field)}
    shape["required"] = required
    return shape | {name: field[name] for name in _SHOWN if name in field}


def _type(field: Mapping[str, Any]) -> str:
    kinds = field.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    items = field.get("items")
    if kinds == ["array"] and isinstance(items, dict) and isinstance(items.get("type"), str):
        return f"array of {items['type']}"
    return " or ".join(map(str, kinds))


def _line(shape: Mapping[str, Any]) -> str:
    kind = shape["type"] + (", required" if shape["required"] else "")
    if "enum" in shape:
        kind += f", one of {', '.join(map(str, shape['enum']))}"
    text = " - ".join(str(shape[name]) for name in ("title", "description") if name in shape)
    return f"{shape['pointer']:<30}  {kind}" + (f"  {text}" if text else "")
