"""The lines of a bulk request on their way in, and the answers on their way out.

Lines are cut from a body that comes piece by piece, and wait in a queue. Answers that the client
hasn't taken wait in a spool: in memory while they are few, else on disk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from tempfile import SpooledTemporaryFile
from typing import Final, NamedTuple

from gateway.access.principal import Shares
from gateway.cpu import interruptible

MIB: Final = 1024 * 1024


class BodyLine(NamedTuple):
    """``text`` without its end; None where it is too long to be held. ``offset``: its first byte's
    place in the body. ``blank_before``: how many blank lines came since the one before it."""

    offset: int
    size_bytes: int
    text: bytes | None
    blank_before: int = 0


class LineSplitter:
    """Cuts a stream of bytes into lines, leaving out blank ones; but of ``blank_max``
    in a row the last is one, for that they come is to be known. Holds at most one line, of which
    ``begun_bytes`` have come, the first one at ``offset``."""

    def __init__(self, line_bytes_max: int, blank_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._blank_max = blank_max
        self._blank = 0
        self._begun: list[bytes] = []
        self.begun_bytes = 0
        self.offset = 0

    @interruptible
    def feed(self, piece: bytes) -> list[BodyLine]:
        """The lines that end in ``piece``, which may be no more than line ends."""
        *ends, rest = piece.split(b"\n")
        lines = []
        for end in ends:
            self._begin(end)
            lines.append(self._end(1))
        self._begin(rest)
        return [line for line in lines if line is not None]

    def finish(self) -> list[BodyLine]:
        """The last line, where it has no end of its own."""
        line = self._end(0) if self.begun_bytes else None
        return [] if line is None else [line]

    def _begin(self, part: bytes) -> None:
        self.begun_bytes += len(part)
        if self.begun_bytes > self._line_bytes_max:
            self._begun.clear()
        elif part:
            self._begun.append(part)

    def _end(self, end_bytes: int) -> BodyLine | None:
        offset, size = self.offset, self.begun_bytes
        too_long = size > self._line_bytes_max
        text = None if too_long else b"".join(self._begun)
        self._begun.clear()
        self.begun_bytes = 0
        self.offset += size + end_bytes
        if text is not None and not text.strip():
            self._blank += 1
            if self._blank < self._blank_max:
                return None
        blank_before, self._blank = self._blank, 0
        return BodyLine(offset, size, text, blank_before)


# As many requests as a batch of one catalog holds by default: more at a time gain nothing.
_WINDOW_LINES_MAX: Final = 512
_WINDOW_LINES_MIN: Final = 64
_WINDOW_BYTES_MAX: Final = 4 * MIB
_WINDOW_BYTES_MIN: Final = MIB // 16
# What the windows of all requests may have together, unless each has the least already.
_WINDOWS_LINES: Final = 4096
_WINDOWS_BYTES: Final = 64 * MIB


class Windows:
    """The size of a window, the lines that a request commits at a time: the smaller, the more
    requests there are. So each of many gets its first answers early, and memory is bounded."""

    def __init__(self) -> None:
        self._requests = 0
        self._lock = threading.Lock()
        self.lines_max = _WINDOW_LINES_MAX
        self.bytes_max = _WINDOW_BYTES_MAX
        self.are_few = True  # each request may have two

    def count(self, more: int) -> None:
        """There are so many requests ``more``."""
        with self._lock:
            self._requests += more
            among = max(1, self._requests)
            lines, size = _WINDOWS_LINES // among, _WINDOWS_BYTES // among
            self.lines_max = min(max(lines, _WINDOW_LINES_MIN), _WINDOW_LINES_MAX)
            self.bytes_max = min(max(size, _WINDOW_BYTES_MIN), _WINDOW_BYTES_MAX)
            self.are_few = 2 * among * self.lines_max <= _WINDOWS_LINES


class LineQueue:
    """Lines on their way from one thread to another; the putting thread waits while it is full."""

    def __init__(self, windows: Windows) -> None:
        """Full: as many lines, or as many bytes, as a window has."""
        self._windows = windows
        self._lines: deque[BodyLine] = deque()
        self._bytes = 0
        self._ended = False
        self._closed = False
        self._changed = threading.Condition()

    def put(self, lines: Sequence[BodyLine]) -> bool:
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

    def take(self) -> list[BodyLine]:
        """All that wait, as many as a window has; waits for the first. [] at the end."""
        with self._changed:
            while not self._lines and not self._ended and not self._closed:
                self._changed.wait()
            taken: list[BodyLine] = []
            size = 0
            lines_max, bytes_max = self._windows.lines_max, self._windows.bytes_max
            while self._lines and len(taken) < lines_max and size < bytes_max:
                taken.append(self._lines.popleft())
                size += _held_bytes(taken[-1])
            self._bytes -= size
            self._changed.notify_all()
            return taken

    def has_next(self) -> bool:
        """Whether a window is there as a whole, and may be had beside another one."""
        is_whole = self._is_full() or (self._ended and bool(self._lines))
        return is_whole and self._windows.are_few

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Nobody will take any more."""
        with self._changed:
            self._closed = True
            self._lines.clear()
            self._changed.notify_all()

    def _is_full(self) -> bool:
        windows = self._windows
        return len(self._lines) >= windows.lines_max or self._bytes >= windows.bytes_max


