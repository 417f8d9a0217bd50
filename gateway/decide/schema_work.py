"""How much work a JSON Schema makes of a document: bounded before it is used, and at each write.

A validator can't be interrupted while it runs, so its work is bounded beforehand. The unit is one
part of a schema looked at for one value of a document. ``load_of`` tells how many units a schema
makes at most of one value that lies ``d`` levels deep, for every depth a document may have; the
work on a document is the sum over its values.

Worked example. ``{"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref":
"#"}}}]}``: two routes lead from the document to its member ``a`` and back to the schema, so twice
as many parts look at ``a`` as at the document, and at what is 24 levels down 100 million do. Such a
schema is refused. With ``a`` in one of the two and ``b`` in the other, each member is looked at
along one route, and by six parts at every depth.

References are followed within the schema alone. Counted are all parts that may be looked at,
whatever is found on the way: alternatives all together, and those under ``unevaluatedProperties``
once more for each part that asks what was evaluated. ``tests/decide/test_schema_work.py`` counts
what the validator really does, and holds it to this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.decide.schema_parts import (
    COMPILED_BYTES_MAX,
    ENDLESS,
    FOLDED_MAX,
    Schema,
    SchemaTooHeavy,
    Way,
    compiled_bytes,
    folding_bytes,
    patterns_in,
    values_in,
)
from patching import Json

__all__ = ["Load", "SchemaTooHeavy", "Weighing", "Work"]

# Levels of nesting that a document may have at most, whatever the settings say.
_DEPTH_MAX = 100
# Parts that look at one value.
_LOAD_MAX = 50_000
# The maximum of steps for weighing all the schemas of a catalog, and of their values.
_STEPS_MAX = 500_000
_VALUES_MAX = 200_000
# Different patterns of a catalog; each takes 20 kB or more, and some microseconds to compile.
_PATTERNS_MAX = 500
# Their characters together: to read so many takes up to 160 ms, whatever comes of them compiled.
_CHARACTERS_MAX = 32 * 1024
# What each takes beside, and how many times as much as ``compiled_bytes`` tells: it is compiled
# several times, one way and the other.
_PATTERN_BYTES = 4 * 1024
_MACHINES = 8
# Levels after which a schema that leads back to itself may come back to where it was.
_PERIOD_MAX = 8
# So many characters of a document's text count as one value.
_CHARACTERS_PER_VALUE = 16


@dataclass(frozen=True, slots=True)
class Work:
    """A bound for validating a document: ``units`` of time, and ``told`` of memory for errors.

    ``told`` counts the values that all possible errors would hold, each with those below it.
    """

    units: int
    told: int


@dataclass(frozen=True, slots=True)
class Load:
    """By depth, the most units of work for one value (``parts``) and one character (``texts``).

    ``can_be_compiled``: whether its patterns leave it possible.
    """

    parts: tuple[int, ...]
    texts: tuple[int, ...]
    can_be_compiled: bool = True
    per_byte: int = field(init=False)

    def __post_init__(self) -> None:
        # A value takes two bytes of JSON at least, with the comma.
        per_value = max(self.parts) * (_CHARACTERS_PER_VALUE + 4)
        per_byte = -(-per_value // (2 * _CHARACTERS_PER_VALUE)) + 2 * max(self.texts)
        object.__setattr__(self, "per_byte", per_byte)

    def work_on(self, content: Json, units_max: int) -> Work:
        """An upper bound for ``content``; where it is over ``units_max``, it may be cut short."""
        units = told = above = 0
        for depth, (values, characters) in enumerate(_levels(content)):
            at = min(depth, _DEPTH_MAX)
            values += characters // _CHARACTERS_PER_VALUE
            units += self.parts[at] * values + self.texts[at] * characters
            # An error about a value holds all that is below it: each level is held once for it
            # itself, and once for every one above.
            above += self.parts[at]
            told += values * above
            if units > units_max:
                break
        return Work(units, told)


class Weighing:
    """Weighs the schemas of one catalog's settings, which share what that may take.

    ``strict``: a schema that is too heavy is refused. Otherwise it was accepted once, by other
    bounds, and small documents alone can be held to it.
    """

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self._steps = 0
        self._values = 0
        self._patterns: dict[str, int] = {}
        self._characters = 0
        self._folding = 0

    def load_of(self, schema: Any) -> Load:
        """Raises SchemaTooHeavy where it is strict."""
        self._values += sum(1 for _ in values_in(schema))
        if self.strict and self._values > _VALUES_MAX:
            raise SchemaTooHeavy(f"the schemas of a catalog hold more than {_VALUES_MAX} values")
        try:
            self._weigh_patterns(schema)
        except SchemaTooHeavy:
            if self.strict:
                raise
            return Load((ENDLESS,), (ENDLESS,), can_be_compiled=False)
        parts: list[int] = []
        texts: list[int] = []
        try:
            for part_load, text_load in _by_depth(Schema(schema, self.strict, self._step)):
                if part_load > _LOAD_MAX:
                    raise SchemaTooHeavy(
                        f"{len(parts)} levels down, more than {_LOAD_MAX} of its parts would apply"
                        " to one value of a document; if several routes lead from it back to"
                        " itself, write the recursion once, next to the alternatives"
                    )
                parts.append(part_load)
                texts.append(text_load)
        except SchemaTooHeavy:
            if self.strict:
                raise
            endless = [ENDLESS] * (_DEPTH_MAX + 1 - len(parts))
            parts, texts = parts + endless, texts + endless
        return Load(tuple(parts), tuple(texts))

    @property
    def memory_bytes(self) -> int:
        """About what the patterns so far take, compiled and in use."""
        compiled_bytes = sum(self._patterns.values())
        return _PATTERN_BYTES * len(self._patterns) + _MACHINES * compiled_bytes

    def _weigh_patterns(self, schema: Any) -> None:
        for pattern in patterns_in(schema):
            if pattern in self._patterns:
                continue
            self._characters += len(pattern)
            if self._characters > _CHARACTERS_MAX:
                raise SchemaTooHeavy(
                    "the different patterns of a catalog's schemas have more than"
                    f" {_CHARACTERS_MAX} characters together"
                )
            self._folding += folding_bytes(pattern)
            if self._folding > COMPILED_BYTES_MAX:
                raise SchemaTooHeavy(
                    "the patterns of a catalog's schemas ignore the case of too many sets that"
                    f" cover most of Unicode, such as [^\\W\\d]: {FOLDED_MAX} are allowed in all"
                )
            size = compiled_bytes(pattern)
            # One that can't be compiled is told by its place, when it is tried.
            self._patterns[pattern] = size if size <= COMPILED_BYTES_MAX else 0
            if len(self._patterns) > _PATTERNS_MAX:
                raise SchemaTooHeavy(
                    f"the schemas of a catalog have more than {_PATTERNS_MAX} different patterns"
                )
            if sum(self._patterns.values()) > COMPILED_BYTES_MAX:
                raise SchemaTooHeavy(
                    "the patterns of a catalog's schemas take more than"
                    f" {COMPILED_BYTES_MAX} bytes together when compiled: classes of Unicode such"
                    " as \\w or \\pL take most if they are repeated many times"
                )

    def _step(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _STEPS_MAX:
            raise SchemaTooHeavy("its parts refer to one another in too many ways")


def _by_depth(schema: Schema) -> Iterator[tuple[int, int]]:
    """The work for one value, and for one character, of each depth below the document's root.

    Of each schema that looks at a value at all: its work ``n`` levels below is the sum over the
    schemas that look one level below, and of that the most for any member or item.
    """
    heres = schema.reachable()
    work = {name: (here.work, here.text_work) for name, here in heres.items()}
    shared = {id(here.named): here for here in heres.values() if here.links}
    ways = {name: here.ways() for name, here in shared.items()}
    steps = len(heres) + sum(here.links for here in shared.values())
    before: list[dict[int, tuple[int, int]]] = []
    for depth in range(_DEPTH_MAX + 1):
        yield work[id(schema.root)]
        before.append(work)
        most = {name: _most(each, work) for name, each in ways.items()}
        work = {name: most.get(id(here.named), (0, 0)) for name, here in heres.items()}
        schema.step(steps)
        for period in range(1, min(_PERIOD_MAX, len(before)) + 1):
            if before[-period] == work:  # from here on all is as it was
                for left in range(_DEPTH_MAX - depth):
                    yield before[left % period - period][id(schema.root)]
                return


def _most(ways: Iterable[Way], work: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
    parts = texts = 0
    for way in ways:
        parts = max(parts, sum(times * work[name][0] for name, times in way))
        texts = max(texts, sum(times * work[name][1] for name, times in way))
    return parts, texts


def _levels(content: Json) -> Iterator[tuple[int, int]]:
    """For each depth how many values there are, and how many characters of text and names.

    A member's name counts twice: where it is, and with the object that has it.
    """
    level: list[Any] = [content]
    names = 0
    while level:
        below: list[Any] = []
        characters, names = names, 0
        for each in level:
            if isinstance(each, dict):
                below += each.values()
                names += sum(map(len, each))
            elif isinstance(each, list):
                below += each
            elif isinstance(each, str):
                characters += len(each)
        yield len(level), characters + names
        level = below
