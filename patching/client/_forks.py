"""What a process that was forked begins anew: connections and locks that it shares with the process
that it came from, whose threads it doesn't have."""

from __future__ import annotations

import os
import weakref
from typing import Final


class PerProcess:
    """Has state of which each process needs its own, made by ``_begin``."""

    def __init__(self) -> None:
        self._begin()
        _MADE.add(self)

    def _begin(self) -> None:
        """Called in a forked process, too, where no other thread is."""
        raise NotImplementedError

    def _forked(self) -> None:
        """Called in a forked process, once all have begun."""


_MADE: Final[weakref.WeakSet[PerProcess]] = weakref.WeakSet()


def _begin_all() -> None:
    made = tuple(_MADE)
    for each in made:
        each._begin()
    for each in made:
        each._forked()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_begin_all)
