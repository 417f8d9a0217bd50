"""Where the workers of one gateway keep their values, so that any of them can tell those of all.

A directory of files in memory, made by the master before it forks and removed when it ends. Each
worker has a *place*, the lowest number that no living worker has, and by it files of its own: a
worker that replaces another goes on with its files, so that counters lose nothing and there are
never more files than workers that lived side by side. What is only true of a living process (its
gauges) is removed when it has ended.

This module imports nothing of the metrics library, which must not be imported before the fork.
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
class Place:
    """Where a worker keeps its values: its ``number`` among those that share the directory."""

    directory: Path
    number: int


_here: Place | None = None


def take_place(place: Place) -> None:
    """Called in a worker right after the fork, before anything of the metrics is imported."""
    global _here
    _here = place


def place() -> Place | None:
    """Of this process; None where it shares its values with nobody."""
    return _here


@contextmanager
def shared_directory(parent: Path | None = None) -> Iterator[Path]:
    """A private directory for as long as this process needs it.

    A worker unwinds this too, as a fork of the master; there it removes nothing.
    """
    owner_pid = os.getpid()
    base = parent or _memory()
    _remove_abandoned(base)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    # Held by this process and its forks: as long as one of them lives, it isn't abandoned.
    lock = os.open(directory / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield directory
    finally:
        if os.getpid() == owner_pid:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)


def forget_gauges(place: Place) -> None:
    """The worker in this place has ended: its gauges say nothing any more, its counters stay."""
    for path in place.directory.glob(f"gauge_live*_{place.number}.db"):
        with suppress(FileNotFoundError):
            path.unlink()


def _memory() -> Path:
    """Values are written all the time: where there is a file system in memory, there."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def _remove_abandoned(base: Path) -> None:
    """What masters of this user left that were killed: nothing else would ever remove it."""
    for directory in base.glob(_PREFIX + "*"):
        with suppress(OSError):
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            lock = os.open(directory / _OWNER, os.O_RDWR)  # one that has none is just being made
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)
