"""What a forked process has to replace: connections and locks shared with its parent,
whose threads it doesn't have."""

from __future__ import annotations

import os
import weakref
from typing import Final


class PerProcess:
    """Has state that each process needs for itself, made by ``_begin``."""

    def __init__(self) -> None:
        self._begin()
        _MADE.add(self)

    def _begin(self) -> None:
        """Also called in a forked process, where there is no other thread."""
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


if hasattr(os, "register_at_fork"):  # if the system has forks
    os.register_at_fork(after_in_child=_begin_all)
