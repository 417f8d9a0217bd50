"""What the gateway refuses, and why: one exception for each status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .commits import CommitSummary, parse_summary
from .errors import RequestError, UnexpectedAnswer


class Problem(RequestError):
    """A refusal by the gateway. ``problem`` is all of the problem+json body; see the contract's
    table of codes for the members that each code comes with. The properties give those that help
    most, None where the problem doesn't tell."""

    def __init__(
        self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None
    ) -> None:
        detail = str(problem.get("detail") or problem.get("title") or "refused")
        super().__init__(
            detail,
            applied=str(problem.get("applied", "unknown")),
            retryable=problem.get("retryable") is True,
            retry_after_s=retry_after_s,
        )
        self.code = str(problem.get("code", "problem"))
        self.status = status
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail}"

    @property
    def current_etag(self) -> str | None:
        """The version token that the document has now."""
        current = self.problem.get("current")
        token = current.get("etag") if isinstance(current, dict) else None
        return token if isinstance(token, str) else None

    @property
    def current_revision(self) -> int | None:
        """The revision of the document's last change, or of the catalog where it is about that."""
        current = self.problem.get("current")
        revision = current.get("revision") if isinstance(current, dict) else None
        if revision is None:
            revision = self.problem.get("resource_version")
        return revision if isinstance(revision, int) else None

    @property
    def changes_since(self) -> tuple[CommitSummary, ...] | None:
        """What was committed after the state that the condition named: the first 20 commits."""
        shapes = self.problem.get("changes_since")
        if not isinstance(shapes, list):
            return None
        try:
            return tuple(parse_summary(shape) for shape in shapes)
        except UnexpectedAnswer:
            return None

    @property
    def pointer(self) -> str | None:
        """Where in the document or the body, as a JSON Pointer."""
        pointer = self.problem.get("pointer")
        return pointer if isinstance(pointer, str) else None

    @property
    def request_id(self) -> str | None:
        """The request's name in the gateway's logs."""
        name = self.problem.get("request_id")
        return name if isinstance(name, str) else None


class BadRequest(Problem):
    """Malformed: sending it again won't help."""


class NotAuthorized(Problem):
    """No or bad credentials, or not allowed."""


class NotFound(Problem):
    """No such catalog, document, revision or route."""


class Conflict(Problem):
    """It doesn't fit the state that it met."""


class Gone(Problem):
    """Compacted, or otherwise not there any more."""


class PreconditionFailed(Problem):
    """A condition of the request is false."""


class OverLimit(Problem):
    """Too large."""


class Invalid(Problem):
    """Understood, but it can't be."""


class PreconditionRequired(Problem):
    """The catalog takes no write without a condition."""


class Busy(Problem):
    """Not admitted; nothing was tried."""


class Unavailable(Problem):
    """The service can't at the moment; certainly not applied."""


class OutcomeUnknown(Problem):
    """Whether it was applied could not be found out."""


_BY_STATUS: Final[dict[int, type[Problem]]] = {
    400: BadRequest,
    401: NotAuthorized,
    403: NotAuthorized,
    404: NotFound,
    405: BadRequest,
    409: Conflict,
    410: Gone,
    412: PreconditionFailed,
    413: OverLimit,
    414: OverLimit,
    415: BadRequest,
    422: Invalid,
    428: PreconditionRequired,
    429: Busy,
    503: Unavailable,
    504: OutcomeUnknown,
}


def problem_of(
    status: int, problem: Mapping[str, Any], retry_after_s: float | None = None
) -> Problem:
    """The exception for a problem+json answer; plain ``Problem`` for a status not in the tree."""
    return _BY_STATUS.get(status, Problem)(status, problem, retry_after_s)
