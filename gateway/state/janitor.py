"""Tails that were left behind: the janitor writes them out if necessary, and empties them.

A head keeps its tail until its next move. If nobody writes the catalog any more, the janitor
empties the tail some seconds later. If the worker that moved the head died, the janitor writes the
tail out first. Only one process of all does this at a time, by a lease; two at once do no harm. A
round goes through all such tails, and skips those that can't be emptied now.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from gateway.model import Head
from gateway.runtime import Runtime
from gateway.state.heads import Settler
from gateway.store.contract import Store, StoreUnreachable, WriteRejected

_log = logging.getLogger(__name__)

_UNCOMMITTED_AT_ONCE = 100  # for each, its verdicts are looked up
_LEASE = "janitor"
_LEASE_S = 30.0
_EVERY_S = 5.0
_LEFT_US = 5_000_000
_HEADS_AT_ONCE = 500
_PAGES_MAX = 200
_UNREACHABLE_MAX = 3


class Janitor:
    """Empties the tails of heads that no longer move. ``start`` is called once, in the process that
    is to do the work, so after a fork."""

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
            except StoreUnreachable as error:
                _log.info("the janitor can't reach the database: %s", error)

    def run_round(self) -> None:
        """Empty the tails of all heads that haven't moved for a while. Raises StoreUnreachable.

        If a head's time is in the future by this clock, nothing says when the head moved, so its
        tail is emptied, too. If the clock of one gateway was ahead, even for a moment, the commit
        times of its catalogs stay ahead until all clocks have caught up.
        """
        self._holder = self._holder or self._runtime.new_id()
        now_us = self._runtime.now_us()
        kept = 0  # tails seen so far that couldn't be emptied
        for _ in range(_PAGES_MAX):
            if not self._store.take_lease(_LEASE, self._holder, _LEASE_S):
                return
            left = self._store.open_tails(
                now_us - _LEFT_US, _HEADS_AT_ONCE, kept, after_us=now_us + _LEFT_US
            )
            kept += len(left) - self._end(left)
            if len(left) < _HEADS_AT_ONCE:
                return

    def _end(self, left: Sequence[Head]) -> int:
        """Empty those of these tails that can be; return their number. Raises StoreUnreachable."""
        asked = {
            head.catalog: [head.revision] for head in left if head.judged_written == head.judged
        }
        there: Mapping[str, int] = {}
        try:
            there = self._store.last_written(asked) if asked else {}
        except StoreUnreachable as error:  # perhaps because of one catalog: each is tried alone
            _log.info("tails are checked one by one: %s", error)
        ended: dict[str, tuple[int, int]] = {}
        in_a_row = 0  # catalogs for which the database couldn't be reached
        for head in left:
            try:
                if head.catalog in there or self._finish(head):
                    ended[head.catalog] = (head.revision, head.judged)
                in_a_row = 0
            except StoreUnreachable as error:
                in_a_row += 1
                if in_a_row == _UNREACHABLE_MAX:  # the whole database is away
                    raise
                about = {"catalog": head.catalog}
                _log.warning("the tail of %r has to wait: %s", head.catalog, error, extra=about)
        try:
            self._store.end_tails(ended)
        except WriteRejected as error:  # the other tails are emptied
            _log.warning("not all tails can be ended: %s", error)
            return 0
        return len(ended)

    def _finish(self, head: Head) -> bool:
        """Whether the head's whole tail is written out, if necessary by this call. Raises
        StoreUnreachable."""
        try:
            return self._settler.finish(head.catalog, head.revision, head.judged)
        except StoreUnreachable:
            raise
        except Exception:  # noqa: BLE001 - one catalog's trouble is no other's
            about = {"catalog": head.catalog}
            _log.exception("the tail of %r can't be written out", head.catalog, extra=about)
            return False

    def end_uncommitted(self) -> None:
        """Delete heads without a commit whose verdicts have expired. Raises StoreUnreachable.

        A refusal under an idempotency key makes a head even for a catalog that nobody ever writes.
        The head is deleted only if it is as it was found: a first commit meanwhile wins, and a
        later one finds no head. It stays until its verdicts have expired, although they are written
        out: otherwise, a worker that looked for the key while there was no head could decide again.
        """
        if not self._store.take_lease(_LEASE, self._holder, _LEASE_S):
            return
        over_us = self._runtime.now_us() - self._kept_us
        if over := self._store.uncommitted(over_us, _UNCOMMITTED_AT_ONCE):
            self._store.drop_uncommitted(over)
