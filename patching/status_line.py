"""The line on a terminal by which the commands say how far they are."""

from __future__ import annotations

import shutil
import sys
from typing import Final

_CLEAR: Final = "\r\x1b[K"


class StatusLine:
    """One line of stderr, written over when its text changes. Where not ``shown``: nothing."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._there = False

    def show(self, text: str) -> None:
        if self._shown:
            # A line that is wider goes on in the next, which isn't written over.
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(_CLEAR + text[:width])
            sys.stderr.flush()
            self._there = True

    def clear(self) -> None:
        """Take the line away until the next ``show``, so that others can be written."""
        if self._there:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._there = False

    def leave(self) -> None:
        """What is shown stays, and others are written below."""
        if self._there:
            sys.stderr.write("\n")
            self._there = False
