"""The JSON Schemas of a catalog: compiling one, and checking a document against it. No I/O.

A check is one call of C code, which nobody can interrupt, and references may double its work at
each step. So it is bounded beforehand (``schema_work``). A validator in Python could give turns,
but takes some hundred times as long: a large document would need more than a request may take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import jsonschema_rs

from gateway.decide.schema_parts import COMPILED_BYTES_MAX
from gateway.decide.schema_work import Load, SchemaTooHeavy, Weighing, Work
from gateway.errors import AboveLimit, SchemaViolation, SettingsInvalid
from patching import Json, join_pointer
from patching.list_declarations import key_pattern

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
