"""How many cases a property is tried with: `PROPERTY_CASES=10000` for so many of each."""

from __future__ import annotations

import os

from hypothesis import settings


def cases(count: int) -> settings:
    """``count`` of them, unless the environment says how many."""
    return settings(max_examples=int(os.environ.get("PROPERTY_CASES", count)), deadline=None)
