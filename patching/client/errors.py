"""The client's errors, with one exception for each status of a refusal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from patching import ABSENT, Json
from patching.values import Absent

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class ClientError(Exception):
    """Every error of the client.

    ::

        ClientError
        ├── RequestError             one request that failed
        │   ├── TokenUnavailable     it wasn't sent: the function that returns the token raised
        │   ├── Unreachable          no answer came: refused, broken off, timed out
        │   ├── UnexpectedAnswer     an answer that no gateway gives
        │   └── Problem              the gateway refused (problem+json):
        │       ├── BadRequest            400, 405, 415
        │       ├── NotAuthorized         401, 403
        │       ├── NotFound              404
        │       ├── Conflict              409
        │       ├── Gone                  410
        │       ├── PreconditionFailed    412
        │       ├── OverLimit             413, 414
        │       ├── Invalid               422
        │       ├── PreconditionRequired  428
        │       ├── Busy                  429
        │       ├── Unavailable           503
        │       └── OutcomeUnknown        504
        ├── NotModified              a conditional read of an unchanged document
        ├── UpdateFailed             others changed the document before each try
        ├── PinLost                  a pin could not be renewed in time
        ├── RevisionTooOld           older than a follower's history
        ├── RevisionUnknown          newer than a follower's copy
        ├── WaitTimedOut             a follower didn't get there in time
        ├── FollowerStopped          it was not started, was stopped, or failed
        ├── AppendFailed             an append wasn't committed in time
        └── ListenerStopped          why a listener gets no more commits:
            ├── ListenerTooSlow      too many commits were waiting for it
            └── CommitsMissed        commits that it hasn't seen are gone
    """


class RequestError(ClientError):
    """A request that failed.

    ``code`` is stable and for programs, ``detail`` for people. ``applied`` is ``"no"`` (certainly
    not) or ``"unknown"``; for a request that only reads it means nothing. ``retryable``: the very
    same request may succeed later. ``retry_after_s``: the least time to wait, if the gateway
    said so. ``sends``: how often it was sent. ``idempotency_key``: the one that it was sent under,
    if any: sent again under it, it is applied once. A refusal is ``applied="unknown"`` if an answer
    to the same request got lost before, and that one may still be under way.
    """

    code: str = "request_error"

    def __init__(
        self, detail: str, *, applied: str, retryable: bool, retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.applied = applied
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.sends = 1
        self.idempotency_key: str | None = None


class Unreachable(RequestError):
    """No answer came. ``applied`` is ``"unknown"`` if the request may have been received. If it
    isn't ``retryable``, the client was closed."""

    code = "unreachable"

    def __init__(self, detail: str, *, applied: str, retryable: bool = True) -> None:
        super().__init__(detail, applied=applied, retryable=retryable)


def is_closed(error: RequestError) -> bool:
    """Whether the client was closed, so that no other request will be answered either."""
    return isinstance(error, Unreachable) and not error.retryable


class TokenUnavailable(RequestError):
    """The function that returns the token raised, or returned an invalid one; the cause is that
    error. Nothing was sent. A call ends with this, while followers and pins try again."""

    code = "token_unavailable"

    def __init__(self, cause: Exception) -> None:
        detail = f"there is no token to send: {cause or type(cause).__name__}"
        super().__init__(detail, applied="no", retryable=False)


class UnexpectedAnswer(RequestError):
    """The answer breaks the contract: a proxy's page, say, or another service's."""

    code = "unexpected_answer"

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        applied: str,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail, applied=applied, retryable=retryable, retry_after_s=retry_after_s)
        self.status = status


class NotModified(ClientError):
    """The document still has the version token ``etag``."""

    def __init__(self, what: str, etag: str) -> None:
        super().__init__(f"{what} is unchanged: it still has version token {etag}")
        self.etag = etag


class UpdateFailed(ClientError):
    """An update that found the document changed by others each time it was ready to write.

    It was certainly not applied. ``tries`` is how often the function was called. The cause is the
    last refusal.
    """

    def __init__(self, key: str, tries: int) -> None:
        super().__init__(f"{key!r} was not updated: others changed it each time (tries: {tries})")
        self.key = key
        self.tries = tries


class PinLost(ClientError):
    """The revision is no longer held. The cause is why the pin couldn't be renewed."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"revision {revision} is no longer held: its pin could not be renewed")
        self.revision = revision


class _NotKept(ClientError):
    _why = ""

    def __init__(self, asked: int | datetime, earliest: int, latest: int) -> None:
        moment = f"revision {asked}" if isinstance(asked, int) else f"time {asked.isoformat()}"
        super().__init__(f"{moment} is {self._why}: revisions {earliest} to {latest}")
        self.asked = asked
        self.earliest = earliest
        self.latest = latest


class RevisionTooOld(_NotKept):
    """Before the earliest state that is kept, which is at revision ``earliest``."""

    _why = "older than what the copy keeps"


class RevisionUnknown(_NotKept):
    """Beyond what the copy knows, which goes to revision ``latest``."""

    _why = "newer than what the copy knows"


class WaitTimedOut(ClientError):
    """The copy is still at ``position``; ``last_error`` is why, if requests fail."""

    def __init__(self, revision: int, position: int, last_error: Exception | None) -> None:
        why = "" if last_error is None else f" ({last_error})"
        super().__init__(
            f"timed out waiting for revision {revision}: the copy is at {position}{why}"
        )
        self.revision = revision
        self.position = position
        self.last_error = last_error


class FollowerStopped(ClientError):
    """The follower doesn't follow: not started yet, stopped, or ended by a defect (the cause)."""


