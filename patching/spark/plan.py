"""The smallest change that makes a document as wanted, guarded by the state it was made from.

One line of a bulk request for each document that differs, none for one that doesn't::

    wanted      there        line
    {"a": 2}    {"a": 1} 1f  patch [{"op": "replace", "path": "/a", "value": 2}], if_match 1f
    {"a": 2}    -            put {"a": 2}, if_none_match *
    -           {"a": 1} 1f  delete, if_match 1f

A false guard means that another writer was first; nothing of theirs is overwritten.
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
# The actions of a manager, see ``managed``.
APPLY: Final = "apply"
# An apply to a document in which it owned nothing.
APPLY_FIRST: Final = "apply first"
LET_GO: Final = "let_go"
UNCHANGED: Final = "unchanged"
INVALID: Final = "invalid"
WRITES: Final = (CREATE, PATCH, DELETE, APPLY, APPLY_FIRST, LET_GO)

# A row for each document to write and for each invalid one, and one for all unchanged ones.
SCHEMA: Final = (
    "action string, key string, line string, detail string, documents long, wanted string,"
    " etag string, digest string"
)
_ROW: Final = schema_of_text(SCHEMA)
_SHOWN_MAX: Final = 80
_DIGEST_BYTES: Final = 12

_decode: Final = msgspec.json.Decoder().decode


class StoredText(NamedTuple):
    """A document as the catalog has it: its version token, and its content as JSON."""

    etag: str
    content: bytes


class Planned(NamedTuple):
    """The planned action on a document. ``line`` requests it; ``detail`` says why it is invalid.
    ``wanted``: the document as JSON, if the line lacks it, for another comparison.

    For a ``sync_state``: ``etag`` of a document that was read and is as wanted; ``digest`` of the
    wanted document.
    """

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
    """The wanted document of a planned line, as JSON; None if it is to be deleted."""
    if wanted is not None:
        return wanted
    value = msgspec.json.decode(line, type=_Line).value
    return None if isinstance(value, msgspec.UnsetType) else bytes(value).decode()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A wanted document. ``copies``: how many rows have its key."""

    key: str | None
    value: Any
    copies: int = 1


@dataclass(frozen=True)
class Planner:
    """Makes lines. The same input gives the same lines, so sending them again does nothing.

    ``kind``: the type of the column with the wanted documents; a string is JSON, all else is
    converted. ``run``: the beginning of every idempotency key. ``lists``: their items are compared
    by key, in any order.
    """

    catalog: str
    run: str
    kind: types.DataType
    prefix: str = ""
    message: str | None = None
    lists: ListDeclarations = NO_DECLARATIONS
    # Whether a change needs the existing document's content.
    compares: ClassVar[bool] = True

    def digested(self, key: str, value: Any) -> bytes:  # noqa: ARG002 - for whatever key
        """The text of the digest that the document has if nothing is to be done."""
        return canonical(value)

    def plan(self, wanted: Wanted, there: StoredText | None) -> Planned:
        """The line that makes the document ``there`` (None: there is none) as ``wanted``; UNCHANGED
        if it is already, INVALID if no document can be."""
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

    def change(self, key: str, value: Any, there: StoredText) -> Planned:
        """A patch, or a put; UNCHANGED if both are equal but for the order of lists' items."""
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
        """The wanted document as decoded JSON. Raises NoJson, also for an invalid key."""
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
            raise NoJson("its document is null; for the JSON value null, write 'null'")
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
    """The converter of this type, made once in a worker."""
    name = kind.json()
    if name not in _converters:
        _converters[name] = converter(kind, "document")
    return _converters[name]


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _shown(value: Any) -> str:
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= _SHOWN_MAX else shown[:_SHOWN_MAX] + " …"
