r"""Request bodies: read within a limit, decoded, searched for values that can't be stored.

BSON holds neither integers beyond 64 bits, nor NUL in member names, nor text that isn't Unicode;
JSON holds neither NaN nor infinities. The search for these walks the whole value. Most bodies don't
need it: their bytes alone show that it would find nothing. Let ``raw`` be a body that msgspec
decoded:

* NaN, infinities, numbers beyond a double, lone surrogates and bytes that aren't UTF-8: msgspec
  refuses them, so none is in the value.
* NUL in a member name: JSON text holds no raw control character, so NUL can come only from the
  escape ``\u0000``. If these six bytes aren't in ``raw``, there is no NUL.
* An integer beyond 64 bits: 2**63 and -2**63 - 1 have 19 digits, so every integer with fewer digits
  fits. JSON writes an integer as one run of digits without an exponent; if ``raw`` has no run of 19
  digits, every integer fits.
* A repeated member: ``patching.values.repeated_member`` compares the number of colons in ``raw``
  and in the value as JSON.
* Nesting: every container is opened by its own ``[`` or ``{``, so the value is nested no deeper
  than the number of these bytes in ``raw``. Only if that is above the limit, the depth is counted.

A body that fails such a test may still be right (a text may hold twenty digits). So its value is
searched, and the search decides.

Most bodies are checked by a schema (``strict.load``); bulk lines and the actions of a transaction,
of which there are thousands, member by member. A refusal of a member names its pointer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any, Final, NoReturn

import msgspec
from marshmallow import ValidationError
from werkzeug.wsgi import get_input_stream

import patching
import patching.extended
import patching.values
from gateway.cpu import in_section
from gateway.decide.edits import ApplyPatch, Merge
from gateway.decide.strict import Exact, integer, text
from gateway.errors import MemoryFull, Unstorable
from gateway.http.context import Environ, OpenContext
from gateway.http.wire import headers as media_types
from gateway.http.wire.codes import RequestRefused, over_limit
from gateway.http.wire.headers import AUTHOR_RULE, MESSAGE_CHARACTERS_MAX, is_author
from gateway.http.wire.responses import encode
from gateway.limits import RequestLimits
from gateway.memory import UNWEIGHED_BYTES, trees
from gateway.model import Attributes
from patching import Json, Limits, join_pointer
from patching.values import float_of, has_many_exponents, repeated_member

_decode = msgspec.json.Decoder().decode
_TOO_MANY_DIGITS = 2**64  # stands for an integer that is too long for Python to parse
_DIGITS_MAX = 4000
_SHOWN_MAX = 200  # characters; a longer patch isn't shown in a refusal
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_POINTER_CHARACTERS_MAX = 1000
# Translates every digit to "0" and all else to a space, so that a run of digits is a substring.
_DIGITS_ALONE = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else 32 for byte in range(256))
_LONG_RUN = b"0" * 19
_strings_and_constants = re.compile(r'"(?:[^"\\]|\\.)*"|(NaN|-?Infinity)').finditer


def read_body(context: OpenContext, limits: RequestLimits) -> bytes:
    """The body. A chunked body is read no further than just beyond the limit.

    Raises RequestRefused, and the connection's errors (werkzeug's BadRequest).
    """
    maximum, environ, length = limits.body_bytes_max, context.environ, context.observed.body_bytes
    refuse_encoded(environ)
    if length is not None and length > maximum:
        _refuse_large(maximum, length)
    is_whole = length is not None and environ.get("wsgi.input_terminated")
    stream = environ["wsgi.input"] if is_whole else get_input_stream(environ)
    raw = _read(stream, maximum + 1 if length is None else length)
    if len(raw) > maximum:
        _refuse_large(maximum, len(raw))
    return raw


@in_section
def require_few_values(raw: bytes, limits: RequestLimits) -> None:
    """Raise RequestRefused if ``raw`` holds too many values. They aren't decoded, but counted by
    commas and brackets: each value except the first of its container follows a comma."""
    if len(raw) <= UNWEIGHED_BYTES:
        return
    arrays, objects, commas = raw.count(b"["), raw.count(b"{"), raw.count(b",")
    if arrays + objects + commas > limits.body_values_max:
        marks = _TEXT.sub(b"", raw)  # those in texts don't count
        actual = marks.count(b"[") + marks.count(b"{") + marks.count(b",")
        if actual > limits.body_values_max:
            what = f"the JSON has about {actual} values"
            raise over_limit(what, "body_values_max", limits.body_values_max, actual)


# Codings that leave a body as it is, or that the server has decoded already.
_IDENTITY_CODINGS: Final = {"", "identity", "chunked"}
_CODINGS: Final = {
    "HTTP_CONTENT_ENCODING": "leave out Content-Encoding",
    "HTTP_TRANSFER_ENCODING": "only 'chunked' may be in Transfer-Encoding",
}


def refuse_encoded(environ: Environ) -> None:
    """Refuse a body that is compressed or otherwise encoded."""
    for name in _CODINGS:
        codings = environ.get(name, "").lower().split(",")
        if not {each.strip() for each in codings} <= _IDENTITY_CODINGS:
            raise RequestRefused(
                "unsupported_content_encoding",
                f"compressed bodies are not supported: {_CODINGS[name]}",
                headers=[("Accept-Encoding", "identity")],
            )


def _read(stream: IO[bytes], size: int) -> bytes:
    """At most ``size`` bytes. A stream may give fewer at a time than were asked for."""
    try:
        raw = stream.read(size)
        while raw and len(raw) < size:
            more = stream.read(size - len(raw))
            if not more:
                break
            raw += more
    except MemoryError:
        raise MemoryFull("this worker has no memory left for the body") from None
    return raw


# Each ``decode_…`` refuses text that isn't JSON, and an object that has a member twice: readers
# differ in which of the two they take (RFC 8259, section 4; RFC 6902, A.13). ``at`` is the pointer
# to ``raw`` in the body, for the refusal. ``decode_patch`` is no section: its callers are.


@in_section
def decode_value(raw: bytes, limits: RequestLimits | None, at: str = "") -> Json:
    """The JSON value in ``raw``, which can be stored unless it is too large. Without ``limits`` it
    may also be too deep: for bodies of several documents, each checked by ``document_bytes``."""
    value, suspect = _decoded(raw) if limits is None else _decoded_shallow(raw, limits)
    _search(value, raw, suspect)
    refuse_repeated(value, raw, at)
    return value


@in_section
def decode_document(raw: bytes, limits: RequestLimits, at: str = "") -> tuple[Json, int]:
    """The JSON value in ``raw``, which can be stored, and its length as compact JSON in bytes."""
    value, suspect = _decoded_shallow(raw, limits)
    if isinstance(suspect, ValueError):  # perhaps it can't be encoded
        _search(value, raw, suspect)
    # Checked before the search, which takes longer. The length of ``raw`` doesn't tell: spaces are
    # left out, and 1e15 is written as 1000000000000000.0.
    encoded = encode(value)
    size_bytes = len(encoded)
    if size_bytes > limits.document_bytes_max:
        raise _too_large(size_bytes, limits)
    _search(value, raw, suspect)
    refuse_repeated(value, raw, at, encoded)
    return value, size_bytes


def decode_patch(raw: bytes, at: str = "", *, extended: bool = False) -> Json:
    """The JSON value in ``raw``, a patch that can be stored; ``extended``: an extended one.

    Whether it is a patch at all, and how deep it is nested, is left to ``patching.parse``.
    """
    value, suspect = _decoded(raw)
    if suspect:
        operations = value
        if extended:
            operations = value.get("patch") if isinstance(value, dict) else None
        require_storable_operations(operations, len(raw))
    _search(value, raw, suspect)
    refuse_repeated(value, raw, at, operation_at=1 if extended else 0)
    return value


@in_section
def read_patch(
    media_type: str, raw: bytes, limits: RequestLimits, patch_limits: Limits
) -> tuple[ApplyPatch | Merge, Json]:
    """The edit that a body of one of the patch types asks for, and the body decoded.

    Raises RequestRefused, Unstorable, and PatchError if the body isn't a patch.
    """
    body: Json
    edit: ApplyPatch | Merge
    if media_type == media_types.JSON_PATCH:
        body = decode_patch(raw)
        edit = ApplyPatch(_plain(body, patch_limits))
    elif media_type == media_types.EXTENDED_PATCH:
        body = decode_patch(raw, extended=True)
        edit = ApplyPatch(_extended(body, patch_limits))
    else:
        body = decode_value(raw, limits)
        edit = Merge(body, len(encode(body)))
    return edit, body


def _plain(body: Json, limits: Limits) -> patching.Patch:
    """The RFC 6902 patch. If an operation is of extended patches, the error names their type."""
    try:
        return patching.parse(body, limits=limits)
    except patching.InvalidPatch as error:
        if error.code == "unknown_operation" and isinstance(body, list):
            name = body[error.operation or 0]["op"]
            if name in patching.extended.EXTENDED_OPERATIONS:
                error.detail += f"; {name!r} needs Content-Type {media_types.EXTENDED_PATCH}"
        raise


def _extended(body: Json, limits: Limits) -> patching.ExtendedPatch:
    """The extended patch. If the object around the operations is missing, the error shows it."""
    try:
        return patching.parse_extended(body, limits=limits)
    except patching.InvalidPatch as error:
        if isinstance(body, list):
            shown = encode(body).decode()
            sent = shown if len(shown) <= _SHOWN_MAX else "[…]"
            error.detail += f'; send {{"patch": {sent}}}'
        raise


@in_section
def document_bytes(value: Json, limits: RequestLimits, pointer: str) -> int:
    """The length, as compact JSON in bytes, of ``value`` at ``pointer`` of the body.

    Raises RequestRefused if it is nested too deep or too large for a document.
    """
    try:
        _refuse_deep(value, limits)
    except RequestRefused as error:
        error.members["pointer"] = pointer
        raise
    size_bytes = len(encode(value))
    if size_bytes > limits.document_bytes_max:
        raise _too_large(size_bytes, limits, f"'{pointer[:100]}': ", pointer=pointer)
    return size_bytes


def _too_large(
    size_bytes: int, limits: RequestLimits, where: str = "", **place: str
) -> RequestRefused:
    what = f"{where}the document takes {size_bytes} bytes as JSON"
    maximum = limits.document_bytes_max
    return over_limit(what, "document_bytes_max", maximum, size_bytes, **place)


def _decoded_shallow(raw: bytes, limits: RequestLimits) -> tuple[Json, ValueError | bool]:
    """Like ``_decoded``, but refuses a value that is nested too deep."""
    value, suspect = _decoded(raw)
    if raw.count(b"{") + raw.count(b"[") > limits.depth_max:
        _refuse_deep(value, limits)
    return value, suspect


def _decoded(raw: bytes) -> tuple[Json, ValueError | bool]:
    """The value, and whether it must be searched: false, true, or why msgspec refused it."""
    if has_many_exponents(raw):
        return _decoded_leniently(raw), True
    try:
        value = trees.parse(_decode, raw, len(raw))
    except RecursionError:
        _refuse_very_deep()
    except ValueError as error:
        return _decoded_leniently(raw), error
    return value, raw.find(b"\\u0000") >= 0 or raw.translate(_DIGITS_ALONE).find(_LONG_RUN) >= 0


def _decoded_leniently(raw: bytes) -> Json:
    """Decode JSON that msgspec refused, or would need long for. Either the standard library refuses
    it too, or its value is then searched for what can't be stored."""
    try:
        decoded = raw.decode()
    except UnicodeDecodeError as error:
        detail = f"the body is not UTF-8 at byte {error.start}"
        raise RequestRefused("malformed_json", detail) from error
    try:
        value: Any = json.loads(
            decoded,
            parse_int=_integer,
            parse_float=float_of,
            parse_constant=lambda name: _refuse_constant(name, decoded),
        )
    except json.JSONDecodeError as error:
        raise RequestRefused("malformed_json", f"the body is not JSON: {error}") from error
    except RecursionError:
        _refuse_very_deep()
    return value  # type: ignore[no-any-return]


