"""Tails that were left: the janitor ends the ones that are written out, and writes out the others.

A head keeps its tail until it is moved again. Of a catalog that nobody writes any more it is ended
a little later; where the worker that moved the head died, it is written out first. One process of
all does this at a time, by a lease; two at once do no harm.
"""

from __future__ import annotations

import logging

from gateway.model import Head
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.store.contract import Store, Unreachable

_log = logging.getLogger(__name__)

_UNCOMMITTED_AT_ONCE = 100  # each with a look for its verdicts
_LEASE = "janitor"
_LEASE_S = 30.0
_EVERY_S = 5.0
_LEFT_US = 5_000_000
_HEADS_AT_ONCE = 500


class Janitor:
    """``start`` is called once, in the process that is to do the work: after a fork."""

    def __init__(self, store: Store, settler: Settler, runtime: Runtime, kept_s: int) -> None:
        """``kept_s``: how long verdicts are kept."""
        self._store = store
        self._settler = settler
        self._runtime = runtime
        self._kept_us = kept_s * 1_000_000
        self._holder = ""  # chosen with the first round

    def start(self) -> None:
        self._runtime.spawn(self._run, "janitor")

    def _run(self) -> None:
        while True:
            self._runtime.sleep(_EVERY_S * (0.5 + self._runtime.jitter()))
            try:
                self.run_round()
                self.end_uncommitted()
            except Unreachable as error:
                _log.info("the janitor can't reach the database: %s", error)
            except Exception:  # noqa: BLE001 - the thread must outlive any defect
                _log.exception("a round of the janitor failed")

    def run_round(self) -> None:
        """End the tails of heads that haven't moved for a while. Raises Unreachable."""
        self._holder = self._holder or self._runtime.new_id()
        if not self._store.take_lease(_LEASE, self._holder, _LEASE_S):
            return
        left = self._store.open_tails(self._runtime.now_us() - _LEFT_US, _HEADS_AT_ONCE)
        asked = {
            head.catalog: [head.revision] for head in left if head.judged_written == head.judged
        }
        there = self._store.last_written(asked) if asked else {}
        self._store.end_tails(
            {
                head.catalog: (head.revision, head.judged)
                for head in left
                if head.catalog in there or self._finish(head)
            }
        )

    def _finish(self, head: Head) -> bool:
        """Whether all that the head has is written out. Raises Unreachable."""
        try:
            return self._settler.finish(head.catalog, head.revision, head.judged)
        except Unreachable:
            raise
        except Exception:  # noqa: BLE001 - one catalog's trouble is no other's
            about = {"catalog": head.catalog}
            _log.exception("the tail of %r can't be written out", head.catalog, extra=about)
            return False

    def end_uncommitted(self) -> None:
        """Delete heads without a commit whose verdicts are over. Raises Unreachable.

        A refusal under an idempotency key makes a head also for a catalog that nobody ever writes.
        It is deleted as it was found: a first commit meanwhile wins, and one afterwards finds no
        head. Not before its verdicts are over, though they are written out: whoever has looked for
        the key when there was no head could otherwise decide once more.
        """
        if not self._store.take_lease(_LEASE, self._holder, _LEASE_S):
            return
        over_us = self._runtime.now_us() - self._kept_us
        if over := self._store.uncommitted(over_us, _UNCOMMITTED_AT_ONCE):
            self._store.drop_uncommitted(over)
