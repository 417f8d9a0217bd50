"""The lines about readiness: `gateway serve` is ready, or waits for MongoDB."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from urllib.parse import unquote

from gateway.settings import Settings

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0


class Announcement:
    """Made in the master; each of its lines is written once, by the first worker that can.

    The line that the gateway is ready comes after MongoDB has answered. Requests are served before
    that too, with 503.
    """

    def __init__(self, settings: Settings) -> None:
        """``settings`` as they were given, before an embedded MongoDB became a URI."""
        self._where = _where(settings)
        self._ready, self._waiting = _once(), _once()

    def begin(self, url: str, check_ready: Callable[[], None]) -> None:
        """Start, in a worker; returns at once. ``check_ready`` raises while the database doesn't
        answer.
        """
        threading.Thread(target=self._announce, args=(url, check_ready), daemon=True).start()

    def _announce(self, url: str, check_ready: Callable[[], None]) -> None:
        while True:
            try:
                check_ready()
                break
            except Exception as error:  # noqa: BLE001 - any error means not ready
                reason = error.__cause__ or error
                if _take(self._waiting):
                    waiting = "waiting for %s: %s; until then %s answers 503"
                    _log.warning(waiting, self._where, reason, url)
            time.sleep(_LOOK_AGAIN_S)
        if _take(self._ready):
            print(
                f"gateway: ready at {url} (console {url}/console/, docs {url}/docs,"
                f" data in {self._where})",
                flush=True,
            )


def _where(settings: Settings) -> str:
    if settings.embedded or settings.mongodb_uri is None:
        return str(settings.data_dir)
    hosts = settings.mongodb_uri.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return f"MongoDB at {unquote(hosts)}, database {settings.database}"


def _once() -> int:
    """A pipe with one byte, for the first process that reads it."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, b"1")
    os.close(writer)
    return reader


def _take(pipe: int) -> bool:
    try:
        return bool(os.read(pipe, 1))
    except BlockingIOError:
        return False
