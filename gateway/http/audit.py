"""The audit log: who did what where, and what became of it.

A line for each request that can change something and for each one that access control refused, on
the logger ``gateway.audit``, with its facts as fields. Writes in bulk have a line for every hundred
of them in one catalog. ``outcome`` is ``applied``, ``replayed``, ``unchanged``, ``unknown``, or
``refused`` with the problem's code; ``done`` of what makes no commit. Neither what was written nor
how its sender proved who he is stands in it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import flask
from flask import Flask

from gateway.access import Principal
from gateway.commits.requests import Applied, Refused, Request, Unknown, Written
from gateway.http.principals import principal_name

_log = logging.getLogger("gateway.audit")

_KEY: Final = "gateway.decided"
_READING: Final = ("GET", "HEAD", "OPTIONS")
_REFUSED_BY_ACCESS: Final = (401, 403)
_WRITES_MAX: Final = 100
_PATH_CHARACTERS_MAX: Final = 300


class Decided(NamedTuple):
    """A write that was decided; ``author``: whom its commit names."""

    author: str
    dry_run: bool
    written: Written


class LineOutcome(NamedTuple):
    """Of a line of a bulk request. ``code`` is that of its problem, None where it has none."""

    catalog: str
    key: str
    outcome: str
    commit_id: str | None
    code: str | None


def decided(author: str, dry_run: bool, written: Written) -> None:
    """The request that is being answered comes to this."""
    flask.request.environ[_KEY] = Decided(author, dry_run, written)


class Audit:
    def register(self, app: Flask) -> None:
        app.after_request(self.tell)

    def tell(self, answer: flask.Response) -> flask.Response:
        """Never keeps the answer from being sent."""
        if not _log.isEnabledFor(logging.INFO):
            return answer
        request = flask.request
        refused = answer.status_code in _REFUSED_BY_ACCESS
        # Lines of a bulk request are told by themselves, and much later.
        if refused or (request.method not in _READING and request.endpoint != "bulk"):
            _log.info("audit", extra=_fields(answer))
        return answer


def tell_lines(by: Principal, request_name: str, lines: Iterable[LineOutcome]) -> None:
    """Told outside of the request's own thread, hence with its name."""
    if not _log.isEnabledFor(logging.INFO):
        return
    by_catalog: dict[str, list[LineOutcome]] = {}
    for line in lines:
        by_catalog.setdefault(line.catalog, []).append(line)
    for catalog, each in by_catalog.items():
        for start in range(0, len(each), _WRITES_MAX):
            _tell_some(by, request_name, catalog, each[start : start + _WRITES_MAX])


def _tell_some(
    by: Principal, request_name: str, catalog: str, lines: Sequence[LineOutcome]
) -> None:
    fields = {
        "action": "bulk",
        "principal": by.name,
        "catalog": catalog,
        "request_id": request_name,
        "writes": [_line_fields(line) for line in lines],
    }
    _log.info("audit", extra=fields)


def outcome_of_line(request: Request, written: Written) -> LineOutcome:
    code = None
    if isinstance(written.outcome, Refused):
        code = written.outcome.error.code
    commit_id = written.outcome.commit.id if isinstance(written.outcome, Applied) else None
    return LineOutcome(request.catalog, request.key, _outcome(written), commit_id, code)


def _line_fields(line: LineOutcome) -> dict[str, str]:
    fields = {"key": line.key, "outcome": line.outcome, "commit_id": line.commit_id}
    return {name: value for name, value in (*fields.items(), ("code", line.code)) if value}


def _fields(answer: flask.Response) -> dict[str, Any]:
    request = flask.request
    environ = request.environ
    fields: dict[str, Any] = {
        "action": request.endpoint,
        "method": request.method,
        "principal": principal_name(environ),
        "status": answer.status_code,
        "outcome": "refused" if answer.status_code >= 400 else "done",
        "request_id": environ.get("gateway.request_id"),
        "client": environ.get("REMOTE_ADDR"),
    }
    names = request.view_args or {}
    if request.endpoint is None:
        fields["path"] = request.path[:_PATH_CHARACTERS_MAX]
    # As they were understood, or as they were sent where they can't be.
    fields |= {name: _decoded(names[name]) for name in ("catalog", "key") if name in names}
    if "gateway.problem" in environ:
        fields["code"] = environ["gateway.problem"]
    told: Decided | None = environ.get(_KEY)
    if told is not None:
        fields |= _of_write(told)
    return fields


def _of_write(told: Decided) -> dict[str, Any]:
    fields: dict[str, Any] = {"author": told.author, "outcome": _outcome(told.written)}
    if told.dry_run:
        fields["dry_run"] = True
    if isinstance(told.written.outcome, Applied):
        commit = told.written.outcome.commit
        fields |= {"commit_id": commit.id, "revision": commit.revision}
    elif isinstance(told.written.outcome, Unknown):
        fields["commit_id"] = told.written.commit_id
    return fields


def _outcome(written: Written) -> str:
    match written.outcome:
        case Applied() as applied:
            return "replayed" if applied.replayed else "applied"
        case Refused():
            return "refused"
        case Unknown():
            return "unknown"
    return "unchanged"


def _decoded(name: str) -> str:
    return unquote(name, errors="backslashreplace")
