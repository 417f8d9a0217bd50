"""What is there to be chosen from, and a choice that is made by what was generated.

A run repeats itself: nothing here is left to chance.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, TypeVar

_Choice = TypeVar("_Choice")

# The documents that are there at the beginning; the generated writes change and delete them.
DOCUMENTS: dict[str, Any] = {
    "tables/orders": {"name": "orders", "fields": [{"name": "id"}], "owner": None},
    "tables/größe …": [1, 2.5, {"a/b": {"m~n": [True]}}],
    "plain": "text",
    "null": None,
}


def one_of(choices: Sequence[_Choice], seed: object) -> _Choice:
    return choices[chance(seed, of=len(choices))]


def chance(seed: object, of: int) -> int:
    return zlib.crc32(repr(seed).encode("utf-8", "surrogatepass")) % of
