"""A line of a bulk request as the write that it asks for.

::

    {"catalog", "key", "op": "put" | "patch" | "merge" | "delete" | "touch",
     "value" (put, merge), "patch" and "array_primary_keys"? (patch), "rebase"? (patch, merge),
     "attributes"? (put; see ``attributes_mode``),
     "if_match"?, "if_none_match"?, "resource_version"?, "idempotency_key"?, "message"?, "author"?,
     "dry_run"?}

A ``patch`` is of RFC 6902 or an extended one. A touch needs no key, and takes conditions only with
one. Under an idempotency key, put, patch, merge and delete are the same request as one that is sent
to the document's own route, which knows no attributes beside the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

import patching
from gateway.access import Principal, Role
from gateway.commits.conditions import NO_CONDITIONS, Conditions
from gateway.commits.requests import ApplyPatch, Delete, Edit, KeyEdit, Merge, Put, Request, Touch
from gateway.commits.service import Gateway
from gateway.http import media_types, names
from gateway.http.answers import encode
from gateway.http.attributes_mode import attributes_asked
from gateway.http.authorization import require
from gateway.http.authors import RULE as AUTHOR_RULE
from gateway.http.authors import author_of, is_author
from gateway.http.bodies import (
    decode_document,
    decode_extended_patch,
    decode_patch,
    decode_value,
    refuse_repeated,
    weigh,
)
from gateway.http.body_conditions import CONDITION_MEMBERS, body_conditions
from gateway.http.bulk_lines import Line
from gateway.http.json_members import refuse_member, require_known, required, switch, text
from gateway.http.limits import RequestLimits
from gateway.http.parameters import REVISION_MAX
from gateway.http.preferences import (
    MESSAGE_CHARACTERS_MAX,
    Preferences,
    is_idempotency_key,
)
from gateway.http.refusals import RequestRefused
from gateway.http.writes import NOTHING_SENT, Ask, Sent, fingerprint
from gateway.model import SETTINGS_KEY, Idempotency
from patching import ABSENT, Json, Limits

_OPERATIONS: Final = {
    "put": ("value", "attributes"),
    "patch": ("patch", "array_primary_keys", "rebase"),
    "merge": ("value", "rebase"),
    "delete": (),
    "touch": (),
}
_METHODS: Final = {"put": "PUT", "patch": "PATCH", "merge": "PATCH", "delete": "DELETE"}
_COMMON: Final = (
    "catalog",
    "key",
    "op",
    *CONDITION_MEMBERS,
    "resource_version",
    "idempotency_key",
    "message",
    "author",
    "dry_run",
)
# Decoded with the document or the patch that they are.
_LARGE: Final = ("value", "attributes", "patch", "array_primary_keys")
_PLAIN_OPERATIONS: Final = frozenset(("add", "remove", "replace", "move", "copy", "test"))
_EXTENSIONS: Final = ("create_parents", "if_exists")

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_Large = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class BulkTerms:
    """What holds for every line."""

    by: Principal
    limits: RequestLimits
    dry_run: bool
    wait_s: int | None


def line_request(gateway: Gateway, line: Line, terms: BulkTerms) -> Request:
    """Raises RequestRefused, and what decoding a document or a patch raises."""
    if line.text is None:
        maximum = terms.limits.bulk_line_bytes_max
        raise RequestRefused(
            "body_too_large",
            f"the line has {line.size_bytes} bytes, {maximum} are allowed",
            limit="bulk_line_bytes_max",
            maximum=maximum,
            actual=line.size_bytes,
        )
    weigh(line.text, terms.limits)
    members, large = _members(line.text, terms.limits)
    operation = text(members, "op")
    if operation not in _OPERATIONS:
        refuse_member("/op", f"it must be one of {', '.join(_OPERATIONS)}")
    require_known({**members, **large}, (*_COMMON, *_OPERATIONS[operation]))
    catalog = names.catalog_name(quote(text(members, "catalog"), safe=""), terms.limits)
    require(terms.by, Role.WRITE, catalog, "the line")
    conditions = body_conditions(members)
    key = _key(members, operation, conditions, terms.limits)
    ask = Ask(
        by=terms.by,
        method=_METHODS.get(operation, operation),
        catalog=catalog,
        key=key,
        conditions=conditions,
        prefer=Preferences(None, terms.wait_s, switch(members, "rebase")),
        dry_run=switch(members, "dry_run") or terms.dry_run,
        resource_version=_resource_version(members),
        idempotency_key=_idempotency_key(members),
        message=_message(members),
        author=author_of(_author(members), terms.by, catalog),
    )
    edit, sent = _edit(operation, large, terms.limits, gateway.limits.patch)
    return _request(gateway, ask, edit, sent, line.size_bytes)


def _request(gateway: Gateway, ask: Ask, edit: Edit, sent: Sent, size_bytes: int) -> Request:
    idempotency = None
    if ask.idempotency_key is not None:
        idempotency = Idempotency(ask.by.name, ask.idempotency_key, fingerprint(ask, sent))
    return gateway.request(
        ask.catalog,
        (KeyEdit(ask.key, edit),),
        wait_s=ask.prefer.wait_s,
        conditions=ask.conditions,
        resource_version=ask.resource_version,
        rebase=ask.prefer.rebase,
        size_bytes=size_bytes,
        by=ask.by,
        author=ask.author,
        message=ask.message,
        idempotency=idempotency,
        dry_run=ask.dry_run,
    )


def _members(raw: bytes, limits: RequestLimits) -> tuple[dict[str, Any], _Large]:
    """The line's members: decoded, and those that are decoded later."""
    members = {}
    large = {}
    for name, value in _undecoded_members(raw, limits).items():
        if name in _LARGE:
            large[name] = bytes(value)
            continue
        try:
            members[name] = _decode(value)
        except ValueError as error:
            detail = f"'/{name}': {error}"
            raise RequestRefused("malformed_json", detail[:600], pointer=f"/{name}") from error
        refuse_repeated(members[name], bytes(value), f"/{name}")
    return members, large


