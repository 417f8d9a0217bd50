"""Who may read what was, where the batch that ended it is written out in part."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.access import Grant, Principal, Role
from gateway.decide.edits import Delete, EditAttributes, KeyEdit, Put
from gateway.limits import ServiceLimits
from gateway.read.listing import as_is
from gateway.read.visibility import Life
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store, StoreUnreachable
from tests.without_http import WatchedStore, applied, commit_each, once, put, wait_until

EVE = Principal("eve", (Grant(Role.READ, "*"),))
OPEN = {"acl": {"read": ["eve"]}}
CLOSED = {"acl": {"read": ["ann"]}}
FIRST = Life("k", 1)


def gateway_on(store: object, grace_ms: int = 0) -> GatewayService:
    limits = ServiceLimits(write_out_grace_ms=grace_ms)
    return GatewayService(cast(Store, store), ThreadRuntime(), limits)


def close_and_delete(gateway: GatewayService, *, makes_again: bool) -> None:
    """In one batch: eve is taken off, and the document ends."""
    steps = [EditAttributes(Put(CLOSED, 40)), Delete(), *([put("new")] if makes_again else [])]
    requests = [gateway.request("c", (KeyEdit("k", step),)) for step in steps]
    for written in commit_each(gateway, requests):
        applied(written.outcome)


def sees_the_past(gateway: GatewayService) -> list[bool]:
    """Whether eve sees k as revision 1 had it: in a listing, and in the history."""
    eve = gateway.acls.viewer(EVE, "c")
    assert eve is not None
    listed = gateway.listing.page("c", as_is, prefix="", after="", limit=9, revision=1, viewer=eve)
    told = eve.filter(gateway.commits("c", after=0, limit=1, key=None).commits)
    return ["k" in {each.key for each in listed.documents}, bool(told[0].changes)]


@pytest.mark.parametrize("makes_again", [False, True])
@pytest.mark.parametrize("dies", [False, True])
def test_an_acl_that_is_partly_written_out_is_not_cached(
    store: Store, makes_again: bool, dies: bool
) -> None:
    gateway_on(store).write("c", "k", Put("secret", 8, OPEN))
    reader = gateway_on(store)
    assert sees_the_past(reader) == [True, True]
    watched = WatchedStore(store)
    seen: list[list[bool]] = []

    def look() -> None:
        viewer = reader.acls.viewer(EVE, "c")
        assert viewer is not None
        ((_, life),) = reader.acls.present("c", ["k"])
        assert life is not None
        assert life.revision > 2, "the documents are written out"
        viewer.hidden([FIRST])
        seen.append(sees_the_past(reader))
        if dies:
            raise StoreUnreachable("it is dead")

    watched.before["write_commits"] = once(look)
    close_and_delete(gateway_on(watched), makes_again=makes_again)
    wait_until(lambda: bool(seen))
    assert sees_the_past(reader) == [False, False]
    assert sees_the_past(gateway_on(store)) == [False, False]


@pytest.mark.parametrize("makes_again", [False, True])
def test_a_document_whose_acl_was_swept_is_hidden(store: Store, makes_again: bool) -> None:
    gateway = gateway_on(store)
    gateway.write("c", "k", Put("secret", 8, OPEN))
    close_and_delete(gateway, makes_again=makes_again)
    head = store.heads(["c"])["c"].revision
    gateway.retention.compact("c", head)
    reader = gateway_on(store)
    viewer = reader.acls.viewer(EVE, "c")
    assert viewer is not None
    assert viewer.hidden([FIRST]) == {FIRST}
