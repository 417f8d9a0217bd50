"""A catalog's own settings: JSON Schemas by key pattern, required preconditions, retention.

They are a document of the catalog (``SETTINGS_KEY``), so a change of them is a commit. What is
here turns that document into rules, and holds documents to them. No I/O: schemas never reach out
for what they refer to.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jsonschema_rs

from gateway.commits.errors import SchemaViolation, SettingsInvalid
from gateway.commits.schema_work import SchemaTooHeavy, refuse_heavy_schema
from gateway.model import Document
from patching import Json, equal, join_pointer

_SCHEMAS_MAX = 100
_PATTERN_CHARACTERS_MAX = 1_000
_ERRORS_MAX = 20
_MESSAGE_CHARACTERS_MAX = 300
_COMPILED_BYTES_MAX = 16 * 1024 * 1024
_ENTRY_BYTES = 2_000
_NUMBER_MAX = 2**53

_MEMBERS: Final = ("schemas", "require_precondition", "retention")
_RETENTION_MEMBERS: Final = ("age_seconds", "commits")


@dataclass(frozen=True, slots=True)
class _Schema:
    pattern: str
    matches: Callable[[str], object]
    validator: Any


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """``retention_*`` None: as the gateway's own settings say."""

    schemas: tuple[_Schema, ...] = ()
    require_precondition: bool = False
    retention_age_s: int | None = None
    retention_commits: int | None = None

    def require_valid(self, key: str, content: Json) -> None:
        """Raise SchemaViolation unless ``content`` satisfies every schema whose pattern fits."""
        for schema in self.schemas:
            if schema.matches(key):
                errors = _violations(schema.validator, content)
                if errors:
                    raise SchemaViolation(key, schema.pattern, errors)


NO_SETTINGS: Final = CatalogSettings()


class _Compiled:
    """Settings by the id of the commit that made them, the oldest dropped as they get many.

    Bounded by the bytes of their text: compiled, they take some times as much.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[str, tuple[Document, CatalogSettings]] = OrderedDict()

    def of(self, document: Document) -> CatalogSettings:
        known = self._known.get(document.commit_id)
        if known is not None and equal(known[0].content, document.content):
            return known[1]
        settings = parse_settings(document.content)
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


_compiled = _Compiled(_COMPILED_BYTES_MAX)


def settings_of(document: Document | None) -> CatalogSettings:
    """The settings in the settings document; compiled once for each commit that set them.

    The commit's id alone doesn't tell the content: a commit that loses its race is decided again,
    under the same id, and a patch may then make another content.
    """
    if document is None or not document.exists:
        return NO_SETTINGS
    return _compiled.of(document)


def parse_settings(value: object) -> CatalogSettings:
    """Settings as a client sends them::

        {"schemas": {"<pattern>": <JSON Schema>}, "require_precondition": false,
         "retention": {"age_seconds": 86400, "commits": 1000}}

    In a pattern ``*`` stands for any text, everything else for itself. Raises SettingsInvalid with
    a pointer to what is wrong.
    """
    members = _object(value, "", _MEMBERS)
    required = members.get("require_precondition", False)
    if not isinstance(required, bool):
        raise SettingsInvalid("/require_precondition", "it must be true or false")
    retention = _object(members.get("retention", {}), "/retention", _RETENTION_MEMBERS)
    return CatalogSettings(
        schemas=_schemas(members.get("schemas", {})),
        require_precondition=required,
        retention_age_s=_number(retention, "age_seconds"),
        retention_commits=_number(retention, "commits"),
    )


def _schemas(value: object) -> tuple[_Schema, ...]:
    if not isinstance(value, dict):
        raise SettingsInvalid("/schemas", "it must be an object: JSON Schemas by key pattern")
    if len(value) > _SCHEMAS_MAX:
        raise SettingsInvalid("/schemas", f"at most {_SCHEMAS_MAX} schemas are allowed")
    return tuple(_schema(pattern, schema) for pattern, schema in value.items())


def _schema(pattern: str, schema: object) -> _Schema:
    pointer = join_pointer(["schemas", pattern])
    if not pattern or len(pattern) > _PATTERN_CHARACTERS_MAX:
        detail = f"a key pattern has 1 to {_PATTERN_CHARACTERS_MAX} characters"
        raise SettingsInvalid(pointer, detail)
    if not isinstance(schema, dict | bool):
        raise SettingsInvalid(pointer, "a JSON Schema is an object, true or false")
    try:
        refuse_heavy_schema(schema)
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
    return _Schema(pattern, key_pattern(pattern), validator)


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


def _violations(validator: Any, content: Json) -> list[dict[str, str]]:
    errors = []
    for error in validator.iter_errors(content):
        errors.append(
            {
                "pointer": join_pointer([str(each) for each in error.instance_path]),
                "message": error.message[:_MESSAGE_CHARACTERS_MAX],
            }
        )
        if len(errors) == _ERRORS_MAX:
            break
    return errors


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