def _refuse_constant(name: str, decoded: str) -> NoReturn:
    place = next(found.start(1) for found in _strings_and_constants(decoded) if found[1])
    raise json.JSONDecodeError(f"JSON has no {name}", decoded, place)


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= _DIGITS_MAX else _TOO_MANY_DIGITS


def _search(value: Json, raw: bytes, suspect: ValueError | bool) -> None:
    """Raise Unstorable for anything in a suspect value that can't be stored.

    If nothing is found, the value is all right, unless msgspec refused it: then RequestRefused.
    """
    if suspect:
        require_storable(value, depth_max=len(raw))
    if isinstance(suspect, ValueError):
        raise RequestRefused("malformed_json", f"the body is not JSON: {suspect}") from suspect


def refuse_repeated(
    value: Any,
    raw: bytes,
    at: str = "",
    encoded: bytes | None = None,
    *,
    operation_at: int | None = None,
) -> None:
    """Raise RequestRefused if an object in ``raw``, whose value is ``value``, has a member twice.

    ``at``: the pointer to ``raw`` in the body. ``encoded``: the value as JSON, if known already.
    ``operation_at``: which token of a member's pointer is the index of a patch's operation."""
    try:
        way = repeated_member(raw, encode(value) if encoded is None else encoded)
    except RecursionError:
        _refuse_very_deep()
    if way is None:
        return
    members: dict[str, Any] = {"pointer": (at + join_pointer(way))[:_POINTER_CHARACTERS_MAX]}
    if operation_at is not None and len(way) > operation_at and way[operation_at].isdecimal():
        members["operation"] = int(way[operation_at])
    detail = f"an object has the member '{way[-1]}' twice"
    raise RequestRefused("malformed_json", detail, **members)


