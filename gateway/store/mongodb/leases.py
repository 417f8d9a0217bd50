"""Leases: a record with ``until`` (a date) and ``lasts_ms``, by the clock of the database.

That clock may be set back, or a new primary's be behind the old one's. A lease that was taken
before would hold for as much longer, be its holder alive or not; so one that ends later than
anybody could have asked for is over, too. Twice its length: the clocks of primaries differ a
little.
"""

from __future__ import annotations

from typing import Any, Final

Expression = dict[str, Any]

_LONGEST: Final = {"$add": ["$$NOW", {"$multiply": [2, {"$ifNull": ["$lasts_ms", 10**12]}]}]}
# A lease that was never taken, or was ended, has no `until`, which is lower than any date.
IS_OVER: Final[Expression] = {"$or": [{"$lte": ["$until", "$$NOW"]}, {"$gt": ["$until", _LONGEST]}]}
RUNS: Final[Expression] = {"$not": IS_OVER}


def lasting(duration_s: float) -> dict[str, Any]:
    """The fields of a lease that begins now, for an update by a pipeline."""
    milliseconds = round(duration_s * 1000)
    return {"until": {"$add": ["$$NOW", milliseconds]}, "lasts_ms": milliseconds}
