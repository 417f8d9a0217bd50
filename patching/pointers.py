"""JSON Pointers (RFC 6901): text to tokens and back, and finding what they point at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from typing import TypeAlias

from patching.errors import InvalidPatch
from patching.values import ABSENT, Document, Json, described, shown

Tokens: TypeAlias = "tuple[str, ...]"

_bad_escape = re.compile("~(?![01])").search
_is_index = re.compile("0|[1-9][0-9]{0,17}", re.ASCII).fullmatch


def split_pointer(pointer: str) -> Tokens:
    """The unescaped reference tokens of `pointer`; () for "", the whole document.

    Raises InvalidPatch (`invalid_pointer`) if it is neither "" nor starts with "/", or if a "~" is
    not followed by 0 or 1."""
    if not pointer:
        return ()
    if pointer[0] != "/":
        raise InvalidPatch(
            f"the pointer {shown(pointer)} doesn't start with '/'",
            code="invalid_pointer",
            pointer=pointer,
        )
    if "~" not in pointer:
        return tuple(pointer[1:].split("/"))
    if _bad_escape(pointer):
        raise InvalidPatch(
            f"the pointer {shown(pointer)} has a '~' that isn't followed by 0 or 1",
            code="invalid_pointer",
            pointer=pointer,
        )
    # "~1" first: "~01" stands for "~1", not for "/"
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def is_within(tokens: Tokens, places: Set[Tokens]) -> bool:
    """Whether `tokens` is one of `places`, or below one."""
    return any(tokens[:count] in places for count in range(len(tokens) + 1))


def join_pointer(tokens: Iterable[str | int]) -> str:
    """The pointer made of unescaped `tokens`; array indexes may be integers. The reverse of
    `split_pointer`."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def index_of(token: str, end: int) -> int:
    """The array index that `token` names, if it is less than `end`; else -1.

    Digits without a leading zero (RFC 6901 section 4): "01", "-1", "1e0" and "-" name none."""
    if len(token) == 1:
        index = ord(token) - 48
        return index if 0 <= index <= 9 and index < end else -1
    if _is_index(token) is None:
        return -1
    index = int(token)
    return index if index < end else -1


def find(root: Document, tokens: Sequence[str]) -> Document:
    """The value that `tokens` point at in `root`, or `ABSENT`."""
    node: Document = root
    for token in tokens:
        if isinstance(node, dict):
            node = node.get(token, ABSENT)
        elif isinstance(node, list):
            index = index_of(token, len(node))
            node = node[index] if index >= 0 else ABSENT
        else:
            return ABSENT
    return node


def why_missing(root: Json, tokens: Tokens) -> str:
    """Says at which step `tokens` leave `root`; for the message of `PathMissing`."""
    for position, token in enumerate(tokens):
        holder = find(root, tokens[:position])
        if find(root, tokens[: position + 1]) is not ABSENT:
            continue
        place = f"'{join_pointer(tokens[:position])}'" if position else "the document"
        if len(place) > 200:
            place = "…" + place[-200:]
        if isinstance(holder, dict):
            return f"{place} has no member {shown(token)}"
        if isinstance(holder, list):
            return f"{place} is {described(holder)} and has no item at {shown(token)}"
        return f"{place} is {described(holder)}, not an object or an array"
    return "the location doesn't exist"
