"""The files through which the workers of one gateway share their metrics.

Before it forks, the master makes a directory, in memory if possible; it removes it when it ends.
A worker has a *number*, the lowest that no live worker has, and files named by it. A worker that
replaces another continues its files, so counters lose nothing, and there are never more sets of
files than there were workers at a time. The gauges of a worker are removed when it has ended.

This module does not import the metrics library, which must not be imported before the fork.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "gateway-metrics-"
_OWNER = "owner"


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """Where a worker shares its values: its ``number`` among those that share the directory."""

    directory: Path
    number: int


_here: WorkerSlot | None = None


def take_slot(slot: WorkerSlot) -> None:
    """Set the slot of this process, right after the fork and before the metrics are imported."""
    global _here
    _here = slot


def slot() -> WorkerSlot | None:
    """The slot of this process; None if it shares its values with no other."""
    return _here


@contextmanager
def shared_directory(parent: Path | None = None) -> Iterator[Path]:
    """A private directory for the lifetime of this process.

    Workers are forks of the master, so they leave this context, too; that removes nothing.
    """
    owner_pid = os.getpid()
    base = parent or _memory()
    _remove_abandoned(base)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    # This process and its forks hold the lock; while one of them lives, the directory is in use.
    lock = os.open(directory / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield directory
    finally:
        if os.getpid() == owner_pid:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)


def forget_gauges(slot: WorkerSlot) -> None:
    """Remove the gauges of a worker that has ended; its counters stay."""
    for path in slot.directory.glob(f"gauge_live*_{slot.number}.db"):
        with suppress(FileNotFoundError):
            path.unlink()


def _memory() -> Path:
    """A file system in memory, if there is one, because values are written all the time."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def _remove_abandoned(base: Path) -> None:
    """Remove the directories of this user's masters that were killed."""
    for directory in base.glob(_PREFIX + "*"):
        with suppress(OSError):
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            lock = os.open(directory / _OWNER, os.O_RDWR)  # not there yet in a new directory
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)
