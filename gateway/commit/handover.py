"""Handing writes over: of the workers of one machine, one writes what several are asked to write.

Where two workers write one catalog, each move waits for the other worker's, has a tail to read
first, and carries half of the requests. So a worker whose turn didn't come at once (``Queue``)
hands its next requests to the catalog's owner, which decides them in its own batches and writes
alone. The owner follows from the names of the catalog and of the workers that answer: all of them
find the same one, and the catalogs are spread over the workers.

A worked example. Workers 100 and 200 get requests for catalog c, whose owner is 300. 200 finds that
it is the turn of another, and sends 300 what comes next; 100, which waits for 300 now, does, too.
Requests go to the owner alone, and never further. With each answer 300 says whether others than
the one it answers ask for c. As soon as nobody else does, or 300 is silent, 200 writes c itself.

All of it is a hint: workers that don't agree on an owner take turns, and the conditional write
decides in any case.

The worker that hands a request over is a client of the other: whoever asked it is told what the
other found out, or, where that dies with the request, that the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Final, Protocol

from gateway.commit.messages import Handed
from gateway.decide.request import Applied, Outcome, Request, Unchanged, Unknown
from gateway.runtime import Runtime

# What one request says, or leaves, beyond this size takes longer to hand over than a turn takes.
_HANDED_BYTES_MAX: Final = 64 * 1024
# For so long a worker that hands over, or is handed to, is taken to go on.
_LASTS_S: Final = 0.5
_CATALOGS_MAX: Final = 10_000
# An answer that comes later than this after the deadline won't come.
_GRACE_S: Final = 2.0
OWN: Final = 0


class Peers(Protocol):
    """The workers of this machine, by number."""

    @property
    def own(self) -> int:
        """This worker."""

    def others(self) -> Collection[int]:
        """The other workers that answer, as far as this one knows."""

    def ask(self, worker: int, request: Request, until: float) -> Handed | None:
        """Hand a request over and wait; None where it wasn't taken, and nothing was tried.

        Raises OSError where it was sent and no answer came ``until`` then, in monotonic seconds.
        """


def owner_of(catalog: str, workers: Collection[int]) -> int:
    """The one of ``workers`` that writes the catalog, where several are asked to.

    By rendezvous hashing: each worker has as many catalogs as another, and where one comes or goes,
    only catalogs that it gets, or had, have another owner.
    """

    def weight(worker: int) -> bytes:
        return blake2b(f"{worker} {catalog}".encode(), digest_size=8).digest()

    return max(workers, key=weight)


class HandOver:
    """Which catalogs' writes go to which worker, and which come here. Thread-safe."""

    def __init__(self, runtime: Runtime, neighbours: Peers | None) -> None:
        self._runtime = runtime
        self._neighbours = neighbours
        # Whether anything was ever handed over, to this worker or by it.
        self.is_used = False
        # By catalog, the worker to hand its writes to, and until when.
        self._to: dict[str, tuple[int, float]] = {}
        # By catalog that was handed over to this worker, when each worker last asked for it.
        self._asked: dict[str, dict[int, float]] = {}

    def behind(self, catalog: str) -> None:
        """This worker waits for its turn behind another one."""
        if self._neighbours is None:
            return
        own = self._neighbours.own
        owner = owner_of(catalog, (own, *self._neighbours.others()))
        if owner != own:
            if len(self._to) >= _CATALOGS_MAX:
                self._to.clear()
            self.is_used = True
            self._to[catalog] = owner, self._runtime.monotonic() + _LASTS_S

    def handed(self, request: Request) -> tuple[Outcome, int] | None:
        """What another worker made of the request, in how many attempts; None: it is for this one.

        Raises QueueFull.
        """
        to = self._to.get(request.catalog)
        if to is None or self._neighbours is None or request.size_bytes > _HANDED_BYTES_MAX:
            return None
        if request.dry_run:  # it changes nothing, so its outcome must not be unknown
            return None
        if request.refusal is not None:  # this worker found it out, and reports it itself
            return None
        worker, until = to
        if self._runtime.monotonic() >= until:
            self._to.pop(request.catalog, None)
            return None
        try:
            handed = self._neighbours.ask(worker, request, request.deadline + _GRACE_S)
        except OSError:
            handed = Handed(Unknown(request.commit_id), 1, goes_on=False)
        if handed is not None and handed.goes_on:
            self._to[request.catalog] = worker, self._runtime.monotonic() + _LASTS_S
        else:
            self._to.pop(request.catalog, None)
        if handed is None:
            return None
        if handed.error is not None:
            raise handed.error
        assert handed.outcome is not None
        return handed.outcome, handed.attempts

    def asked(self, catalog: str, by: int = OWN) -> None:
        """A request for the catalog came to this worker, from a client or handed over."""
        known = self._asked.get(catalog)
        if known is None:
            if by == OWN:
                return
            if len(self._asked) >= _CATALOGS_MAX:
                self._asked.clear()
            self.is_used = True
            # That it is handed over says that yet another worker is asked for it.
            known = self._asked[catalog] = {OWN: self._runtime.monotonic()}
        known[by] = self._runtime.monotonic()

    def goes_on(self, catalog: str, worker: int, outcome: Outcome) -> bool:
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
