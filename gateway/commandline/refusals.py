"""What is said of an error: one line with its code, what is wrong, and what helps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from patching.client import ClientError, NotAuthorized, Problem, RequestError

_LISTED_MAX: Final = 5
# urllib3 begins with the object that failed.
_OBJECT: Final = re.compile(
    r"<[\w.<>]+(?: object)? at 0x[0-9a-f]+>: |\w+\(host='[^']*', port=\d+\): "
)


def explained(error: ClientError) -> str:
    if isinstance(error, Problem):
        head = f"{error.status} {error.code}: {error.detail}"
        return "; ".join([head, *_hints(error)])
    if isinstance(error, RequestError):
        said = _OBJECT.sub("", error.detail)
        unknown = "; it is unknown whether it was applied" if error.applied == "unknown" else ""
        return f"{error.code}: {said}{unknown}"
    return str(error)


def as_problem(error: ClientError) -> dict[str, Any]:
    """The problem that the gateway told, or one of the same shape for what it had no part in."""
    if isinstance(error, Problem):
        return dict(error.problem)
    if isinstance(error, RequestError):
        return {
            "code": error.code,
            "detail": _OBJECT.sub("", error.detail),
            "applied": error.applied,
            "retryable": error.retryable,
        }
    return {
        "code": "client_error",
        "detail": str(error),
        "applied": getattr(error, "applied", "no"),
        "retryable": False,
    }


def _hints(error: Problem) -> Iterator[str]:
    problem = error.problem
    if "operation" in problem:
        yield f"operation {problem['operation']}"
    if "action" in problem:
        branch = " of else" if problem.get("branch") else ""
        yield f"action {problem['action']}{branch}"
    if "pointer" in problem:
        yield f"pointer {problem['pointer']!r}"
    yield from _state_hints(problem)
    for name, what in (("errors", _schema_error), ("failed_compares", _compare), ("stale", _stale)):
        if problem.get(name):
            yield _listed(map(what, problem[name]), len(problem[name]))
    if problem.get("overlap"):
        yield "overlapping pointers " + _listed(
            map(repr, problem["overlap"]), len(problem["overlap"])
        )
    if "limit" in problem and "maximum" in problem:
        yield f"the limit {problem['limit']} is {problem['maximum']}"
    if error.retry_after_s is not None:
        yield f"try again in {error.retry_after_s:.0f} s"
    if isinstance(error, NotAuthorized) and error.status == 401:
        yield "give a token by GATEWAY_TOKEN, GATEWAY_TOKEN_FILE or --token"


def _state_hints(problem: Mapping[str, Any]) -> Iterator[str]:
    current = problem.get("current")
    if isinstance(current, Mapping) and "etag" in current:
        yield f"the current token is {current['etag']}"
    elif problem.get("code") == "precondition_failed" and "current" in problem:
        yield "there is no such document"
    if "resource_version" in problem:
        yield f"the catalog is at revision {problem['resource_version']}"
    since = problem.get("changes_since")
    if since:
        last = since[-1]
        yield (
            f"{len(since)} commits since, revision {last.get('revision')}"
            f" by {last.get('author')} the last of them"
        )
    for name, what in (
        ("oldest_revision", "the oldest revision is"),
        ("head_revision", "the last revision is"),
        ("pinned_revision", "a pin holds revision"),
    ):
        if name in problem:
            yield f"{what} {problem[name]}"


def _schema_error(item: Mapping[str, Any]) -> str:
    return f"{item.get('pointer')!r}: {item.get('message')}"


def _compare(item: Mapping[str, Any]) -> str:
    about = "the catalog" if item.get("key") is None else repr(item["key"])
    current = item.get("current")
    token = f" (the current token is {current['etag']})" if isinstance(current, Mapping) else ""
    return f"compare {item.get('index')} on {about}: {item.get('detail')}{token}"


def _stale(item: Mapping[str, Any]) -> str:
    current = item.get("current")
    there = current.get("etag") if isinstance(current, Mapping) else "absent"
    return f"{item.get('key')!r} is {there}, not {item.get('expected') or 'absent'}"


def _listed(items: Iterator[str], count: int) -> str:
    shown = [item for _, item in zip(range(_LISTED_MAX), items, strict=False)]
    more = [f"and {count - _LISTED_MAX} more"] if count > _LISTED_MAX else []
    return ", ".join([*shown, *more])
