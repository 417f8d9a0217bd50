"""The one place that turns errors into responses (RFC 9457, ``application/problem+json``).

Texts are shortened, only small values are shown, and long lists are cut, so that a refusal is never
much longer than the request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from werkzeug.exceptions import (
    HTTPException,
    MethodNotAllowed,
    NotFound,
    RequestTimeout,
    TooManyRequests,
)

from gateway import errors
from gateway.conflict import Disputed, FailedCompare, Stale, StateConflict
from gateway.http.context import READING, Observed
from gateway.http.wire.codes import KINDS, RequestRefused, type_uri
from gateway.http.wire.headers import PROBLEM
from gateway.http.wire.responses import Answer, body_answer, encode
from gateway.http.wire.shapes import owner_shapes
from gateway.limits import MIB
from gateway.model import WITHHELD, DocumentRecord
from patching import ABSENT, Json, LimitExceeded, PatchError, TestFailed
from patching.errors import IndexNeedsTest
from patching.ownership import Contested, OwnedByOthers
from patching.values import Absent

_log = logging.getLogger(__name__)

_DETAIL_CHARACTERS_MAX = 600
# The most bytes, as JSON, of a member that a replayed refusal shows.
_REMEMBERED_BYTES_MAX = 2000

# The settings behind the library's limits, where the names differ.
_LIMIT_SETTINGS: Final = {
    "operations_max": "patch_operations_max",
    "result_bytes_max": "document_bytes_max",
}


@dataclass(slots=True)
class Refusal:
    """A refusal that becomes a response."""

    code: str
    detail: str
    applied: str = "no"
    retryable: bool = False
    members: dict[str, Any] = field(default_factory=dict)
    headers: list[tuple[str, str]] = field(default_factory=list)
    retry_after_s: int | None = None


_unreachable = errors.UnreachableLog(_log)


def problem_answer(error: Exception, observed: Observed) -> Answer:
    """The response to ``error``, with ``observed.helps``. Logs an unforeseen error as a defect."""
    if isinstance(error, MemoryError):
        return _answer(_without_memory(errors.untraced(error), observed), observed)
    problem = problem_of(error)
    of_store = errors.StoreUnavailable | errors.UnknownOutcome
    if isinstance(error, of_store) and error.__cause__ is not None:
        _unreachable.note(error.__cause__, time.monotonic())
    if problem is None:
        detail = "the gateway has a defect; it was logged"
        if isinstance(error, errors.Contradiction):
            detail = error.public_detail
        log_failed(observed.request_id, error)
        # It isn't known how far a write got before the defect.
        applied = "no" if observed.method in READING else "unknown"
        problem = Refusal("internal_error", detail, applied)
    problem.members |= observed.helps
    return _answer(problem, observed)


def log_failed(request_id: str, error: Exception) -> None:
    said, traced = errors.to_log(error)
    _log.error("request %s failed%s", request_id, said, exc_info=traced)


def _without_memory(error: MemoryError, observed: Observed) -> Refusal:
    """The refusal if memory ran out when a write may have been applied; before that, ``cpu`` makes
    a refusal of its own."""
    about = str(error) or "this worker has no memory left"
    _log.error("request %s failed: %s", observed.request_id, about)
    detail = "this worker has no memory left for the request"
    if observed.method in READING:
        return Refusal(errors.MemoryFull.code, detail, retryable=True)
    return Refusal(errors.UnknownOutcome.code, f"{detail}; it may have been applied", "unknown")


def _answer(problem: Refusal, observed: Observed) -> Answer:
    kind = KINDS[problem.code]
    observed.problem = problem.code  # for observers of requests
    headers = problem.headers
    retry_after_s = problem.retry_after_s or kind.retry_after_s
    if retry_after_s is not None:
        headers.append(("Retry-After", str(retry_after_s)))
    content = problem_content(problem, observed.request_id)
    return body_answer(encode(content), headers, kind.status, PROBLEM)


def encode_refusal(error: errors.CommitError) -> dict[str, Json]:
    """A refusal as its replay shows it: code, detail, and all but the large members."""
    problem = problem_of(error)
    assert problem is not None
    members = {
        name: value
        for name, value in problem.members.items()
        if len(encode(value)) <= _REMEMBERED_BYTES_MAX
    }
    detail = shortened(problem.detail, _DETAIL_CHARACTERS_MAX)
    return {"code": problem.code, "detail": detail, "members": members}


def problem_content(problem: Refusal, request_name: str) -> dict[str, Any]:
    """The problem as a JSON object, ``status`` included; ``request_name`` is the request's id."""
    kind = KINDS[problem.code]
    content = {
        "type": type_uri(problem.code),
        "title": kind.title,
        "status": kind.status,
        "detail": shortened(problem.detail, _DETAIL_CHARACTERS_MAX),
        "code": problem.code,
        "applied": problem.applied,
        "retryable": problem.retryable,
        "request_id": request_name,
    }
    content |= problem.members
    return content


