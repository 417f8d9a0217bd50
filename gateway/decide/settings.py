"""A catalog's own settings: JSON Schemas by key pattern, required preconditions, retention.

They are a document of the catalog (``SETTINGS_KEY``), so a change of them is a commit. What is
here turns that document into rules, and holds documents to them. No I/O: schemas never reach out
for what they refer to.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import jsonschema_rs

from gateway.decide.schemas import Load, SchemaTooHeavy, Weighing, Work
from gateway.errors import OverLimit, SchemaViolation, SettingsInvalid
from gateway.model import Document
from patching import Json, equal, join_pointer

_SCHEMAS_MAX = 100
_PATTERN_CHARACTERS_MAX = 1_000
_ERRORS_MAX = 20
_MESSAGE_CHARACTERS_MAX = 300
_BYTES_MAX = 16 * 1024 * 1024
_ENTRY_BYTES = 2_000
_NUMBER_MAX = 2**53
# Steps of validating, 50 ns each at most: what one document may take, and what isn't counted.
_UNITS_MAX = 10_000_000
_UNITS_UNCOUNTED = 20_000
# Working through a byte of a document takes half as long.
_UNIT_BYTES = 2
# Values that the errors of one document may hold together, some hundred bytes each.
_TOLD_MAX = 200_000

_MEMBERS: Final = ("schemas", "require_precondition", "retention")
_RETENTION_MEMBERS: Final = ("age_seconds", "commits")


@dataclass(frozen=True, slots=True)
class _Schema:
    pattern: str
    matches: Callable[[str], object]
    validator: Any
    load: Load


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """``retention_*`` None: as the gateway's own settings say."""

    schemas: tuple[_Schema, ...] = ()
    require_precondition: bool = False
    retention_age_s: int | None = None
    retention_commits: int | None = None

    def require_valid(self, key: str, content: Json, size_bytes: int) -> int:
        """Raise SchemaViolation unless ``content`` satisfies every schema whose pattern fits.

        Returns what that took, as bytes of documents; ``size_bytes`` are those of its JSON. Raises
        OverLimit, before it begins, where a schema would take too long.
        """
        units = 0
        for schema in self.schemas:
            if schema.matches(key):
                units += _require_valid(schema, key, content, size_bytes)
        return units * _UNIT_BYTES


def _require_valid(schema: _Schema, key: str, content: Json, size_bytes: int) -> int:
    """Most documents show by their size that they take little, and needn't be looked through."""
    work = None
    units = size_bytes * schema.load.per_byte
    if units > _UNITS_UNCOUNTED:
        work = schema.load.work_on(content, _UNITS_MAX)
        units = work.units
        if units > _UNITS_MAX:
            raise OverLimit(
                f"to hold the document {key!r} to the schema for {schema.pattern!r} would take"
                f" {units} steps or more, {_UNITS_MAX} are allowed: it is too large for so many"
                " alternatives, patterns or references",
                limit="schema_steps_max",
                maximum=_UNITS_MAX,
                actual=units,
            )
    if not schema.validator.is_valid(content):
        work = work or schema.load.work_on(content, _UNITS_MAX)
        raise SchemaViolation(key, schema.pattern, _violations(schema, content, work))
    return units


NO_SETTINGS: Final = CatalogSettings()


class CompiledSettings:
    """Settings by the id of the commit that made them, the oldest dropped as they get many.

    Thread-safe. Bounded by the bytes of their text: compiled, they take some times as much.
    """

    def __init__(self, lock: AbstractContextManager[object], bytes_max: int = _BYTES_MAX) -> None:
        self._lock = lock
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[str, tuple[Document, CatalogSettings]] = OrderedDict()

    def of(self, document: Document | None) -> CatalogSettings:
        """The settings in the settings document; compiled once for each commit that set them.

        The commit's id alone doesn't tell the content: a commit that loses its race is decided
        again, under the same id, and a patch may then make another content.
        """
        if document is None or not document.exists:
            return NO_SETTINGS
        known = self._known.get(document.commit_id)
        if known is not None and equal(known[0].content, document.content):
            return known[1]
        settings = parse_settings(document.content, accepted=True)
        with self._lock:
            self._drop(document.commit_id)
            self._known[document.commit_id] = document, settings
            self._bytes += document.size_bytes + _ENTRY_BYTES
            while self._bytes > self._bytes_max and len(self._known) > 1:
                self._drop(next(iter(self._known)))
        return settings

    def _drop(self, commit_id: str) -> None:
        known = self._known.pop(commit_id, None)
        if known is not None:
            self._bytes -= known[0].size_bytes + _ENTRY_BYTES


