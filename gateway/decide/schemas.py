"""The JSON Schemas of a catalog: compiling one, and checking a document against it. No I/O.

A check is one call of C code, which nobody can interrupt, and references may double its work at
each step. A validator in Python could give turns, but takes some hundred times as long: a large
document would need more than a request may take. So the work of a check is bounded: before a schema
is used, and at each write. The unit is one part of a schema looked at for one value of a document.
``load_of`` tells how many units a schema makes at most of one value that lies ``d`` levels deep,
for every depth a document may have; the work on a document is the sum over its values.

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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import jsonschema_rs

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
from gateway.errors import AboveLimit, SchemaViolation, SettingsInvalid
from patching import Json, join_pointer
from patching.list_declarations import key_pattern

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
            # If it can't be compiled, the check that tries it names its place.
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


# Steps of validating, at most 50 ns each: the maximum for one document, and an amount that isn't
# counted.
_UNITS_MAX = 10_000_000
_UNITS_UNCOUNTED = 20_000
# One step takes as long as to work through so many bytes of a document.
UNIT_BYTES: Final = 2
# Values that the errors of one document may hold together, some hundred bytes each; and the steps
# to find them: the validator stops at the first one only where it isn't asked which.
_TOLD_MAX = 200_000
_TOLD_UNITS_MAX = 4_000_000
_ERRORS_MAX = 20
_MESSAGE_CHARACTERS_MAX = 300
_PATTERN_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class KeySchema:
    """A compiled schema for the documents whose keys ``matches`` accepts.

    ``validator`` None: it was accepted once, and takes too long to compile; no document fits it.
    """

    pattern: str
    matches: Callable[[str], object]
    validator: Any
    load: Load

    def require_valid(self, key: str, content: Json, size_bytes: int) -> int:
        """Raise SchemaViolation unless ``content`` satisfies the schema; returns the steps taken.

        ``size_bytes`` is the size of the content as JSON: it shows that most documents are little
        work, without a look at them. Raises AboveLimit instead of too many steps.
        """
        if self.validator is None:
            raise AboveLimit(
                f"the schema for {self.pattern!r} can't be used any more: the patterns of the"
                " catalog's schemas take too long to compile",
                limit="schema_patterns_bytes_max",
                maximum=COMPILED_BYTES_MAX,
                actual=COMPILED_BYTES_MAX + 1,
            )
        work = None
        units = size_bytes * self.load.per_byte
        if units > _UNITS_UNCOUNTED:
            work = self.load.work_on(content, _UNITS_MAX)
            units = work.units
            if units > _UNITS_MAX:
                raise AboveLimit(
                    f"to check document {key!r} against the schema for {self.pattern!r} would take"
                    f" {units} steps or more, {_UNITS_MAX} are allowed: it is too large for so many"
                    " alternatives, patterns or references",
                    limit="schema_steps_max",
                    maximum=_UNITS_MAX,
                    actual=units,
                )
        if not self.validator.is_valid(content):
            work = work or self.load.work_on(content, _UNITS_MAX)
            raise SchemaViolation(key, self.pattern, self._violations(content, work))
        return units

    def _violations(self, content: Json, work: Work) -> list[dict[str, str]]:
        """The first errors; none in detail where all together would take too long, or hold too many
        values, for the validator keeps all errors at once, each with its value."""
        if work.told > _TOLD_MAX or work.units > _TOLD_UNITS_MAX:
            detail = (
                "it breaks the schema; it is too large, or the schema too branched, to say where"
            )
            return [{"pointer": "", "message": detail}]
        return [
            {
                "pointer": join_pointer([str(each) for each in error.instance_path]),
                "message": error.message[:_MESSAGE_CHARACTERS_MAX],
            }
            for error in islice(self.validator.iter_errors(content), _ERRORS_MAX)
        ]


def key_schema(pattern: str, schema: object, weighing: Weighing) -> KeySchema:
    """Compile ``schema`` for the keys that fit ``pattern``.

    Raises SettingsInvalid with a pointer, below ``/schemas``, to the faulty place.
    """
    pointer = join_pointer(["schemas", pattern])
    if not pattern or len(pattern) > _PATTERN_CHARACTERS_MAX:
        detail = f"a key pattern has 1 to {_PATTERN_CHARACTERS_MAX} characters"
        raise SettingsInvalid(pointer, detail)
    if not isinstance(schema, dict | bool):
        raise SettingsInvalid(pointer, "a JSON Schema is an object, true or false")
    try:
        load = weighing.load_of(schema)
    except SchemaTooHeavy as error:
        raise SettingsInvalid(pointer, f"this schema can't be used: {error}") from error
    if not load.can_be_compiled:
        return KeySchema(pattern, key_pattern(pattern), None, load)
    try:
        validator = jsonschema_rs.validator_for(
            schema,
            retriever=_refuse,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=COMPILED_BYTES_MAX),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        if not weighing.strict:
            return KeySchema(pattern, key_pattern(pattern), None, load)
        path = getattr(error, "instance_path", [])
        message = str(getattr(error, "message", error))[:_MESSAGE_CHARACTERS_MAX]
        place = join_pointer(["schemas", pattern, *map(str, path)])
        raise SettingsInvalid(place, f"this is no usable JSON Schema: {message}") from error
    return KeySchema(pattern, key_pattern(pattern), validator, load)


def _refuse(uri: str) -> Any:
    raise ValueError(f"references to {uri} are not followed: nothing is fetched")
