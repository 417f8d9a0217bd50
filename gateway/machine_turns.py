"""Turns between the worker processes of one machine, by locks on single bytes of one file.

Each catalog has two bytes, by a hash of its name: one is locked by the worker whose turn it is,
the other by one that waits. The operating system drops a process's locks when it dies, so a
killed worker never holds a turn; a stopped one does, until the others lose patience.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import zlib
from pathlib import Path


class MachineTurns:
    """See ``gateway.commits.turns.Turns``. Two catalogs of one hash take turns needlessly."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where the file can't be opened for writing."""
        # Never closed: closing any descriptor of the file would drop all of the process's locks.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._waiting: set[str] = set()

    def take(self, catalog: str) -> bool:
        turn, waiting = _offsets(catalog)
        if not self._lock(turn):
            if catalog not in self._waiting and self._lock(waiting):
                self._waiting.add(catalog)
            return False
        self.give_up(catalog)
        return True

    def give_up(self, catalog: str) -> None:
        if catalog in self._waiting:
            self._waiting.discard(catalog)
            self._unlock(_offsets(catalog)[1])

    def end(self, catalog: str) -> bool:
        turn, waiting = _offsets(catalog)
        self._unlock(turn)
        if not self._lock(waiting):
            return True
        self._unlock(waiting)
        return False

    def _lock(self, offset: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except OSError:
            return False
        return True

    def _unlock(self, offset: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, offset)


def turns_path(mongodb_uri: str, database: str) -> Path:
    """One file per user and database, the same in every worker of the machine."""
    name = hashlib.sha256(f"{mongodb_uri}\0{database}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"metadata-gateway-{os.getuid()}-{name}.turns"


def _offsets(catalog: str) -> tuple[int, int]:
    offset = 2 * zlib.crc32(catalog.encode())
    return offset, offset + 1
