"""Query parameters: a schema for each route, and nothing that the schema doesn't know.

A parameter that is unknown, given twice or malformed is refused with 400: ``?dryrun=true`` must
never become a write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from marshmallow import RAISE, Schema, ValidationError, fields, post_load

from gateway.http.context import Environ
from gateway.http.wire.headers import percent_decoded
from gateway.http.wire.refusals import RequestRefused

REVISION_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# RFC 3339, section 5.6. In a query a "+" means a space, so a space before the offset means a "+".
_timestamp = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:([Zz])|([+ -])(\d\d):(\d\d))", re.ASCII
).fullmatch


def whole_number(text: str, minimum: int = 0, maximum: int = REVISION_MAX) -> int:
    """ValueError unless ``text`` is decimal digits alone, in the range."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ValueError(f"it must be a whole number from {minimum} to {maximum}")
    number = int(text)
    if not minimum <= number <= maximum:
        raise ValueError(f"it must be from {minimum} to {maximum}")
    return number


def timestamp_us(text: str) -> int:
    """An RFC 3339 timestamp as microseconds since the epoch; finer digits are cut off."""
    found = _timestamp(text)
    if found is None:
        raise ValueError("it must be an RFC 3339 timestamp such as 2026-11-21T10:00:00.5Z")
    day, clock, fraction, zulu, sign, hours, minutes = found.groups()
    moment = datetime.fromisoformat(f"{day}T{clock}+00:00")
    offset = timedelta(0)
    if not zulu:
        if int(hours) > 23 or int(minutes) > 59:
            raise ValueError("its offset from UTC is out of range")
        offset = timedelta(hours=int(hours), minutes=int(minutes))
    if sign == "-":
        offset = -offset
    since_epoch = moment - _EPOCH - offset
    return since_epoch // timedelta(microseconds=1) + int((fraction or "0")[:6].ljust(6, "0"))


class _WholeNumber(fields.Field[int]):
    def __init__(self, minimum: int = 0, maximum: int = REVISION_MAX, **options: Any) -> None:
        super().__init__(**options)
        self._range = minimum, maximum

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> int:
        try:
            return whole_number(value, *self._range)
        except ValueError as error:
            raise ValidationError(str(error)) from error


class _Timestamp(fields.Field[int]):
    def _deserialize(self, value: Any, *_: Any, **__: Any) -> int:
        try:
            return timestamp_us(value)
        except ValueError as error:
            raise ValidationError(str(error)) from error


class _Switch(fields.Field[bool]):
    def _deserialize(self, value: Any, *_: Any, **__: Any) -> bool:
        if value not in ("true", "false"):
            raise ValidationError("it must be 'true' or 'false'")
        return bool(value == "true")


class _Strict(Schema):
    class Meta:
        unknown = RAISE


class NoParameters(_Strict):
    """Routes that take none."""


class _Read(_Strict):
    """The parameter that every read takes and ignores: ``resource_version``, which is for writes.

    Clients that send it with each request needn't leave it out.
    """

    resource_version = _WholeNumber()

    @post_load
    def _ignore(self, loaded: dict[str, Any], **_: Any) -> dict[str, Any]:
        loaded.pop("resource_version", None)
        return loaded


class IgnoringParameters(_Read):
    """Reads that take nothing else."""


class ReadParameters(_Read):
    """Reading a document, as it is or (one of the two) as it was."""

    revision = _WholeNumber()
    at = _Timestamp()


class ExportParameters(ReadParameters):
    """A whole catalog, or the part of it whose keys begin with ``prefix``."""

    prefix = fields.String(load_default="")


class DocumentsParameters(ReadParameters):
    """A page of documents with keys above ``after``, or those under the ``key`` parameters."""

    prefix = fields.String(load_default="")
    after = fields.String(load_default="")
    limit = _WholeNumber(1, 1000, load_default=100)
    key = fields.List(fields.String(), load_default=None)


class CatalogsParameters(_Strict):
    """A page of catalogs with names above ``after``."""

    prefix = fields.String(load_default="")
    after = fields.String(load_default="")
    limit = _WholeNumber(1, 1000, load_default=100)


class DryRunParameters(_Strict):
    """Writes that can be tried out, and whose conditions aren't in the query."""

    dry_run = _Switch(load_default=False)


class WriteParameters(_Strict):
    """``resource_version``: the revision that the catalog must be at."""

    resource_version = _WholeNumber(load_default=None)
    dry_run = _Switch(load_default=False)


class PageParameters(_Strict):
    """A page of commits above revision ``after``, of one document if ``key`` is given."""

    after = _WholeNumber(load_default=0)
    limit = _WholeNumber(1, 1000, load_default=100)
    key = fields.String(load_default=None)


class StreamParameters(_Strict):
    """Commits above revision ``after`` that touch a ``key``, or one that begins with ``prefix``."""

    after = _WholeNumber(load_default=0)
    key = fields.List(fields.String(), load_default=())
    prefix = fields.String(load_default="")


class PollParameters(StreamParameters):
    """At most ``limit`` commits; if there are none, the answer waits for ``timeout`` seconds."""

    timeout = _WholeNumber(0, 60, load_default=30)
    limit = _WholeNumber(1, 1000, load_default=100)


def parameters(environ: Environ, schema: Schema) -> dict[str, Any]:
    """The query's parameters as ``schema`` loads them; a list may be given as often as wanted."""
    lists = {name for name, field in schema.fields.items() if isinstance(field, fields.List)}
    given = _split(environ.get("QUERY_STRING", ""), lists)
    try:
        loaded: dict[str, Any] = schema.load(given)
    except ValidationError as error:
        messages = error.messages_dict
        name = next(iter(messages))
        if name not in schema.fields:
            known = ", ".join(schema.fields) or "none"
            _refuse(name, f"this route doesn't take it with this method; it takes: {known}")
        _refuse(name, " ".join(map(str, messages[name])))
    return loaded


def _split(query: str, lists: Collection[str]) -> Mapping[str, Any]:
    given: dict[str, Any] = {}
    for pair in query.split("&"):
        if not pair:
            continue
        encoded_name, _, encoded_value = pair.replace("+", " ").partition("=")
        try:
            name, value = percent_decoded(encoded_name), percent_decoded(encoded_value)
        except ValueError as error:
            _refuse(encoded_name, f"it can't be decoded: {error}")
        if name in lists:
            given.setdefault(name, []).append(value)
            continue
        if name in given:
            _refuse(name, "it is given twice")
        given[name] = value
    return given


def _refuse(name: str, reason: str) -> NoReturn:
    name = name[:100]
    raise RequestRefused("invalid_parameter", f"parameter {name!r}: {reason}", parameter=name)
