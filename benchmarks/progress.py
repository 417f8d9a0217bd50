"""The progress line on stderr: overwritten in a terminal, one line per step elsewhere."""

from __future__ import annotations

import sys
import time


class ProgressLine:
    def __init__(self) -> None:
        self._start = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self.scenario = ""

    def __call__(self, text: str) -> None:
        line = f"[{time.monotonic() - self._start:4.0f} s] {self.scenario}: {text}"
        if self._terminal:
            print(f"\r\x1b[K{line[:110]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Make room for what goes to stdout."""
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