def problem_of(error: Exception) -> Refusal | None:
    """The problem of ``error``; None for an error that no client should see."""
    if isinstance(error, errors.GatewayError):
        return _of_gateway_error(error)
    if isinstance(error, PatchError):
        return _of_patch_error(error)
    if isinstance(error, RequestRefused):
        return Refusal(
            error.code,
            error.detail,
            retryable=error.retryable,
            members=dict(error.members),
            headers=list(error.headers),
            retry_after_s=error.retry_after_s,
        )
    if isinstance(error, HTTPException):
        return _of_http_exception(error)
    return None


def _of_gateway_error(error: errors.GatewayError) -> Refusal:
    problem = Refusal(errors.code_of(error), error.detail, error.applied, error.retryable)
    if isinstance(error, errors.PatchDoesNotFit):
        problem = _of_patch_error(error.error)
    elif isinstance(error, errors.AboveLimit):
        _add_limit(problem, error)
    elif isinstance(error, errors.RefusedBefore):
        problem.headers.append(("Idempotency-Replayed", "true"))
    elif isinstance(error, errors.Unauthenticated):
        # RFC 6750, section 3.1: no error code if there was no token.
        reason = ', error="invalid_token"' if error.presented else ""
        problem.headers.append(("WWW-Authenticate", f'Bearer realm="metadata-gateway"{reason}'))
    problem.members |= members_of(error)
    if isinstance(error, errors.CommitError) and error.action is not None:
        problem.members["action"] = error.action
        if error.otherwise:
            problem.members["branch"] = "else"
    return problem


def _of_patch_error(error: PatchError) -> Refusal:
    problem = Refusal(errors.code_of(error), error.detail)
    if isinstance(error, LimitExceeded):
        _add_limit(problem, error)
    problem.members |= members_of_patch_error(error)
    return problem


_NO_ROUTE: Final = (
    "there is no such route; a document is at /v1/catalogs/{catalog}/documents/{key}, and /docs of"
    " this gateway lists all routes"
)


def _of_http_exception(error: HTTPException) -> Refusal:
    """The problem of an error of Flask or werkzeug: no route, no such method, a broken body."""
    if isinstance(error, NotFound):
        return Refusal("route_not_found", _NO_ROUTE)
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return Refusal(
            "method_not_allowed", f"this route takes {allowed}", headers=[("Allow", allowed)]
        )
    detail = error.description or error.name
    if isinstance(error, RequestTimeout):
        return Refusal("request_timeout", detail, retryable=True)
    if isinstance(error, TooManyRequests):
        return Refusal("queue_full", detail, retryable=True)
    return Refusal("malformed_request", detail)


def _add_limit(problem: Refusal, error: errors.AboveLimit | LimitExceeded) -> None:
    setting = _LIMIT_SETTINGS.get(error.limit, error.limit)
    problem.detail = error.detail.replace(error.limit, setting)
    problem.members |= {"limit": setting, "maximum": error.maximum, "actual": error.actual}


Members = dict[str, Any]