def parse_settings(value: object, *, accepted: bool = False) -> CatalogSettings:
    """Settings as a client sends them::

        {"schemas": {"<pattern>": <JSON Schema>}, "require_precondition": false,
         "retention": {"age_seconds": 86400, "commits": 1000}}

    In a pattern ``*`` stands for any text, everything else for itself. Raises SettingsInvalid with
    a pointer to what is wrong. ``accepted``: they are a catalog's already, so that a schema that
    is too heavy by now is kept, and the documents that it is too heavy for are refused.
    """
    members = _object(value, "", _MEMBERS)
    required = members.get("require_precondition", False)
    if not isinstance(required, bool):
        raise SettingsInvalid("/require_precondition", "it must be true or false")
    retention = _object(members.get("retention", {}), "/retention", _RETENTION_MEMBERS)
    return CatalogSettings(
        schemas=_schemas(members.get("schemas", {}), Weighing(strict=not accepted)),
        require_precondition=required,
        retention_age_s=_number(retention, "age_seconds"),
        retention_commits=_number(retention, "commits"),
    )


def _schemas(value: object, weighing: Weighing) -> tuple[_Schema, ...]:
    if not isinstance(value, dict):
        raise SettingsInvalid("/schemas", "it must be an object: JSON Schemas by key pattern")
    if len(value) > _SCHEMAS_MAX:
        raise SettingsInvalid("/schemas", f"at most {_SCHEMAS_MAX} schemas are allowed")
    return tuple(_schema(pattern, schema, weighing) for pattern, schema in value.items())


def _schema(pattern: str, schema: object, weighing: Weighing) -> _Schema:
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
    try:
        validator = jsonschema_rs.validator_for(
            schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        path = getattr(error, "instance_path", [])
        message = str(getattr(error, "message", error))[:_MESSAGE_CHARACTERS_MAX]
        place = join_pointer(["schemas", pattern, *map(str, path)])
        raise SettingsInvalid(place, f"this is no usable JSON Schema: {message}") from error
    return _Schema(pattern, key_pattern(pattern), validator, load)


def key_pattern(pattern: str) -> Callable[[str], object]:
    """A test of whether a key fits. In time linear in the key's length for each ``*``."""
    # Each piece is looked for once, leftmost: an atomic group never gives back what it took.
    first, *pieces = pattern.split("*")
    if not pieces:
        return pattern.__eq__
    *middle, last = pieces
    expression = re.escape(first) + "".join(f"(?>.*?{re.escape(each)})" for each in middle if each)
    return re.compile(f"{expression}.*{re.escape(last)}", re.DOTALL).fullmatch


def _refuse(uri: str) -> Any:
    raise ValueError(f"references to {uri} are not followed: nothing is fetched")


def _violations(schema: _Schema, content: Json, work: Work) -> list[dict[str, str]]:
    """What is wrong, as far as it can be told: the validator holds all errors at once, each with
    the value that it is about."""
    if work.told > _TOLD_MAX:
        detail = "it breaks the schema; it is too large, or the schema too branched, to say where"
        return [{"pointer": "", "message": detail}]
    return [
        {
            "pointer": join_pointer([str(each) for each in error.instance_path]),
            "message": error.message[:_MESSAGE_CHARACTERS_MAX],
        }
        for error in islice(schema.validator.iter_errors(content), _ERRORS_MAX)
    ]


def _object(value: object, pointer: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsInvalid(pointer, "it must be an object")
    for name in value:
        if name not in known:
            detail = f"there is no such setting; known are {', '.join(known)}"
            raise SettingsInvalid(pointer + join_pointer([name]), detail)
    return value


def _number(members: dict[str, Any], name: str) -> int | None:
    value = members.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _NUMBER_MAX:
        raise SettingsInvalid(f"/retention/{name}", "it must be a whole number above 0, or null")
    return value
