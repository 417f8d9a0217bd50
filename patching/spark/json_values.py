"""Converters of Spark's values to JSON, made from their types."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
import struct
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types

from patching import join_pointer
from patching.values import repeated_member

Converter = Callable[[Any], Any]
_FLOAT: Final = struct.Struct("f")
# The most digits of a double in JSON, as libraries write it.
_DIGITS_MAX: Final = 17
# Maps digits and the point to one byte: a search in that takes a tenth of the time of a pattern.
_AS_DIGITS: Final = bytes.maketrans(b"123456789.", b"0000000000")
# Without one of these, a number has up to 15 digits, and a double keeps them all.
_MAY_BE_ROUNDED: Final = (b"0" * 16, b"e-000", b"E-000")
_TOO_LONG: Final = (
    "which would be rounded as a number in JSON (a double): cast it to a string or a double"
)
_encoder: Final = msgspec.json.Encoder(decimal_format="number")


class NoJson(ValueError):
    """A type or a value has no JSON form."""


def encode(value: Any) -> bytes:
    """A converter's result, as JSON in one line. Raises NoJson."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise NoJson(f"it can't be written as JSON: {error}") from error


def decoded_json(text: str | bytes, what: str) -> Any:
    """The JSON value of ``text``. Raises NoJson, which names ``what``, also for a number that a
    double would round, and for a repeated member, which the gateway refuses, and which would be
    lost here."""
    try:
        raw = text.encode() if isinstance(text, str) else text
        value = msgspec.json.decode(raw)
        twice = repeated_member(raw, msgspec.json.encode(value))
        digits = raw.translate(_AS_DIGITS)
        rounded = _rounded(raw) if any(each in digits for each in _MAY_BE_ROUNDED) else None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NoJson(f"{what} isn't JSON: {error}") from error
    if twice is not None:
        raise NoJson(f"{what} has the member '{join_pointer(twice)}' twice")
    if rounded is not None:
        raise NoJson(f"{what} has the number {rounded}, {_TOO_LONG}")
    return value


def _rounded(raw: bytes) -> str | None:
    """The first number that a double would round."""
    found: list[str] = []

    def take(text: str) -> float:
        value = float(text)
        if text != repr(value) and not _is_reading(text, value):
            found.append(text)
        return value

    msgspec.json.Decoder(float_hook=take).decode(raw)
    return found[0] if found else None


def _is_reading(text: str, value: float) -> bool:
    """Whether a library may have written ``text`` for the double ``value``: as its shortest text,
    its exact value, or with up to 17 digits, the last of which may be rounded. Java before 19
    writes 18 digits of some doubles above 1E18."""
    if not value:
        return not text.lower().partition("e")[0].strip("-0.")
    number, exact = decimal.Decimal(text), decimal.Decimal(value)
    if number in (decimal.Decimal(repr(value)), exact):
        return True
    _, digits, exponent = number.as_tuple()
    place = int(exponent)
    most = _DIGITS_MAX + (place > 0)
    return len(digits) <= most and abs(number - exact) < decimal.Decimal((0, (1,), place))


class JsonText(NamedTuple):
    """A JSON text as it was written, so that the gateway gets its numbers unchanged; and its
    ``value``."""

    raw: msgspec.Raw
    value: Any


def json_text(text: str) -> JsonText:
    """``text`` itself, if it is JSON, in one line. Raises NoJson."""
    value = decoded_json(text, "it")
    # A line break can only be between two tokens: in a string, it is escaped.
    return JsonText(msgspec.Raw(text.replace("\n", " ").replace("\r", " ").encode()), value)


def raw_json(text: str) -> msgspec.Raw:
    """Only the text of ``json_text``."""
    return json_text(text).raw


def converter(kind: types.DataType, place: str) -> Converter:
    """A function from Arrow's value of type ``kind`` to what `encode` takes.

    ``place`` names it in errors. Raises NoJson for a type without a JSON form; the function raises
    it for such a value. Null stays null.
    """
    inner = _converter(kind, place)
    return lambda value: None if value is None else inner(value)


