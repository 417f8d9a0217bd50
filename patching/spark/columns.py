"""Which columns a frame may have to be written, and what each of its rows asks for."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pyspark.sql import types

from patching.canonical_json import canonical
from patching.spark.json_values import (
    Converter,
    JsonText,
    NoJson,
    converter,
    encode,
    json_text,
    raw_json,
)
from patching.spark.options import Options, UseRefused

DELTAS: Final = ("patch", "document", "merge_patch", "apply", "delete")
# The names of these columns in a frame that was read.
READ_AS: Final = {"document": "value", "if_match": "etag"}
_WRITTEN_AS: Final = {read: written for written, read in READ_AS.items()}
# Column of dead letters: why the row was put aside.
PROBLEM: Final = "problem"
# Columns of frames that were read. Only the gateway sets them, so they are ignored.
READ_ONLY: Final = ("revision", "create_revision", PROBLEM)
_TEXTS: Final = ("key", "catalog", "if_match", "idempotency_key", "author", "message", "mode")
# By mode, the guard that lets a row create only new documents, or change only existing ones.
_MODES: Final = {"create": ("if_none_match", "*"), "update": ("if_match", "*"), "upsert": None}
COLUMNS: Final = ("key", *DELTAS, "attributes", *(name for name in _TEXTS if name != "key"))
_OPERATION: Final = ("op", "path", "from", "value")
_EXTENDED: Final = frozenset(("patch", "array_primary_keys"))


class _OfColumn(Exception):
    def __init__(self, column: str, detail: str) -> None:
        super().__init__(f"column {column!r}: {detail}")
        self.column = column
        self.detail = detail


class ColumnRefused(_OfColumn, UseRefused):
    """A frame can't be written because of a column that it has or lacks."""


class RowRefused(_OfColumn):
    """A row is malformed, so it can't be sent to a gateway."""


@dataclass(frozen=True, slots=True)
class RowLine:
    """What a row asks for. ``text``: a bulk line as JSON, without idempotency key and fence;
    ``idempotency_key``: the row's own. ``members``: what tells the row from others, so not its
    author and message; ``delta``: some of them, as the row's columns have them."""

    text: bytes
    idempotency_key: str | None
    members: Mapping[str, Any]
    delta: Mapping[str, Any]

    @property
    def identity(self) -> bytes:
        """The canonical JSON of ``members``: the same however the row spells them."""
        decoded = {name: _decoded(member) for name, member in self.delta.items()}
        if None in decoded.values():
            return canonical(msgspec.json.decode(encode(self.members)))
        return canonical({**self.members, **decoded})


