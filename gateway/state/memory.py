"""About how many bytes of memory parsed values take."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.model import Document, Reply

# Parsed JSON takes several times the room of its text; each value has a fixed cost besides.
_MEMORY_PER_JSON_BYTE = 6
MEMORY_PER_ENTRY = 1_000


def memory_of(document: Document | None) -> int:
    size = 0 if document is None else document.size_bytes
    if document is not None and document.owners is not None:
        size += document.owners.size_bytes()
    return MEMORY_PER_ENTRY + _MEMORY_PER_JSON_BYTE * size


def memory_of_replies(tail: Iterable[Reply]) -> int:
    return sum(MEMORY_PER_ENTRY + _MEMORY_PER_JSON_BYTE * each.size_bytes for each in tail)
