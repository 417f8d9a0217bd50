"""Reading the members of an operation: each is checked, and each error names what is at fault."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from patching._errors import InvalidPatch, LimitExceeded, Limits
from patching._json import Json, depth, encoded_bytes, shown

from ._pointer import Tokens, split_pointer


def pointer_of(
    members: dict[str, Any], member: str, position: int, limits: Limits
) -> tuple[str, Tokens]:
    pointer = members.get(member)
    if not isinstance(pointer, str):
        said = f"not {shown(as_json(pointer))}" if member in members else "it is missing"
        raise InvalidPatch(
            f"the member '{member}' must be a string; {said}", operation=position, member=member
        )
    try:
        tokens = split_pointer(pointer)
    except InvalidPatch as error:
        error.operation = position
        error.member = member
        raise
    if len(tokens) > limits.depth_max:
        raise LimitExceeded(
            "depth_max", limits.depth_max, len(tokens), operation=position, pointer=pointer
        )
    return pointer, tokens


def value_of(members: dict[str, Any], position: int) -> Json:
    try:
        value: Json = members["value"]
    except KeyError:
        raise InvalidPatch(
            "the member 'value' is missing",
            operation=position,
            pointer=members["path"],
            member="value",
        ) from None
    return value


def nested(value: Json, path: str, tokens: Tokens, position: int, limits: Limits) -> int:
    """How deep `value` reaches at `tokens`, counted from the root."""
    levels = len(tokens)
    if isinstance(value, dict | list):
        levels += depth(value)
    if levels > limits.depth_max:
        raise LimitExceeded("depth_max", limits.depth_max, levels, operation=position, pointer=path)
    return levels


def name_bytes(tokens: Tokens) -> int:
    """What a new member takes beside its value: name, colon and comma."""
    return encoded_bytes(tokens[-1]) + 2 if tokens else 0


def flag(members: dict[str, Any], member: str, position: int) -> bool:
    """An option that is either there and true or false, or left out and false."""
    given = members.get(member, False)
    if not isinstance(given, bool):
        raise InvalidPatch(
            f"the member '{member}' must be true or false; not {shown(as_json(given))}",
            operation=position,
            pointer=members.get("path"),
            member=member,
        )
    return given


def unknown_operation(members: dict[str, Any], position: int, known: Iterable[str]) -> InvalidPatch:
    if "op" not in members:
        return InvalidPatch("the member 'op' is missing", operation=position, member="op")
    name = members["op"]
    if not isinstance(name, str):
        return InvalidPatch(
            f"the member 'op' must be a string; not {shown(as_json(name))}",
            operation=position,
            member="op",
        )
    return InvalidPatch(
        f"there is no operation {shown(name)}; known are {', '.join(known)}",
        code="unknown_operation",
        operation=position,
        member="op",
    )


def as_json(value: object) -> Json:
    """`value` if it is JSON on its face, else its type's name; for messages."""
    if value is None or isinstance(value, dict | list | str | int | float):
        return value
    return type(value).__name__