def _converter(kind: types.DataType, place: str) -> Converter:
    if isinstance(kind, types.StructType):
        return _of_struct(kind, place)
    if isinstance(kind, types.MapType):
        return _of_map(kind, place)
    if isinstance(kind, types.ArrayType):
        item = converter(kind.elementType, f"{place}[]")
        return lambda value: [item(each) for each in value]
    if isinstance(kind, types.VariantType):
        return lambda value: _variant_text(value, place)
    if isinstance(kind, types.DecimalType):
        return lambda value: _whole_or_decimal(value, place)
    if isinstance(kind, types.FloatType):
        return lambda value: _shortest(_finite(value, place))
    if isinstance(kind, types.DoubleType):
        return lambda value: _finite(value, place)
    for kinds, convert in _SIMPLE:
        if isinstance(kind, kinds):
            return convert
    raise NoJson(f"{place} has the type {kind.simpleString()}, which has no JSON form; cast it")


def in_utc(column: pa.Array) -> pa.Array:
    """The column with its times in UTC: Python may not know the time zone of Spark's session, which
    can be ``GMT+8`` or ``PST``."""
    kind = _utc_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _utc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz and "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_utc_type(each.type)) for each in kind])
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_utc_type(kind.item_type))
        return pa.map_(kind.key_field, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc_type(kind.value_type)))
    return kind


def python_value(scalar: pa.Scalar) -> tuple[Any, str | None]:
    """Arrow's value in Python. If there is none, the value as text, and why: a timestamp after the
    year 9999 in UTC, a text that isn't UTF-8, or a struct that contains one of these."""
    try:
        return scalar.as_py(), None
    except (OverflowError, ValueError) as error:
        return _shown(scalar), f"it has a value that can't be written as JSON ({error})"


def _shown(scalar: pa.Scalar) -> str:
    try:
        if pa.types.is_string(scalar.type) or pa.types.is_large_string(scalar.type):
            return bytes(scalar.as_buffer()).decode(errors="replace")
        return str(scalar.cast(pa.string()).as_py())
    except (ValueError, pa.ArrowException):
        return str(scalar.type)


def _of_struct(kind: types.StructType, place: str) -> Converter:
    names = kind.fieldNames()
    if len(set(names)) < len(names):
        raise NoJson(f"{place} has two fields of the same name")
    fields = [(each.name, converter(each.dataType, f"{place}.{each.name}")) for each in kind.fields]
    return lambda value: {name: convert(value[name]) for name, convert in fields}


def _of_map(kind: types.MapType, place: str) -> Converter:
    if not isinstance(kind.keyType, types.StringType):
        raise NoJson(f"{place} is a map whose keys aren't strings")
    item = converter(kind.valueType, f"{place}{{}}")

    def convert(value: Any) -> dict[str, Any]:
        # Sorted, so that equal maps are written equally.
        members = {name: item(each) for name, each in sorted(value, key=itemgetter(0))}
        if len(members) < len(value):
            raise NoJson(f"{place} has a key twice")
        return members

    return convert


def _variant_text(value: Mapping[str, bytes], place: str) -> msgspec.Raw:
    try:
        text = types.VariantVal(**value).toJson()
    except (ArithmeticError, ValueError, PySparkException) as error:
        why = f"{place} has a value that can't be written as JSON ({error})"
        raise NoJson(why) from error
    return raw_json(text)


def _finite(value: float, place: str) -> float:
    if not math.isfinite(value):
        raise NoJson(f"{place} is {value}, which can't be written as a number in JSON")
    return value


def _instant(value: datetime.datetime) -> str:
    utc = value.astimezone(datetime.UTC) if value.tzinfo else value.replace(tzinfo=datetime.UTC)
    return utc.replace(tzinfo=None).isoformat() + "Z"


def _same(value: Any) -> Any:
    return value


def _isoformat(value: datetime.date) -> str:
    return value.isoformat()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _whole_or_decimal(value: decimal.Decimal, place: str) -> Any:
    """An int if it is whole, else the decimal. Raises NoJson if a double would round it."""
    if value == value.to_integral_value():
        return int(value)
    if value != decimal.Decimal(repr(float(value))):
        raise NoJson(f"{place} is {value}, {_TOO_LONG}")
    return value


def _shortest(value: float) -> float:
    """The number with the fewest digits that is the same float of four bytes."""
    for digits in range(6, 9):
        shorter = float(f"{value:.{digits}g}")
        if _FLOAT.unpack(_FLOAT.pack(shorter))[0] == value:
            return shorter
    return value


_SIMPLE: Final[tuple[tuple[Any, Converter], ...]] = (
    ((types.StringType, types.CharType, types.VarcharType), _same),
    ((types.BooleanType, types.NullType), _same),
    ((types.ByteType, types.ShortType, types.IntegerType, types.LongType), _same),
    ((types.DateType, types.TimestampNTZType), _isoformat),
    ((types.TimestampType,), _instant),
    ((types.BinaryType,), _base64),
)
