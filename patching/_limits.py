"""What one patch may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields

_DEPTH_MAX = 300  # diff takes two frames a level, and the interpreter's default allows 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one patch. Sizes are those of compact UTF-8 JSON.

    A document's size as JSON doesn't bound its size in another encoding: a store checks its own.
    ValueError where a bound is negative, or `depth_max` over 300.
    """

    operations_max: int = 1000
    """Operations in one patch; checked by `parse`."""

    copy_growth_bytes_max: int = 1_048_576
    """The sum of what `copy` operations copy (CVE-2019-1002100: doubling by repeated copies)."""

    depth_max: int = 100
    """Containers inside one another, of what a patch inserts, counted from the root."""

    result_bytes_max: int = 4_194_304
    """The whole document after the patch."""

    items_examined_max: int = 2_000_000
    """Array items that the predicates, set operations and keyed addresses of an extended patch look
    at, all together; comparing with a large value and searching a long text count as several. Some
    100 ns each."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(f"{field.name} is negative")
        if self.depth_max > _DEPTH_MAX:
            raise ValueError(f"depth_max is over {_DEPTH_MAX}")


DEFAULT_LIMITS = Limits()
