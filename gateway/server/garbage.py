"""When a worker looks through all of its objects for cycles.

Python does so by itself once there are a quarter more objects, in one call that takes 0.05 to 0.3
us for each: while forty requests hold bodies, parsed, a second and more in which nobody has a turn.
Nearly all of it is trees, which reference counts free. So young objects are looked at as they come,
a quarter of a million at most, and all of them only when requests hold little, and the process has
not grown by much: then that is the idle process, whose largest part is the cache, and takes a fifth
of a second at most. It is not done again before a thousand times as long has passed.

Where requests always hold much, they are asked to pause every few minutes: those that hold nothing
yet wait until the others are done.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.limits import MIB

_YOUNG: Final = (50_000, 5)
_NEVER: Final = 1_000_000_000
# So many looks at young objects make one at all of them worth while.
_LOOKS: Final = 10
_LITTLE_BYTES: Final = 8 * MIB
_GROWN_BYTES: Final = 128 * MIB
_LONGEST_S: Final = 120.0
_PAUSE_SHARE: Final = 1000
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")


class Garbage:
    """That of one process. ``held_bytes``: what requests hold as objects, by their accounts;
    ``pause``: make them hold at most so much for a moment, and tell whether they did."""

    def __init__(
        self,
        held_bytes: Callable[[], int],
        pause: Callable[[int], bool],
        resident_bytes: Callable[[], int] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._held_bytes = held_bytes
        self._pause = pause
        self._resident_bytes = resident_bytes or _resident_bytes
        self._monotonic = monotonic
        self._least_bytes = self._resident_bytes()
        self._collected_at = monotonic()
        self._not_before = 0.0

    def start(self) -> None:
        gc.set_threshold(*_YOUNG, _NEVER)

    def look(self) -> None:
        """Called about every second: collect what there is where it is time."""
        if gc.get_count()[2] < _LOOKS or not self._may_collect():
            return
        begun = self._monotonic()
        gc.collect()
        self._collected_at = self._monotonic()
        self._not_before = self._collected_at + _PAUSE_SHARE * (self._collected_at - begun)
        self._least_bytes = self._resident_bytes()

    def _may_collect(self) -> bool:
        now = self._monotonic()
        grown_bytes = self._resident_bytes() - self._least_bytes
        if self._held_bytes() <= _LITTLE_BYTES and grown_bytes <= _GROWN_BYTES:
            return now >= self._not_before
        # It may be garbage that it has grown by; as a rule, it is what somebody is about to free.
        return now - self._collected_at > _LONGEST_S and self._pause(_LITTLE_BYTES)


def _resident_bytes() -> int:
    with suppress(OSError):  # another system
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0
