"""How an error ends a command: one line with its code, what is wrong and what helps, and an exit
code by which a script decides what to do. docs/cli.md has the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
import msgspec

from patching.client import ClientError, NotAuthorized, NotFound, Problem, RequestError

_LISTED_MAX: Final = 5
_VALUE_SHOWN_MAX: Final = 60
DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
CONFLICT: Final = 4
NO_ACCESS: Final = 5
OUT_OF_REACH: Final = 6
UNKNOWN: Final = 7
INTERRUPTED: Final = 130
# 410: it was there, and isn't any more. 428: the catalog wants a condition, and there was none.
_BY_STATUS: Final = {404: NOT_FOUND, 410: NOT_FOUND, 409: CONFLICT, 412: CONFLICT, 428: CONFLICT}


class MongodbOutOfReach(click.ClickException):
    """MongoDB doesn't answer a command that asks it directly; nothing was done."""

    exit_code = OUT_OF_REACH


class UnknownIfDone(click.ClickException):
    """Likewise, but its answer to a change got lost."""

    exit_code = UNKNOWN


def explained(error: ClientError) -> str:
    if isinstance(error, Problem):
        # Leave out hints that the gateway's own detail has already.
        news = [text for said, text in _hints(error) if not said or said not in error.detail]
        return "; ".join([str(error), *news])
    if isinstance(error, RequestError):
        unknown = "; it is unknown whether it was applied" if error.applied == "unknown" else ""
        return f"{error.code}: {error.detail}{unknown}"
    return str(error)


def as_problem(error: ClientError) -> dict[str, Any]:
    """The gateway's problem; for an error without one, data of the same shape."""
    if isinstance(error, Problem):
        return dict(error.problem)
    if isinstance(error, RequestError):
        return {
            "code": error.code,
            "detail": error.detail,
            "applied": error.applied,
            "retryable": error.retryable,
        }
    return {
        "code": "client_error",
        "detail": str(error),
        "applied": getattr(error, "applied", "no"),
        "retryable": False,
    }


def _hints(error: Problem) -> Iterator[tuple[str, str]]:
    """(text, hint): the hint is superfluous if the error's detail has the text already; "": it
    never is."""
    problem = error.problem
    yield from _state_hints(problem)
    for name, what in (("errors", _schema_error), ("failed_compares", _compare), ("stale", _stale)):
        for item in problem.get(name, ())[:_LISTED_MAX]:
            yield what(item)
    for item in problem.get("contested", ())[:_LISTED_MAX]:
        yield "", _contested(item)
    if problem.get("overlap"):
        pointers = ", ".join(repr(each) for each in problem["overlap"][:_LISTED_MAX])
        yield "", f"overlapping pointers: {pointers}"
    if "limit" in problem and "maximum" in problem:
        yield "", f"the limit {problem['limit']} is {problem['maximum']}"
    if error.retry_after_s is not None:
        yield "", f"try again in {error.retry_after_s:.0f} s"
    if isinstance(error, NotAuthorized) and error.status == 401:
        yield "", "give a valid token by GATEWAY_TOKEN, GATEWAY_TOKEN_FILE or --token"


def _state_hints(problem: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    current = problem.get("current")
    if isinstance(current, Mapping) and "etag" in current:
        yield str(current["etag"]), f"the current token is {current['etag']}"
    since = problem.get("changes_since")
    if since:
        last = since[-1]
        commits = "1 commit" if len(since) == 1 else f"{len(since)} commits"
        author, revision = last.get("author"), last.get("revision")
        yield "", f"{commits} since, the last by {author} at revision {revision}"
    for name, what in (
        ("resource_version", "the catalog is at revision"),
        ("oldest_revision", "the oldest revision is"),
        ("head_revision", "the last revision is"),
        ("pinned_revision", "a pin holds revision"),
    ):
        if name in problem:
            yield f" {problem[name]}", f"{what} {problem[name]}"


def _schema_error(item: Mapping[str, Any]) -> tuple[str, str]:
    return str(item.get("message")), f"{item.get('pointer')!r}: {item.get('message')}"


def _compare(item: Mapping[str, Any]) -> tuple[str, str]:
    about = "the catalog" if item.get("key") is None else repr(item["key"])
    detail = str(item.get("detail"))
    return detail, f"compare {item.get('index')} on {about}: {detail}"


def _stale(item: Mapping[str, Any]) -> tuple[str, str]:
    current = item.get("current")
    there = current.get("etag") if isinstance(current, Mapping) else "absent"
    return str(there), f"{item.get('key')!r} is {there}, not {item.get('expected') or 'absent'}"


def _contested(item: Mapping[str, Any]) -> str:
    about = f" of {item['key']!r}" if item.get("key") else ""
    values = [
        f"{said} {_shortened(item[name])}"
        for name, said in (("value", "it is"), ("wanted", "wanted"))
        if name in item
    ]
    return f"contested {item.get('pointer')!r}{about}{': ' * bool(values)}{', '.join(values)}"


def _shortened(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _VALUE_SHOWN_MAX else f"{text[:_VALUE_SHOWN_MAX]}…"


def exit_code(error: ClientError) -> int:
    """The exit code of a command that ``error`` ended; an unknown outcome comes before all else."""
    if getattr(error, "applied", "no") == "unknown":
        return UNKNOWN
    if isinstance(error, NotAuthorized):
        return NO_ACCESS
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, Problem) and error.status in _BY_STATUS:
        return _BY_STATUS[error.status]
    if isinstance(error, RequestError) and error.retryable:
        return OUT_OF_REACH
    return FAILED
