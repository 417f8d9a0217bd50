"""Bulk lines from mappings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .bulk_sending import BulkLine
from .terms import encoded, new_idempotency_key


def bulk_lines(
    lines: Iterable[BulkLine | Mapping[str, Any]], *, make_keys: bool
) -> Iterator[BulkLine]:
    """Each as it is, or made of a mapping, which becomes its subject. With ``make_keys`` those
    without an idempotency key are given one, but for dry runs, which change nothing."""
    for line in lines:
        if isinstance(line, BulkLine):
            yield line
            continue
        members = dict(line)
        if make_keys and "idempotency_key" not in members and not members.get("dry_run"):
            members["idempotency_key"] = new_idempotency_key()
        keyed = "idempotency_key" in members or bool(members.get("dry_run"))
        yield BulkLine(encoded(members), keyed=keyed, subject=line)
