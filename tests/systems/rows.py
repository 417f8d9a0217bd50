"""The rows, and the test that decides each."""

from __future__ import annotations

import re
from typing import Final

_COUNTS = {"d": 12, "h": 8, "o": 11, "g": 7, "i": 10}

SYSTEMS: Final = {
    "d": "DataHub: serialising updates",
    "h": "Hasura: optimistic concurrency",
    "o": "Ozone: conditional replace",
    "g": "GreptimeDB: metadata in one transaction",
    "i": "Ignite 3: the Catalog service",
}
_ADDED = ("d13", "d14", "d15", "g8", "g9", "h9", "h10", "h11", "i11")
ROWS: Final = (
    *(f"{system}{number}" for system, count in _COUNTS.items() for number in range(1, count + 1)),
    *_ADDED,
)
_test_name = re.compile(r"test_([a-z]\d+)_").match


def row_of(test: str) -> str | None:
    """The row that the test of this name decides, None for a helper."""
    found = _test_name(test)
    return found[1] if found else None
