"""Never run: mypy checks that the public API of `patching.client` types as its users expect."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import assert_type

from patching import Json
from patching.client import (
    Appended,
    AppendFailed,
    Backoff,
    CatalogRoutes,
    Change,
    Commit,
    Follower,
    History,
    Problem,
    Reload,
    RequestError,
    RevisionTooOld,
    Snapshot,
    Subscription,
    TransactionResult,
    Transport,
    append,
)


def listen(commit: Commit) -> None:
    assert_type(commit.changes, tuple[Change, ...])
    assert_type(commit.time, datetime)
    for change in commit.changes:
        assert_type(change.key, str | None)


def build(now: Snapshot) -> list[dict[str, object]] | None:
    return [{"action": "touch"}] if now.revision else None


with Follower(
    "http://localhost:8080",
    "c",
    history=History(commits=10, seconds=60),
    prefix="a",
    token=lambda: "secret",
    backoff=Backoff(first_s=1),
) as follower:
    assert_type(follower.current(), Snapshot)
    assert_type(follower.at_revision(1).documents, Mapping[str, Json])
    assert_type(follower.at_time(datetime.now(UTC)).time, datetime | None)
    assert_type(follower.position, int)
    follower.wait_for(3, timeout_s=1.5)
    subscription = follower.subscribe(listen, after=2, on_reload=lambda reload: reload.reason)
    assert_type(subscription, Subscription)
    assert_type(subscription.error, Exception | None)
    assert_type(append(follower, build, timeout_s=1), Appended)
    assert_type(append(follower, lambda _: None).commit_id, str | None)

with Transport("http://localhost:8080", token="secret") as transport:
    routes = CatalogRoutes(transport, "c")
    assert_type(routes.transact([{"resource_version": 1}], []), TransactionResult)


def fields(error: Exception) -> object:
    if isinstance(error, Problem):
        return error.status, error.problem["code"]
    if isinstance(error, RequestError):
        return error.code, error.applied, error.retryable
    if isinstance(error, AppendFailed):
        return error.attempts + error.last_head
    if isinstance(error, RevisionTooOld):
        return error.earliest + error.latest
    return None


def reloaded(reload: Reload) -> int:
    return reload.missed_after + reload.snapshot.revision