def _undecoded_members(raw: bytes, limits: RequestLimits) -> dict[str, msgspec.Raw]:
    try:
        members = _decode_members(raw)
        refuse_repeated(members, raw)
        return members
    except msgspec.ValidationError:
        refuse_member("", "a line is an object")
    except (ValueError, RecursionError):
        # This says what is wrong with it, and where.
        value = decode_value(raw, limits)
        if not isinstance(value, dict):
            refuse_member("", "a line is an object")
        return {name: msgspec.Raw(encode(each)) for name, each in value.items()}


def _edit(
    operation: str, large: _Large, limits: RequestLimits, patch_limits: Limits
) -> tuple[Edit, Sent]:
    """What the line asks for, and what would have been sent for it to the document's own route."""
    if operation == "put":
        value, size_bytes = decode_document(required(large, "value"), limits, "/value")
        attributes = None
        if "attributes" in large:
            asked = decode_value(large["attributes"], limits, "/attributes")
            attributes = attributes_asked({"attributes": asked})
        return Put(value, size_bytes, attributes), Sent(value, media_types.JSON, 0, attributes)
    if operation == "merge":
        value = decode_value(required(large, "value"), limits, "/value")
        return Merge(value, len(encode(value))), _sent(value, media_types.MERGE_PATCH)
    if operation == "patch":
        return _patch(required(large, "patch"), large.get("array_primary_keys"), patch_limits)
    return (Delete() if operation == "delete" else Touch()), NOTHING_SENT


def _patch(raw: bytes, keys: bytes | None, limits: Limits) -> tuple[ApplyPatch, Sent]:
    operations = decode_patch(raw, "/patch")
    if keys is None and _is_plain(operations):
        patch = patching.parse(operations, limits=limits)
        return ApplyPatch(patch), _sent(operations, media_types.JSON_PATCH)
    with_keys = b"" if keys is None else b',"array_primary_keys":' + keys
    whole = decode_extended_patch(b'{"patch":' + raw + with_keys + b"}")
    extended = patching.parse_extended(whole, limits=limits)
    return ApplyPatch(extended), _sent(whole, media_types.EXTENDED_PATCH)


def _is_plain(operations: Json) -> bool:
    """Whether RFC 6902 says all there is to say about them."""
    if not isinstance(operations, list):
        return True
    for each in operations:
        if not isinstance(each, dict):
            continue
        name = each.get("op")
        if isinstance(name, str) and name not in _PLAIN_OPERATIONS:
            return False
        if any(extension in each for extension in _EXTENSIONS):
            return False
    return True


def _sent(body: Json, media_type: str) -> Sent:
    return Sent(body, media_type, 0)


def _key(
    members: dict[str, Any], operation: str, conditions: Conditions, limits: RequestLimits
) -> str:
    if operation == "touch" and "key" not in members:
        if conditions is not NO_CONDITIONS:
            refuse_member("/key", "it is missing; the conditions are about it")
        return SETTINGS_KEY
    key = text(members, "key")
    names.require_key(key, limits)
    return key


def _resource_version(members: dict[str, Any]) -> int | None:
    value = members.get("resource_version", ABSENT)
    if value is ABSENT:
        return None
    if type(value) is not int or not 0 <= value <= REVISION_MAX:
        refuse_member("/resource_version", f"it must be a whole number from 0 to {REVISION_MAX}")
    return value


def _idempotency_key(members: dict[str, Any]) -> str | None:
    if "idempotency_key" not in members:
        return None
    key = text(members, "idempotency_key")
    if not is_idempotency_key(key):
        refuse_member("/idempotency_key", "it must be 1 to 255 visible ASCII characters")
    return key


def _message(members: dict[str, Any]) -> str | None:
    if "message" not in members:
        return None
    message = text(members, "message")
    if len(message) > MESSAGE_CHARACTERS_MAX:
        refuse_member("/message", f"it must be at most {MESSAGE_CHARACTERS_MAX} characters")
    return message or None


def _author(members: dict[str, Any]) -> str | None:
    if "author" not in members:
        return None
    author = text(members, "author")
    if not is_author(author):
        refuse_member("/author", f"it must be {AUTHOR_RULE}")
    return author