class Columns:
    """The columns of one frame, checked before anything is sent."""

    def __init__(
        self, schema: types.StructType, options: Options, *, of_table: bool = False
    ) -> None:
        """``of_table``: they are a table's own, see ``datasource``. Raises ColumnRefused."""
        self._of_table = of_table
        self._options = options
        # In lower case, as the known names are: Spark ignores case.
        self.names = tuple(name.lower() for name in schema.fieldNames())
        kinds = {
            name: field.dataType for name, field in zip(self.names, schema.fields, strict=True)
        }
        self._require_known(kinds)
        self._was_read = "value" in kinds
        self._if_match = "etag" if "etag" in kinds else "if_match"
        for name in kinds:
            if _WRITTEN_AS.get(name, name) in _TEXTS:
                if name == "key" and isinstance(kinds[name], types.IntegralType):
                    continue
                _require_string(name, kinds[name])
        # The columns that ask for a change, each with the one of DELTAS that it means.
        self._changes = {
            name: change
            for change in DELTAS
            for name in (change, READ_AS.get(change, change))
            if name in kinds
        }
        self._require_sufficient(kinds)
        self._require_applied()
        converted = [*self._changes, *(["attributes"] if "attributes" in kinds else [])]
        self._converters: dict[str, Converter] = {
            name: _delta_converter(name, kinds[name]) for name in converted
        }

    def _require_known(self, kinds: Mapping[str, types.DataType]) -> None:
        for name in self.names:
            if name not in (*COLUMNS, *_WRITTEN_AS, *READ_ONLY):
                near = difflib.get_close_matches(name.lower(), COLUMNS, n=1)
                hint = (
                    f"did you mean {near[0]!r}?" if near else f"known columns: {', '.join(COLUMNS)}"
                )
                raise ColumnRefused(name, f"unknown column; {hint}")
            if self.names.count(name) > 1:
                raise ColumnRefused(name, "it appears twice")
            if _WRITTEN_AS.get(name) in kinds:
                raise ColumnRefused(
                    name,
                    f"it means the same as {_WRITTEN_AS[name]!r}, which is also there; drop one",
                )

    def _require_sufficient(self, kinds: Mapping[str, types.DataType]) -> None:
        if "key" not in kinds:
            raise ColumnRefused("key", "it is missing")
        if not self._changes:
            raise ColumnRefused(
                DELTAS[0], f"it is missing; one of these is required: {', '.join(DELTAS)}"
            )
        if "attributes" in kinds and "document" not in self._changes.values():
            raise ColumnRefused("attributes", "they need a column 'document'; drop them")
        if "catalog" not in kinds and self._options.catalog is None:
            raise ColumnRefused("catalog", "it is missing, and so is the option catalog")
        if "idempotency_key" not in kinds and self._options.idempotency == "column":
            raise ColumnRefused("idempotency_key", "it is missing; idempotency=column requires it")

    def _require_applied(self) -> None:
        options = self._options
        given = [n for n, v in (("manager", options.manager), ("conflict", options.conflict)) if v]
        if given and "apply" not in self._changes:
            raise ColumnRefused("apply", f"it is missing, and option {given[0]!r} needs it")
        self._apply_terms = {name: getattr(options, name) for name in given}

    def ask(self, row: Mapping[str, Any]) -> RowLine:
        """What ``row`` (Arrow's values by column) asks for. Raises RowRefused."""
        catalog, key = self.subject(row)
        own = row.get("idempotency_key")
        if own is None and self._options.idempotency == "column":
            raise RowRefused("idempotency_key", "it is null; idempotency=column requires it")
        if own == "":
            raise RowRefused("idempotency_key", "it is empty")
        delta = self._delta(row)
        raw = {name: _raw(member) for name, member in delta.items()}
        members = {"catalog": catalog, "key": key, **raw}
        only = self.only(row)
        if row.get(self._if_match) is not None:
            if only == "create":
                raise RowRefused(self._if_match, "it can't be given together with mode create")
            members["if_match"] = row[self._if_match]
        elif guard := _MODES[only]:
            members[guard[0]] = guard[1]
        about = {"author": row.get("author")}
        about["message"] = _first(row.get("message"), self._options.message)
        about = {name: text for name, text in about.items() if text}
        try:
            change = encode(members)
            text = change[:-1] + b"," + encode(about)[1:] if about else change
        except NoJson as error:
            raise RowRefused("key", str(error)) from error
        return RowLine(text, own, members, delta)

    @property
    def have_one_catalog(self) -> bool:
        """Whether all rows are for the option's catalog."""
        return "catalog" not in self.names

    def only(self, row: Mapping[str, Any]) -> str:
        """The row's mode: only for a new document (``create``), only for an existing one
        (``update``), or ``upsert``. Raises RowRefused."""
        mode = _first(row.get("mode"), self._options.row_mode)
        if mode not in _MODES:
            raise RowRefused("mode", f"it must be one of {', '.join(_MODES)}, not {mode!r}")
        return str(mode)

    def is_passed_over(self, row: Mapping[str, Any], code: str) -> bool:
        """Whether a refusal with this code means that the row's mode excludes its document."""
        guarded = row.get(self._if_match) is None and self.only(row) != "upsert"
        return guarded and code == "precondition_failed"

    def subject(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """The catalog and the key of the row's document. Raises RowRefused."""
        key = row["key"] if isinstance(row["key"], str | None) else str(row["key"])
        if not key:
            raise RowRefused("key", "it is null" if key is None else "it is empty")
        return self._catalog(row.get("catalog")), key

    def _catalog(self, own: str | None) -> str:
        common = self._options.catalog
        if own is None and common is None:
            raise RowRefused("catalog", "it is null, and the option catalog is missing")
        if own == "":
            raise RowRefused("catalog", "it is empty; null stands for the option catalog")
        if self._of_table and own is not None:
            raise RowRefused(
                "catalog",
                f"it is {own!r}, where the row was read, and Spark doesn't say which table to "
                "write; leave this column out: INSERT INTO t (key, value) SELECT key, value …",
            )
        if self._was_read and None not in (own, common) and own != common:
            raise RowRefused(
                "catalog",
                f"the row was read from {own!r}, but the option catalog is {common!r}; to copy it "
                "there, drop the columns catalog and etag",
            )
        return _first(own, common) or ""

    def plain(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """``row`` to be shown: values as JSON, or as ``repr`` if they have no JSON form."""
        return {name: self._plain(name, value) for name, value in row.items()}

    def lacking(self, row: Mapping[str, Any], names: Collection[str]) -> list[str]:
        """The columns to null in a dead letter of ``row``, so that the letter is refused, too:
        ``names``, which can't be read, and the key if the row still asks for something without
        them."""
        others = [row[name] for name in self._changes if name not in names]
        asks = any(value not in (None, False) for value in others)
        return [*names, "key"] if asks else [*names]

    def _plain(self, name: str, value: Any) -> Any:
        if isinstance(value, str | int | None):
            return value
        try:
            return msgspec.json.decode(encode(self._converters[name](value)))
        except (KeyError, RowRefused, NoJson):
            return repr(value)

    def _delta(self, row: Mapping[str, Any]) -> dict[str, Any]:
        found = [
            name
            for name in self._changes
            if row[name] is not None and not (name == "delete" and row[name] is False)
        ]
        if not found:
            wanted = ", ".join(self._changes)
            raise RowRefused(next(iter(self._changes)), f"the row changes nothing: no {wanted}")
        if len(found) > 1:
            raise RowRefused(found[1], f"the row already has {_a(found[0])}")
        name = found[0]
        members = self._converted(name, row[name], _MEMBERS[self._changes[name]])
        if name == "apply":
            members |= self._apply_terms
        if row.get("attributes") is not None:
            if self._changes[name] != "document":
                raise RowRefused("attributes", f"they can't be given together with {_a(name)}")
            members |= self._converted("attributes", row["attributes"], _attributes_member)
        return members

    def _converted(
        self, name: str, value: Any, members: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        try:
            return members(self._converters[name](value))
        except NoJson as error:
            raise RowRefused(name, str(error)) from error


def _raw(member: Any) -> Any:
    return member.raw if isinstance(member, JsonText) else member


def _decoded(member: Any) -> Any:
    """The decoded member; None if it isn't known."""
    if isinstance(member, JsonText):
        return member.value
    return member if isinstance(member, str) else None


def _a(name: str) -> str:
    return f"{'an' if name.startswith('a') else 'a'} {name}"


def _first(own: str | None, common: str | None) -> str | None:
    return common if own is None else own


def _require_string(name: str, kind: types.DataType) -> None:
    if not isinstance(kind, types.StringType):
        raise ColumnRefused(name, f"it must be a string, not {kind.simpleString()}")


def _attributes_member(value: Any) -> dict[str, Any]:
    return {"attributes": {"mode": "replace", "value": _raw(value)}}


def _patch_members(patch: Any) -> dict[str, Any]:
    """The members of a line, for a list of operations or an extended patch."""
    value = patch.value if isinstance(patch, JsonText) else patch
    if isinstance(patch, msgspec.Raw):  # from a variant
        value = msgspec.json.decode(patch)
    if isinstance(value, list):
        return {"op": "patch", "patch": patch}
    if not isinstance(value, dict) or "patch" not in value or value.keys() - _EXTENDED:
        raise NoJson("a patch must be a JSON array of operations, or an object with 'patch'")
    return {"op": "patch", **msgspec.json.decode(_raw(patch), type=dict[str, msgspec.Raw])}


_MEMBERS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "patch": _patch_members,
    "document": lambda value: {"op": "put", "value": value},
    "merge_patch": lambda value: {"op": "merge", "value": value},
    "apply": lambda value: {"op": "apply", "value": value},
    "delete": lambda _: {"op": "delete"},
}


def _delta_converter(name: str, kind: types.DataType) -> Converter:
    shown = kind.simpleString()
    if name == "delete":
        if not isinstance(kind, types.BooleanType):
            raise ColumnRefused(name, f"it must be a boolean, not {shown}")
        return lambda value: value
    if isinstance(kind, types.StringType):
        return json_text
    try:
        if name == "patch" and not isinstance(kind, types.VariantType):
            return _operations_converter(kind)
        if isinstance(kind, types.StructType | types.MapType | types.VariantType):
            return converter(kind, name)
        if isinstance(kind, types.ArrayType) and name in ("document", READ_AS["document"]):
            return converter(kind, name)
    except NoJson as error:
        raise ColumnRefused(name, str(error)) from error
    raise ColumnRefused(name, f"it must be a JSON string, a struct or a map, not {shown}")


def _operations_converter(kind: types.DataType) -> Converter:
    """A converter of ``array<struct<op, path, from, value>>``, whose ``value`` is JSON."""
    item = kind.elementType if isinstance(kind, types.ArrayType) else None
    if not isinstance(item, types.StructType):
        raise ColumnRefused(
            "patch",
            "it must be a JSON string or array<struct<op,path,from,value>>, not "
            + kind.simpleString(),
        )
    for field in item.fields:
        if field.name not in _OPERATION:
            raise ColumnRefused("patch", f"its operations have an unknown field {field.name!r}")
        if not isinstance(field.dataType, types.StringType):
            raise ColumnRefused("patch", f"its field {field.name!r} must be a string")
    for name in _OPERATION[:2]:
        if name not in item.fieldNames():
            raise ColumnRefused("patch", f"its operations lack the field {name!r}")
    return lambda value: [_operation(index, each) for index, each in enumerate(value)]


def _operation(index: int, fields: Mapping[str, str | None] | None) -> dict[str, Any]:
    if fields is None:
        raise NoJson(f"operation {index} is null")
    members: dict[str, Any] = {k: v for k, v in fields.items() if v is not None}
    if "value" in members:
        try:
            members["value"] = raw_json(members["value"])
        except NoJson as error:
            raise NoJson(f"operation {index}: value: {error}") from error
    return members
