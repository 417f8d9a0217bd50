"""The client's history, feed, pins and follower, on a real gateway."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from patching import ABSENT
from patching.client import Catalog, Conflict, Gateway, NotFound, contested
from patching.client.errors import PinLost
from patching.client.results import SkippedPlace
from patching.client.transport import Transport, segment
from tests.client.fake_documents import Opens
from tests.patience import WAIT_S
from tests.service import RunningGateway


def test_history_is_listed_commit_by_commit(catalog: Catalog) -> None:
    assert list(catalog.commits()) == []
    for number in range(5):
        catalog.put(f"k{number % 2}", number)
    assert [each.revision for each in catalog.commits(page_size=2)] == [1, 2, 3, 4, 5]
    assert [each.revision for each in catalog.commits(after=1, key="k0")] == [3, 5]
    commit = catalog.commit(5)
    assert (commit.changes[0].key, commit.changes[0].action) == ("k0", "put")
    with pytest.raises(NotFound, match="revision_not_found"):
        catalog.commit(6)


def test_a_feed_yields_new_commits_and_resumes(catalog: Catalog) -> None:
    catalog.put("a/1", 1)
    catalog.put("b", 1)
    with catalog.changes(0, follow=False) as feed:
        assert [each.revision for each in feed] == [1, 2]
        assert feed.position == 2
    with catalog.changes(0, follow=False, prefix="a/") as filtered:
        assert [each.revision for each in filtered] == [1]
        assert filtered.position == 2
    with catalog.changes(0, follow=False, keys=["b", "c"]) as chosen:
        assert [each.revision for each in chosen] == [2]
    writer = threading.Thread(target=lambda: [catalog.put("b", n) for n in range(2, 7)])
    seen = []
    with catalog.changes(feed.position) as live:
        writer.start()
        for commit in live:
            seen.append(commit.revision)
            if len(seen) == 5:
                break
    writer.join()
    assert seen == [3, 4, 5, 6, 7]
    assert live.position == 7
    assert list(live) == []


def test_pages_of_a_feed_without_a_commit_advance_its_position(service: RunningGateway) -> None:
    with Gateway(service.url, timeout_s=WAIT_S) as blocking:
        catalog = blocking.catalog(uuid.uuid4().hex)
        for number in range(3):
            catalog.put(f"k{number}", number)
        with catalog.changes(0, prefix="other", poll_s=1) as feed:
            pages = feed.pages()
            assert (next(pages), feed.position) == ([], 3)
            catalog.put("other", 1)
            (commit,) = next(pages)
            assert (commit.revision, feed.position) == (4, 4)
            feed.close()
            assert list(pages) == []
        with catalog.changes(0, follow=False) as feed:
            assert [each.revision for page in feed.pages() for each in page] == [1, 2, 3, 4]
            assert feed.position == 4


def test_a_feed_can_include_whole_documents_managers_and_the_state(catalog: Catalog) -> None:
    catalog.put("a", {"n": 1})
    catalog.put("plain", 1)
    catalog.apply("a", {"m": 2}, manager="nightly")
    asked: dict[str, Any] = {"follow": False, "include": ("before", "value")}
    with catalog.changes(0, managers=["nightly"], **asked) as feed:
        (commit,) = feed
    (change,) = commit.changes
    assert (change.before, change.value) == ({"n": 1}, {"n": 1, "m": 2})
    assert (change.managers, change.withheld) == (("nightly",), ())
    with catalog.changes(0, authors=["nobody"], follow=False) as nothing:
        assert list(nothing) == []
    with catalog.changes(initial=True, prefix="p", follow=False) as began:
        assert [(each.key, each.value) for each in began.documents] == [("plain", 1)]
        assert (began.position, list(began)) == (3, [])
        assert began.time == commit.time


def test_a_pin_is_held_inside_its_with_block(
    catalog: Catalog, eventually: Callable[..., Any]
) -> None:
    for number in range(3):
        catalog.put("k", number)
    with catalog.pin(2, seconds=2, note="tests") as pin:
        (held,) = catalog.pins()
        assert (held.id, held.revision, held.note) == (pin.id, 2, "tests")
        assert repr(pin) == f"<Pin {pin.id!r} of revision 2>"
        eventually(lambda: catalog.pins()[0].expires > held.expires)
        with pytest.raises(Conflict, match="pin_holds"):
            catalog.compact(3)
        pin.check()
    assert catalog.pins() == []
    assert catalog.compact(3).floor == 3
    with pytest.raises(RuntimeError):
        _ = catalog.pin(3).revision


def test_a_pin_is_renewed_once_the_token_is_available_again(
    service: RunningGateway, opens: Opens, catalog: Catalog, eventually: Callable[..., Any]
) -> None:
    for number in range(2):
        catalog.put("k", number)
    failures = [0]

    def token() -> str:
        if failures[0]:
            failures[0] -= 1
            raise OSError("the file of the token is being replaced")
        return "t"

    with (
        opens(service.url, token=token) as another,
        another.catalog(catalog.name).pin(2, seconds=3) as pin,
    ):
        (held,) = catalog.pins()
        failures[0] = 1
        eventually(lambda: catalog.pins()[0].expires > held.expires)
        pin.check()


def test_a_lost_pin_raises(
    service: RunningGateway, catalog: Catalog, eventually: Callable[..., Any]
) -> None:
    catalog.put("k", 1)
    with catalog.pin(seconds=1) as pin:
        with Transport(service.url) as transport:
            transport.request("DELETE", f"/v1/catalogs/{segment(catalog.name)}/pins/{pin.id}")

        def is_lost() -> bool:
            try:
                pin.check()
            except PinLost as error:
                return error.revision == 1
            return False

        eventually(is_lost)


def test_a_follower_uses_the_connections_of_its_gateway(
    service: RunningGateway, catalog: Catalog
) -> None:
    catalog.put("k", 1)
    with Gateway(service.url) as gateway, gateway.follower(catalog.name) as follower:
        written = catalog.put("k", 2)
        follower.wait_for(written.catalog_revision, WAIT_S)
        assert dict(follower.current().documents) == {"k": 2}


def test_differences_between_two_revisions_are_paged(catalog: Catalog) -> None:
    for number in range(5):
        catalog.put(f"k{number}", {"n": number})
    catalog.attributes.put("k0", {"team": "a"})
    catalog.delete("k1")
    told = list(catalog.differences(2, page_size=2))
    assert [(each.key, each.change) for each in told] == [
        ("k0", "changed"), ("k1", "deleted"), ("k2", "created"), ("k3", "created"),
        ("k4", "created"),
    ]  # fmt: skip
    assert told[0].attributes_patch == ({"op": "add", "path": "/team", "value": "a"},)
    assert (told[0].patch, told[0].value, told[0].attributes) == ((), ABSENT, None)
    assert (told[1].value, told[1].attributes, told[1].etag) == ({"n": 1}, {}, None)
    assert [each.key for each in catalog.differences(7, 6, prefix="k1")] == ["k1"]
    with pytest.raises(NotFound, match="revision_not_found"):
        list(catalog.differences(8))


def test_reverting_commits_keeps_later_changes(catalog: Catalog) -> None:
    catalog.put("k", {"a": 1, "b": 1})
    catalog.merge("k", {"a": 2})
    catalog.merge("k", {"b": 2})
    dry = catalog.revert(2, dry_run=True)
    assert (dry.changed, dry.commit_id, dry.dry_run) == (True, None, True)
    assert dry.changes[0].patch == [{"op": "replace", "path": "/a", "value": 1}]
    done = catalog.revert([2], message="back", idempotency_key="once")
    assert (done.revision, done.changed, done.skipped, done.replayed) == (4, True, (), False)
    assert catalog.revert([2], idempotency_key="once").replayed
    assert catalog.get("k").value == {"a": 1, "b": 2}
    assert catalog.commit(4).message == "back"
    catalog.merge("k", {"a": 7})
    with pytest.raises(Conflict, match="changed_since") as refused:
        catalog.revert(4)
    (place,) = contested(refused.value)
    assert (place.key, place.part, place.pointer, place.revision) == ("k", "content", "/a", 5)
    assert (place.value, place.wanted, place.owners) == (7, 2, ())
    assert catalog.revert(4, force=[place], dry_run=True).changed
    skipped = catalog.revert(4, conflict="skip")
    assert (skipped.changed, skipped.skipped) == (False, (SkippedPlace("k", "content", "/a"),))
    assert catalog.revert(4, conflict="force").revision == 6
    assert catalog.revert(to=1, key="k").changed
    assert not catalog.revert(to=1, prefix="other").changed
    assert catalog.get("k").value == {"a": 1, "b": 1}
    for arguments in ({}, {"revisions": 1, "to": 1}):
        with pytest.raises(ValueError, match="either"):
            catalog.revert(**arguments)  # type: ignore[arg-type]
