"""The audit log: who did what where, and with which outcome.

The logger ``gateway.audit`` gets a line for each request that can change something, and for each
one that access control refused, with its facts as fields. The writes of a bulk request share lines,
each with up to a hundred in one catalog and by one author; a last line ends the request.
``outcome`` is ``applied``, ``replayed``, ``unchanged``, ``unknown``, or ``refused`` with the
problem's code; ``done`` if the request makes no commit. No line contains what was written, or the
token that was sent.

Refusals by access control can't fill the log: each principal, and all requests without a valid
token together, get a bounded number of such lines per second; the next line says how many were left
out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from gateway.access.token_buckets import REFUSALS, PrincipalLimits
from gateway.decide.request import Applied, Refused, Request, Unknown, WriteOutcome
from gateway.errors import Forbidden, UnknownOutcome, code_of
from gateway.http.context import READING, DecidedWrite, Observed

log = logging.getLogger("gateway.audit")

_REFUSED_BY_ACCESS: Final = (401, 403)
# Codes of refusals that cost their sender nothing, so that there may be any number of them.
_CHEAP: Final = ("unauthenticated", "forbidden", "rate_limited")
_PRINCIPALS_MAX: Final = 10_000
_WRITES_MAX: Final = 100
_PATH_CHARACTERS_MAX: Final = 300


class LineOutcome(NamedTuple):
    """The outcome of a line of a bulk request. ``code``: its problem's, if any. ``author``: its
    commit's, None if unknown."""

    catalog: str
    key: str
    author: str | None
    outcome: str
    commit_id: str | None
    code: str | None


class _Refusals:
    """Decides which refusals are logged, and counts the others. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._limits = PrincipalLimits((REFUSALS,), monotonic, _PRINCIPALS_MAX)
        self._left_out: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def log(self, fields: dict[str, Any]) -> None:
        """Log a refusal with ``fields``, or count it as left out."""
        # No principal has an empty name.
        who = fields["principal"] or ""
        with self._lock:
            left_out = self._left_out.pop(who, 0)
            if self._limits.take(who, {REFUSALS.name: 1}) is not None:
                self._left_out[who] = left_out + 1
                if len(self._left_out) > _PRINCIPALS_MAX:
                    self._left_out.popitem(last=False)
                return
        if left_out:
            fields["left_out"] = left_out
        log.info("audit", extra=fields)


_refusals = _Refusals(time.monotonic)


def log_request(observed: Observed, status: int) -> None:
    """Log a request and the ``status`` of its answer, if it is of a kind that is audited."""
    refused = status in _REFUSED_BY_ACCESS
    # A bulk request is logged by its ``BulkAudit``, much later.
    if refused or (observed.method not in READING and observed.route.endpoint != "bulk"):
        fields = _fields(observed, status)
        _log_one(fields, is_cheap=fields.get("code") in _CHEAP)


def _log_one(fields: dict[str, Any], *, is_cheap: bool) -> None:
    if is_cheap:
        _refusals.log(fields)
    else:
        log.info("audit", extra=fields)


class BulkAudit:
    """The audit of one bulk request, which keeps its facts, as other threads log the lines.

    ``refused`` counts the lines that never became a write; whoever reads the lines adds to it.
    """

    def __init__(self, observed: Observed) -> None:
        self.refused = 0
        self._fields = {
            "action": "bulk",
            "principal": observed.principal_name,
            "request_id": observed.request_id,
            "client": observed.environ.get("REMOTE_ADDR"),
        }

    def log_lines(self, lines: Iterable[LineOutcome]) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        together: dict[tuple[str, str | None, bool], list[LineOutcome]] = {}
        for line in lines:
            place = (line.catalog, line.author, line.code in _CHEAP)
            together.setdefault(place, []).append(line)
        for (catalog, author, is_cheap), each in together.items():
            for start in range(0, len(each), _WRITES_MAX):
                some = each[start : start + _WRITES_MAX]
                fields = self._fields | {
                    "catalog": catalog,
                    "author": author,
                    "writes": [_line_fields(line) for line in some],
                }
                _log_one(fields, is_cheap=is_cheap)

    def log_end(self, lines: int, is_refused: bool) -> None:
        """Log the end of the request. ``is_refused``: it was ended before its body."""
        if not log.isEnabledFor(logging.INFO):
            return
        fields = self._fields | {"outcome": "done", "lines": lines, "refused": self.refused}
        if is_refused:
            fields |= {"outcome": "refused", "code": "too_many_refused"}
        log.info("audit", extra=fields)


def refused_line(error: Forbidden) -> LineOutcome:
    return LineOutcome(error.catalog, "", None, "refused", None, error.code)


def outcome_of_line(request: Request, written: WriteOutcome) -> LineOutcome:
    return LineOutcome(request.catalog, request.key, request.author, *_outcome(written))


def _line_fields(line: LineOutcome) -> dict[str, str]:
    fields = {"key": line.key, "outcome": line.outcome, "commit_id": line.commit_id}
    return {name: value for name, value in (*fields.items(), ("code", line.code)) if value}


def _fields(observed: Observed, status: int) -> dict[str, Any]:
    route = observed.route
    # After a defect, too, it isn't known what was done.
    is_unknown = observed.problem in (UnknownOutcome.code, "internal_error")
    fields: dict[str, Any] = {
        "action": route.endpoint,
        "method": observed.method,
        "principal": observed.principal_name,
        "status": status,
        "outcome": "done" if status < 400 else "unknown" if is_unknown else "refused",
        "request_id": observed.request_id,
        "client": observed.environ.get("REMOTE_ADDR"),
    }
    if route.endpoint is None:
        fields["path"] = observed.environ["PATH_INFO"][:_PATH_CHARACTERS_MAX]
    # Decoded; bytes that aren't UTF-8 are escaped.
    for name in ("catalog", "key"):
        if name in route.names:
            fields[name] = _decoded(route.names[name])
    fields |= observed.audited
    if observed.problem is not None:
        fields["code"] = observed.problem
    if observed.decided_write is not None:
        fields |= _of_write(observed.decided_write)
    return fields


def _of_write(write: DecidedWrite) -> dict[str, Any]:
    outcome, commit_id, _ = _outcome(write.written)
    fields: dict[str, Any] = {"author": write.author, "outcome": outcome}
    if write.dry_run:
        fields["dry_run"] = True
    if commit_id is not None:
        fields["commit_id"] = commit_id
    if isinstance(write.written.outcome, Applied):
        fields["revision"] = write.written.outcome.commit.revision
    return fields


def _outcome(written: WriteOutcome) -> tuple[str, str | None, str | None]:
    """The outcome of a write as a word, the id of its commit, and the code of its problem."""
    match written.outcome:
        case Applied(commit) as applied:
            return "replayed" if applied.replayed else "applied", commit.id, None
        case Refused(error):
            return "refused", None, code_of(error)
        case Unknown(commit_id):
            return "unknown", commit_id, UnknownOutcome.code
    return "unchanged", None, None


def _decoded(name: str) -> str:
    return unquote(name, errors="backslashreplace")
