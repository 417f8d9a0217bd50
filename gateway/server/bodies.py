"""Request bodies that are being received: how long for, and how much of them at a time.

Clients that begin a body and don't go on would otherwise hold their place for ever; many that send
slowly would hold as much memory as they like.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from werkzeug.exceptions import RequestTimeout, TooManyRequests

MIB = 1024 * 1024
# What is read at a time, and so what each of them may take without being counted.
_STEP_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class BodyBounds:
    timeout_s: float = 30.0
    bytes_max: int = 256 * MIB


class BodiesUnderWay:
    """Those of one process. Thread-safe."""

    def __init__(self, bounds: BodyBounds) -> None:
        self._bounds = bounds
        self._bytes = 0
        self._lock = threading.Lock()

    def read(self, read: Callable[[int], bytes], size: int) -> bytes:
        """``size`` bytes by way of ``read``, fewer only at the end of the body.

        Raises werkzeug's TooManyRequests.
        """
        data = read(min(size, _STEP_BYTES))
        if len(data) < _STEP_BYTES or len(data) == size:
            return data
        return self._read_on(read, size, data)

    @contextmanager
    def patience(self, connection: Any) -> Iterator[None]:
        """Reading from ``connection`` inside waits for the next bytes for so long and no longer.

        Then it raises werkzeug's RequestTimeout.
        """
        before = connection.gettimeout()
        connection.settimeout(self._bounds.timeout_s)
        try:
            yield
        except TimeoutError as error:
            raise RequestTimeout(
                f"no byte of the body came for {self._bounds.timeout_s:g} s (body_timeout_s)"
            ) from error
        finally:
            connection.settimeout(before)

    def _read_on(self, read: Callable[[int], bytes], size: int, data: bytes) -> bytes:
        pieces = [data]
        received = counted = len(data)
        self._count(received)
        try:
            while received < size:
                piece = read(min(size - received, _STEP_BYTES))
                if not piece:
                    break
                pieces.append(piece)
                received += len(piece)
                self._count(len(piece))
                counted = received
            return b"".join(pieces)
        finally:
            self._count(-counted)

    def _count(self, added: int) -> None:
        with self._lock:
            if added > 0 and self._bytes + added > self._bounds.bytes_max:
                raise TooManyRequests(
                    f"the bodies being received take {self._bounds.bytes_max} bytes"
                    " (bodies_bytes_max) already"
                )
            self._bytes += added
