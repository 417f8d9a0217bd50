"""Work that tests count: it grows with the size of what is given, on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Counted(tuple[Any, ...]):
    """A tuple that counts the items that were gone through."""

    seen = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.seen += 1
            yield each
