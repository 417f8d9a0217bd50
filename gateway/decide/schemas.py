"""The JSON Schemas of a catalog: compiling one, and checking a document against it. No I/O.

A check is one call of native code, which can't be interrupted, and references may double its work
at each step. A validator in Python could yield to others, but takes about a hundred times as long:
more than a request may take, for a large document. So the work of a check is bounded: before a
schema is used, and at each write. The unit is one part of a schema, checked for one value of a
document. ``load_of`` returns the most units that a schema causes for one value ``d`` levels deep,
for every depth that a document may have. The work for a document is the sum over its values.

Worked example. ``{"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref":
"#"}}}]}``: two routes lead from the document to its member ``a`` and back to the schema. So twice
as many parts check ``a`` as the document, and 100 million check a value 24 levels down. Such a
schema is refused. With ``a`` in one of the two and ``b`` in the other, each member is checked along
one route, by six parts at every depth.

References are only followed within the schema. All parts that may apply are counted, whatever a
document contains: all alternatives, and the parts of a schema with ``unevaluatedProperties`` once
more for each part that asks what was evaluated. ``tests/decide/test_schema_work.py`` counts what
the validator really does, and holds this module to it.
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

__all__ = ["Load", "SchemaTooHeavy", "SchemaWeigher", "Work"]

# The most levels of nesting of a document, whatever the settings say.
_DEPTH_MAX = 100
# The most units of work for one value.
_LOAD_MAX = 50_000
# The most steps for weighing all the schemas of a catalog, and the most values in these schemas.
_STEPS_MAX = 500_000
_VALUES_MAX = 200_000
# The most different patterns of a catalog. Each takes 20 kB or more, and some microseconds to
# compile.
_PATTERNS_MAX = 500
# The most characters of these together: to parse them takes up to 160 ms, however small they are
# when compiled.
_CHARACTERS_MAX = 32 * 1024
# The memory of a compiled pattern: a fixed part, and a multiple of its ``compiled_bytes``, because
# it is compiled several times, in different ways.
_PATTERN_BYTES = 4 * 1024
_MACHINES = 8
# The longest period, in levels, with which the loads of a recursive schema are found to repeat.
_PERIOD_MAX = 8
# This many characters of a document's texts count as one value.
_CHARACTERS_PER_VALUE = 16


@dataclass(frozen=True, slots=True)
class Work:
    """Bounds for validating a document: ``units`` of time, and ``error_values`` of memory.

    ``error_values`` counts the values in all possible errors, each with the values below it.
    """

    units: int
    error_values: int


@dataclass(frozen=True, slots=True)
class Load:
    """By depth, the most units of work for one value (``parts``) and one character (``texts``).

    ``can_be_compiled`` is false if its patterns take too long to compile.
    """

    parts: tuple[int, ...]
    texts: tuple[int, ...]
    can_be_compiled: bool = True
    per_byte: int = field(init=False)

    def __post_init__(self) -> None:
        # A value takes at least two bytes of JSON, with its comma.
        per_value = max(self.parts) * (_CHARACTERS_PER_VALUE + 4)
        per_byte = -(-per_value // (2 * _CHARACTERS_PER_VALUE)) + 2 * max(self.texts)
        object.__setattr__(self, "per_byte", per_byte)

    def work_on(self, content: Json, units_max: int) -> Work:
        """An upper bound for ``content``. Counting ends once the units exceed ``units_max``."""
        units = error_values = above = 0
        for depth, (values, characters) in enumerate(_levels(content)):
            at = min(depth, _DEPTH_MAX)
            values += characters // _CHARACTERS_PER_VALUE
            units += self.parts[at] * values + self.texts[at] * characters
            # An error about a value holds all values below it. So those of a level are held by the
            # errors about them, and by the errors about each level above.
            above += self.parts[at]
            error_values += values * above
            if units > units_max:
                break
        return Work(units, error_values)


class SchemaWeigher:
    """Weighs the schemas of one catalog's settings, which share the bounds.

    ``strict``: a schema that is too heavy is refused. Otherwise, it was accepted earlier, by other
    bounds, and is kept; then only small documents can be checked by it.
    """

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self._steps = 0
        self._values = 0
        self._patterns: dict[str, int] = {}
        self._characters = 0
        self._folding = 0

    def load_of(self, schema: Any) -> Load:
        """The load of ``schema``. Raises SchemaTooHeavy if the weighing is strict."""
        self._values += sum(1 for _ in values_in(schema))
        if self.strict and self._values > _VALUES_MAX:
            raise SchemaTooHeavy(
                f"the catalog's schemas have more than {_VALUES_MAX} values in all"
            )
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
                        f"more than {_LOAD_MAX} of its parts would apply to one value {len(parts)}"
                        " levels down in a document; if several of its alternatives are recursive,"
                        " write the recursion once, next to them"
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
        """An estimate of the memory of the patterns so far, compiled and in use."""
        compiled_bytes = sum(self._patterns.values())
        return _PATTERN_BYTES * len(self._patterns) + _MACHINES * compiled_bytes

    def _weigh_patterns(self, schema: Any) -> None:
        for pattern in patterns_in(schema):
            if pattern in self._patterns:
                continue
            self._characters += len(pattern)
            if self._characters > _CHARACTERS_MAX:
                raise SchemaTooHeavy(
                    "the different patterns of the catalog's schemas have more than"
                    f" {_CHARACTERS_MAX} characters in all"
                )
            self._folding += folding_bytes(pattern)
            if self._folding > COMPILED_BYTES_MAX:
                raise SchemaTooHeavy(
                    "the patterns of the catalog's schemas have too many case-insensitive sets that"
                    f" cover most of Unicode, such as [^\\W\\d]; the limit is {FOLDED_MAX} in all"
                )
            size = compiled_bytes(pattern)
            # If it can't be compiled, ``key_schema`` will fail and name its place.
            self._patterns[pattern] = size if size <= COMPILED_BYTES_MAX else 0
            if len(self._patterns) > _PATTERNS_MAX:
                raise SchemaTooHeavy(
                    f"the catalog's schemas have more than {_PATTERNS_MAX} different patterns"
                )
            if sum(self._patterns.values()) > COMPILED_BYTES_MAX:
                raise SchemaTooHeavy(
                    "the patterns of the catalog's schemas take more than"
                    f" {COMPILED_BYTES_MAX} bytes in all when compiled; Unicode classes such as \\w"
                    " or \\pL take most of that if they are repeated many times"
                )

    def _step(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _STEPS_MAX:
            raise SchemaTooHeavy("its parts refer to one another in too many ways")


def _by_depth(schema: Schema) -> Iterator[tuple[int, int]]:
    """For each depth below the document's root, the work for one value, and for one character.

    A schema's work ``n`` levels below a value is the largest for any member or item of the value:
    the sum of the work ``n - 1`` levels below of all schemas that check that member or item.
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
            if before[-period] == work:  # from here on, the loads repeat
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
    """For each depth, the number of values, and of characters in texts and names.

    The name of a member counts twice: at the depth of its object, and at that of its value.
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


# The most steps of validating one document, at most 50 ns each; and a number of steps up to which
# the estimate by size is enough, and nothing is counted.
_UNITS_MAX = 10_000_000
_UNITS_UNCOUNTED = 20_000
# One step takes as long as to work through this many bytes of a document.
UNIT_BYTES: Final = 2
# The most values that the errors of one document hold together, some hundred bytes each, and the
# most steps to find these errors: only if it isn't asked for errors, the validator stops at the
# first one.
_ERROR_VALUES_MAX = 200_000
_ERROR_UNITS_MAX = 4_000_000
_ERRORS_MAX = 20
_MESSAGE_CHARACTERS_MAX = 300
_PATTERN_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class KeySchema:
    """A compiled schema for the documents whose keys ``matches`` accepts.

    ``validator`` None: the schema was accepted earlier, but can't be compiled within today's
    bounds; then every document is refused.
    """

    pattern: str
    matches: Callable[[str], object]
    validator: Any
    load: Load

    def require_valid(self, key: str, content: Json, size_bytes: int) -> int:
        """Raise SchemaViolation unless ``content`` satisfies the schema; return a bound on the
        steps.

        ``size_bytes`` is the size of the content as JSON. For most documents, it is enough to show
        that they are little work. Raises AboveLimit instead of taking too many steps.
        """
        if self.validator is None:
            raise AboveLimit(
                f"the schema for {self.pattern!r} can't be used any more, because the patterns of"
                " the catalog's schemas are too large to compile: simplify them",
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
                    f"checking document {key!r} against the schema for {self.pattern!r} would take"
                    f" {units} steps or more; the limit is {_UNITS_MAX}. The document is too large"
                    " for so many alternatives, patterns or references",
                    limit="schema_steps_max",
                    maximum=_UNITS_MAX,
                    actual=units,
                )
        if not self.validator.is_valid(content):
            work = work or self.load.work_on(content, _UNITS_MAX)
            raise SchemaViolation(key, self.pattern, self._violations(content, work))
        return units

    def _violations(self, content: Json, work: Work) -> list[dict[str, str]]:
        """The first errors. If all of them together would take too long, or hold too many values,
        only one without details: the validator makes all errors at once, each with its value."""
        if work.error_values > _ERROR_VALUES_MAX or work.units > _ERROR_UNITS_MAX:
            detail = (
                "it violates the schema; it is too large, or the schema too complex, to say where"
            )
            return [{"pointer": "", "message": detail}]
        return [
            {
                "pointer": join_pointer([str(each) for each in error.instance_path]),
                "message": error.message[:_MESSAGE_CHARACTERS_MAX],
            }
            for error in islice(self.validator.iter_errors(content), _ERRORS_MAX)
        ]


def key_schema(pattern: str, schema: object, weighing: SchemaWeigher) -> KeySchema:
    """Compile ``schema`` for the keys that fit ``pattern``.

    Raises SettingsInvalid with a pointer, below ``/schemas``, to the faulty place.
    """
    pointer = join_pointer(["schemas", pattern])
    if not pattern or len(pattern) > _PATTERN_CHARACTERS_MAX:
        detail = f"a key pattern must have 1 to {_PATTERN_CHARACTERS_MAX} characters"
        raise SettingsInvalid(pointer, detail)
    if not isinstance(schema, dict | bool):
        raise SettingsInvalid(pointer, "a JSON Schema must be an object, true or false")
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
        raise SettingsInvalid(place, f"this isn't a valid JSON Schema: {message}") from error
    return KeySchema(pattern, key_pattern(pattern), validator, load)


def _refuse(uri: str) -> Any:
    raise ValueError(f"it refers to {uri}, but the gateway fetches no schemas")
