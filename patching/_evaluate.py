"""Whether a predicate holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from patching._json import ABSENT, Document, Json, equal

from ._pointer import Tokens
from ._predicates import Predicate, is_number, pattern_of

# Of a pattern's program, per byte of the text. At worst a step takes 4 ns, and a search can't be
# interrupted: it takes a tenth of a second where it uses up `items_examined_max`.
_STEPS_PER_ITEM = 12
_BYTES_PER_ITEM = 1000

Find = Callable[[Tokens], Document]
Charge = Callable[[int], None]
Single = Callable[[Any, Predicate, Charge], bool]


def holds(predicate: Predicate, find: Find, charge: Charge) -> bool:
    """Whether `predicate` is true of the document in which `find` looks up locations.

    `not` is true if none of its predicates is (JSON Predicates section 2.3.2). `less` and `more`
    compare numbers, by value; the text predicates look at strings; anything else is false.
    `ignore_case` compares case-folded text. `matches` finds the pattern anywhere in the text.
    `charge` is told how many array items the work is worth."""
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
    """The name that `type` has for what `value` is."""
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