def _held_bytes(line: BodyLine) -> int:
    return 0 if line.text is None else len(line.text)


_MEMORY_BYTES_MAX: Final = MIB
# Room is given back file by file.
_FILE_BYTES: Final = 4 * MIB


class Budget:
    """The room that all bulk requests of a process have together. Thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self._shares = Shares(bytes_max)
        self._freed = threading.Condition()

    def has_room(self, principal: str | None) -> bool:
        with self._freed:
            return self._shares.has_room_for(principal)

    def take(self, principal: str | None, size: int, may_wait: Callable[[], bool]) -> None:
        """Wait until there is room, unless one may not wait, or not any longer."""
        with self._freed:
            while may_wait() and not self._shares.has_room_for(principal, size):
                self._freed.wait()
            self._shares.take(principal, size)

    def give_back(self, principal: str | None, size: int) -> None:
        with self._freed:
            self._shares.give_back(principal, size)
            self._freed.notify_all()

    def wake(self) -> None:
        """Let waiting threads check whether they may go on waiting."""
        with self._freed:
            self._freed.notify_all()


class LargeLines:
    """The long lines of one request that are held, each by its offset: ``budget`` has room for
    those of a few requests."""

    def __init__(self, budget: Budget, principal: str | None, line_bytes_max: int) -> None:
        self._budget = budget
        self._principal = principal
        self._line_bytes = line_bytes_max
        self._held: set[int] = set()
        self._closed = False
        self._lock = threading.Lock()

    def hold(self, offset: int) -> None:
        """Wait until there is room for this one."""
        if offset in self._held:
            return
        self._budget.take(self._principal, self._line_bytes, lambda: not self._closed)
        with self._lock:
            self._held.add(offset)
        if self._closed:
            self.let_go([offset])

    def let_go(self, offsets: Iterable[int]) -> None:
        """Those of them that were held need no room any more."""
        with self._lock:
            held = self._held.intersection(offsets)
            self._held -= held
        if held:
            self._budget.give_back(self._principal, self._line_bytes * len(held))

    def close(self) -> None:
        """The request is over."""
        self._closed = True
        self.let_go(list(self._held))
        self._budget.wake()


class Spool:
    """Bytes from one thread to another, in order.

    The writer waits while ``budget`` has no room, unless nothing of this spool is left to be read:
    so each reader gets on, whatever others leave unread.
    """

    def __init__(self, budget: Budget, principal: str | None = None) -> None:
        self._budget = budget
        self._principal = principal
        self._waiting = 0
        self._files: deque[_File] = deque()
        self._ended = False
        self._closed = False
        self._changed = threading.Condition()

    def has_room(self) -> bool:
        """Whether nothing that is written has to wait now."""
        return not self._waiting or self._budget.has_room(self._principal)

    def write(self, data: bytes, *, waits: bool = True) -> bool:
        """False where nobody will read it any more. It ``waits`` for room, if there is none."""
        self._budget.take(self._principal, len(data), lambda: waits and bool(self._waiting))
        with self._changed:
            if self._closed:
                self._budget.give_back(self._principal, len(data))
                return False
            if not self._files or self._files[-1].written >= _FILE_BYTES:
                self._files.append(_File())
            self._files[-1].append(data)
            self._waiting += len(data)
            self._changed.notify_all()
            return True

    def end(self) -> None:
        """Nothing more will be written."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; waits for the first of them. b"" at the end."""
        with self._changed:
            while not self._waiting and not self._ended and not self._closed:
                self._changed.wait()
            if not self._waiting:
                return b""
            first = self._files[0]
            data = first.take(size)
            self._waiting -= len(data)
            if first.taken == first.written:
                self._drop(self._files.popleft())
            return data

    def close(self) -> None:
        """Nothing more will be read."""
        with self._changed:
            self._closed = True
            self._waiting = 0
            while self._files:
                self._drop(self._files.popleft())
            self._changed.notify_all()
        self._budget.wake()

    def _drop(self, file: _File) -> None:
        file.close()
        self._budget.give_back(self._principal, file.written)


class _File:
    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_MEMORY_BYTES_MAX)  # noqa: SIM115 - closed by its spool
        self.written = 0
        self.taken = 0

    def append(self, data: bytes) -> None:
        self._file.seek(self.written)
        self._file.write(data)
        self.written += len(data)

    def take(self, size: int) -> bytes:
        self._file.seek(self.taken)
        data = self._file.read(size)
        self.taken += len(data)
        return data

    def close(self) -> None:
        self._file.close()
