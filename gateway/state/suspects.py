"""Suspects: catalogs whose calls of the store failed, or took long. They are called for alone.

A call for many catalogs fails, or takes long, as a whole: one shard of several is away, or somebody
edited one head by hand. Who shares such a call can't tell whose trouble it was, so all of them are
suspected. A suspect shares no call with others, and no thread that they wait for, until a call for
it alone has worked. So one catalog's trouble costs its neighbours one call, once; and the catalog
itself, whose calls alone fail, too, while others work, stays a suspect.

A worked example. The heads of a, b and c are read in one call, which fails: the shard of c is away.
Each is read alone then: a and b at once, and they share calls again; c fails, and shares none for
the next seconds, nor as long as it goes on failing.

Where the whole database is away, that is everybody's trouble. It shows by several calls alone that
fail in a row: those suspected share calls again. So it costs a few calls more, not one a catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from gateway.runtime import Runtime

_log = logging.getLogger(__name__)

# A call that takes so long is as bad for who shares it as one that fails.
_SLOW_S: Final = 1.0
# A suspect that failed alone, while others worked, stays one for so long at least.
_HELD_S: Final = 5.0
# For so long a call that worked shows that the database is there.
_PROOF_S: Final = 2.0
# Calls alone that fail in a row: the trouble is everybody's.
_IN_A_ROW: Final = 8
_CATALOGS_MAX: Final = 10_000


class Suspects(dict[str, float]):
    """By suspect, since when a call for it alone that works clears it.

    Thread-safe; no method waits, and all are quick while there are none.
    """

    def __init__(self, runtime: Runtime, what: str) -> None:
        """``what`` is called for, for the log."""
        super().__init__()
        self._runtime = runtime
        self._what = what
        self._lock = runtime.lock()
        self._bad_in_a_row = 0
        self._worked_at: float | None = None

    def failed(self, catalogs: Collection[str]) -> None:
        """One call for these failed."""
        with self._lock:
            now = self._runtime.monotonic()
            if len(catalogs) > 1:
                self._suspect(catalogs, now)
            else:
                self._failed_alone(catalogs, now)

    def worked(self, catalogs: Collection[str], began: float) -> None:
        """One call for these, begun at that monotonic time, worked."""
        now = self._runtime.monotonic()
        if now - began >= _SLOW_S:
            self.failed(catalogs)
            return
        self._worked_at = now
        self._bad_in_a_row = 0
        if self:
            with self._lock:
                for catalog in catalogs:
                    if self.get(catalog, now) <= now:
                        self.pop(catalog, None)

    def _suspect(self, catalogs: Collection[str], now: float) -> None:
        if len(self) + len(catalogs) > _CATALOGS_MAX:
            self.clear()
        for catalog in catalogs:
            self.setdefault(catalog, now)

    def _failed_alone(self, catalogs: Collection[str], now: float) -> None:
        self._bad_in_a_row += 1
        if self._bad_in_a_row >= _IN_A_ROW:
            for catalog in [catalog for catalog, until in self.items() if until <= now]:
                del self[catalog]
            return
        others_work = self._worked_at is not None and now - self._worked_at < _PROOF_S
        if not others_work:
            self._suspect(catalogs, now)
            return
        for catalog in catalogs:
            if self.get(catalog, 0.0) <= now:
                about = {"catalog": catalog}
                text = "%s of %r fails or takes long while others work: it is done apart"
                _log.warning(text, self._what, catalog, extra=about)
            self[catalog] = now + _HELD_S
