"""When a worker collects garbage: looks through all of its objects for cycles.

This takes 0.05 to 0.3 us per object, in one call that lets nothing else run; forty bodies' trees
are some million objects. Python by itself does it whenever there are a quarter more. So instead:

* Requests leave no cycles: their objects are freed with their answers, piece by piece.
* Young objects are looked at as they come, a hundred thousand at a time at most.
* Large trees that were parsed are left alone (``memory.trees``).
* All objects are looked at only when requests hold little, and the process has not grown by much:
  then it is like an idle process. If it still has many objects, they are those of its cache, which
  is made smaller first. The next time comes after a thousand times as long as this one took.

If requests always hold much, they are made to pause every few minutes: those that hold nothing yet
wait until the others are done.
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
from gateway.memory import trees

# Thresholds for gc: 10,000 new objects, and ten such collections.
_YOUNG: Final = (10_000, 9)
_NEVER: Final = 1_000_000_000
# How many collections of young objects, or trees that were left alone, make a full one worthwhile.
_DUE: Final = 30
# How much requests may hold, and the process may have grown by, for a full collection.
_LITTLE_BYTES: Final = 8 * MIB
_GROWN_BYTES: Final = 128 * MIB
# If a process has grown by more, it is probably garbage: it is collected however long that takes.
_FAR_GROWN_BYTES: Final = 512 * MIB
# To look at this many takes a tenth of a second at most.
_OBJECTS_MAX: Final = 400_000
# How long a full collection waits if requests hold much, or after there were too many objects;
# otherwise, as a multiple of the time that the last one took.
_LONGEST_S: Final = 120.0
_PAUSE_SHARE: Final = 1000
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")


class Garbage:
    """The garbage collection of one process. ``held_bytes``: how much requests hold as objects, by
    their accounts. ``pause``: make them hold at most so much for a moment; whether they did.
    ``drop_kept``: drop what is kept only to save work."""

    def __init__(
        self,
        held_bytes: Callable[[], int],
        pause: Callable[[int], bool],
        drop_kept: Callable[[], None],
        resident_bytes: Callable[[], int] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._held_bytes = held_bytes
        self._pause = pause
        self._drop_kept = drop_kept
        self._resident_bytes = resident_bytes or _resident_bytes
        self._monotonic = monotonic
        self._least_bytes = self._resident_bytes()
        self._collected_at = monotonic()
        self._not_before = 0.0
        self._trees = trees.parsed

    def start(self) -> None:
        gc.set_threshold(*_YOUNG, _NEVER)
        trees.are_left_alone = True

    def check(self) -> None:
        """Collect all garbage if it is time. Called about every second."""
        due = gc.get_count()[2] + trees.parsed - self._trees
        if due < _DUE or not self._may_collect():
            return
        if self._are_too_many():
            self._collected_at = self._monotonic()
            self._not_before = self._collected_at + _LONGEST_S
            return
        begun = self._monotonic()
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._trees = trees.parsed
        self._collected_at = self._monotonic()
        self._not_before = self._collected_at + _PAUSE_SHARE * (self._collected_at - begun)
        self._least_bytes = self._resident_bytes()

    def _are_too_many(self) -> bool:
        if _objects() <= _OBJECTS_MAX:
            return False
        self._drop_kept()
        return _objects() > _OBJECTS_MAX and self._grown_bytes() <= _FAR_GROWN_BYTES

    def _grown_bytes(self) -> int:
        return self._resident_bytes() - self._least_bytes

    def _may_collect(self) -> bool:
        now = self._monotonic()
        if self._held_bytes() <= _LITTLE_BYTES and self._grown_bytes() <= _GROWN_BYTES:
            return now >= self._not_before
        # The growth may be garbage, but as a rule it is about to be freed anyway.
        return now - self._collected_at > _LONGEST_S and self._pause(_LITTLE_BYTES)


def _objects() -> int:
    """The number of objects that a full collection looks at, without the youngest."""
    return gc.get_freeze_count() + len(gc.get_objects(generation=2))


def _resident_bytes() -> int:
    with suppress(OSError):  # not on Linux
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0
