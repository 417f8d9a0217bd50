"""Turns between the worker processes of one machine, by locks on single bytes of one file.

Each catalog has two bytes, by a hash of its name: the worker that has the turn locks one, and a
worker that waits for it locks the other. The operating system drops the locks of a process that
dies, so a killed worker holds no turn. A stopped one does, until the others lose patience.

Every process that uses a file shares a lock on one more byte, and locks a byte of its own, by its
process id, so that each can find the others. The last process that closes the file removes it; if
that process was killed, a process that starts later with another file does (``remove_left_over``).

The file holds a secret, made by the first process that opens it, by which workers recognise each
other (``gateway.server.neighbours``). Only their user can read it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

_USED: Final = 1 << 40  # beyond every catalog's bytes
_MAKING_SECRET: Final = _USED + 1
_WORKERS: Final = 1 << 41  # a worker's byte is at this plus its process id
_WORKERS_MAX: Final = 1 << 31
_SECRET_BYTES: Final = 32
_LOCK: Final = struct.Struct("hhqqi")  # struct flock of Linux: type, whence, start, length, process


class MachineTurns:
    """See ``gateway.commit.queue.Turns``. Catalogs with the same hash share their turns."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file can't be opened for writing, or others could read it."""
        self.path = path
        # Stays open as long as the process works: closing any descriptor of the file would drop all
        # locks of the process.
        self._file = _opened(path)
        self.secret = _secret(self._file)
        self._lock(_WORKERS + os.getpid())
        self._waiting: set[str] = set()

    def close(self) -> None:
        """End all turns, and remove the file if no other process uses it."""
        _remove_unused(self._file, self.path)
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

    def others(self) -> list[int]:
        """The process ids of the other workers that use the file and can be seen from here."""
        found = []
        spans = [(_WORKERS, _WORKERS_MAX)]
        while spans:
            start, length = spans.pop()
            asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
            answer = fcntl.fcntl(self._file, fcntl.F_GETLK, asked)
            kind, _, at, _, process = _LOCK.unpack(answer)
            if kind == fcntl.F_UNLCK:
                continue
            if process == at - _WORKERS:  # else it is in another namespace of process ids
                found.append(process)
            spans += [(start, at - start)] if at > start else []
            spans += [(at + 1, start + length - at - 1)] if start + length > at + 1 else []
        return sorted(found)

    def _lock(self, offset: int) -> bool:
        return _locked(self._file, fcntl.LOCK_EX, offset)

    def _unlock(self, offset: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, offset)


def turns_path(mongodb_uri: str, database: str) -> Path:
    """The path of the file for this user and database, the same for every worker of the machine.

    Raises OSError if no folder for temporary files can be written.
    """
    name = hashlib.sha256(f"{mongodb_uri}\0{database}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"{_own_prefix()}{name}.turns"


def remove_left_over(but: Path) -> None:
    """Remove the user's files in the folder of ``but``, except ``but``, that no process uses."""
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
    """The file, marked as used. It is opened again if its last user removed it meanwhile."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.lockf(file, fcntl.LOCK_SH, 1, _USED)
        if _is(file, path):
            _check_private(file, path)
            return file
        os.close(file)


def _check_private(file: int, path: Path) -> None:
    """Raise PermissionError, with the file closed, if others can read it, or made it."""
    found = os.fstat(file)
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        os.close(file)
        raise PermissionError(
            f"{path} must belong to this user, and nobody else may read it: remove it"
        )


def _secret(file: int) -> bytes:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, _MAKING_SECRET)
    try:
        secret = os.pread(file, _SECRET_BYTES, 0)
        if len(secret) < _SECRET_BYTES:
            secret = os.urandom(_SECRET_BYTES)
            os.pwrite(file, secret, 0)
        return secret
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, _MAKING_SECRET)


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
    """Whether the lock could be taken, without waiting. Length 0: to the end of the file."""
    try:
        fcntl.lockf(file, kind | fcntl.LOCK_NB, length, offset)
    except OSError:
        return False
    return True


def _offsets(catalog: str) -> tuple[int, int]:
    offset = 2 * zlib.crc32(catalog.encode())
    return offset, offset + 1
