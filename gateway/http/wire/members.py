"""The members of a JSON object that was sent: a refusal names the pointer.

Most bodies are held to a schema (``strict.load``); bulk lines and the actions of a transaction, of
which there are thousands, member by member.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

from marshmallow import ValidationError

from gateway.decide.strict import Exact, text, whole
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.headers import AUTHOR_RULE, MESSAGE_CHARACTERS_MAX, is_author
from gateway.model import Attributes
from patching import join_pointer

REVISION: Final = whole()
# For the commit; "" is none.
MESSAGE: Final = text(MESSAGE_CHARACTERS_MAX)
AUTHOR: Final = Exact(str, f"it must be {AUTHOR_RULE}", is_author)


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


def required_text(members: Mapping[str, Any], name: str) -> str:
    """The text under ``name``, which is required."""
    value = required(members, name)
    if not isinstance(value, str):
        refuse_member(f"/{name}", "it must be a text")
    return value


def member(members: Mapping[str, Any], name: str, field: Exact, at: str = "") -> Any:
    """The member ``name`` as ``field`` loads it, or the field's default."""
    try:
        return field.deserialize(members[name]) if name in members else field.load_default
    except ValidationError as error:
        refuse_member(f"{at}/{name}", str(error.messages[0]))


def invalid_body(pointer: str, reason: str, **more: Any) -> RequestRefused:
    detail = f"'{pointer}': {reason}"[:600]
    return RequestRefused("invalid_body", detail, pointer=pointer, **more)


def refuse_member(pointer: str, reason: str) -> NoReturn:
    raise invalid_body(pointer, reason)


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
            refuse_member(f"{at}/value", f"mode {mode!r} takes no value")
        return None if mode == "keep" else {}
    value = wanted.get("value")
    if not isinstance(value, dict):
        refuse_member(f"{at}/value", "it must be an object, with mode 'replace'")
    return value
