"""Turns between the worker processes of one machine, by locks on single bytes of one file.

Each catalog has two bytes, by a hash of its name: one is locked by the worker whose turn it is,
the other by one that waits. The operating system drops a process's locks when it dies, so a
killed worker never holds a turn; a stopped one does, until the others lose patience.

Every process that uses a file shares the lock on one more byte of it. A file that nobody shares is
removed: by the last process that closes it, or else, where that one was killed, by the next one
that opens another.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

_USED: Final = 1 << 40  # beyond every catalog's bytes


class MachineTurns:
    """See ``gateway.commit.turns.Turns``. Two catalogs of one hash take turns needlessly."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where the file can't be opened for writing."""
        self._path = path
        # Open as long as the process works: closing any descriptor of the file would drop all of
        # the process's locks.
        self._file = _opened(path)
        self._waiting: set[str] = set()

    def close(self) -> None:
        """All turns end; the file goes where no other process uses it."""
        _remove_unused(self._file, self._path)
        os.close(self._file)

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
        return _locked(self._file, fcntl.LOCK_EX, offset)

    def _unlock(self, offset: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, offset)


def turns_path(mongodb_uri: str, database: str) -> Path:
    """One file per user and database, the same in every worker of the machine."""
    name = hashlib.sha256(f"{mongodb_uri}\0{database}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"{_own_prefix()}{name}.turns"


def remove_left_over(but: Path) -> None:
    """Remove the user's files beside ``but`` that no process uses. What can't be removed stays."""
    for path in but.parent.glob(f"{_own_prefix()}*.turns"):
        if path == but:
            continue
        with suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                _remove_unused(file, path)
            finally:
                os.close(file)


def _own_prefix() -> str:
    return f"metadata-gateway-{os.getuid()}-"


def _opened(path: Path) -> int:
    """The file, marked as used. Its last user may remove it at the same moment: then another."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.lockf(file, fcntl.LOCK_SH, 1, _USED)
        if _is(file, path):
            return file
        os.close(file)


def _remove_unused(file: int, path: Path) -> None:
    """Remove ``path``, if it is ``file`` and no other process holds any lock on it."""
    if _locked(file, fcntl.LOCK_EX, 0, length=0) and _is(file, path):
        path.unlink()


def _is(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _locked(file: int, kind: int, offset: int, length: int = 1) -> bool:
    """Length 0: all that is behind."""
    try:
        fcntl.lockf(file, kind | fcntl.LOCK_NB, length, offset)
    except OSError:
        return False
    return True


def _offsets(catalog: str) -> tuple[int, int]:
    offset = 2 * zlib.crc32(catalog.encode())
    return offset, offset + 1
