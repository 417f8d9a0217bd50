"""The settings reach the limits of the layers they are about."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from gateway.application import create_application, request_limits, service_limits
from gateway.http import RequestLimits
from gateway.http.wire.refusals import KINDS
from gateway.retention.pins import RetentionLimits
from gateway.service import ServiceLimits
from gateway.settings import Settings
from patching import Limits

# Settings that have another name inside.
RENAMED = {
    "operations_max": "patch_operations_max",
    "result_bytes_max": "document_bytes_max",
    "batch_requests_max": "batch_operations_max",
}
RETENTION_RENAMED = {
    "age_s": "retention_age_s",
    "commits": "retention_commits",
    "idempotency_s": "idempotency_retention_s",
    "interval_s": "compaction_interval_s",
    "pause_ms": "compaction_pause_ms",
}
# Groups of limits.
GROUPS = {"patch", "watch", "retention"}
# What no setting is about.
FIXED = {"stored_bytes_max", "write_out_grace_ms"}


def setting(limit: str) -> str:
    return RENAMED.get(limit, limit)


@pytest.mark.parametrize("limit", [f.name for f in fields(RequestLimits)])
def test_every_limit_of_a_request_is_a_setting(limit: str) -> None:
    settings = replace(Settings(), **{setting(limit): 7})
    assert getattr(request_limits(settings), limit) == 7


@pytest.mark.parametrize("limit", [f.name for f in fields(ServiceLimits)])
def test_every_limit_of_the_commit_loop_is_a_setting(limit: str) -> None:
    if limit not in FIXED | GROUPS:
        settings = replace(Settings(), **{setting(limit): 7})
        assert getattr(service_limits(settings), limit) == 7


@pytest.mark.parametrize("limit", [f.name for f in fields(RetentionLimits)])
def test_every_limit_of_retention_is_a_setting(limit: str) -> None:
    settings = replace(Settings(), **{RETENTION_RENAMED.get(limit, limit): 7})
    assert getattr(service_limits(settings).retention, limit) == 7


@pytest.mark.parametrize("limit", [f.name for f in fields(Limits)])
def test_every_limit_of_a_patch_is_a_setting(limit: str) -> None:
    settings = replace(Settings(), **{setting(limit): 7})
    assert getattr(service_limits(settings).patch, limit) == 7


def test_limits_default_to_the_settings() -> None:
    assert RequestLimits() == request_limits(Settings())
    assert ServiceLimits() == service_limits(Settings())


def test_an_application_is_made_without_reaching_the_database() -> None:
    settings = Settings(mongodb_uri="mongodb://127.0.0.1:9/?replicaSet=none", store_timeout_ms=100)
    client = create_application(settings).test_client()
    assert client.get("/livez").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == KINDS[answer.get_json()["code"]].status == 503


@pytest.mark.parametrize("uri", [None, "mongodb://"])
def test_without_a_database_to_use_none_is_made(uri: str | None) -> None:
    with pytest.raises(ValueError, match=r"mongodb_uri|URI"):
        create_application(Settings(mongodb_uri=uri))
