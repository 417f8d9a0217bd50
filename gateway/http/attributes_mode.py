"""What becomes of a document's attributes when it is replaced: said, never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.http.json_members import refuse_member, require_object
from gateway.model import Attributes

_MODES: Final = ("keep", "clear", "replace")


def attributes_asked(members: Mapping[str, Any], at: str = "") -> Attributes | None:
    """What ``attributes`` in ``members`` asks for: None keeps them, {} clears them, else these.

    Not there, they are kept; null says none of the three and is refused. ``at`` is the pointer to
    ``members`` in the body.
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
