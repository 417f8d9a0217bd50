"""Never run: mypy checks that the public API of `patching.client` types as its users expect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, assert_type

from patching import Json
from patching.client import (
    Appended,
    AppendFailed,
    BulkAnswer,
    Catalog,
    Change,
    Commit,
    Document,
    Follower,
    Gateway,
    History,
    Problem,
    Reload,
    RequestError,
    Retry,
    RetryDetails,
    Reverted,
    Several,
    Snapshot,
    Subscription,
    TransactionResult,
    Updated,
    Written,
    aio,
    append,
)
from patching.client._feed import Feed
from patching.client.errors import CommitSummary, RevisionTooOld
from patching.client.results import (
    CatalogHead,
    CatalogState,
    CatalogWritten,
    Compaction,
    Difference,
    DocumentDigest,
    PinState,
    SkippedPlace,
)
from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport


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
    retry=Retry(first_s=1),
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


def documents(catalog: Catalog) -> None:
    document = catalog.get("k", revision=1, timeout_s=1)
    assert_type(document, Document)
    assert_type(document.value, Json)
    assert_type(catalog.get("k", at=datetime.now(UTC), if_none_match=document), Document)
    written = catalog.put("k", {"a": [1, None]}, if_match=document, message="m", wait_s=2)
    assert_type(written, Written)
    assert_type(written.etag, str | None)
    catalog.put("k", None, if_absent=True, author="a", idempotency_key="i", dry_run=True)
    catalog.put("k", 1, if_match=[written, "*", document.etag], resource_version=3)
    catalog.put("k", 1, if_macth="*")  # type: ignore[call-arg]
    catalog.put("k", 1, if_match=1)  # type: ignore[arg-type]
    operations = [{"op": "add", "path": "/a", "value": 1}]
    assert_type(catalog.patch("k", operations, if_match=written, rebase=True), Written)
    assert_type(catalog.merge("k", {"a": None}), Written)
    assert_type(catalog.delete("k", if_match="*", timeout_s=3.5), Written)
    assert_type(catalog.update("k", lambda now: {**now, "a": 1}, create=True), Updated)
    assert_type(catalog.attributes.get("k"), Document)
    assert_type(catalog.documents(prefix="a"), Iterator[Document])
    assert_type(catalog.digests(prefix="a"), Iterator[DocumentDigest])
    several = catalog.several(["a", "b"])
    assert_type(several, Several)
    assert_type(several.documents["a"], Document | None)
    with catalog.export(at="2026-11-21T10:00:00Z") as export:
        assert_type(export.revision, int)
        for key, value in export:
            assert_type((key, value), tuple[str, Any])


def together(catalog: Catalog) -> None:
    assert_type(catalog.revert(3, conflict="skip"), Reverted)
    assert_type(catalog.revert([3, 4], prefix="a", dry_run=True), Reverted)
    assert_type(catalog.revert(to=3, since=9).skipped, tuple[SkippedPlace, ...])
    assert_type(list(catalog.differences(1, 2)), list[Difference])
    transaction = catalog.transaction()
    transaction.compare("a", etag="1-0").compare("b", absent=True).compare_revision(3)
    transaction.then.put("a", 1, attributes={}).delete("b").move("c", "d").get("a")
    transaction.otherwise.nothing()
    result = transaction.run(if_match=catalog.several(["a"]), message="m")
    assert_type(result, TransactionResult)
    assert_type(result.results[0].exists, bool | None)


def history(catalog: Catalog) -> None:
    assert_type(catalog.commits(after=1, key="k", author="ann"), Iterator[Commit])
    assert_type(catalog.commit(3), Commit)
    assert_type(catalog.outcome("key"), Commit | None)
    with catalog.changes(3, keys=["a"], follow=False) as feed:
        assert_type(feed, Feed)
        for commit in feed:
            assert_type(commit, Commit)
        assert_type(feed.position, int)


def whole(catalog: Catalog) -> None:
    assert_type(catalog.read(), CatalogState)
    assert_type(catalog.settings.put({}, if_match=catalog.settings.get()), CatalogWritten)
    assert_type(catalog.touch(message="m"), CatalogWritten)
    assert_type(catalog.delete_catalog(resource_version=4), CatalogWritten)
    with catalog.pin(4, seconds=60, note="mine") as pin:
        assert_type(pin.revision, int)
    assert_type(catalog.pins(), list[PinState])
    assert_type(catalog.compact(3), Compaction)
    assert_type(catalog.uploads.replace("k", [b"1"], if_absent=True, attributes="clear"), Written)


def retried(details: RetryDetails) -> None:
    assert_type(details.failures + details.pause_s, float)
    assert_type(details.error, Exception)


with Gateway(
    "http://localhost:8080",
    token="secret",
    timeout_s=5,
    retry=Retry(retries_max=3, on_retry=retried),
) as gateway:
    assert_type(gateway.catalog("c"), Catalog)
    assert_type(gateway.catalogs(prefix="a"), Iterator[CatalogHead])
    assert_type(gateway.bulk([{"catalog": "c", "op": "touch"}]), Iterator[BulkAnswer])
    assert_type(gateway.follower("c", poll_s=3), Follower)
    assert_type(gateway.is_ready(), bool)


def connects() -> None:
    Transport("http://localhost:8080", tokne="secret")  # type: ignore[call-arg]
    Gateway("http://localhost:8080", tokne="secret")  # type: ignore[call-arg]
    Gateway("http://localhost:8080", pool_size="10")  # type: ignore[arg-type]
    aio.Gateway("http://localhost:8080", token=lambda: "secret", ca_file=None)
    aio.Gateway("http://localhost:8080", batch_s=0.002)  # type: ignore[call-arg]


async def awaits(shop: aio.Catalog, whole: aio.Gateway) -> None:
    """As the same calls of the client that blocks, arguments and all."""
    assert_type(await shop.get("k", revision=3), Document)
    assert_type(await shop.put("k", 1, if_absent=True, message="m"), Written)
    assert_type(await shop.attributes.patch("k", [], if_match="*", rebase=True), Written)
    assert_type(await shop.update("k", lambda now: now, create=True), Updated)
    assert_type([each async for each in shop.documents(prefix="a")], list[Document])
    assert_type([each async for each in whole.bulk([{"op": "touch"}])], list[BulkAnswer])
    assert_type(await shop.revert(to=3), Reverted)
    assert_type(await shop.transaction().run(if_match="@1"), TransactionResult)
    assert_type(await shop.uploads.open("k", if_absent=True), aio.Upload)
    assert_type(await shop.settings.get(), CatalogState)
    async with shop.pin(4) as pin, shop.export(prefix="a") as export:
        assert_type((pin.revision, export.revision), tuple[int, int])
    async with shop.changes(after=3, follow=False) as feed:
        async for commit in feed:
            assert_type(commit, Commit)
    await shop.get("k", nonsense=1)  # type: ignore[call-arg]
    await shop.put("k")  # type: ignore[call-arg]


def helps(error: Problem) -> None:
    assert_type(error.current_etag, str | None)
    assert_type(error.current_revision, int | None)
    assert_type(error.changes_since, tuple[CommitSummary, ...] | None)
