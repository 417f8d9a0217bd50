"""The files through which the workers of one gateway share their metrics.

The master makes a directory, in memory where it can, before it forks, and removes it when it ends.
A worker has a *place*, the lowest number that no living worker has, and files named by it. A worker
that replaces another continues its files, so that counters lose nothing, and there are never more
files than workers that lived side by side. The gauges of a worker are removed when it has ended.

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
class WorkerPlace:
    """The place of a worker: its ``number`` among those that share the directory."""

    directory: Path
    number: int


_here: WorkerPlace | None = None


def take_place(place: WorkerPlace) -> None:
    """Take the worker's place, right after the fork and before the metrics are imported."""
    global _here
    _here = place


def place() -> WorkerPlace | None:
    """The place of this process; None where it shares its values with no other."""
    return _here


@contextmanager
def shared_directory(parent: Path | None = None) -> Iterator[Path]:
    """A private directory for the lifetime of this process.

    A worker, being a fork of the master, leaves this context too; there it removes nothing.
    """
    owner_pid = os.getpid()
    base = parent or _memory()
    _remove_abandoned(base)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    # Held by this process and its forks; while one of them lives, the directory is in use.
    lock = os.open(directory / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield directory
    finally:
        if os.getpid() == owner_pid:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)


def forget_gauges(place: WorkerPlace) -> None:
    """Remove the gauges of a worker that has ended; its counters stay."""
    for path in place.directory.glob(f"gauge_live*_{place.number}.db"):
        with suppress(FileNotFoundError):
            path.unlink()


def _memory() -> Path:
    """A file system in memory, where there is one: values are written all the time."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def _remove_abandoned(base: Path) -> None:
    """Remove the directories of this user's masters that were killed."""
    for directory in base.glob(_PREFIX + "*"):
        with suppress(OSError):
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            lock = os.open(directory / _OWNER, os.O_RDWR)  # missing while it is being made
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)
