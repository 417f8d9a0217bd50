"""The bounds of a document's owners. What there is already is never refused for being too many."""

from __future__ import annotations

from patching._errors import LimitExceeded, Limits
from patching._json import ABSENT, Document, encoded_bytes
from patching._owners import Owners


def refuse_oversized(before: Document, after: Document, limits: Limits) -> None:
    if after is before or after is ABSENT:
        return
    size = encoded_bytes(after)
    if size > limits.result_bytes_max and (before is ABSENT or size > encoded_bytes(before)):
        raise LimitExceeded("result_bytes_max", limits.result_bytes_max, size)


def refuse_many(
    before: Owners | None, after: Owners | None, limits: Limits, *, plain: bool = False
) -> None:
    """LimitExceeded where `after` has grown beyond a bound. `plain`: no manager can have come, and
    the size of the owners isn't looked at."""
    if after is None or after is before:
        return
    for name, maximum, count in (
        ("owned_leaves_max", limits.owned_leaves_max, Owners.count),
        ("owners_max", limits.owners_max, Owners.total),
    ):
        actual = count(after)
        if actual > maximum and (before is None or actual > count(before)):
            raise LimitExceeded(name, maximum, actual)
    if plain:
        return
    managers = len(after.managers())
    if managers > limits.managers_max and (before is None or managers > len(before.managers())):
        raise LimitExceeded("managers_max", limits.managers_max, managers)
    size = after.size_bytes()
    if size > limits.owners_bytes_max and (before is None or size > before.size_bytes()):
        raise LimitExceeded("owners_bytes_max", limits.owners_bytes_max, size)