_POINTER_CHARACTERS_MAX = 1000
_VALUE_BYTES_MAX = 1000
_COMPARED_BYTES_MAX = MIB
_OVERLAP_MAX = 100
_STALE_MAX = 100
_CONTESTED_MAX = 100


def members_of(error: errors.GatewayError) -> Members:
    """The members of its problem that programs need; {} for most kinds."""
    for kind in type(error).__mro__:
        if kind in _MEMBERS:
            return _MEMBERS[kind](error)
    return {}


def members_of_patch_error(error: PatchError) -> Members:
    """The members of its problem: where the patch failed, and what is there."""
    members = _place(error.operation, error.pointer)
    if isinstance(error, IndexNeedsTest):
        members["tests"] = [shortened(each, _POINTER_CHARACTERS_MAX) for each in error.tests]
    if isinstance(error, OwnedByOthers):
        members |= _contested(error.contested)
    if isinstance(error, TestFailed):
        members |= _small(expected=error.expected, actual=error.actual)
    return members


def _shortened_members(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: shortened(text, _POINTER_CHARACTERS_MAX) for name, text in texts.items()}


def _conflict(failed: StateConflict) -> dict[str, Any]:
    members: dict[str, Any] = {"expected": shortened(failed.expected, _VALUE_BYTES_MAX)}
    members |= _current(failed.document)
    if failed.catalog_revision is not None:
        members["resource_version"] = failed.catalog_revision
    if failed.overlap:
        members["overlap"] = [
            shortened(pointer, _POINTER_CHARACTERS_MAX) for pointer in failed.overlap[:_OVERLAP_MAX]
        ]
    if failed.not_rebased is not None:
        members["not_rebased"] = failed.not_rebased.value
    if failed.key:
        members["key"] = failed.key
    if failed.prefix is not None and not failed.compares:
        members["prefix"] = failed.prefix
        if failed.changed_at is not None:
            members["changed_at"] = failed.changed_at
    if failed.stale:
        members["stale"] = [_stale(each) for each in failed.stale[:_STALE_MAX]]
    if failed.compares:
        members["failed_compares"] = _failed_compares(failed.compares)
    return members


def _disputed(disputed: Sequence[Disputed]) -> dict[str, Any]:
    """The contested places, each with both values if they are small."""
    shown = []
    for each in disputed[:_CONTESTED_MAX]:
        entry: dict[str, Any] = {
            "key": each.key or None,
            "part": "attributes" if each.of_attributes else "content",
            "pointer": shortened(each.pointer, _POINTER_CHARACTERS_MAX),
            "revision": each.revision,
        }
        shown.append(entry | _small(value=each.now, wanted=each.wanted))
    return {"contested": shown, "contested_count": len(disputed)}


def _stale(each: Stale) -> dict[str, Any]:
    current = _current(each.document)
    return {"key": each.key, "expected": each.token, "current": None, **current}


def _failed_compares(failed: Sequence[FailedCompare]) -> list[dict[str, Any]]:
    """The failed compares, with the documents' values up to ``_COMPARED_BYTES_MAX`` in all."""
    shown = []
    left_bytes = _COMPARED_BYTES_MAX
    for each in failed:
        found: dict[str, Any] = {"index": each.index, "key": each.key, "detail": each.reason}
        if each.prefix is not None:
            found["prefix"] = each.prefix
            if each.changed_at is not None:
                found["changed_at"] = each.changed_at
        found["current"] = None
        document = each.document
        if document is not None:
            found["current"] = {"etag": document.token, "revision": document.revision}
            left_bytes -= document.size_bytes
            if left_bytes >= 0 and document.content is not WITHHELD:
                found["current"]["value"] = document.content
        shown.append(found)
    return shown


def _contested(contested: Sequence[Contested]) -> dict[str, Any]:
    """The contested places, each with both values if they are small."""
    shown = []
    for each in contested[:_CONTESTED_MAX]:
        entry: dict[str, Any] = {
            "pointer": shortened(each.pointer, _POINTER_CHARACTERS_MAX),
            "owners": owner_shapes(each.owners),
        }
        entry |= _small(value=each.value, wanted=each.wanted)
        if each.wanted_at != each.pointer:
            entry["wanted_at"] = shortened(each.wanted_at, _POINTER_CHARACTERS_MAX)
        shown.append(entry)
    return {"contested": shown, "contested_count": len(contested)}


