"""The answers of servers that the gateway calls: receivers of subscriptions, issuers of tokens.

A server may send any amount, as fast as it likes. As long as there is always something to read, the
greenlet that reads it never waits: no deadline is noticed, and the worker serves nobody else. So an
answer is bounded in bytes as a whole, including its head, interim answers and framing.
"""

from __future__ import annotations

import http.client
import io
import socket
from typing import Any, Final, cast

HEAD_BYTES_MAX: Final = 64 * 1024


class BoundedAnswer(http.client.HTTPResponse):
    """A bounded answer, to be used as ``HTTPConnection.response_class``.

    Reading beyond ``bytes_max`` raises OSError. So does a connection that ends within the head,
    which the library would take for the end of the head. Interim answers (1xx) are skipped.
    """

    def __init__(
        self, sock: socket.socket, *given: Any, bytes_max: int = HEAD_BYTES_MAX, **more: Any
    ) -> None:
        self._bounded = _Bounded(sock, bytes_max)
        super().__init__(cast(socket.socket, self._bounded), *given, **more)

    def begin(self) -> None:
        self._begin()
        self._bounded.may_end = True

    def _begin(self) -> None:
        super().begin()
        while 100 <= self.status < 200 and self.status != http.client.SWITCHING_PROTOCOLS:
            self.headers = self.msg = cast(Any, None)  # so that the library reads the next head
            super().begin()


class _Bounded:
    """A socket whose file raises OSError after ``bytes_max`` bytes, or if it ends while ``may_end``
    is false."""

    def __init__(self, sock: socket.socket, bytes_max: int) -> None:
        self._sock = sock
        self.left = self._bytes_max = bytes_max
        self.may_end = False

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Counted(self._sock.makefile("rb", buffering=0), self))

    def count(self, read: int) -> None:
        """Count the bytes of a read. Raises OSError if the connection may not end here."""
        self.left -= read
        if not read and not self.may_end:
            raise OSError("the connection ended before the answer")

    def require_room(self) -> None:
        """Raise OSError if all bytes are used."""
        if not self.left:
            raise OSError(f"the answer is larger than {self._bytes_max} bytes")


class _Counted(io.RawIOBase):
    def __init__(self, file: io.RawIOBase, bounds: _Bounded) -> None:
        self._file = file
        self._bounds = bounds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._bounds.require_room()
        count = cast(io.FileIO, self._file).readinto(memoryview(buffer)[: self._bounds.left])
        self._bounds.count(count or 0)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
