"""Handing writes over: of the workers of one machine, one writes what several are asked to write.

Where two workers write one catalog, each move waits for the other worker's, has a tail to read
first, and carries half of the requests. So a worker whose turn didn't come (``Queue``) hands its
next requests to the one that had it, which decides them in its own batches and writes alone.

A worked example. Workers 100 and 200 get requests for catalog c. 200 finds that it is the turn of
100, and sends it what comes next; 100, when it finds that it is the turn of 200, waits: requests go
to the lower number alone, and never further. With each answer 100 says whether others than 200 ask
for c. As soon as nobody else does, or 100 is silent, 200 writes c itself.

The worker that hands a request over is a client of the other: whoever asked it is told what the
other found out, or, where that dies with the request, that the outcome is unknown.

Lines of a bulk request for one catalog are handed over together, in their order. They are taken
only where there is room for all of them: they never wait for it in the other worker, so that they
are answered, or in doubt, when their time ends. Their outcomes come back without contents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from gateway.decide.request import Applied, Outcome, Request, Unchanged, Unknown
from gateway.errors import QueueFull
from gateway.model import WITHHELD, Change
from gateway.runtime import Runtime

# What one request says, or leaves, beyond this size takes longer to hand over than a turn takes.
# Several that say more than this together, as whole documents do, gain nothing by it.
_HANDED_BYTES_MAX: Final = 64 * 1024
_HANDED_TOGETHER_BYTES_MAX: Final = 256 * 1024
# For so long a worker that hands over, or is handed to, is taken to go on: several times what a
# bulk request's lines take that come together.
_LASTS_S: Final = 3.0
_CATALOGS_MAX: Final = 10_000
# An answer that comes later than this after the deadline won't come.
_GRACE_S: Final = 2.0
OWN: Final = 0


class Handed(msgspec.Struct, frozen=True):
    """What became of requests that were handed over; ``error`` in the place of their outcomes.

    Each outcome has its attempts, as ``Written`` has them. ``goes_on``: the next requests for their
    catalog are to be handed over, too.
    """

    outcomes: Sequence[tuple[Outcome, int]]
    goes_on: bool
    error: QueueFull | None = None


class Neighbours(Protocol):
    """The other workers of this machine, by number."""

    def ask(self, worker: int, requests: Sequence[Request], until: float) -> Handed | None:
        """Hand requests over and wait; None where they weren't taken, and nothing was tried.

        Raises OSError where they were sent and no answer came ``until`` then, in monotonic seconds.
        """


class HandOver:
    """Which catalogs' writes go to which worker, and which come here. Thread-safe."""

    def __init__(self, runtime: Runtime, neighbours: Neighbours | None) -> None:
        self._runtime = runtime
        self._neighbours = neighbours
        # Whether anything was ever handed over, to this worker or by it.
        self.is_used = False
        # By catalog, the worker to hand its writes to, and until when.
        self._to: dict[str, tuple[int, float]] = {}
        # By catalog that was handed over to this worker, when each worker last asked for it.
        self._asked: dict[str, dict[int, float]] = {}

    def behind(self, catalog: str, worker: int | None) -> None:
        """This worker waits for its turn behind ``worker``; None: behind one that takes nothing."""
        if worker is not None and self._neighbours is not None:
            if len(self._to) >= _CATALOGS_MAX:
                self._to.clear()
            self.is_used = True
            self._to[catalog] = worker, self._runtime.monotonic() + _LASTS_S

    def handed(self, request: Request) -> tuple[Outcome, int] | None:
        """What another worker made of the request, in how many attempts; None: it is for this one.

        Raises QueueFull.
        """
        handed = self._handed([request])
        if handed is None:
            return None
        if handed.error is not None:
            raise handed.error
        return handed.outcomes[0]

    def handed_each(self, requests: Sequence[Request]) -> list[tuple[Outcome, int]] | None:
        """The same of several that come together; None where they aren't all for one catalog, too.

        Outcomes are without contents.
        """
        catalog = requests[0].catalog if requests else ""
        if catalog not in self._to or any(each.catalog != catalog for each in requests):
            return None
        if sum(request.size_bytes for request in requests) > _HANDED_TOGETHER_BYTES_MAX:
            return None
        handed = self._handed(requests)
        return None if handed is None or handed.error is not None else list(handed.outcomes)

    def _handed(self, requests: Sequence[Request]) -> Handed | None:
        """What the other worker answers to requests for one catalog, where it is to have them."""
        catalog = requests[0].catalog
        to = self._to.get(catalog)
        if to is None or self._neighbours is None or not all(map(_may_go, requests)):
            return None
        worker, until = to
        if self._runtime.monotonic() >= until:
            self._to.pop(catalog, None)
            return None
        latest = max(request.deadline for request in requests)
        try:
            handed = self._neighbours.ask(worker, requests, latest + _GRACE_S)
        except OSError:
            unknown = [(Unknown(request.commit_id), 1) for request in requests]
            handed = Handed(unknown, goes_on=False)
        if handed is not None and handed.goes_on:
            self._to[catalog] = worker, self._runtime.monotonic() + _LASTS_S
        else:
            self._to.pop(catalog, None)
        return handed

    def asked(self, catalog: str, by: int = OWN) -> None:
        """A request for the catalog came to this worker, from a client or handed over."""
        known = self._asked.get(catalog)
        if known is None:
            if by == OWN:
                return
            if len(self._asked) >= _CATALOGS_MAX:
                self._asked.clear()
            self.is_used = True
            # That it was this worker's turn says that it has clients of its own.
            known = self._asked[catalog] = {OWN: self._runtime.monotonic()}
        known[by] = self._runtime.monotonic()

    def goes_on(self, catalog: str, worker: int, outcome: Outcome | None = None) -> bool:
        """Whether ``worker`` does well to hand over its next request for the catalog, too."""
        documents = outcome.documents.values() if isinstance(outcome, Applied | Unchanged) else ()
        if sum(each.size_bytes for each in documents if each) > _HANDED_BYTES_MAX:
            return False
        since = self._runtime.monotonic() - _LASTS_S
        known = self._asked.get(catalog, {})
        if any(at > since for by, at in list(known.items()) if by != worker):
            return True
        self._asked.pop(catalog, None)
        return False


def _may_go(request: Request) -> bool:
    """A dry run changes nothing, so no doubt may be left of it."""
    return request.size_bytes <= _HANDED_BYTES_MAX and not request.dry_run


_Commit = Callable[[Sequence[Request], int], Handed | None]


def answering(commit: _Commit) -> _Commit:
    """``commit`` for other workers: outcomes of several are without contents."""

    def answer(requests: Sequence[Request], worker: int) -> Handed | None:
        handed = commit(requests, worker)
        if handed is None or len(requests) == 1:
            return handed
        bare = [(_bare(outcome), attempts) for outcome, attempts in handed.outcomes]
        return replace(handed, outcomes=bare)

    return answer


def _bare(outcome: Outcome) -> Outcome:
    match outcome:
        case Applied(commit):
            changes = tuple(Change(c.key, c.action, c.create_revision) for c in commit.changes)
            bare = replace(commit, changes=changes, idempotency=None)
            return Applied(bare, {}, outcome.replayed)
        case Unchanged(documents):
            withheld = {
                key: None if each is None else replace(each, content=WITHHELD, owners=None)
                for key, each in documents.items()
            }
            return replace(outcome, documents=withheld)
    return outcome
