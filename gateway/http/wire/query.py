"""Query parameters: a schema for each route, and nothing that the schema doesn't know.

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
from patching.ownership import CONFLICTS

REVISION_MAX = 2**63 - 1
# What a feed tells beside a change: the document before it, and after it.
IMAGES: Final = ("before", "value")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# RFC 3339, section 5.6. In a query a "+" means a space, so a space before the offset means a "+".
_timestamp = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:([Zz])|([+ -])(\d\d):(\d\d))", re.ASCII
).fullmatch


def whole_number(text: str, minimum: int = 0, maximum: int = REVISION_MAX) -> int:
    """ValueError unless ``text`` is decimal digits alone, in the range."""
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


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("it must be 'true' or 'false'")
    return text == "true"


def _manager(text: str) -> str:
    if not is_author(text):
        raise ValueError(f"it must be {AUTHOR_RULE}")
    return text


def _conflict(text: str) -> str:
    if text not in CONFLICTS:
        raise ValueError(f"it must be one of {', '.join(CONFLICTS)}")
    return text


def _image(text: str) -> str:
    if text not in IMAGES:
        raise ValueError(f"it must be one of {', '.join(IMAGES)}")
    return text


def _selected(text: str) -> str:
    if text not in ("digest", "key"):
        raise ValueError("it must be 'digest' or 'key', or be left out")
    return text


def _ignored(text: str) -> Any:
    """A read's ``resource_version``, which is for writes: clients needn't leave it out."""
    whole_number(text)
    return missing


class _Parsed(fields.Field[Any]):
    """A parameter that ``parse`` reads; its ValueError is the message of the refusal."""

    def __init__(self, parse: Callable[[str], Any], **options: Any) -> None:
        super().__init__(**options)
        self._parse = parse

    def _deserialize(self, value: str, *_: Any, **__: Any) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            raise ValidationError(str(error)) from error


def _schema(**known: fields.Field[Any]) -> Schema:
    return Schema.from_dict(known)()


_TEXT = fields.String(load_default="")
_AFTER = _Parsed(whole_number, load_default=0)
_LIMIT = _Parsed(partial(whole_number, minimum=1, maximum=1000), load_default=100)
_DRY_RUN = _Parsed(_switch, load_default=False)
_READ: Any = {"resource_version": _Parsed(_ignored)}
_READ_AS_OF = {**_READ, "revision": _Parsed(whole_number), "at": _Parsed(timestamp_us)}
_SPAN: Any = {
    "from": _Parsed(whole_number, required=True, error_messages={"required": "it is missing"}),
    "to": _Parsed(whole_number, load_default=None),
}
_FEED: Any = {
    "after": _Parsed(whole_number, load_default=None),
    "key": fields.List(fields.String(), load_default=()),
    "prefix": _TEXT,
    "author": fields.List(fields.String(), load_default=()),
    "manager": fields.List(_Parsed(_manager), load_default=()),
    "include": fields.List(_Parsed(_image), load_default=()),
    "initial": _Parsed(_switch, load_default=False),
}

NO_PARAMETERS: Final = _schema()
READ_PARAMETERS: Final = _schema(**_READ)
# A document, as it is or (one of the two) as it was.
DOCUMENT_PARAMETERS: Final = _schema(**_READ_AS_OF)
# A whole catalog, or the part of it whose keys begin with ``prefix``.
EXPORT_PARAMETERS: Final = _schema(**_READ_AS_OF, prefix=_TEXT)
# A page of documents with keys above ``after``, of those whose keys contain a text, or those under
# the ``key`` parameters; or their digests, or their keys alone, of which a page has more, also as
# folders. With a ``manager``, the digests of its parts.
DOCUMENTS_PARAMETERS: Final = _schema(
    **_READ_AS_OF,
    prefix=_TEXT,
    after=_TEXT,
    limit=_Parsed(partial(whole_number, minimum=1, maximum=10_000), load_default=100),
    key=fields.List(fields.String(), load_default=None),
    select=_Parsed(_selected, load_default=None),
    manager=_Parsed(_manager, load_default=None),
    contains=_TEXT,
    delimiter=_TEXT,
)
# At most ``count`` ranges of the keys above ``after`` up to ``until``.
PARTITIONS_PARAMETERS: Final = _schema(
    **_READ_AS_OF,
    count=_Parsed(partial(whole_number, minimum=1, maximum=1000), load_default=1),
    prefix=_TEXT,
    after=_TEXT,
    until=fields.String(load_default=None),
)
# A page of catalogs with names above ``after``.
CATALOGS_PARAMETERS: Final = _schema(prefix=_TEXT, after=_TEXT, limit=_LIMIT)
# A write that can be tried out, and whose conditions aren't in the query.
DRY_RUN_PARAMETERS: Final = _schema(dry_run=_DRY_RUN)
# ``resource_version``: the revision that the catalog must be at.
WRITE_PARAMETERS: Final = _schema(resource_version=_Parsed(whole_number), dry_run=_DRY_RUN)
# New settings; ``check_documents``: whether documents may break lists that they declare;
# ``examine``: how many documents a dry run checks against their schemas.
SETTINGS_PARAMETERS: Final = _schema(
    resource_version=_Parsed(whole_number),
    dry_run=_DRY_RUN,
    check_documents=_Parsed(_switch, load_default=True),
    examine=_Parsed(partial(whole_number, minimum=1, maximum=10_000), load_default=None),
)
# An apply of what a manager wants, and what makes it let go: see ``wire.owning``.
_MANAGER = _Parsed(_manager)
APPLY_PARAMETERS: Final = _schema(
    **WRITE_PARAMETERS.fields,
    manager=_MANAGER,
    conflict=_Parsed(_conflict),
    force=fields.List(fields.String()),
)
LET_GO_PARAMETERS: Final = _schema(
    **WRITE_PARAMETERS.fields,
    manager=_MANAGER,
    prune=_Parsed(_switch, load_default=False),
    pointer=fields.List(fields.String()),
)
# A page of commits above revision ``after``, of one document if ``key`` is given.
# Of those, the commits below ``before``, by an ``author``, ``since`` or ``until`` a time.
COMMITS_PARAMETERS: Final = _schema(
    after=_AFTER,
    limit=_LIMIT,
    key=fields.String(load_default=None),
    before=_Parsed(partial(whole_number, minimum=1), load_default=None),
    author=fields.String(load_default=None),
    since=_Parsed(timestamp_us, load_default=None),
    until=_Parsed(timestamp_us, load_default=None),
    newest_first=_Parsed(_switch, load_default=False),
)
# What was taken over from manager ``lost_by``; of the commit below ``before`` the keys behind
# ``after_key``.
LOSSES_PARAMETERS: Final = _schema(
    lost_by=_Parsed(_manager, required=True, error_messages={"required": "it is missing"}),
    after=_AFTER,
    before=_Parsed(partial(whole_number, minimum=1), load_default=None),
    after_key=_TEXT,
    limit=_LIMIT,
)
# A page of what two revisions have otherwise, of keys above ``after``.
DIFFERENCES_PARAMETERS: Final = _schema(**_SPAN, prefix=_TEXT, after=_TEXT, limit=_LIMIT)
# Commits above revision ``after`` that touch a ``key``, or one that begins with ``prefix``; of
# these the ones by an ``author``, with a change by a ``manager``. ``include``: whole documents
# beside their changes. ``initial``: before all that, the documents that there are.
STREAM_PARAMETERS: Final = _schema(**_FEED)
# At most ``limit`` commits; if there are none, the answer waits for ``timeout`` seconds.
POLL_PARAMETERS: Final = _schema(
    **_FEED, limit=_LIMIT, timeout=_Parsed(partial(whole_number, maximum=60), load_default=30)
)


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
        told = messages[name]
        # Of a list, by the place of each that is wrong.
        told = next(iter(told.values())) if isinstance(told, dict) else told
        _refuse(name, " ".join(map(str, told)))
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
