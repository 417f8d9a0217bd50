"""How many bytes of memory documents and replies take as objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.memory import PARSED, parsed_bytes
from gateway.model import CommitRecord, DocumentRecord, Reply

# Of a reply about so much, whose values are documents' as well; each has a fixed cost besides.
_MEMORY_PER_JSON_BYTE = 6
MEMORY_PER_ENTRY = 1_000
# To weigh a smaller document costs less than to look whether it has to be.
_WEIGHED_BYTES = 16 * 1024


class Weight(NamedTuple):
    """``memory_bytes`` are a bound of what a document takes, which took ``weighed_bytes`` when it
    was last looked at; ``size_bytes`` is its own."""

    memory_bytes: int
    weighed_bytes: int
    size_bytes: int


NO_WEIGHT = Weight(0, 0, 0)


def weight_of(
    document: DocumentRecord | None, before: Weight = NO_WEIGHT, by: Sequence[CommitRecord] = ()
) -> Weight:
    """The weight of a document which ``by`` has made of one that weighed ``before``, if that is
    known. A large one is looked at only when it may have become much heavier."""
    if document is None:
        return Weight(MEMORY_PER_ENTRY, 0, 0)
    owners_bytes = 0 if document.owners is None else document.owners.size_bytes()
    size_bytes = document.size_bytes + owners_bytes
    if size_bytes > _WEIGHED_BYTES and before.weighed_bytes and by:
        brought_bytes = sum(commit.size_bytes or size_bytes for commit in by)
        grown_bytes = max(0, size_bytes - before.size_bytes)
        memory_bytes = before.memory_bytes + PARSED * (brought_bytes + grown_bytes)
        if memory_bytes <= before.weighed_bytes * 5 // 4:
            return Weight(memory_bytes, before.weighed_bytes, size_bytes)
    memory_bytes = MEMORY_PER_ENTRY + parsed_bytes(*document.parts)
    memory_bytes += _MEMORY_PER_JSON_BYTE * owners_bytes
    return Weight(memory_bytes, memory_bytes, size_bytes)


def memory_of_replies(tail: Iterable[Reply]) -> int:
    return sum(MEMORY_PER_ENTRY + _MEMORY_PER_JSON_BYTE * each.size_bytes for each in tail)
