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

from patching.errors import InvalidPatch, LimitExceeded, Limits
from patching.operations import as_json, flag, nested, pointer_of, unknown_operation, value_of
from patching.pointers import Tokens
from patching.values import ABSENT, Document, Json, equal, shown

TYPES: Final = ("string", "number", "boolean", "object", "array", "null", "undefined")

_PATTERN_CHARACTERS_MAX = 1000
_PROGRAM_BYTES_MAX = 262_144  # RE2's memory for one pattern, which {1000} can make large
_LEVELS_MAX = 32  # nesting of predicates; evaluation is recursive

_COMBINING: Final = ("and", "or", "not")
_CASELESS: Final = ("contains", "starts", "ends", "in", "matches")


class Predicate(msgspec.Struct, frozen=True, eq=False):
    """A condition on the value at `path`, which is as given; `tokens` begin at the document's root.
    `value`, `ignore_case` and `apply` are None, False and () if `op` doesn't define them."""

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
    """The path around a predicate and how many predicates it is nested in; and the number of
    operations in the patch, including the nested predicates so far."""

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
    """Parses a predicate whose `op` is one of `PREDICATES`. `position` is the index of the
    operation that it is, or that it is nested in.

    Raises InvalidPatch with the pointer from the root and the member at fault; LimitExceeded for
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
                f"the member 'value' of '{op}' must be {fault}, not {shown(as_json(value))}",
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
        if "apply" not in members:
            raise refused("the member 'apply' is missing")
        said = "an empty one" if apply == [] else shown(as_json(apply))
        raise refused(f"the member 'apply' must be an array of predicates, not {said}")
    if nesting.levels >= _LEVELS_MAX:
        raise refused(f"predicates are nested more than {_LEVELS_MAX} levels deep")
    around = nesting.path, nesting.tokens, nesting.levels
    nesting.path, nesting.tokens, nesting.levels = path, tokens, nesting.levels + 1
    inner = []
    for each in apply:
        if not isinstance(each, dict):
            raise refused(f"a predicate must be an object, not {shown(as_json(each))}")
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
    """The compiled `pattern` (RE2 syntax, linear time). The library caches compiled patterns.

    Raises re2.error if it is malformed or compiles to too large a program."""
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
    """Whether `value` is a JSON number: no boolean, no infinity, no NaN."""
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
"""The predicates, each with a function that says what its `value` must be ("" if it is that)."""


# How many steps count as one item; a search takes the size of the pattern's program in steps for
# each byte of the text. A step takes up to 4 ns, and a search can't be interrupted: it takes at
# most a tenth of a second, and then uses up `items_examined_max`.
_STEPS_PER_ITEM = 12
_BYTES_PER_ITEM = 1000

Find = Callable[[Tokens], Document]
Charge = Callable[[int], None]
Single = Callable[[Any, Predicate, Charge], bool]


def holds(predicate: Predicate, find: Find, charge: Charge) -> bool:
    """Whether `predicate` is true of the document in which `find` looks up locations.

    `not` is true if none of its predicates is (JSON Predicates section 2.3.2). `less` and `more`
    compare numbers by value; the text predicates apply to strings; of anything else, they are
    false. `ignore_case` compares case-folded text. `matches` finds the pattern anywhere in the
    text. `charge` is called with the cost of the work, in array items."""
    if predicate.op in _COMBINED:
        return _COMBINED[predicate.op](holds(each, find, charge) for each in predicate.apply)
    actual = find(predicate.tokens)
    return _SINGLE[predicate.op](actual, predicate, charge)


_COMBINED: Final[dict[str, Callable[[Any], bool]]] = {
    "and": all,
    "or": any,
    "not": lambda results: not any(results),
}


def _folded(text: str, predicate: Predicate, charge: Charge) -> str:
    charge(len(text) // _BYTES_PER_ITEM)
    return text.casefold() if predicate.ignore_case else text


def _of_texts(compare: Callable[[str, str], bool]) -> Single:
    def holds(actual: Document, predicate: Predicate, charge: Charge) -> bool:
        if not isinstance(actual, str):
            return False
        value = _folded(str(predicate.value), predicate, charge)
        return compare(_folded(actual, predicate, charge), value)

    return holds


def _matches(actual: Document, predicate: Predicate, charge: Charge) -> bool:
    if not isinstance(actual, str):
        return False
    pattern = pattern_of(str(predicate.value), ignore_case=predicate.ignore_case)
    text = actual.encode("utf-8", "surrogatepass")
    charge(1 + len(text) * pattern.programsize // _STEPS_PER_ITEM)
    return pattern.search(text) is not None


def _in(actual: Document, predicate: Predicate, charge: Charge) -> bool:
    choices: list[Json] = predicate.value  # type: ignore[assignment]
    charge(len(choices))
    if predicate.ignore_case and isinstance(actual, str):
        folded = _folded(actual, predicate, charge)
        return any(isinstance(each, str) and each.casefold() == folded for each in choices)
    return any(equal(actual, each) for each in choices)


def type_of(value: Document) -> str:
    """The name of the type of `value`, as in the predicate `type`."""
    if value is ABSENT:
        return "undefined"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


_SINGLE: Final[dict[str, Single]] = {
    "test": lambda actual, predicate, _: equal(actual, predicate.value),
    "defined": lambda actual, *_: actual is not ABSENT,
    "undefined": lambda actual, *_: actual is ABSENT,
    "contains": _of_texts(lambda text, part: part in text),
    "starts": _of_texts(str.startswith),
    "ends": _of_texts(str.endswith),
    "matches": _matches,
    "in": _in,
    "less": lambda actual, predicate, _: is_number(actual) and bool(actual < predicate.value),
    "more": lambda actual, predicate, _: is_number(actual) and bool(actual > predicate.value),
    "type": lambda actual, predicate, _: type_of(actual) == predicate.value,
}
