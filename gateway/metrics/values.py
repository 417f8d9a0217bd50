"""The values of a worker's metrics: in files, and cheap enough for every write.

The library's own class looks up the value's place in the file each time, under a lock that
greenlets share. Here a value keeps a view of its eight bytes of the file: counting takes a quarter
of the time, and the count is in the file when the process is killed right after it. A file that
grows is mapped again; the older map shows the same bytes.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from prometheus_client.values import MultiProcessValue


def value_class(number: int) -> Any:
    """The ``prometheus_client.values.ValueClass`` for the worker in this place."""
    library: Any = MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]

    class Value(library):  # type: ignore[misc]
        """For greenlets: no other one runs while one counts."""

        _value: float

        def __init__(self, *told: Any, **more: Any) -> None:
            super().__init__(*told, **more)
            begin = self._file._positions[self._key]
            self._cell = memoryview(self._file._m)[begin : begin + 8].cast("d")

        def inc(self, amount: float) -> None:
            self._value = value = self._value + amount
            self._cell[0] = value

    lock = threading.Lock()

    class LockedValue(Value):
        """For threads."""

        def inc(self, amount: float) -> None:
            with lock:
                Value.inc(self, amount)

    return Value if _runs_greenlets() else LockedValue


def _runs_greenlets() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))