class AppendFailed(ClientError):
    """An append that wasn't committed before its deadline.

    ``attempts`` transactions were sent. ``last_head`` is the newest known revision of the catalog.
    ``applied`` is ``"unknown"`` if an answer to the last one got lost. The cause is the last error.
    """

    def __init__(self, detail: str, *, attempts: int, last_head: int, applied: str) -> None:
        super().__init__(
            f"{detail} (attempts: {attempts}; the catalog's last known revision: {last_head};"
            f" applied: {applied})"
        )
        self.attempts = attempts
        self.last_head = last_head
        self.applied = applied


class ListenerStopped(ClientError):
    """Why a listener gets no more commits, although it hasn't failed itself."""


class ListenerTooSlow(ListenerStopped):
    """``waiting`` commits were waiting for the listener, more than are held for one."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"the listener is too slow: {waiting} commits are waiting for it")
        self.waiting = waiting


class CommitsMissed(ListenerStopped):
    """Commits above ``position`` are gone; the next one that is there is above ``revision``.

    This stops only a listener without ``on_reload``.
    """

    def __init__(self, position: int, revision: int, reason: str) -> None:
        super().__init__(
            f"commits after revision {position} were missed; the next ones are those after"
            f" {revision}: {reason}"
        )
        self.position = position
        self.revision = revision
        self.reason = reason


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """A commit as a refusal shows it. ``changes`` are pairs of key and action; if the refusal is
    about one document, they are empty, and ``action`` is what was done to it."""

    revision: int
    time: Moment
    commit_id: str
    author: str
    message: str | None
    action: str | None = None
    changes: tuple[tuple[str | None, str], ...] = ()


def _summary(shape: Mapping[str, Any]) -> CommitSummary:
    changes = [(each["key"], each["action"]) for each in shape.get("changes", ())]
    return msgspec.convert({**shape, "changes": changes}, CommitSummary)


class Problem(RequestError):
    """A refusal by the gateway. ``problem`` is the whole problem+json body; the contract's table of
    codes has the members of each code. The properties are those that help most, None if the problem
    lacks them."""

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
        return "; ".join([f"{self.status} {self.code}: {self.detail}", *self._places()])

    def _places(self) -> Iterator[str]:
        """Which part of the request was refused, and where in the document."""
        problem = self.problem
        if "operation" in problem:
            yield f"operation {problem['operation']}"
        if "action" in problem:
            yield f"action {problem['action']}{' of else' if problem.get('branch') else ''}"
        if "pointer" in problem:
            yield f"pointer {problem['pointer']!r}"

    @property
    def _current(self) -> Mapping[str, Any]:
        """What the refusal shows of the state that it met."""
        current = self.problem.get("current")
        return current if isinstance(current, dict) else {}

    @property
    def current_etag(self) -> str | None:
        """The version token that the document has now."""
        token = self._current.get("etag")
        return token if isinstance(token, str) else None

    @property
    def current_value(self) -> Json | Absent:
        """The document's content now, if the write had ``show_refused``; ABSENT if it isn't shown:
        there is none, or it may not be read."""
        value: Json | Absent = self._current.get("value", ABSENT)
        return value

    @property
    def current_attributes(self) -> Mapping[str, Any]:
        """Its attributes, if ``current_value`` is shown; else {}."""
        attributes: Mapping[str, Any] = self._current.get("attributes", {})
        return attributes

    @property
    def current_revision(self) -> int | None:
        """The revision of the document's last change, or of the catalog if it is about that."""
        revision = self._current.get("revision")
        if revision is None:
            revision = self.problem.get("resource_version")
        return revision if isinstance(revision, int) else None

    @property
    def changes_since(self) -> tuple[CommitSummary, ...] | None:
        """The first 20 commits after the state that the condition named."""
        shapes = self.problem.get("changes_since")
        if not isinstance(shapes, list):
            return None
        try:
            return tuple(_summary(shape) for shape in shapes)
        except (KeyError, TypeError, msgspec.ValidationError):
            return None

    @property
    def pointer(self) -> str | None:
        """The place in the document or the body, as a JSON Pointer."""
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
    """There is no valid token, or it doesn't allow this."""


class NotFound(Problem):
    """No such catalog, document, revision or route."""


class Conflict(Problem):
    """The request doesn't fit the state that it met."""


class Gone(Problem):
    """Compacted, or otherwise not there any more."""


class PreconditionFailed(Problem):
    """A condition of the request is false."""


class OverLimit(Problem):
    """Too large."""


class Invalid(Problem):
    """Well formed, but not valid: it breaks a schema, say."""


class PreconditionRequired(Problem):
    """The catalog takes no write without a condition."""


class Busy(Problem):
    """Not admitted; nothing was tried."""


class Unavailable(Problem):
    """The gateway can't do it at the moment; certainly not applied."""


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
