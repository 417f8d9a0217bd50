"""A catalog's own settings: JSON Schemas and lists by key pattern, required preconditions,
retention.

They are a document of the catalog (``SETTINGS_KEY``), so a change of them is a commit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, cast

from marshmallow import fields

from gateway import cpu
from gateway.decide.schemas import UNIT_BYTES, KeySchema, SchemaWeigher, key_schema
from gateway.decide.strict import SWITCH, Exact, integer, load, strict
from gateway.errors import AboveLimit, ItemsCollide, SchemaViolation, SettingsInvalid
from gateway.limits import MIB
from gateway.model import DocumentRecord
from patching import ABSENT, InvalidPatch, Json, equal
from patching.errors import ListViolation
from patching.list_declarations import NO_DECLARATIONS, ListDeclarations, parse_declarations
from patching.values import Absent

_SCHEMAS_MAX = 100
_BYTES_MAX = 64 * MIB
_ENTRY_BYTES = 2_000
_JSON_TIMES = 12  # memory for each byte of JSON: the document, and its compiled schemas
_NUMBER_MAX = 2**53
_ITEM_BYTES = 50  # to look up an item's key takes as long as to read this many bytes


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """``retention_*`` None: the gateway's own settings decide."""

    schemas: tuple[KeySchema, ...] = ()
    require_precondition: bool = False
    retention_age_s: int | None = None
    retention_commits: int | None = None
    lists: ListDeclarations = NO_DECLARATIONS
    patterns_bytes: int = 0  # memory of its schemas' patterns

    def require_valid(
        self, key: str, content: Json, size_bytes: int, before: Json | Absent = ABSENT
    ) -> int:
        """Raise SchemaViolation unless ``content`` satisfies every schema for ``key``, and
        ItemsCollide unless its lists are right. A list that is the same object in ``before`` isn't
        checked.

        Returns the work of the checks, as bytes of documents; ``size_bytes`` is the size of the
        content as JSON. Raises AboveLimit instead of a check that would be too much work.
        """
        units = 0
        for schema in self.schemas:
            if schema.matches(key):
                units += schema.require_valid(key, content, size_bytes)
        items = 0
        if self.lists is not NO_DECLARATIONS:
            try:
                items = self.lists.lists_of(key).require(content, before)
            except ListViolation as error:
                raise ItemsCollide(key, error) from error
        return units * UNIT_BYTES + items * _ITEM_BYTES


NO_SETTINGS: Final = CatalogSettings()


@cpu.interruptible
def schema_fault(schemas: Sequence[KeySchema], document: DocumentRecord) -> dict[str, str] | None:
    """The ``pointer`` and the ``message`` of the first place for which a write of the live document
    would be refused; None if it wouldn't be."""
    for each in schemas:
        try:
            each.require_valid(document.key, cast(Json, document.content), document.size_bytes)
        except SchemaViolation as error:
            return dict(error.errors[0])
        except AboveLimit as error:
            return {"pointer": "", "message": str(error)}
    return None


class CompiledSettings:
    """A cache of compiled settings by the id of their commit, which drops the oldest. Thread-safe.

    ``bytes_max`` bounds their memory; the newest one is kept in any case.
    """

    def __init__(self, lock: AbstractContextManager[object], bytes_max: int = _BYTES_MAX) -> None:
        self._lock = lock
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[str, tuple[DocumentRecord, CatalogSettings]] = OrderedDict()

    def of(self, document: DocumentRecord | None) -> CatalogSettings:
        """The settings in the settings document, compiled once for each commit.

        The commit's id alone doesn't identify the content: a commit that loses its race is decided
        again under the same id, and a patch may then make another content.
        """
        if document is None or not document.exists:
            return NO_SETTINGS
        known = self._known.get(document.commit_id)
        if known is not None and equal(known[0].content, document.content):
            return known[1]
        settings = parse_settings(document.content, accepted=True)
        with cpu.uninterrupted(), self._lock:
            self._drop(document.commit_id)
            self._known[document.commit_id] = document, settings
            self._bytes += _memory_of(document, settings)
            while self._bytes > self._bytes_max and len(self._known) > 1:
                self._drop(next(iter(self._known)))
        return settings

    def _drop(self, commit_id: str) -> None:
        known = self._known.pop(commit_id, None)
        if known is not None:
            self._bytes -= _memory_of(*known)


def _memory_of(document: DocumentRecord, settings: CatalogSettings) -> int:
    return _ENTRY_BYTES + _JSON_TIMES * document.size_bytes + settings.patterns_bytes


@cpu.interruptible
def parse_settings(value: object, *, accepted: bool = False) -> CatalogSettings:
    """Settings as a client sends them::

        {"schemas": {"<pattern>": <JSON Schema>}, "require_precondition": false,
         "retention": {"age_seconds": 86400, "commits": 1000},
         "arrays": [{"keys": "<pattern>", "pointer": "/fields", "item_key": ["path"]},
                    {"keys": "<pattern>", "pointer": "/tags", "set": true}]}

    In a pattern, ``*`` stands for any text, everything else for itself. Raises SettingsInvalid with
    a pointer to the wrong place. ``accepted``: a catalog has these settings already. Then a schema
    that is too heavy by now is kept, and documents that are too large for it are refused.
    """
    asked = load(SETTINGS, value, SettingsInvalid)
    weighing = SchemaWeigher(strict=not accepted)
    return CatalogSettings(
        schemas=tuple(key_schema(name, each, weighing) for name, each in asked["schemas"].items()),
        patterns_bytes=weighing.memory_bytes,
        require_precondition=asked["require_precondition"],
        retention_age_s=asked["retention"].get("age_seconds"),
        retention_commits=asked["retention"].get("commits"),
        lists=_declared(asked["arrays"]),
    )


def _declared(arrays: list[Json]) -> ListDeclarations:
    if not arrays:
        return NO_DECLARATIONS
    try:
        return parse_declarations(arrays)
    except InvalidPatch as error:
        raise SettingsInvalid(f"/arrays{error.pointer or ''}", error.detail) from error


_RETAINED: Final = integer(1, _NUMBER_MAX, allow_none=True)
SETTINGS: Final = strict(
    schemas=Exact(
        dict,
        f"it must be an object of at most {_SCHEMAS_MAX} JSON Schemas by key pattern",
        lambda schemas: len(schemas) <= _SCHEMAS_MAX,
        load_default=dict,
    ),
    require_precondition=SWITCH,
    arrays=Exact(list, "it must be an array of declarations", load_default=list),
    retention=fields.Nested(strict(age_seconds=_RETAINED, commits=_RETAINED), load_default=dict),
)
