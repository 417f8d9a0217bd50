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

    Whatever reads beyond ``bytes_max`` raises OSError. Interim answers (1xx) are passed over.
    """

    def __init__(
        self, sock: socket.socket, *given: Any, bytes_max: int = HEAD_BYTES_MAX, **more: Any
    ) -> None:
        super().__init__(cast(socket.socket, _Bounded(sock, bytes_max)), *given, **more)

    def begin(self) -> None:
        super().begin()
        while 100 <= self.status < 200 and self.status != http.client.SWITCHING_PROTOCOLS:
            self.headers = self.msg = cast(Any, None)  # so that it reads on
            super().begin()


class _Bounded:
    """A socket whose file ends with an error behind so many bytes."""

    def __init__(self, sock: socket.socket, bytes_max: int) -> None:
        self._sock = sock
        self._bytes_max = bytes_max

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Counted(self._sock.makefile("rb", buffering=0), self._bytes_max))


class _Counted(io.RawIOBase):
    def __init__(self, file: io.RawIOBase, bytes_max: int) -> None:
        self._file = file
        self._bytes_max = self._left = bytes_max

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if not self._left:
            raise OSError(f"the answer is larger than {self._bytes_max} bytes")
        count = cast(io.FileIO, self._file).readinto(memoryview(buffer)[: self._left])
        self._left -= count or 0
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
