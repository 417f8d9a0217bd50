"""The documents that are measured with: metadata of a dataset, as a catalog would hold it."""

from __future__ import annotations

from typing import Any

import msgspec

CLIENTS_MAX = 64

_FIELD_TYPES = ("string", "bigint", "timestamp", "double", "boolean")


def dataset(number: int = 0, size_bytes: int = 2048) -> dict[str, Any]:
    """A dataset of about `size_bytes` as compact JSON (at least 1.5 KB).

    `/counters` has one member per client, `c0` to `c63`, all zero: what the clients of a
    hot document write. The size comes from the number of `/fields`.
    """
    name = f"orders_{number:06d}"
    document: dict[str, Any] = {
        "urn": f"urn:li:dataset:(urn:li:dataPlatform:hive,sales.{name},PROD)",
        "name": name,
        "description": "One row per order line; loaded nightly from the order service.",
        "custom": {"retention_days": "730", "format": "parquet", "cost_center": "4711"},
        "owners": [
            {"name": f"urn:li:corpuser:user{owner}", "type": "DATAOWNER", "since": 1700000000}
            for owner in range(3)
        ],
        "tags": ["pii", "sales", "tier1", "certified", "nightly"],
        "counters": {f"c{client}": 0 for client in range(CLIENTS_MAX)},
        "fields": [],
    }
    missing_bytes = size_bytes - len(msgspec.json.encode(document))
    while missing_bytes > 0 or not document["fields"]:
        field = _field(len(document["fields"]))
        document["fields"].append(field)
        missing_bytes -= len(msgspec.json.encode(field)) + 1
    return document


def middle_field(document: dict[str, Any]) -> str:
    """A pointer to an integer in the middle of the document's fields."""
    return f"/fields/{len(document['fields']) // 2}/position"


def _field(position: int) -> dict[str, Any]:
    return {
        "path": f"order.line.column_{position}",
        "type": _FIELD_TYPES[position % len(_FIELD_TYPES)],
        "nullable": position % 3 == 0,
        "position": position,
        "description": f"Column {position} of the order line.",
    }
