"""The answers of servers that the gateway asks: receivers of subscriptions, issuers of tokens.

A server may send more than anybody wants, and as fast as it likes. Where there is always something
to be read, the greenlet that reads it never waits: no deadline comes, and the worker serves nobody.
So an answer is bounded in bytes as a whole, with its head, its interim answers and its framing.
"""

from __future__ import annotations

import http.client
import io
import socket
from typing import Any, Final, cast

HEAD_BYTES_MAX: Final = 64 * 1024


class BoundedAnswer(http.client.HTTPResponse):
    """Takes the place of ``HTTPConnection.response_class``.

    Whatever reads beyond ``bytes_max`` raises OSError, and so does a head that isn't whole: for the
    library, a connection that ends ends the head, too. Interim answers (1xx) are passed over.
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
            self.headers = self.msg = cast(Any, None)  # so that it reads on
            super().begin()


class _Bounded:
    """A socket whose file ends with an error behind so many bytes, or where it may not end."""

    def __init__(self, sock: socket.socket, bytes_max: int) -> None:
        self._sock = sock
        self.left = self._bytes_max = bytes_max
        self.may_end = False

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Counted(self._sock.makefile("rb", buffering=0), self))

    def count(self, read: int) -> None:
        """Raises OSError."""
        self.left -= read
        if not read and not self.may_end:
            raise OSError("the connection ended before the answer")

    def require_room(self) -> None:
        """Raises OSError."""
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
