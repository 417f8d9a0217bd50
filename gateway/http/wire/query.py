"""Query parameters, which each route defines in a schema.

A parameter that is unknown, given twice or malformed is refused with 400: ``?dryrun=true`` must
never become a write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NoReturn

from marshmallow import Schema, ValidationError, fields, missing

from gateway.http.context import Environ
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.headers import AUTHOR_RULE, is_author, percent_decoded

REVISION_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# RFC 3339, section 5.6. In a query a "+" means a space, so a space before the offset means a "+".
_timestamp = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:([Zz])|([+ -])(\d\d):(\d\d))", re.ASCII
).fullmatch


def whole_number(text: str, minimum: int = 0, maximum: int = REVISION_MAX) -> int:
    """The number. Raises ValueError unless ``text`` is decimal digits alone, within the range."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else -1
    if not minimum <= number <= maximum:
        raise ValueError(f"it must be a whole number from {minimum} to {maximum}")
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


def switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("it must be 'true' or 'false'")
    return text == "true"


def manager_name(text: str) -> str:
    if not is_author(text):
        raise ValueError(f"it must be {AUTHOR_RULE}")
    return text


def _ignored(text: str) -> Any:
    """Check and drop ``resource_version`` of a read. It is for writes, but may be sent always."""
    whole_number(text)
    return missing


def one_of(known: Collection[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"it must be one of {', '.join(known)}")
        return text

    return parse


class Parameter(fields.Field[Any]):
    """A parameter that ``parse`` reads. The text of its ValueError goes into the refusal."""

    default_error_messages = {"required": "it is missing"}  # noqa: RUF012 - as marshmallow has it

    def __init__(self, parse: Callable[[str], Any], **options: Any) -> None:
        super().__init__(**options)
        self._parse = parse

    def _deserialize(self, value: str, *_: Any, **__: Any) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            raise ValidationError(str(error)) from error


def number(minimum: int = 0, maximum: int = REVISION_MAX, **options: Any) -> Parameter:
    return Parameter(partial(whole_number, minimum=minimum, maximum=maximum), **options)


def takes(**known: fields.Field[Any]) -> Schema:
    """The schema of a route's parameters."""
    return Schema.from_dict(known)()


TEXT = fields.String(load_default="")
AFTER = number(load_default=0)
LIMIT = number(1, 1000, load_default=100)
DRY_RUN = Parameter(switch, load_default=False)
READ: Any = {"resource_version": Parameter(_ignored)}
READ_AS_OF = {**READ, "revision": number(), "at": Parameter(timestamp_us)}

NO_PARAMETERS: Final = takes()
# For writes that can be a dry run, and have no condition in the query.
DRY_RUN_PARAMETERS: Final = takes(dry_run=DRY_RUN)
# ``resource_version``: the revision that the catalog must be at.
WRITE_PARAMETERS: Final = takes(resource_version=number(), dry_run=DRY_RUN)


def parameters(environ: Environ, schema: Schema) -> dict[str, Any]:
    """The query's parameters as ``schema`` loads them; only list fields may be given repeatedly."""
    lists = {name for name, field in schema.fields.items() if isinstance(field, fields.List)}
    given = _split(environ.get("QUERY_STRING", ""), lists)
    try:
        loaded: dict[str, Any] = schema.load(given)
    except ValidationError as error:
        messages = error.messages_dict
        name = next(iter(messages))
        if name not in schema.fields:
            known = ", ".join(schema.fields) or "none"
            refuse_parameter(
                name, f"this route doesn't take it with this method; it takes: {known}"
            )
        reasons = messages[name]
        # The messages of a list come by index: show those of the first wrong one.
        reasons = next(iter(reasons.values())) if isinstance(reasons, dict) else reasons
        refuse_parameter(name, " ".join(map(str, reasons)))
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
            refuse_parameter(encoded_name, f"it can't be decoded: {error}")
        if name in lists:
            given.setdefault(name, []).append(value)
            continue
        if name in given:
            refuse_parameter(name, "it is given twice")
        given[name] = value
    return given


def refuse_parameter(name: str, reason: str) -> NoReturn:
    name = name[:100]
    raise RequestRefused("invalid_parameter", f"parameter {name!r}: {reason}", parameter=name)
