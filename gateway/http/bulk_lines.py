"""The lines of a body that comes piece by piece, and where they wait to be taken up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """``text`` without its end; None where it is too long to be held. ``offset``: its first byte's
    place in the body."""

    offset: int
    size_bytes: int
    text: bytes | None


class LineSplitter:
    """Cuts a stream of bytes into lines, leaving out blank ones. Holds at most one line."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._offset = 0

    def feed(self, piece: bytes) -> list[Line]:
        """The lines that end in ``piece``."""
        *ends, rest = piece.split(b"\n")
        lines = []
        for end in ends:
            self._begin(end)
            lines.append(self._end(1))
        self._begin(rest)
        return [line for line in lines if line is not None]

    def finish(self) -> list[Line]:
        """The last line, where it has no end of its own."""
        line = self._end(0)
        return [] if line is None else [line]

    def _begin(self, part: bytes) -> None:
        self._begun_bytes += len(part)
        if self._begun_bytes > self._line_bytes_max:
            self._begun.clear()
        elif part:
            self._begun.append(part)

    def _end(self, end_bytes: int) -> Line | None:
        offset, size = self._offset, self._begun_bytes
        too_long = size > self._line_bytes_max
        text = None if too_long else b"".join(self._begun)
        self._begun.clear()
        self._begun_bytes = 0
        self._offset += size + end_bytes
        return Line(offset, size, text) if text is None or text.strip() else None


class LineQueue:
    """Lines on their way from one thread to another; whoever puts them waits while it is full."""

    def __init__(self, lines_max: int, bytes_max: int) -> None:
        """Full: as many lines as ``lines_max``, or as many bytes as ``bytes_max``."""
        self._lines_max = lines_max
        self._bytes_max = bytes_max
        self._lines: deque[Line] = deque()
        self._bytes = 0
        self._ended = False
        self._closed = False
        self._changed = threading.Condition()

    def put(self, lines: Sequence[Line]) -> bool:
        """False where nobody will take them any more."""
        with self._changed:
            while self._is_full() and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._lines.extend(lines)
            self._bytes += sum(_held_bytes(line) for line in lines)
            self._changed.notify_all()
            return True

    def end(self) -> None:
        """There will be no more lines."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self) -> list[Line]:
        """All that wait, as many as make it full; waits for the first. [] at the end."""
        with self._changed:
            while not self._lines and not self._ended and not self._closed:
                self._changed.wait()
            taken: list[Line] = []
            size = 0
            while self._lines and len(taken) < self._lines_max and size < self._bytes_max:
                taken.append(self._lines.popleft())
                size += _held_bytes(taken[-1])
            self._bytes -= size
            self._changed.notify_all()
            return taken

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Nobody will take any more."""
        with self._changed:
            self._closed = True
            self._lines.clear()
            self._changed.notify_all()

    def _is_full(self) -> bool:
        return len(self._lines) >= self._lines_max or self._bytes >= self._bytes_max


def _held_bytes(line: Line) -> int:
    return 0 if line.text is None else len(line.text)
