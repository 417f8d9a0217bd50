"""gunicorn's own messages, on the same way as all others."""

from __future__ import annotations

import logging
from typing import Any

from gunicorn.glogging import Logger


class GunicornLogs(Logger):
    """Has no handlers of its own, and writes no access log: the gateway's has more to say.

    What is wrong is told at any level, what goes on (workers that start and end) from ``debug`` on.
    """

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self._access_log_enabled = False
        is_debugging = logging.getLogger("gateway").getEffectiveLevel() <= logging.DEBUG
        self.error_log.setLevel(logging.INFO if is_debugging else logging.WARNING)
        self.error_log.propagate = True
