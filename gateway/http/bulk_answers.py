"""The line that answers a line of a bulk request: what a write's own route would say, as one."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from gateway.commits.errors import OutcomeUnknown
from gateway.commits.requests import Applied, Request, Unchanged, Unknown, Written
from gateway.http import names
from gateway.http.answers import encode
from gateway.http.problems import Problem, problem_content, problem_of
from gateway.model import SETTINGS_KEY, Document, version_token

_log = logging.getLogger(__name__)


class LineAnswer(msgspec.Struct, frozen=True):
    """Of a write that was applied or changes nothing; see ``gateway.http.writes.WriteAnswer``.

    ``status`` is 201 where the document was created, else 200.
    """

    index: int
    status: int
    etag: str | None
    revision: int | None
    create_revision: int | None
    catalog_revision: int
    commit_id: str | None
    changed: bool
    attempts: int
    rebased_from: str | msgspec.UnsetType = msgspec.UNSET
    replayed: bool | msgspec.UnsetType = msgspec.UNSET
    dry_run: bool | msgspec.UnsetType = msgspec.UNSET


def written_line(index: int, request: Request, written: Written, request_name: str) -> bytes:
    """The answer to a line that was decided."""
    outcome = written.outcome
    if isinstance(outcome, Applied):
        return _line(_applied(index, request, outcome))
    if isinstance(outcome, Unchanged):
        return _line(_unchanged(index, request, outcome, written))
    if isinstance(outcome, Unknown):
        more = {}
        if request.idempotency is not None:
            more["outcome"] = names.outcome_path(request.catalog, request.idempotency.key)
        return problem_line(index, OutcomeUnknown(outcome.commit_id), request_name, **more)
    return problem_line(index, outcome.error, request_name)


def problem_line(index: int, error: Exception, request_name: str, **more: Any) -> bytes:
    """The answer to a line that was refused, with ``more`` members in its problem."""
    problem = problem_of(error)
    if problem is None:
        _log.error("line %s of request %s failed", index, request_name, exc_info=error)
        problem = Problem("internal_error", "the gateway has a defect; it was logged")
    problem.members.update(more)
    content = problem_content(problem, request_name)
    return _line({"index": index, "status": content["status"], "problem": content})


def _line(content: Any) -> bytes:
    return encode(content) + b"\n"


def _applied(index: int, request: Request, outcome: Applied) -> LineAnswer:
    """Told from the commit alone, so that a replay is answered like the first time."""
    commit = outcome.commit
    change = next((each for each in commit.changes if each.key == request.key), None)
    exists = change is not None and change.action != "delete"
    return LineAnswer(
        index=index,
        status=201 if change and exists and change.create_revision == commit.revision else 200,
        etag=version_token(commit.revision, commit.id) if exists else None,
        revision=commit.revision if exists else None,
        create_revision=change.create_revision if change and exists else None,
        catalog_revision=commit.revision,
        commit_id=commit.id,
        changed=not request.dry_run,
        attempts=commit.attempts,
        rebased_from=commit.rebased_from or msgspec.UNSET,
        replayed=outcome.replayed or msgspec.UNSET,
        dry_run=request.dry_run or msgspec.UNSET,
    )


def _unchanged(index: int, request: Request, outcome: Unchanged, written: Written) -> LineAnswer:
    kept: Document | None = None
    if not outcome.would_change and request.key != SETTINGS_KEY:
        kept = outcome.documents.get(request.key)
    return LineAnswer(
        index=index,
        status=200,
        etag=kept.token if kept else None,
        revision=kept.revision if kept else None,
        create_revision=kept.create_revision if kept else None,
        catalog_revision=outcome.catalog_revision,
        commit_id=kept.commit_id if kept else None,
        changed=outcome.would_change,
        attempts=written.attempts,
        rebased_from=outcome.rebased_from or msgspec.UNSET,
        dry_run=request.dry_run or msgspec.UNSET,
    )
