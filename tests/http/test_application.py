"""The settings reach the limits of the layers they are about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from gateway.assembly import create_application
from gateway.http.wire.codes import KINDS
from gateway.limits import ProcessLimits, limits_of
from gateway.settings import Settings

# Settings that have another name inside.
RENAMED = {
    "operations_max": "patch_operations_max",
    "result_bytes_max": "document_bytes_max",
    "batch_requests_max": "batch_operations_max",
    "lag_max": "watch_lag_max",
    "worker_max": "relay_subscriptions_max",
    "catalog_max": "subscriptions_max",
    "hold_s": "subscription_hold_s",
    "claim_s": "subscription_claim_s",
    "networks": "subscription_networks",
    "age_s": "retention_age_s",
    "commits": "retention_commits",
    "idempotency_s": "idempotency_retention_s",
    "interval_s": "compaction_interval_s",
    "pause_ms": "compaction_pause_ms",
    "bytes_max": "memory_bytes_max",
    "request_bytes_max": "request_memory_bytes_max",
}
# What no setting is about.
FIXED = {
    *("stored_bytes_max", "write_out_grace_ms", "bookmark_commits"),
    *("tail_commits_max", "tail_bytes_max", "head_bytes_max"),
    *("ring_commits_max", "ring_bytes_max", "rings_bytes_max", "linger_s"),
    *("cached_catalogs_max", "catch_up_commits_max", "history_page_bytes_max"),
    *("listing_page_bytes_max", "listing_page_documents", "patience_s", "images_bytes_max"),
    *("poll_s", "events_max", "events_bytes_max"),
}


def leaves(limits: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Each limit with its place in the tree."""
    for each in fields(limits):
        value = getattr(limits, each.name)
        if is_dataclass(value):
            yield from leaves(value, f"{place}{each.name}.")
        else:
            yield place + each.name, value


@pytest.mark.parametrize("place", [place for place, _ in leaves(ProcessLimits())])
def test_every_limit_can_be_set(place: str) -> None:
    def name(place: str) -> str:
        limit = place.rpartition(".")[2]
        return RENAMED.get(limit, limit)

    if name(place) in FIXED:
        return
    now = dict(leaves(limits_of(replace(Settings(), **{name(place): 7}))))
    expected = {p: 7 if name(p) == name(place) else v for p, v in leaves(ProcessLimits())}
    assert now == expected


def test_limits_default_to_the_settings() -> None:
    assert ProcessLimits() == limits_of(Settings())


def test_an_application_is_made_without_reaching_the_database() -> None:
    settings = Settings(mongodb_uri="mongodb://127.0.0.1:9/?replicaSet=none", store_timeout_ms=100)
    client = create_application(settings).test_client()
    assert client.get("/livez").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == KINDS[answer.get_json()["code"]].status == 503


@pytest.mark.parametrize("uri", [None, "mongodb://"])
def test_without_a_database_setting_the_application_is_not_created(uri: str | None) -> None:
    with pytest.raises(ValueError, match=r"mongodb_uri|URI"):
        create_application(Settings(mongodb_uri=uri))
