"""Handing writes over: if several workers of a machine get writes for a catalog, one decides them.

If two workers write one catalog, each move waits for the other worker's, has to read a tail first,
and carries only half of the requests. So a worker whose turn doesn't come at once (``Queue``) hands
its next requests over to the catalog's home worker, which decides them in its own batches, and
writes alone. The home worker follows from the names of the catalog and of the workers that answer:
all workers find the same one, and the catalogs are spread over the workers.

A worked example. Workers 100 and 200 get requests for catalog c, whose home worker is 300. 200
finds that it is another worker's turn, and sends its next requests to 300. 100, which now has to
wait for 300, does the same. The home worker never hands them on. With each answer, 300 says whether
anybody except the worker that it answers has requests for c. As soon as nobody else has, or 300
doesn't answer, 200 writes c itself.

All of this is a hint: workers that don't agree on a home worker take turns, and the conditional
update decides in any case.

To the home worker, the worker that hands a request over is a client. It answers its own client with
the home worker's outcome; if the home worker dies with the request, the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Final, Protocol

from gateway.commit.messages import PeerAnswer
from gateway.decide.request import Applied, Outcome, Request, Unchanged, Unknown
from gateway.runtime import Runtime

# Larger requests aren't handed over, nor catalogs with larger documents: that takes longer than a
# turn.
_HANDED_BYTES_MAX: Final = 64 * 1024
# How long a worker hands over after the last sign that it should, and how long a worker with
# requests for a catalog is remembered.
_LASTS_S: Final = 0.5
_CATALOGS_MAX: Final = 10_000
# How long after the deadline an answer is waited for.
_GRACE_S: Final = 2.0
OWN: Final = 0


class Peers(Protocol):
    """The workers of this machine, by number."""

    @property
    def own(self) -> int:
        """This worker."""

    def others(self) -> Collection[int]:
        """The other workers that answer, as far as this one knows."""

    def ask(self, worker: int, request: Request, until: float) -> PeerAnswer | None:
        """Hand a request over and wait; None if it wasn't taken, and nothing was tried.

        Raises OSError if it was sent and no answer came ``until`` then, in monotonic seconds.
        """


def home_worker(catalog: str, workers: Collection[int]) -> int:
    """The catalog's home worker among ``workers``.

    By rendezvous hashing: all workers get about the same number of catalogs. If a worker comes or
    goes, only the catalogs that it gets, or had, change their home worker.
    """

    def weight(worker: int) -> bytes:
        return blake2b(f"{worker} {catalog}".encode(), digest_size=8).digest()

    return max(workers, key=weight)


class HandOver:
    """Knows which catalogs' writes this worker hands over, and which are handed over to it.
    Thread-safe."""

    def __init__(self, runtime: Runtime, neighbours: Peers | None) -> None:
        self._runtime = runtime
        self._neighbours = neighbours
        # Whether anything was ever handed over, to this worker or by it.
        self.is_used = False
        # By catalog, the worker to hand its writes to, and until when.
        self._to: dict[str, tuple[int, float]] = {}
        # By catalog that is handed over to this worker, when each worker last had a request for it.
        self._requested: dict[str, dict[int, float]] = {}

    def start(self, catalog: str) -> None:
        """Hand the next writes of the catalog over to its home worker, unless that is this worker,
        which waits for its turn behind another one."""
        if self._neighbours is None:
            return
        own = self._neighbours.own
        home = home_worker(catalog, (own, *self._neighbours.others()))
        if home != own:
            if len(self._to) >= _CATALOGS_MAX:
                self._to.clear()
            self.is_used = True
            self._to[catalog] = home, self._runtime.monotonic() + _LASTS_S

    def hand_over(self, request: Request) -> tuple[Outcome, int] | None:
        """Hand the request over, and return its outcome and attempts; None if this worker has to
        decide it. Raises QueueFull.
        """
        to = self._to.get(request.catalog)
        if to is None or self._neighbours is None or request.size_bytes > _HANDED_BYTES_MAX:
            return None
        if request.dry_run:  # it changes nothing, so its outcome must not be unknown
            return None
        if request.refusal is not None:  # this worker found the reason, and reports it itself
            return None
        worker, until = to
        if self._runtime.monotonic() >= until:
            self._to.pop(request.catalog, None)
            return None
        try:
            answer = self._neighbours.ask(worker, request, request.deadline + _GRACE_S)
        except OSError:
            answer = PeerAnswer(Unknown(request.commit_id), 1, goes_on=False)
        if answer is not None and answer.goes_on:
            self._to[request.catalog] = worker, self._runtime.monotonic() + _LASTS_S
        else:
            self._to.pop(request.catalog, None)
        if answer is None:
            return None
        if answer.error is not None:
            raise answer.error
        assert answer.outcome is not None
        return answer.outcome, answer.attempts

    def note_request(self, catalog: str, by: int = OWN) -> None:
        """Note that this worker got a request for the catalog: from a client (``OWN``), or from the
        worker ``by``."""
        known = self._requested.get(catalog)
        if known is None:
            if by == OWN:
                return
            if len(self._requested) >= _CATALOGS_MAX:
                self._requested.clear()
            self.is_used = True
            # A hand-over shows that somebody else writes the catalog, too: here it counts as OWN.
            known = self._requested[catalog] = {OWN: self._runtime.monotonic()}
        known[by] = self._runtime.monotonic()

    def goes_on(self, catalog: str, worker: int, outcome: Outcome) -> bool:
        """Whether ``worker`` should hand over its next request for the catalog, too."""
        documents = outcome.documents.values() if isinstance(outcome, Applied | Unchanged) else ()
        if sum(each.size_bytes for each in documents if each) > _HANDED_BYTES_MAX:
            return False
        since = self._runtime.monotonic() - _LASTS_S
        known = self._requested.get(catalog, {})
        if any(at > since for by, at in list(known.items()) if by != worker):
            return True
        self._requested.pop(catalog, None)
        return False
