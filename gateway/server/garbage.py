"""When a worker looks through all of its objects for cycles.

To look takes 0.05 to 0.3 us for each object, in one call in which nobody has a turn; the trees of
forty bodies are some millions. By itself Python looks at everything once there are a quarter more.
So:

* Requests leave no cycles: what they had is freed with their answers, piece by piece.
* Young objects are looked at as they come, a hundred thousand at most.
* Large trees that were parsed are left alone (``memory.trees``).
* All objects are looked at only when requests hold little, and the process has not grown by much:
  then that is the idle process. Where it still has many, which are those of its cache, that is made
  smaller first. It is not done again before a thousand times as long has passed.

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
from gateway.memory import trees

# So many objects that are new, ten times.
_YOUNG: Final = (10_000, 9)
_NEVER: Final = 1_000_000_000
# So many looks at young objects, or trees that were left alone, make one at everything worth while.
_LOOKS: Final = 30
_LITTLE_BYTES: Final = 8 * MIB
_GROWN_BYTES: Final = 128 * MIB
# Nobody frees what a process has grown by that much: it is looked for, however long that takes.
_FAR_GROWN_BYTES: Final = 512 * MIB
# They take a tenth of a second at most.
_OBJECTS_MAX: Final = 400_000
_LONGEST_S: Final = 120.0
_PAUSE_SHARE: Final = 1000
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")


class Garbage:
    """That of one process. ``held_bytes``: what requests hold as objects, by their accounts;
    ``pause``: make them hold at most so much for a moment, and tell whether they did;
    ``drop_kept``: drop what is only kept to save work."""

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

    def look(self) -> None:
        """Called about every second: collect what there is where it is time."""
        looks = gc.get_count()[2] + trees.parsed - self._trees
        if looks < _LOOKS or not self._may_collect():
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
        # It may be garbage that it has grown by; as a rule, it is what somebody is about to free.
        return now - self._collected_at > _LONGEST_S and self._pause(_LITTLE_BYTES)


def _objects() -> int:
    """How many there are to be looked at, but for the youngest."""
    return gc.get_freeze_count() + len(gc.get_objects(generation=2))


def _resident_bytes() -> int:
    with suppress(OSError):  # another system
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0
