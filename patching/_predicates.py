"""Predicates: conditions on a document, with the names of draft-snell-json-test (JSON Predicates).

    {"op": "and", "path": "/user", "apply": [
        {"op": "type", "path": "/age", "value": "number"},
        {"op": "not", "apply": [{"op": "less", "path": "/age", "value": 18}]}]}

As the draft has it, the path of a predicate in `apply` continues that of the predicate around it
and may be left out. A predicate on a location that doesn't exist is false, `undefined` is true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import re2  # type: ignore[import-untyped]

from patching._errors import InvalidPatch, LimitExceeded, Limits
from patching._json import Json, shown

from ._operations import as_json, flag, nested, pointer_of, unknown_operation, value_of
from ._pointer import Tokens

TYPES: Final = ("string", "number", "boolean", "object", "array", "null", "undefined")

_PATTERN_CHARACTERS_MAX = 1000
_PROGRAM_BYTES_MAX = 262_144  # of RE2's memory for one pattern: bounds what {1000} can blow up to
_LEVELS_MAX = 32  # of predicates in predicates; evaluation is recursive

_COMBINING: Final = ("and", "or", "not")
_CASELESS: Final = ("contains", "starts", "ends", "in", "matches")


class Predicate(msgspec.Struct, frozen=True, eq=False):
    """`path` as given, `tokens` from the document's root on. `value`, `ignore_case` and `apply` are
    what `op` defines; None, False and () where it doesn't."""

    op: str
    path: str
    tokens: Tokens
    value: Json = None
    ignore_case: bool = False
    apply: tuple[Predicate, ...] = ()

    def condition(self) -> dict[str, Json]:
        """The predicate as JSON without its path."""
        members: dict[str, Json] = {"op": self.op}
        if self.op in _COMBINING:
            members["apply"] = [each.to_json() for each in self.apply]
        elif self.op not in ("defined", "undefined"):
            members["value"] = self.value
        if self.ignore_case:
            members["ignore_case"] = True
        return members

    def to_json(self) -> dict[str, Json]:
        return {**self.condition(), "path": self.path}


class Nesting(msgspec.Struct):
    """Where a predicate stands: the path around it and how many predicates are around it; and how
    many operations the patch has had so far, nested predicates included."""

    limits: Limits
    operations: int = 0
    path: str = ""
    tokens: Tokens = ()
    levels: int = 0

    def count(self) -> None:
        self.operations += 1
        if self.operations > self.limits.operations_max:
            raise LimitExceeded("operations_max", self.limits.operations_max, self.operations)


def parse_predicate(members: dict[str, Any], position: int, nesting: Nesting) -> Predicate:
    """Parses a predicate whose `op` is one of `PREDICATES`; `position` is that of the operation
    that it is or is nested in.

    InvalidPatch with the pointer from the root and the member at fault; LimitExceeded for
    `operations_max` and `depth_max`."""
    op = members["op"]
    path: str = ""
    tokens: Tokens = ()
    if "path" in members or not (nesting.levels or op in _COMBINING):
        path, tokens = pointer_of(members, "path", position, nesting.limits)
    whole, all_tokens = nesting.path + path, nesting.tokens + tokens
    nested(None, whole, all_tokens, position, nesting.limits)
    ignore_case = op in _CASELESS and flag(members, "ignore_case", position)
    if op in _COMBINING:
        inner = _parse_nested(members, position, nesting, whole, all_tokens)
        return Predicate(op, path, all_tokens, apply=inner)
    value: Json = None
    if op not in ("defined", "undefined"):
        value = value_of({**members, "path": whole}, position)
        nested(value, whole, all_tokens, position, nesting.limits)
        fault = PREDICATES[op](value)
        if fault:
            raise InvalidPatch(
                f"the member 'value' of '{op}' must be {fault}; not {shown(as_json(value))}",
                operation=position,
                pointer=whole,
                member="value",
            )
    return Predicate(op, path, all_tokens, value, ignore_case)


def _parse_nested(
    members: dict[str, Any], position: int, nesting: Nesting, path: str, tokens: Tokens
) -> tuple[Predicate, ...]:
    def refused(detail: str) -> InvalidPatch:
        return InvalidPatch(detail, operation=position, pointer=path, member="apply")

    apply = members.get("apply")
    if not isinstance(apply, list) or not apply:
        said = f"not {shown(as_json(apply))}" if "apply" in members else "it is missing"
        raise refused(f"the member 'apply' must be an array of predicates; {said}")
    if nesting.levels >= _LEVELS_MAX:
        raise refused(f"predicates are nested over {_LEVELS_MAX} levels deep")
    around = nesting.path, nesting.tokens, nesting.levels
    nesting.path, nesting.tokens, nesting.levels = path, tokens, nesting.levels + 1
    inner = []
    for each in apply:
        if not isinstance(each, dict):
            raise refused(f"a predicate is an object, not {shown(as_json(each))}")
        nesting.count()
        op = each.get("op")
        if not isinstance(op, str) or op not in PREDICATES:
            error = unknown_operation(each, position, PREDICATES)
            error.pointer = path
            raise error
        inner.append(parse_predicate(each, position, nesting))
    nesting.path, nesting.tokens, nesting.levels = around
    return tuple(inner)


def pattern_of(pattern: str, *, ignore_case: bool) -> Any:
    """The compiled `pattern` (RE2 syntax, linear time). Compiled ones are cached by the library.

    re2.error where it is malformed or compiles to too large a program."""
    options = re2.Options()
    options.log_errors = False  # to standard error, by default
    options.never_capture = True  # groups only group: whether there is a match is all we ask
    options.max_mem = _PROGRAM_BYTES_MAX
    options.case_sensitive = not ignore_case
    return re2.compile(pattern, options=options)


def _anything(_: Json) -> str:
    return ""


def _text(value: Json) -> str:
    return "" if isinstance(value, str) else "a string"


def _number(value: Json) -> str:
    return "" if is_number(value) else "a number"


def _array(value: Json) -> str:
    return "" if isinstance(value, list) else "an array"


def _type(value: Json) -> str:
    return "" if isinstance(value, str) and value in TYPES else f"one of {', '.join(TYPES)}"


def _pattern(value: Json) -> str:
    if not isinstance(value, str) or len(value) > _PATTERN_CHARACTERS_MAX:
        return f"a pattern of at most {_PATTERN_CHARACTERS_MAX} characters"
    try:
        pattern_of(value, ignore_case=False)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) else "a lone surrogate"
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        return f"a pattern in RE2 syntax ({said})"
    return ""


def is_number(value: object) -> bool:
    """Whether `value` is a JSON number. true is none; neither are infinities and NaN."""
    if isinstance(value, float):
        return value - value == 0
    return isinstance(value, int) and not isinstance(value, bool)


PREDICATES: Final[dict[str, Callable[[Json], str]]] = {
    "test": _anything,
    "defined": _anything,
    "undefined": _anything,
    "contains": _text,
    "starts": _text,
    "ends": _text,
    "matches": _pattern,
    "in": _array,
    "less": _number,
    "more": _number,
    "type": _type,
    "and": _anything,
    "or": _anything,
    "not": _anything,
}
"""The predicates, each with a function from its `value` to what it must be ("" where it is)."""
