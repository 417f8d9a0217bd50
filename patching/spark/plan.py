"""The smallest change that makes a document what is wanted, guarded by what it was made from.

One line of a bulk request for each document that differs, none for one that doesn't::

    wanted      there        line
    {"a": 2}    {"a": 1} 1f  patch [{"op": "replace", "path": "/a", "value": 2}], if_match 1f
    {"a": 2}    -            put {"a": 2}, if_none_match *
    -           {"a": 1} 1f  delete, if_match 1f

A guard that is false means that somebody else was there first; nothing of theirs is overwritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import types

from patching import diff
from patching.canonical_json import canonical
from patching.list_declarations import NO_DECLARATIONS, ListDeclarations
from patching.spark.batches import in_batches, schema_of_text
from patching.spark.json_values import Converter, NoJson, converter, decoded_json, encode

CREATE: Final = "create"
PATCH: Final = "patch"
DELETE: Final = "delete"
# Those of a manager, see ``managed``.
APPLY: Final = "apply"
# The same, where it owned nothing of the document.
APPLY_FIRST: Final = "apply first"
LET_GO: Final = "let_go"
UNCHANGED: Final = "unchanged"
INVALID: Final = "invalid"
WRITES: Final = (CREATE, PATCH, DELETE, APPLY, APPLY_FIRST, LET_GO)

# A row for each document that is to be written or can't be, and one for all that needn't be.
SCHEMA: Final = (
    "action string, key string, line string, detail string, documents long, wanted string,"
    " etag string, digest string"
)
_ROW: Final = schema_of_text(SCHEMA)
_SHOWN_MAX: Final = 80
_DIGEST_BYTES: Final = 12

_decode: Final = msgspec.json.Decoder().decode


class There(NamedTuple):
    """A document as the catalog has it: its version token, and its content as JSON."""

    etag: str
    content: bytes


class Planned(NamedTuple):
    """The planned action on a document: ``line`` requests it, ``detail`` says why it can't be.
    ``wanted`` is the document as JSON where the line hasn't got it: for another look at what is
    there.

    For a ``sync_state``, ``etag`` is that of a document that was read and is as wanted, and
    ``digest`` that of the document wanted."""

    action: str
    key: str | None
    line: str | None = None
    detail: str | None = None
    documents: int = 1
    wanted: str | None = None
    etag: str | None = None
    digest: str | None = None


class _Line(msgspec.Struct):
    op: str
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def wanted_of(line: str, wanted: str | None) -> str | None:
    """The document that a planned line is about, as JSON; None where it is to be deleted."""
    if wanted is not None:
        return wanted
    value = msgspec.json.decode(line, type=_Line).value
    return None if isinstance(value, msgspec.UnsetType) else bytes(value).decode()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A document as it shall be. ``copies``: in how many rows it came."""

    key: str | None
    value: Any
    copies: int = 1


@dataclass(frozen=True)
class Planner:
    """Makes lines. The same input gives the same lines, so that sending them again does nothing.

    ``kind`` is the type of the column that holds the documents wanted: a string is JSON, all else
    is turned into it. ``run`` is the beginning of every idempotency key. Of ``lists``, items are
    compared by key: their order is no difference.
    """

    catalog: str
    run: str
    kind: types.DataType
    prefix: str = ""
    message: str | None = None
    lists: ListDeclarations = NO_DECLARATIONS
    # Whether a change is made of the document that is there.
    compares: ClassVar[bool] = True

    def digested(self, key: str, value: Any) -> bytes:  # noqa: ARG002 - for whatever key
        """The text that a document's digest is made of, where nothing is to be done."""
        return canonical(value)

    def plan(self, wanted: Wanted, there: There | None) -> Planned:
        """The line that makes the document ``there`` (None: there is none) what is ``wanted``;
        UNCHANGED where it is that already, INVALID where no document can be."""
        try:
            value = self.value(wanted)
        except NoJson as error:
            return Planned(INVALID, wanted.key, detail=str(error))
        assert wanted.key is not None
        if there is None:
            return self.creation(wanted.key, value)
        return self.change(wanted.key, value, there)

    def deletion(self, key: str, etag: str) -> Planned:
        return self._planned(DELETE, key, {"op": "delete", "if_match": etag})

    def creation(self, key: str, value: Any) -> Planned:
        members = {"op": "put", "value": value, "if_none_match": "*"}
        return self._planned(CREATE, key, members)

    def change(self, key: str, value: Any, there: There) -> Planned:
        """UNCHANGED where they are equal, or but for the order of items of lists."""
        lists = self.lists.lists_of(key)
        changes = diff(_decode(there.content), value, lists=lists)
        if not changes:
            return Planned(UNCHANGED, key, etag=there.etag)
        if changes[0]["path"] == "":
            members = {"op": "put", "value": value, "if_match": there.etag}
        else:
            members = {"op": "patch", "patch": changes, "if_match": there.etag}
            if lists:  # it names items by key
                members["array_primary_keys"] = {}
        planned = self._planned(PATCH, key, members)
        if members["op"] == "put":
            return planned
        return planned._replace(wanted=encode(value).decode())

    def value(self, wanted: Wanted) -> Any:
        """The document as decoded JSON. Raises NoJson, and for a key that can't be."""
        key = wanted.key
        if key is None:
            rows = "1 row has" if wanted.copies == 1 else f"{wanted.copies} rows have"
            raise NoJson(f"{rows} no key: {_shown(wanted.value)}")
        if not key:
            raise NoJson("a key can't be empty")
        if wanted.copies > 1:
            raise NoJson(f"{wanted.copies} rows have this key")
        if not key.startswith(self.prefix):
            raise NoJson(f"it doesn't begin with the prefix {self.prefix!r}")
        if wanted.value is None:
            raise NoJson("it has no document (null); the JSON value is written 'null'")
        if isinstance(self.kind, types.StringType):
            return decoded_json(wanted.value, "its document")
        return decoded_json(encode(_converter_of(self.kind)(wanted.value)), "its document")

    def _planned(self, action: str, key: str, members: dict[str, Any]) -> Planned:
        line = {
            "catalog": self.catalog,
            "key": key,
            **members,
            "idempotency_key": f"{self.run}.{_digest(key)}",
        }
        if self.message:
            line["message"] = self.message
        try:
            return Planned(action, key, encode(line).decode())
        except NoJson as error:
            return Planned(INVALID, key, detail=str(error))


def to_batches(rows: Iterator[Planned]) -> Iterator[pa.RecordBatch]:
    return in_batches(rows, _ROW)


_converters: dict[str, Converter] = {}


def _converter_of(kind: types.DataType) -> Converter:
    """Made once in a worker for each type."""
    name = kind.json()
    if name not in _converters:
        _converters[name] = converter(kind, "document")
    return _converters[name]


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _shown(value: Any) -> str:
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= _SHOWN_MAX else shown[:_SHOWN_MAX] + " …"