def _refuse_deep(value: Json, limits: RequestLimits) -> None:
    """Raise RequestRefused for a value that is nested too deep; without recursion, at any depth."""
    level = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
    if depth > limits.depth_max:
        what = f"the value is nested {depth} levels deep"
        raise over_limit(what, "depth_max", limits.depth_max, depth, code="nesting_too_deep")


def _refuse_very_deep() -> NoReturn:
    raise RequestRefused(
        "nesting_too_deep", "the body is nested far deeper than allowed", limit="depth_max"
    )


def _refuse_large(maximum: int, actual: int) -> NoReturn:
    what = f"the body has {actual} bytes or more"
    raise over_limit(what, "body_bytes_max", maximum, actual, code="body_too_large")


_INTEGER_MIN = -(2**63)
_INTEGER_MAX = 2**63 - 1


def require_storable(value: Json, *, depth_max: int) -> None:
    """Raise Unstorable for the first thing in ``value``, by the order of the text, that can't be
    stored.

    The memory it takes grows with the depth alone, not with the number of elements. ``depth_max``
    bounds the nesting of containers.
    """
    _require_item_storable(value, (), depth_max)
    # One iterator for each container that the walk is in, and the path to its present item.
    inside = [_children(value)] if isinstance(value, dict | list) else []
    path: list[str | int] = [""]
    while inside:
        for token, item in inside[-1]:
            kind = type(item)
            if (kind is int and _INTEGER_MIN <= item <= _INTEGER_MAX) or (
                kind is str and item.isascii()
            ):
                continue
            path[-1] = token
            _require_item_storable(item, path, depth_max)
            if item and (kind is dict or kind is list):
                inside.append(_children(item))
                path.append("")
                break
        else:
            inside.pop()
            path.pop()


