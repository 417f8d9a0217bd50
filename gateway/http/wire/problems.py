"""The one place that turns errors into responses (RFC 9457, ``application/problem+json``)."""

from __future__ import annotations

import logging
import time
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
from gateway.errors import AccessError, Forbidden, GatewayError, Unauthenticated, code_of
from gateway.http.context import Context
from gateway.http.wire.answers import Answer, body_answer, encode
from gateway.http.wire.headers import PROBLEM
from gateway.http.wire.problem_members import members_of, members_of_patch_error, shortened
from gateway.http.wire.refusals import KINDS, RequestRefused, type_uri
from patching import (
    Json,
    LimitExceeded,
    PatchError,
)

_log = logging.getLogger(__name__)

_DETAIL_CHARACTERS_MAX = 600
# What is remembered of a refusal, beside its detail.
_REMEMBERED_BYTES_MAX = 2000
_READING = ("GET", "HEAD", "OPTIONS")

# Inner limits by their names in the table of settings; the names of others are equal.
_LIMIT_SETTINGS: Final = {
    "operations_max": "patch_operations_max",
    "result_bytes_max": "document_bytes_max",
}


@dataclass(slots=True)
class Problem:
    """A refusal that becomes a response."""

    code: str
    detail: str
    applied: str = "no"
    retryable: bool = False
    members: dict[str, Any] = field(default_factory=dict)
    headers: list[tuple[str, str]] = field(default_factory=list)
    retry_after_s: int | None = None


class _Unreachable:
    """Why the database can't be reached, for the log alone, where strangers don't read it.

    Once in a second: every request is refused for it.
    """

    def __init__(self) -> None:
        self._next_at = 0.0

    def tell(self, why: BaseException) -> None:
        now = time.monotonic()
        if now >= self._next_at:
            self._next_at = now + 1.0
            _log.warning("the database can't be reached: %s", why)


_unreachable = _Unreachable()


def problem_answer(error: Exception, context: Context) -> Answer:
    """The response to ``error``, with what helps. An unforeseen one is logged as a defect."""
    problem = problem_of(error)
    if isinstance(error, errors.StoreUnavailable) and error.__cause__ is not None:
        _unreachable.tell(error.__cause__)
    if problem is None:
        _log.error("request %s failed", context.request_id, exc_info=error)
        # Nobody knows how far a write got before the defect.
        applied = "no" if context.method in _READING else "unknown"
        problem = Problem("internal_error", "the gateway has a defect; it was logged", applied)
    problem.members |= context.helps or {}
    return _answer(problem, context)


def _answer(problem: Problem, context: Context) -> Answer:
    kind = KINDS[problem.code]
    context.problem = problem.code  # for observers of requests
    headers = problem.headers
    retry_after_s = problem.retry_after_s or kind.retry_after_s
    if retry_after_s is not None:
        headers.append(("Retry-After", str(retry_after_s)))
    content = problem_content(problem, context.request_id)
    return body_answer(encode(content), headers, kind.status, PROBLEM)


def remembered(error: errors.CommitError) -> dict[str, Json]:
    """A refusal as it is told when its request is sent again: large members are left out."""
    problem = problem_of(error)
    assert problem is not None
    members = {
        name: value
        for name, value in problem.members.items()
        if len(encode(value)) <= _REMEMBERED_BYTES_MAX
    }
    detail = shortened(problem.detail, _DETAIL_CHARACTERS_MAX)
    return {"code": problem.code, "detail": detail, "members": members}


def problem_content(problem: Problem, request_name: str) -> dict[str, Any]:
    """The problem as a JSON object, ``status`` included; ``request_name`` is its request id."""
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


def problem_of(error: Exception) -> Problem | None:
    """The problem of ``error``; None for an error that no client should see."""
    if isinstance(error, GatewayError):
        return _of_gateway_error(error)
    if isinstance(error, PatchError):
        return _of_patch_error(error)
    if isinstance(error, RequestRefused):
        return Problem(
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


def _of_gateway_error(error: GatewayError) -> Problem:
    if isinstance(error, AccessError):
        return _of_access_error(error)
    problem = Problem(code_of(error), error.detail, error.applied, error.retryable)
    if isinstance(error, errors.PatchDoesNotFit):
        problem = _of_patch_error(error.error)
    elif isinstance(error, errors.OverLimit):
        _tell_limit(problem, error)
    elif isinstance(error, errors.RefusedBefore):
        problem.headers.append(("Idempotency-Replayed", "true"))
    problem.members |= members_of(error)
    if isinstance(error, errors.CommitError) and error.action is not None:
        problem.members["action"] = error.action
        if error.otherwise:
            problem.members["branch"] = "else"
    return problem


def _of_patch_error(error: PatchError) -> Problem:
    problem = Problem(code_of(error), error.detail)
    if isinstance(error, LimitExceeded):
        _tell_limit(problem, error)
    problem.members |= members_of_patch_error(error)
    return problem


def _of_access_error(error: AccessError) -> Problem:
    problem = Problem(error.code, error.detail, error.applied, error.retryable)
    if isinstance(error, Unauthenticated):
        # RFC 6750, section 3.1: no error code where there was no token.
        reason = ', error="invalid_token"' if error.presented else ""
        problem.headers.append(("WWW-Authenticate", f'Bearer realm="metadata-gateway"{reason}'))
    elif isinstance(error, Forbidden):
        problem.members = {"role": error.role, "catalog": error.catalog}
    return problem


def _of_http_exception(error: HTTPException) -> Problem:
    """The problem of an error by Flask or werkzeug: no route, no such method, a broken body."""
    if isinstance(error, NotFound):
        return Problem("route_not_found", "there is no such route")
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return Problem(
            "method_not_allowed", f"this route has {allowed}", headers=[("Allow", allowed)]
        )
    detail = error.description or error.name
    if isinstance(error, RequestTimeout):
        return Problem("request_timeout", detail, retryable=True)
    if isinstance(error, TooManyRequests):
        return Problem("queue_full", detail, retryable=True)
    return Problem("malformed_request", detail)


def _tell_limit(problem: Problem, error: errors.OverLimit | LimitExceeded) -> None:
    setting = _LIMIT_SETTINGS.get(error.limit, error.limit)
    problem.detail = error.detail.replace(error.limit, setting)
    problem.members |= {"limit": setting, "maximum": error.maximum, "actual": error.actual}
