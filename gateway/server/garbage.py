"""When a worker looks through all of its objects for cycles.

Python does so by itself once there are a quarter more objects, in one call that takes 0.1 us for
each: while forty requests hold bodies, parsed, a third of a second in which nobody has a turn.
Nearly all of it is trees, which reference counts free. So young objects are looked at as they come,
a quarter of a million at most, and all of them when requests hold little. Where they always hold
much, that is done seldom, or when the process has grown by what they don't account for.
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
_LONGEST_S: Final = 600.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")


class Garbage:
    """That of one process. ``held_bytes``: what requests hold, by their accounts."""

    def __init__(
        self,
        held_bytes: Callable[[], int],
        resident_bytes: Callable[[], int] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._held_bytes = held_bytes
        self._resident_bytes = resident_bytes or _resident_bytes
        self._monotonic = monotonic
        self._least_bytes = self._resident_bytes()
        self._collected_at = monotonic()

    def start(self) -> None:
        gc.set_threshold(*_YOUNG, _NEVER)

    def look(self) -> None:
        """Called about every second: collect what there is where it is time."""
        if gc.get_count()[2] >= _LOOKS and self._is_time():
            gc.collect()
            self._least_bytes = self._resident_bytes()
            self._collected_at = self._monotonic()

    def _is_time(self) -> bool:
        held_bytes = self._held_bytes()
        if held_bytes <= _LITTLE_BYTES or self._monotonic() - self._collected_at > _LONGEST_S:
            return True
        return self._resident_bytes() - self._least_bytes - held_bytes > _GROWN_BYTES


def _resident_bytes() -> int:
    with suppress(OSError):  # another system
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0