def _children(container: Any) -> Iterator[tuple[str | int, Any]]:
    return iter(container.items() if isinstance(container, dict) else enumerate(container))


def _require_item_storable(item: Json, path: Sequence[str | int], depth_max: int) -> None:
    problem = _problem(item, len(path), depth_max)
    if problem:
        raise Unstorable(problem, join_pointer([_printable(str(p)) for p in path]))


def _problem(item: Json, depth: int, depth_max: int) -> str | None:
    if isinstance(item, str):
        return None if _is_unicode(item) else "the string contains a lone surrogate"
    if isinstance(item, bool) or item is None:
        return None
    if isinstance(item, int):
        fits = _INTEGER_MIN <= item <= _INTEGER_MAX
        return None if fits else "an integer beyond 64 bits can't be stored"
    if isinstance(item, float):
        return None if math.isfinite(item) else "a number too large for a double can't be stored"
    if depth >= depth_max:
        return f"nested deeper than {depth_max} levels"
    if isinstance(item, dict):
        for name in item:
            if "\0" in name:
                return "a member name contains NUL"
            if not _is_unicode(name):
                return "a member name contains a lone surrogate"
    return None


def _is_unicode(characters: str) -> bool:
    try:
        characters.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(token: str) -> str:
    return token.encode("utf-8", "backslashreplace").decode()