def _place(operation: int | None, pointer: str | None) -> dict[str, Any]:
    place: dict[str, Any] = {}
    if operation is not None:
        place["operation"] = operation
    if pointer is not None:
        place["pointer"] = shortened(pointer, _POINTER_CHARACTERS_MAX)
    return place


def _current(live: DocumentRecord | None) -> dict[str, Any]:
    return {} if live is None else {"current": {"etag": live.token, "revision": live.revision}}


def _small(**values: Json | Absent) -> Members:
    """The ``values`` that are present and small."""
    return {
        name: value for name, value in values.items() if value is not ABSENT and _is_small(value)
    }


def _is_small(value: Json) -> bool:
    """Whether ``value`` is short as JSON. Looks at no more of it than is needed to know.

    Documents are nested no deeper than their limit, but a patch that moves values into each other
    may fail at a test while they are nested too deep to be encoded.
    """
    least_bytes = 0  # the items seen so far take at least this
    waiting = [value]
    while waiting:
        item = waiting.pop()
        least_bytes += 1
        if isinstance(item, str | list | dict):
            least_bytes += len(item)
        if least_bytes > _VALUE_BYTES_MAX:
            return False
        if isinstance(item, list | dict):
            waiting.extend(item.values() if isinstance(item, dict) else item)
    try:
        return len(encode(value)) <= _VALUE_BYTES_MAX
    except RecursionError:
        return False


def shortened(text: str, characters_max: int) -> str:
    """``text`` with at most ``characters_max`` characters; lone surrogates are escaped."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def _collision(error: errors.ItemsCollide) -> Members:
    places = {"pointer": error.pointer, "other": error.other}
    return {"key": error.key, **_shortened_members(places)}


def _settings(error: errors.SettingsInvalid) -> Members:
    members: Members = {"pointer": shortened(error.pointer, _POINTER_CHARACTERS_MAX)}
    return members | ({"errors": list(error.errors)} if error.errors else {})


def _broken(error: errors.DocumentsBreakSettings) -> Members:
    documents = [_shortened_members(each) for each in error.documents]
    return {"documents": documents, "complete": error.complete}


_MEMBERS: Final[Mapping[type, Callable[[Any], Members]]] = {
    errors.PatchDoesNotFit: lambda error: {"key": error.key, **_current(error.document)},
    errors.ConditionFailed: lambda error: _conflict(error.conflict),
    errors.SchemaViolation: lambda error: {"key": error.key, "errors": list(error.errors)},
    errors.ItemsCollide: _collision,
    errors.DocumentsBreakSettings: _broken,
    errors.SettingsInvalid: _settings,
    errors.TargetExists: lambda error: {"key": error.key, **_current(error.document)},
    errors.ChangedSince: lambda error: _disputed(error.disputed),
    errors.DocumentNotFound: lambda error: {"key": error.key},
    errors.AttributesInvalid: lambda error: _place(None, error.pointer),
    errors.DocumentForbidden: lambda error: {
        "prefix" if error.of_range else "key": error.key,
        "right": error.right,
    },
    errors.Forbidden: lambda error: {"role": error.role, "catalog": error.catalog},
    errors.PinHolds: lambda error: {"pinned_revision": error.pinned},
    errors.SnapshotExists: lambda error: {"oldest_revision": error.floor},
    errors.Unstorable: lambda error: _place(error.operation, error.pointer),
    errors.RevisionNotFound: lambda error: {"head_revision": error.head_revision},
    errors.RevisionCompacted: lambda error: {"oldest_revision": error.floor},
    errors.IdempotencyMismatch: lambda error: {"revision": error.revision},
    errors.RefusedBefore: lambda error: dict(error.members),
    errors.UnknownOutcome: lambda error: (
        {} if error.commit_id is None else {"commit_id": error.commit_id}
    ),
}
