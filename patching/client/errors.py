"""The errors of the client."""

from __future__ import annotations

import re
from datetime import datetime
from http.client import IncompleteRead
from typing import Final

# How urllib3 begins what it says: with the connection or the pool, as Python shows objects.
_OBJECT: Final = re.compile(r"^(?:\w+\([^()]*\)|<[^<>]*>): ")
_NUMBER: Final = re.compile(r"\[Errno -?\d+\] ")


class ClientError(Exception):
    """Whatever the client can't do.

    ::

        ClientError
        ├── RequestError             one request and what became of it
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
        ├── NotModified              a conditional read of what is still the same
        ├── UpdateFailed             an update met a change by others each time
        ├── PinLost                  a pin could not be renewed in time
        ├── RevisionTooOld           older than what a follower keeps
        ├── RevisionUnknown          newer than what a follower has
        ├── WaitTimedOut             a follower didn't get there in time
        ├── FollowerStopped          it was not started, was stopped, or failed
        ├── AppendFailed             an append found no moment to get through
        └── ListenerStopped          why a listener gets no more commits:
            ├── ListenerTooSlow      too many commits were waiting for it
            └── CommitsMissed        commits it has not seen can't be told any more
    """


class RequestError(ClientError):
    """A request that failed.

    ``code`` is stable and for programs, ``detail`` for people. ``applied`` is ``"no"`` (certainly
    not) or ``"unknown"``; of a request that only reads it says nothing. ``retryable``: the very
    same request may succeed later. ``retry_after_s``: not before that, where the gateway said.
    ``sends``: how often it was sent. A refusal is ``applied="unknown"`` where an answer to the same
    request got lost before, and that one may still be under way.
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


class Unreachable(RequestError):
    """No answer came. ``applied`` is ``"unknown"`` where the request may have been received."""

    code = "unreachable"

    def __init__(self, detail: str, *, applied: str) -> None:
        super().__init__(detail, applied=applied, retryable=True)


class UnexpectedAnswer(RequestError):
    """What came is not what the contract says: a proxy's page, say, or another service."""

    code = "unexpected_answer"

    def __init__(self, detail: str, *, status: int, applied: str, retryable: bool = False) -> None:
        super().__init__(detail, applied=applied, retryable=retryable)
        self.status = status


class NotModified(ClientError):
    """What was to be read still has the version token ``etag``."""

    def __init__(self, what: str, etag: str) -> None:
        super().__init__(f"{what} is as it was: {etag}")
        self.etag = etag


class UpdateFailed(ClientError):
    """An update that found the document changed by others each time it was ready to write.

    Certainly not applied. ``tries`` is how often the function was called. The cause is the last
    refusal.
    """

    def __init__(self, key: str, tries: int) -> None:
        super().__init__(f"{key!r} was changed by others each time, in {tries} tries")
        self.key = key
        self.tries = tries


class PinLost(ClientError):
    """The revision is not held any more. The cause is why the pin couldn't be renewed."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"revision {revision} is not held any more: its pin was not renewed")
        self.revision = revision


class RevisionTooOld(ClientError):
    """Before the earliest state that is kept, which is at revision ``earliest``."""

    def __init__(self, asked: int | datetime, earliest: int, latest: int) -> None:
        super().__init__(f"{_moment(asked)} is older than what is kept: {earliest} to {latest}")
        self.asked = asked
        self.earliest = earliest
        self.latest = latest


class RevisionUnknown(ClientError):
    """Beyond what the copy has been told, which goes to revision ``latest``."""

    def __init__(self, asked: int | datetime, earliest: int, latest: int) -> None:
        super().__init__(f"{_moment(asked)} is beyond what is known: {earliest} to {latest}")
        self.asked = asked
        self.earliest = earliest
        self.latest = latest


def _moment(asked: int | datetime) -> str:
    return f"revision {asked}" if isinstance(asked, int) else f"time {asked.isoformat()}"


class WaitTimedOut(ClientError):
    """The copy is at ``position`` still; ``last_error`` is why, if requests fail."""

    def __init__(self, revision: int, position: int, last_error: Exception | None) -> None:
        why = "" if last_error is None else f" ({last_error})"
        super().__init__(
            f"revision {revision} has not been reached: the copy is at {position}{why}"
        )
        self.revision = revision
        self.position = position
        self.last_error = last_error


class FollowerStopped(ClientError):
    """The follower doesn't follow: not started yet, stopped, or ended by a defect (the cause)."""


class AppendFailed(ClientError):
    """An append that did not get through before its deadline.

    ``attempts`` transactions were sent. ``last_head`` is the newest revision of the catalog that
    was heard of. ``applied`` is ``"unknown"`` where the last one's answer got lost. The cause is
    the last error.
    """

    def __init__(self, detail: str, *, attempts: int, last_head: int, applied: str) -> None:
        super().__init__(
            f"{detail}: {attempts} attempts, the catalog's head was last seen at {last_head},"
            f" applied: {applied}"
        )
        self.attempts = attempts
        self.last_head = last_head
        self.applied = applied


class ListenerStopped(ClientError):
    """Why a listener gets no more commits although it did not fail itself."""


class ListenerTooSlow(ListenerStopped):
    """``waiting`` commits were waiting for the listener, more than are held for one."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} commits are waiting for the listener, no more are held")
        self.waiting = waiting


class CommitsMissed(ListenerStopped):
    """Commits above ``position`` are gone; the next that can be told is above ``revision``.

    Only a listener that came without ``on_reload`` is stopped by this.
    """

    def __init__(self, position: int, revision: int, reason: str) -> None:
        super().__init__(f"commits above {position} can't be told, on from {revision}: {reason}")
        self.position = position
        self.revision = revision
        self.reason = reason


def in_words(error: BaseException) -> str:
    """Why a connection failed, for people: without the objects and the error within the error that
    the HTTP library's own texts show."""
    first, *rest = error.args or ("",)
    if rest and isinstance(rest[-1], Exception) and isinstance(first, str):
        # ("Connection aborted.", RemoteDisconnected("Remote end closed …"))
        return f"{first.partition(':')[0].rstrip('.')}: {in_words(rest[-1])}"
    if isinstance(error, IncompleteRead):
        came = error.partial if isinstance(error.partial, int) else len(error.partial)
        return f"{came} bytes came, {error.expected or 'some'} more were to come"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _NUMBER.sub("", _OBJECT.sub("", str(error))).strip() or type(error).__name__
