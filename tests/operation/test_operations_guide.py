"""docs/operations.md speaks of nothing that isn't there."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.http.wire.codes import KINDS
from gateway.server.broken_requests import _REFUSALS
from gateway.settings import SETTINGS
from gateway.store.mongodb.indexes import INDEXES

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "operations.md").read_text()


def test_explained_problem_codes_have_their_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.+) \| (.+) \|$", GUIDE, re.M)
    assert len(rows) > 20
    for code, status, means, todo in rows:
        assert KINDS[code].status == int(status)
        assert means.strip()
        assert todo.strip()


def test_the_codes_of_the_server_are_explained() -> None:
    for status, code in _REFUSALS.values():
        assert f"`{code}` ({status.value})" in GUIDE


def test_the_sharded_collections_are_those_the_store_finds_by_id() -> None:
    sharded = dict(
        re.findall(r'^sh\.shardCollection\("metadata\.(\w+)",\s+(\{.*\})\)$', GUIDE, re.M)
    )
    # `catalogs` has no index but that on _id; `leases` and `tokens` are a handful of records.
    assert sharded == dict.fromkeys({"catalogs", *INDEXES}, "{_id: 1}")


def test_every_setting_named_in_the_guide_exists() -> None:
    names = {row.name for row in SETTINGS}
    shaped = re.findall(r"`(\w+_(?:max|s|ms|every|level|format|log|uri|url))\b[^`]*`", GUIDE)
    assert len(shaped) > 20
    assert set(shaped) <= names | {"duration_ms"}  # a field of access lines