def require_storable_operations(operations: Json, depth_max: int) -> None:
    """Raise Unstorable for anything in ``operations`` that can't be stored, if they are a list."""
    for index, operation in enumerate(operations if isinstance(operations, list) else ()):
        if isinstance(operation, dict):
            _check_operation(operation, index, depth_max)


def _check_operation(operation: dict[str, Any], index: int, depth_max: int) -> None:
    path = operation.get("path")
    pointer = path if isinstance(path, str) else ""
    for member in ("path", "from"):
        place = operation.get(member)
        if isinstance(place, str) and "\0" in place:
            raise Unstorable("a member name contains NUL", pointer, index)
    if "value" in operation:
        try:
            require_storable(operation["value"], depth_max=depth_max)
        except Unstorable as error:
            raise Unstorable(error.detail, _printable(pointer) + error.pointer, index) from error


REVISION: Final = integer()
# The commit's message; "" means none.
MESSAGE: Final = text(MESSAGE_CHARACTERS_MAX)
AUTHOR: Final = Exact(str, f"it must be {AUTHOR_RULE}", is_author)


def require_object(value: Any, known: Collection[str], at: str = "") -> dict[str, Any]:
    """``value``. Raises RequestRefused unless it is an object with ``known`` members alone."""
    if not isinstance(value, dict):
        refuse_member(at, "it must be an object")
    require_known(value, known, at)
    return value


def require_known(members: Mapping[str, Any], known: Collection[str], at: str = "") -> None:
    for name in members:
        if name not in known:
            reason = f"unknown member; known members: {', '.join(known)}"
            refuse_member(at + join_pointer([name]), reason)


def required(members: Mapping[str, Any], name: str) -> Any:
    if name not in members:
        refuse_member(f"/{name}", "it is missing")
    return members[name]


def required_text(members: Mapping[str, Any], name: str) -> str:
    """The text under ``name``, which is required."""
    value = required(members, name)
    if not isinstance(value, str):
        refuse_member(f"/{name}", "it must be a string")
    return value


def member(members: Mapping[str, Any], name: str, field: Exact, at: str = "") -> Any:
    """The member ``name`` as ``field`` loads it, or the field's default."""
    try:
        return field.deserialize(members[name]) if name in members else field.load_default
    except ValidationError as error:
        refuse_member(f"{at}/{name}", str(error.messages[0]))


def invalid_body(pointer: str, reason: str, **more: Any) -> RequestRefused:
    place = f"'{pointer}'" if pointer else "the body"
    detail = f"{place}: {reason}"[:600]
    return RequestRefused("invalid_body", detail, pointer=pointer, **more)


def refuse_member(pointer: str, reason: str) -> NoReturn:
    raise invalid_body(pointer, reason)


_MODES: Final = ("keep", "clear", "replace")


def attributes_of(members: Mapping[str, Any], at: str = "") -> Attributes | None:
    """The new attributes in member ``attributes``: None keeps the old ones, {} clears them.

    Without the member the old ones are kept; null is refused. ``at`` is the pointer to ``members``
    in the body.
    """
    if "attributes" not in members:
        return None
    at += "/attributes"
    wanted = require_object(members["attributes"], ("mode", "value"), at)
    mode = wanted.get("mode")
    if mode not in _MODES:
        refuse_member(f"{at}/mode", f"it must be one of {', '.join(_MODES)}")
    if mode != "replace":
        if "value" in wanted:
            refuse_member(f"{at}/value", f"mode {mode!r} takes no value")
        return None if mode == "keep" else {}
    value = wanted.get("value")
    if not isinstance(value, dict):
        refuse_member(f"{at}/value", "it must be an object, with mode 'replace'")
    return value
