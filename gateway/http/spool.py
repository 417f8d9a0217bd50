"""What has been produced and not yet been taken: in memory while it is little, else on disk."""

from __future__ import annotations

import threading
from collections import deque
from tempfile import SpooledTemporaryFile
from typing import Final

MIB: Final = 1024 * 1024
_MEMORY_BYTES_MAX: Final = MIB
# Disk is given back file by file.
_FILE_BYTES: Final = 16 * MIB


class Spool:
    """Bytes from one thread to another, in order.

    Past ``bytes_max`` that wait to be read, the writer waits.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting = 0
        self._files: deque[_File] = deque()
        self._ended = False
        self._closed = False
        self._changed = threading.Condition()

    def write(self, data: bytes) -> bool:
        """False where nobody will read it any more."""
        with self._changed:
            while self._waiting >= self._bytes_max and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            if not self._files or self._files[-1].written >= _FILE_BYTES:
                self._files.append(_File())
            self._files[-1].append(data)
            self._waiting += len(data)
            self._changed.notify_all()
            return True

    def end(self) -> None:
        """Nothing more will be written."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; waits for the first of them. b"" at the end."""
        with self._changed:
            while not self._waiting and not self._ended and not self._closed:
                self._changed.wait()
            if not self._waiting:
                return b""
            first = self._files[0]
            data = first.take(size)
            self._waiting -= len(data)
            if first.taken == first.written:
                first.close()
                self._files.popleft()
            self._changed.notify_all()
            return data

    def close(self) -> None:
        """Nothing more will be read."""
        with self._changed:
            self._closed = True
            self._waiting = 0
            while self._files:
                self._files.popleft().close()
            self._changed.notify_all()


class _File:
    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_MEMORY_BYTES_MAX)  # noqa: SIM115 - closed by its spool
        self.written = 0
        self.taken = 0

    def append(self, data: bytes) -> None:
        self._file.seek(self.written)
        self._file.write(data)
        self.written += len(data)

    def take(self, size: int) -> bytes:
        self._file.seek(self.taken)
        data = self._file.read(size)
        self.taken += len(data)
        return data

    def close(self) -> None:
        self._file.close()
