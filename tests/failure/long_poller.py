"""A client of the feed by long polls, beside the one of ``tests.http.event_stream``."""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.failure.clients import send


class LongPoller:
    """Follows a catalog by one long poll after the other.

    ``commits`` are those that it received, ``times`` when each arrived, and ``position`` is the
    revision that it has reached.
    """

    def __init__(self, port: int, path: str) -> None:
        self.commits: list[Any] = []
        self.times: list[float] = []
        self.position = 0
        self.unexpected: list[str] = []
        self._port = port
        self._path = path
        self._stopped = False
        self._thread = threading.Thread(target=self._run)

    def stop(self) -> None:
        """It ends with the poll that is under way."""
        self._stopped = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            with suppress(OSError, http.client.HTTPException):
                status, answer = send(
                    self._port, "GET", f"{self._path}?after={self.position}&timeout=1&limit=50"
                )
                if status == 200:
                    self.times += [time.monotonic()] * len(answer["commits"])
                    self.commits += answer["commits"]
                    self.position = answer["revision"]
                elif status != 503:
                    self.unexpected.append(f"{status} {answer}")
