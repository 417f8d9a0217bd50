"""Request bodies that are being received: limits of their time, and of their bytes in memory.

Without them, a client that begins a body and stops, or that sends a byte now and then, would hold
its place for ever, and many slow clients would hold unlimited memory.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from werkzeug.exceptions import RequestTimeout, TooManyRequests

from gateway.access.principal import Shares
from gateway.cpu import slices
from gateway.limits import ConnectionLimits

MIB = 1024 * 1024
# Bytes of one read, and so the uncounted memory of each body.
_STEP_BYTES = 64 * 1024


class BodiesUnderWay:
    """The bodies of one process. Thread-safe."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._shares = Shares(limits.bodies_bytes_max)
        self._lock = threading.Lock()

    def read(self, read: Callable[[int], bytes], size: int, holder: str | None) -> bytes:
        """Read ``size`` bytes with ``read``, fewer only at the end of the body. ``holder`` has the
        share that they count to (``gateway.access.principal``); None: no share.

        Raises werkzeug's TooManyRequests.
        """
        data = read(min(size, _STEP_BYTES))
        if len(data) < _STEP_BYTES or len(data) == size:
            return data
        return self._read_on(read, size, data, holder)

    def deadline(self) -> float:
        """The monotonic time at which a body that begins now has to be complete."""
        return time.monotonic() + self._limits.body_whole_timeout_s

    @contextmanager
    def patience(self, source: Any, deadline: float = math.inf) -> Iterator[None]:
        """Reads inside wait at most that long for the next bytes, and never beyond ``deadline``.

        Then they raise werkzeug's RequestTimeout. ``source`` is gunicorn's reader of the socket.
        """
        connection = source.sock
        before = connection.gettimeout()
        source.sock = _Hurried(connection, self._limits.body_timeout_s, deadline)
        try:
            yield
        except TimeoutError as error:
            limits = self._limits
            if time.monotonic() >= deadline:
                whole_s = limits.body_whole_timeout_s
                late = f"the body wasn't complete after {whole_s:g} s (body_whole_timeout_s)"
            else:
                late = f"no byte of the body came for {limits.body_timeout_s:g} s (body_timeout_s)"
            raise RequestTimeout(late) from error
        finally:
            source.sock = connection
            connection.settimeout(before)

    def _read_on(
        self, read: Callable[[int], bytes], size: int, data: bytes, holder: str | None
    ) -> bytes:
        pieces = [data]
        received = counted = len(data)
        self._count(received, holder)
        try:
            while received < size:
                if slices.is_over:  # who sends fast never lets its reader wait
                    slices.give_turn()
                piece = read(min(size - received, _STEP_BYTES))
                if not piece:
                    break
                pieces.append(piece)
                received += len(piece)
                self._count(len(piece), holder)
                counted = received
            return b"".join(pieces)
        finally:
            with self._lock:
                self._shares.give_back(holder, counted)

    def _count(self, added: int, holder: str | None) -> None:
        with self._lock:
            shares = self._shares
            if shares.held + added > shares.maximum:
                raise TooManyRequests(
                    f"the bodies being received take {shares.maximum} bytes"
                    " (bodies_bytes_max) already"
                )
            if holder is not None and not shares.has_room_for(holder, added):
                raise TooManyRequests(
                    f"the bodies being received from principal {holder!r} take as much as its"
                    " share allows (bodies_bytes_max)"
                )
            shares.take(holder, added)


class _Hurried:
    """A socket whose reads raise TimeoutError after ``stall_s`` without a byte, and beyond
    ``deadline`` in any case.
    """

    __slots__ = ("_connection", "_deadline", "_stall_s")

    def __init__(self, connection: Any, stall_s: float, deadline: float) -> None:
        self._connection = connection
        self._stall_s = stall_s
        self._deadline = deadline

    def recv(self, size: int) -> bytes:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(min(self._stall_s, left_s))
        data: bytes = self._connection.recv(size)
        return data
