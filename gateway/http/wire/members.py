"""The members of a JSON object that was sent, checked one by one: a refusal names the pointer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

from gateway.http.wire.headers import AUTHOR_RULE, MESSAGE_CHARACTERS_MAX, is_author
from gateway.http.wire.query import REVISION_MAX
from gateway.http.wire.refusals import RequestRefused
from gateway.model import Attributes
from patching import join_pointer


def require_object(value: Any, known: Collection[str], at: str = "") -> dict[str, Any]:
    """``value``, which must be an object without other members than the ``known`` ones."""
    if not isinstance(value, dict):
        refuse_member(at, "it must be an object")
    require_known(value, known, at)
    return value


def require_known(members: Mapping[str, Any], known: Collection[str], at: str = "") -> None:
    for name in members:
        if name not in known:
            refuse_member(at + join_pointer([name]), f"unknown; known are: {', '.join(known)}")


def required(members: Mapping[str, Any], name: str) -> Any:
    if name not in members:
        refuse_member(f"/{name}", "it is missing")
    return members[name]


def text(members: Mapping[str, Any], name: str) -> str:
    """The text under ``name``, which is required."""
    value = required(members, name)
    if not isinstance(value, str):
        refuse_member(f"/{name}", "it must be a text")
    return value


def switch(members: Mapping[str, Any], name: str) -> bool:
    """The boolean member ``name``; false where there is no such member."""
    value = members.get(name, False)
    if not isinstance(value, bool):
        refuse_member(f"/{name}", "it must be true or false")
    return value


def whole(members: Mapping[str, Any], name: str, minimum: int = 0, at: str = "") -> int:
    """The whole number under ``name``, which is required."""
    value = required(members, name)
    if type(value) is not int or not minimum <= value <= REVISION_MAX:
        refuse_member(f"{at}/{name}", f"it must be a whole number from {minimum} to {REVISION_MAX}")
    return value


def message_asked(members: Mapping[str, Any]) -> str | None:
    """The commit's message in member ``message``; "" is none."""
    message = text(members, "message") if "message" in members else ""
    if len(message) > MESSAGE_CHARACTERS_MAX:
        refuse_member("/message", f"it must be at most {MESSAGE_CHARACTERS_MAX} characters")
    return message or None


def author_asked(members: Mapping[str, Any]) -> str | None:
    """The commit's author in member ``author``."""
    author = text(members, "author") if "author" in members else None
    if author is not None and not is_author(author):
        refuse_member("/author", f"it must be {AUTHOR_RULE}")
    return author


def refuse_member(pointer: str, reason: str) -> NoReturn:
    raise RequestRefused("invalid_body", f"'{pointer}': {reason}"[:600], pointer=pointer)


_MODES: Final = ("keep", "clear", "replace")


def attributes_asked(members: Mapping[str, Any], at: str = "") -> Attributes | None:
    """The new attributes in member ``attributes``: None keeps the old ones, {} clears them.

    Without the member they are kept; null is refused. ``at`` is the pointer to ``members`` in the
    body.
    """
    if "attributes" not in members:
        return None
    at += "/attributes"
    wanted = require_object(members["attributes"], ("mode", "value"), at)
    mode = wanted.get("mode")
    if mode not in _MODES:
        refuse_member(f"{at}/mode", f"it must be one of {', '.join(_MODES)}")
    if mode != "replace":
        if "value" in wanted:
            refuse_member(f"{at}/value", f"mode {mode!r} takes none")
        return None if mode == "keep" else {}
    value = wanted.get("value")
    if not isinstance(value, dict):
        refuse_member(f"{at}/value", "it must be an object, with mode 'replace'")
    return value
