"""Optimistic append: decide on the local copy, commit only if what was read is still the same."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from patching import Json
from patching.client._calls import holds_for_all
from patching.client._follower import Follower
from patching.client._local_copy import Snapshot
from patching.client._retry import may_pass
from patching.client.errors import (
    AppendFailed,
    FollowerStopped,
    Gone,
    PreconditionFailed,
    RequestError,
    WaitTimedOut,
)
from patching.client.results import TransactionResult

_T = TypeVar("_T")
# The least time that a sent transaction gets: breaking it off leaves its outcome unknown.
_ANSWER_GRACE_S: Final = 2.0
_FIRST_S: Final = 0.05
_LONGEST_S: Final = 2.0

Actions = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Appended:
    """``revision``: the commit's, or the one at which there was nothing to do (``changed`` False,
    ``commit_id`` None). ``attempts``: how many transactions were sent."""

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
    """Commit the actions that ``build`` returns for the state that they are committed on.

    ``build`` gets a snapshot of the follower's copy and returns a transaction's actions, or None or
    [] if there is nothing to do. They become one commit, at the next revision, if nothing that
    ``build`` read has changed; otherwise it is called again on a newer state, for ``timeout_s``
    seconds. So it may be called any number of times and must do nothing else.

    It reads: documents by key, even if they don't exist; all whose keys begin with a prefix, by the
    snapshot's ``under``; the whole copy, if it iterates over ``documents`` or counts them; and
    every commit, if it asks for ``revision``, ``time`` or ``settings``. So appends that read
    different things don't get in each other's way. What ``build`` knows from elsewhere isn't
    checked.

    A follower with a prefix may take ``poll_s`` to learn that the catalog has moved on; if that is
    too long, append with one that has none. The copy of a follower without a prefix has the commit
    when this returns, unless ``timeout_s`` is over.

    That there is nothing to do, and whatever ``build`` raises, is final only if nothing that it
    read has changed: the gateway is asked, and ``build`` called again if something has.

    Raises AppendFailed at the deadline, or up to 2 s later if an answer is awaited;
    FollowerStopped; any other refusal of the gateway as it is. A lost answer is asked for again,
    under the same idempotency key.
    """
    return _Append(follower, build, time.monotonic() + timeout_s, message).run()


# Reading more documents or ranges than these counts as reading the whole copy.
_KEYS_MAX: Final = 1000
_RANGES_MAX: Final = 32


class ReadSet:
    """What a function reads of a snapshot, and the compares that say that it is unchanged.

    ``snapshot`` is of a copy of the documents whose keys begin with ``copied``."""

    def __init__(self, snapshot: Snapshot, copied: str) -> None:
        self._revision = snapshot.revision
        self._copied = copied
        self._keys: dict[str, bool] = {}
        self._prefixes: set[str] = set()
        self._at_all = False

    def key(self, key: str, *, exists: bool) -> None:
        if key.startswith(self._copied):
            self._keys[key] = exists
        else:  # nobody knows whether it is there
            self.everything()

    def range(self, prefix: str) -> None:
        if prefix.startswith(self._copied):
            self._prefixes.add(prefix)
        else:
            self.everything()

    def copy(self) -> None:
        """Note that all documents of the copy were read."""
        self._prefixes.add(self._copied)

    def everything(self) -> None:
        """Note that something was read that every commit changes."""
        self._at_all = True

    @property
    def compares(self) -> list[dict[str, Any]]:
        """They are true as long as nothing that was read has changed; [] if nothing was read."""
        if self._at_all:
            return [{"resource_version": self._revision}]
        # A missing document is compared as the range of its key. With "absent", two appends that
        # create the same one would both succeed: the second looks like the first, sent again.
        prefixes = self._prefixes | {key for key, exists in self._keys.items() if not exists}
        if len(self._keys) > _KEYS_MAX or len(prefixes) > _RANGES_MAX:
            prefixes = {self._copied}
        since = {"unchanged_since": self._revision}
        there = (key for key, exists in self._keys.items() if exists)
        return [
            *({"prefix": prefix, **since} for prefix in sorted(prefixes)),
            *({"key": key, **since} for key in there if not key.startswith(tuple(prefixes))),
        ]


class LookedAt(Snapshot):
    """A snapshot that notes what is read of it."""

    __slots__ = ("_read_set", "_snapshot")
    _read_set: ReadSet
    _snapshot: Snapshot

    def __init__(self, snapshot: Snapshot, read_set: ReadSet) -> None:
        object.__setattr__(self, "_snapshot", snapshot)
        object.__setattr__(self, "_read_set", read_set)

    @property
    def revision(self) -> int:
        self._read_set.everything()
        return self._snapshot.revision

    @property
    def time(self) -> datetime | None:
        self._read_set.everything()
        return self._snapshot.time

    @property
    def settings(self) -> Json:
        self._read_set.everything()
        return self._snapshot.settings

    @property
    def documents(self) -> Mapping[str, Json]:
        return _Documents(self._snapshot.documents, self._read_set)

    def under(self, prefix: str) -> dict[str, Json]:
        self._read_set.range(prefix)
        return self._snapshot.under(prefix)


class _Documents(Mapping[str, Json]):
    def __init__(self, documents: Mapping[str, Json], read_set: ReadSet) -> None:
        self._documents = documents
        self._read_set = read_set

    def __getitem__(self, key: str) -> Json:
        exists = key in self._documents
        if isinstance(key, str):
            self._read_set.key(key, exists=exists)
        return self._documents[key]

    def __iter__(self) -> Iterator[str]:
        self._read_set.copy()
        return iter(self._documents)

    def __len__(self) -> int:
        self._read_set.copy()
        return len(self._documents)


class _Append:
    def __init__(
        self,
        follower: Follower,
        build: Callable[[Snapshot], Actions | None],
        deadline: float,
        message: str | None,
    ) -> None:
        self._follower = follower
        self._retry = replace(
            follower.retry, first_s=_FIRST_S, longest_s=_LONGEST_S, retries_max=None
        )
        self._build = build
        self._deadline = deadline
        self._message = message
        self._attempts = 0
        self._head = 0
        self._last_error: Exception | None = None

    def run(self) -> Appended:
        while True:
            snapshot = self._follower.current()
            self._head = max(self._head, snapshot.revision)
            read_set = ReadSet(snapshot, self._follower.prefix)
            try:
                actions = self._build(LookedAt(snapshot, read_set))
            except Exception:
                if self._is_final(snapshot, read_set):
                    raise
                continue
            if not actions:
                if self._is_final(snapshot, read_set):
                    return Appended(snapshot.revision, False, None, self._attempts)
                continue
            result = self._send(snapshot, read_set, actions)
            if result is not None:
                self._await_own(result.revision)
                return Appended(result.revision, result.changed, result.commit_id, self._attempts)
            if not self._left_s():
                raise self._failed("other writers were first each time") from self._last_error
            self._catch_up(max(self._head, snapshot.revision + 1))

    def _send(
        self, snapshot: Snapshot, read_set: ReadSet, actions: Actions
    ) -> TransactionResult | None:
        """The transaction's result; None if something that was read has changed."""
        idempotency_key = uuid.uuid4().hex

        def ask() -> TransactionResult:
            self._attempts += 1
            return self._follower.routes.transact(
                read_set.compares,
                actions,
                message=self._message,
                idempotency_key=idempotency_key,
                read_timeout_s=self._left_s() + _ANSWER_GRACE_S,
            )

        # A refusal is final under its key, even if an answer got lost before; so the next try takes
        # another one.
        return self._unless_changed(snapshot, lambda: self._persistently(ask))

    def _is_final(self, snapshot: Snapshot, read_set: ReadSet) -> bool:
        """Whether nothing that was read has changed; otherwise waits for the copy."""
        routes, compares = self._follower.routes, read_set.compares
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
        """None if a compare is false, or history doesn't go back that far any more."""
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
        """Wait for the copy to have the commit, which the caller may read next."""
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
        tries = self._retry.tries(self._left_s())
        lost = False
        while True:
            try:
                return ask()
            except RequestError as error:
                lost = lost or error.applied != "no"
                if lost and not holds_for_all(error, once=True):
                    error.applied = "unknown"
                if not may_pass(error):
                    raise
                self._last_error = error
                if not tries.again(error):
                    detail = "the gateway didn't answer in time"
                    raise self._failed(detail, error.applied) from error

    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _failed(self, detail: str, applied: str = "no") -> AppendFailed:
        return AppendFailed(detail, attempts=self._attempts, last_head=self._head, applied=applied)
