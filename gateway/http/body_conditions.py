"""Conditions as members of a JSON object: ``if_match`` and ``if_none_match``.

Each is ``"*"``, a version token (composites and a catalog's tag included, all without the header's
quotes), or a list of tokens; they are held to what the headers of the same names are held to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.commits.conditions import ANY, NO_CONDITIONS, Conditions
from gateway.http.conditions import read_conditions
from gateway.http.refusals import RequestRefused

# As many as a transaction has compares, by default: each is looked up.
_TOKENS_MAX: Final = 4096
CONDITION_MEMBERS: Final = {"if_match": "If-Match", "if_none_match": "If-None-Match"}


def body_conditions(members: Mapping[str, Any]) -> Conditions:
    """The conditions among decoded ``members``.

    Raises RequestRefused ``invalid_condition`` or ``over_limit`` with the member's ``pointer``.
    """
    environ = {
        f"HTTP_{name.upper()}": _header(name, members[name])
        for name in CONDITION_MEMBERS
        if name in members
    }
    if not environ:
        return NO_CONDITIONS
    try:
        return read_conditions(environ)
    except RequestRefused as error:
        header = error.members.get("header")
        name = next(each for each, of in CONDITION_MEMBERS.items() if of == header)
        raise RequestRefused(
            error.code, error.detail.replace(f"{header}:", f"{name}:", 1), pointer=f"/{name}"
        ) from error


def _header(name: str, value: Any) -> str:
    """What the header of the same name would say."""
    if value == ANY:
        return ANY
    tokens = [value] if isinstance(value, str) else value
    if not isinstance(tokens, list):
        raise _member_refusal(name, "it must be '*', a version token or a list of them", f"/{name}")
    if not tokens:
        raise _member_refusal(name, "it is empty", f"/{name}")
    for index, token in enumerate(tokens):
        pointer = f"/{name}" if tokens is not value else f"/{name}/{index}"
        if not isinstance(token, str) or not token:
            raise _member_refusal(name, "a version token is a text that isn't empty", pointer)
        if '"' in token:
            raise _member_refusal(
                name, "a version token stands here without the header's quotes", pointer
            )
        if token == ANY:
            raise _member_refusal(name, "'*' stands alone or not at all", pointer)
    _refuse_many(name, sum(1 + token.count(";") for token in tokens))
    return ", ".join(f'"{token}"' for token in tokens)


def _refuse_many(name: str, count: int) -> None:
    if count > _TOKENS_MAX:
        raise RequestRefused(
            "over_limit",
            f"{name}: it has {count} version tokens, {_TOKENS_MAX} are allowed",
            limit="condition_tokens_max",
            maximum=_TOKENS_MAX,
            actual=count,
            pointer=f"/{name}",
        )


def _member_refusal(name: str, reason: str, pointer: str) -> RequestRefused:
    return RequestRefused("invalid_condition", f"{name}: {reason}", pointer=pointer)
