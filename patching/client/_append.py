"""Optimistic append: decide on the local copy, commit only if what was looked at is still so."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from patching.client._errors import (
    AppendFailed,
    FollowerStopped,
    Gone,
    PreconditionFailed,
    RequestError,
    WaitTimedOut,
)
from patching.client._follower import Follower
from patching.client._looks import LookedAt, Looks
from patching.client._results import TransactionResult
from patching.client._retry import Retry, may_pass
from patching.client._versions import Snapshot

_T = TypeVar("_T")
# A transaction that is sent gets this long at least: breaking it off leaves its outcome unknown.
_ANSWER_GRACE_S: Final = 2.0
_RETRY: Final = Retry(first_s=0.05, longest_s=2.0, sends_max=sys.maxsize)

Actions = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Appended:
    """``revision``: the commit's, or the one that there was nothing to do at (``changed`` False,
    ``commit_id`` None). ``attempts``: transactions that were sent."""

    revision: int
    changed: bool
    commit_id: str | None
    attempts: int


def append(
    follower: Follower,
    build: Callable[[Snapshot], Actions | None],
    *,
    timeout_s: float = 30.0,
    message: str | None = None,
) -> Appended:
    """Commit the actions that ``build`` makes of the state that they are committed on.

    ``build`` gets a snapshot of the follower's copy and returns a transaction's actions, or None
    or [] where there is nothing to do. They are committed as one commit at the next revision, if
    nothing has changed of what ``build`` looked at; else it is called again on a newer state, until
    ``timeout_s`` is over. So it may be called any number of times and must do nothing else.

    What it looks at: documents by key, also those that aren't there; all whose keys begin with a
    prefix, by the snapshot's ``under``; all of the copy, where it goes over ``documents`` or counts
    them; and every commit, where it asks for ``revision``, ``time`` or ``settings``. So appends
    that look at different things don't get in each other's way. What ``build`` knows from elsewhere
    guards nothing.

    A follower with a prefix may take ``poll_s`` to learn that the catalog has moved on: append
    with one that has none where that is too long. The copy of one without has the commit when this
    returns, unless ``timeout_s`` is over.

    That there is nothing to do, and whatever ``build`` raises, is final only where nothing that it
    looked at has changed: the gateway is asked, and ``build`` called again if something has.

    AppendFailed at the deadline or, where an answer is waited for, up to 2 s later;
    FollowerStopped; every other refusal of the gateway as it is. The answer of a transaction that
    got lost is asked for again, under the same idempotency key.
    """
    return _Append(follower, build, time.monotonic() + timeout_s, message).run()


class _Append:
    def __init__(
        self,
        follower: Follower,
        build: Callable[[Snapshot], Actions | None],
        deadline: float,
        message: str | None,
    ) -> None:
        self._follower = follower
        self._build = build
        self._deadline = deadline
        self._message = message
        self._attempts = 0
        self._head = 0
        self._last_error: Exception | None = None
        self._applied = "no"

    def run(self) -> Appended:
        while True:
            snapshot = self._follower.current()
            self._head = max(self._head, snapshot.revision)
            looks = Looks(snapshot, self._follower.prefix)
            try:
                actions = self._build(LookedAt(snapshot, looks))
            except Exception:
                if self._is_final(snapshot, looks):
                    raise
                continue
            if not actions:
                if self._is_final(snapshot, looks):
                    return Appended(snapshot.revision, False, None, self._attempts)
                continue
            result = self._send(snapshot, looks, actions)
            if result is not None:
                self._await_own(result.revision)
                return Appended(result.revision, result.changed, result.commit_id, self._attempts)
            if not self._left_s():
                raise self._failed("others were first each time") from self._last_error
            self._catch_up(max(self._head, snapshot.revision + 1))

    def _send(self, snapshot: Snapshot, looks: Looks, actions: Actions) -> TransactionResult | None:
        """The transaction's result; None where something that was looked at has changed."""
        idempotency_key = uuid.uuid4().hex

        def ask() -> TransactionResult:
            self._attempts += 1
            return self._follower.routes.transact(
                looks.compares,
                actions,
                message=self._message,
                idempotency_key=idempotency_key,
                read_timeout_s=self._left_s() + _ANSWER_GRACE_S,
            )

        # A refusal is certain, also where an answer got lost before: this key stands for it, so the
        # next try takes another one.
        return self._unless_changed(snapshot, lambda: self._persistently(ask))

    def _is_final(self, snapshot: Snapshot, looks: Looks) -> bool:
        """Whether nothing that was looked at has changed; waits for the copy where it has."""
        routes, compares = self._follower.routes, looks.compares
        if not compares:
            return True
        unchanged = self._unless_changed(
            snapshot, lambda: self._persistently(lambda: routes.transact(compares, []))
        )
        if unchanged is not None:
            return True
        self._catch_up(max(self._head, snapshot.revision + 1))
        return False

    def _unless_changed(
        self, snapshot: Snapshot, ask: Callable[[], TransactionResult]
    ) -> TransactionResult | None:
        """None where a compare is false, or history doesn't tell any more."""
        try:
            return ask()
        except PreconditionFailed as error:
            self._last_error = error
            head = error.problem.get("resource_version")
            self._head = max(self._head, head if isinstance(head, int) else snapshot.revision + 1)
        except Gone as error:
            if error.code != "revision_compacted":
                raise
            self._last_error = error
            oldest = error.problem.get("oldest_revision")
            self._head = max(self._head, oldest if isinstance(oldest, int) else 0)
        return None

    def _await_own(self, revision: int) -> None:
        """What comes next may look at what was committed."""
        if not self._follower.prefix:
            with suppress(WaitTimedOut, FollowerStopped):
                self._follower.wait_for(revision, self._left_s())

    def _catch_up(self, revision: int) -> None:
        try:
            self._follower.wait_for(revision, self._left_s())
        except WaitTimedOut as error:
            raise self._failed("the copy didn't catch up in time") from error

    def _persistently(self, ask: Callable[[], _T]) -> _T:
        """The result of ``ask``, which is called again after every failure that may pass."""
        tries = _RETRY.tries(self._left_s())
        while True:
            try:
                answer = ask()
            except RequestError as error:
                if not may_pass(error):
                    raise
                self._last_error, self._applied = error, error.applied
                if not tries.again(error):
                    raise self._failed("the gateway did not answer in time") from error
                continue
            self._applied = "no"
            return answer

    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _failed(self, detail: str) -> AppendFailed:
        return AppendFailed(
            detail, attempts=self._attempts, last_head=self._head, applied=self._applied
        )
