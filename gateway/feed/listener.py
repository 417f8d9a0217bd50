"""Listening to the store's signals of new commits, while somebody wants them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from gateway.runtime import Runtime
from gateway.store.contract import CommitSignals, Store, Unreachable

_log = logging.getLogger(__name__)

# The longest call, after which the listener notices that there are no watchers any more.
_LISTEN_S = 1.0
_PAUSE_MIN_S = 0.1
_PAUSE_MAX_S = 5.0


class SignalListener:
    """Calls ``hear`` with each catalog's newest revision, or with {} when signals may be missing.

    The latter is so each time the signals are opened. A lost signal costs time only.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        hear: Callable[[Mapping[str, int]], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._hear = hear
        self._is_wanted = is_wanted

    def run(self) -> None:
        """Listen until ``is_wanted`` is false."""
        pause_s = _PAUSE_MIN_S
        while self._is_wanted():
            try:
                signals = self._store.commit_signals()
            except Unreachable as error:
                _log.info("commit signals can't be opened: %s", error)
            else:
                pause_s = _PAUSE_MIN_S
                self._listen(signals)
            if self._is_wanted():
                self._runtime.sleep(pause_s * (1 + self._runtime.jitter()))
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _listen(self, signals: CommitSignals) -> None:
        try:
            self._hear({})
            while self._is_wanted():
                told = signals.next(_LISTEN_S)
                if told:
                    self._hear(told)
        except Unreachable as error:
            _log.info("commit signals broke off: %s", error)
        finally:
            with suppress(Unreachable):
                signals.close()
