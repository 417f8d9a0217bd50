"""A change is applied only to the state it was made from; else the log gives the state."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.limits import ServiceLimits
from gateway.model import ChangeRecord, CommitRecord, DocumentRecord, HeadMove
from gateway.runtime import ThreadRuntime, moment
from gateway.service import GatewayService
from gateway.state import replay, write_out
from gateway.state.replay import HistoryIncomplete, WrongBase, advance, bare_after
from gateway.store.contract import Store, StoreUnreachable
from gateway.store.mongodb import connect
from gateway.store.mongodb.records import document_id
from patching import ABSENT
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS, WAIT_S
from tests.retention.history_checks import findings, settler_of, wait_until_written
from tests.state.sleeping import LATE_S, Noted, World, gateway_on
from tests.store.undecodable import FAR_DATE, NO_TEXT
from tests.without_http import WatchedStore, add, applied, content_of, once, put, wait_until

BASE = DocumentRecord("k", {"n": 4}, 4, 2, "4" * 32, 4, attributes={"acl": {"read": ["ann"]}})


def made(change: ChangeRecord, revision: int = 6) -> CommitRecord:
    return CommitRecord("c", revision, revision, "6" * 32, "ann", None, None, 1, (change,))


def patched(**fields: Any) -> ChangeRecord:
    patch: Any = [{"op": "add", "path": "/m", "value": 1}]
    change = ChangeRecord("k", "patch", 2, patch, base_revision=4, base_id="4" * 32)
    return replace(change, **fields)


def test_a_change_is_applied_to_its_base() -> None:
    after = advance(BASE, made(patched()), patched())
    assert (after.revision, after.content) == (6, {"n": 4, "m": 1})
    old = patched(base_revision=0, base_id="")
    assert advance(BASE, made(old), old) == after, "recorded before bases were named"


@pytest.mark.parametrize(
    ("document", "change"),
    [
        (replace(BASE, revision=3), patched()),
        (replace(BASE, revision=5), patched()),
        (replace(BASE, commit_id="f" * 32), patched()),
        (replace(BASE, content=ABSENT), patched()),
        (replace(BASE, create_revision=1), patched(base_revision=0, base_id="")),
        (replace(BASE, content="text"), patched()),
        (replace(BASE, revision=6), patched()),  # by another commit
        (replace(BASE, revision=3), patched(action="attributes", patch=None, attributes={"a": 1})),
    ],
)
def test_a_change_is_not_applied_to_another_state(
    document: DocumentRecord, change: ChangeRecord
) -> None:
    with pytest.raises(WrongBase, match="the change of 'k' at 6 wasn't made from"):
        advance(document, made(change), change)


@pytest.mark.parametrize("action", ["patch", "attributes", "put"])
def test_a_change_reduced_by_a_sweep_is_not_applied(action: Any) -> None:
    rest = ChangeRecord("k", action, 6 if action == "put" else 2)
    for document in (BASE, None):
        with pytest.raises(HistoryIncomplete):
            advance(document, made(rest), rest)
    with pytest.raises(HistoryIncomplete):
        bare_after(None, [(made(rest), rest)])


@pytest.fixture
def world() -> World:
    return World(MemoryStore())


def test_a_write_out_that_finds_a_part_written_out_reads_the_documents_again(world: World) -> None:
    """Two gateways on one catalog; there is no fault, and nobody sleeps. The second look at the
    head came late, so the writer skipped a commit that was missing in the documents that it had
    read before."""
    watched = WatchedStore(world.store)
    theirs_watched, theirs = world.watched()
    reached, gate = threading.Event(), threading.Semaphore(0)

    def held_up() -> None:
        reached.set()
        assert gate.acquire(timeout=WAIT_S)

    theirs_watched.before["write_documents"] = held_up
    applied(theirs.write("c", "k", add("/b1", 1)).outcome)  # 3
    assert reached.wait(WAIT_S)
    applied(theirs.write("c", "k", add("/b2", 1)).outcome)  # 4
    # What is to be written out now, by who takes it over: 3 and 4, read with k as 2 left it.
    head = world.store.tails(["c"])["c"]
    mine = write_out.Tail(moment(world.clock), head.written, list(head.tail or ()))

    def a_part_is_written_out() -> None:
        world.pass_time(1.0)
        gate.release()
        wait_until(lambda: theirs._cache.written("c") >= 3)
        applied(theirs.write("c", "z", put(1)).outcome)  # 5 notes that 3 is written out
        assert world.store.heads(["c"])["c"].written == 3

    watched.after["documents"] = once(a_part_is_written_out)
    world.pass_time(LATE_S - 0.5)
    store: Any = watched
    noticed = Noted()
    write_out.write_out(store, world.clock, {"c": mine}, LATE_S, 60, noticed)
    assert watched.calls.count("documents") == 2
    assert noticed.refused == 0, "it was left to the second guard"
    assert content_of(gateway_on(world.store)) == {"n": 0, "b1": 1, "b2": 1}
    for _ in range(9):
        gate.release()
    wait_until_written(theirs)
    assert findings(world.store, "c") == []


@pytest.fixture
def spoilt(store: Store) -> Store:
    """k is at 4 by the log; the stored one is of a commit that isn't in it."""
    gateway = gateway_on(store)
    for number in range(3):
        applied(gateway.write("c", "k", add(f"/{number}", 1) if number else put({})).outcome)
    applied(gateway.write("c", "k", add("/3", 1)).outcome)
    wait_until_written(gateway)
    right = store.documents({"c": ["k"]})["c", "k"]
    wrong = replace(right, commit_id="f" * 32, content={"wrong": 1}, patches=99)
    store.write_documents({"c": [wrong]})
    assert store.documents({"c": ["k"]})["c", "k"] == wrong
    return store


def gateway_that_never_writes_out(store: Store, meters: Noted) -> GatewayService:
    watched: Any = WatchedStore(store)

    def away() -> None:
        raise StoreUnreachable("away")

    watched.before["write_documents"] = away
    return GatewayService(
        watched, ThreadRuntime(), ServiceLimits(deadline_ms=60_000), meters=meters
    )


def test_a_write_out_that_finds_a_record_deleted_reads_the_document_again(store: Store) -> None:
    """Else the whole catalog couldn't be written out any more."""
    gateway = gateway_on(store)
    applied(gateway.write("c", "k", put({"n": 0})).outcome)
    wait_until_written(gateway)
    store.end_tails({"c": (1, 0)})
    ours = gateway_that_never_writes_out(store, Noted())
    applied(ours.write("c", "k", add("/m", 1)).outcome)
    delete_record(store, "k")
    meters = Noted()
    assert content_of(gateway_that_never_writes_out(store, meters)) == {"n": 0, "m": 1}
    assert meters.refused == 1
    settler_of(store, ThreadRuntime()).settle("c")
    assert findings(store, "c") == []


def delete_record(store: Any, key: str) -> None:
    if isinstance(store, MemoryStore):
        del store._documents["c", key]
    else:
        store._on.documents.delete_one({"_id": document_id("c", key)})


# What somebody may make of the record of a document.
UNREADABLE: Any = {
    "text": {"$set": {"state": "x"}},
    "without a size": {"$unset": {"state.size_bytes": 1}},
    "a revision that is text": {"$set": {"state.revision": "3"}},
    "another one's key": {"$set": {"key": "other"}},
    "a date of no year": {"$set": {"state.time_us": FAR_DATE}},
    "a content that is no text": {"$set": {"state.content": NO_TEXT}},
}


@pytest.mark.mongod
@pytest.mark.parametrize("how", UNREADABLE)
def test_the_state_of_an_unreadable_document_is_rebuilt_from_the_log(
    mongodb_uri: str, database_name: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and affects neither writes of other documents of the catalog nor what is to be
    written out."""
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        gateway = gateway_on(store)
        for key in ("k", "other"):
            applied(gateway.write("c", key, put({"n": 0})).outcome)
        wait_until_written(gateway)
        store.end_tails({"c": (2, 0)})
        ours = gateway_that_never_writes_out(store, Noted())
        applied(ours.write("c", "k", add("/a", 1)).outcome)
        store._on.documents.update_one({"_id": document_id("c", "k")}, UNREADABLE[how])
        fresh = gateway_on(store)
        with caplog.at_level(logging.ERROR, logger="gateway"):
            assert content_of(fresh) == {"n": 0, "a": 1}
        assert "document 'k' can't be read" in caplog.text
        before: Any = {"k": {"a": 1}, "other": {}}
        for key in before:
            written = applied(gateway_on(store).write("c", key, add("/b", 1)).outcome)
            assert written.documents[key].content == {"n": 0, "b": 1, **before[key]}
        settler_of(store, ThreadRuntime()).settle("c")
        assert store.last_written({"c": [5]}) == {"c": 5}
        assert content_of(gateway_on(store)) == {"n": 0, "a": 1, "b": 1}


@pytest.mark.mongod
@pytest.mark.parametrize("how", UNREADABLE)
def test_a_listing_takes_an_unreadable_document_from_the_log(
    mongodb_uri: str, database_name: str, how: str
) -> None:
    with closing(connect(mongodb_uri, database_name, WAIT_MS)) as store:
        gateway = gateway_on(store)
        for key in ("a", "k", "z"):
            applied(gateway.write("c", key, put({"n": 0})).outcome)
        applied(gateway.write("c", "k", add("/m", 1)).outcome)
        wait_until_written(gateway)
        store._on.documents.update_one({"_id": document_id("c", "k")}, UNREADABLE[how])
        listing = gateway_on(store).listing

        def content(document: DocumentRecord) -> Any:
            return document.key, document.content

        for revision, then in ((None, {"n": 0, "m": 1}), (3, {"n": 0})):
            page = listing.page("c", content, prefix="", after="", limit=9, revision=revision)
            assert page.documents == [("a", {"n": 0}), ("k", then), ("z", {"n": 0})]
        pages = listing.export("c", content, owner="ann").pages
        assert [key for page in pages for key, _ in page] == ["a", "k", "z"]


def test_a_stored_document_that_is_not_the_base_is_rebuilt_from_the_log(
    spoilt: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """By a change whose base is by the log; readers, deciders and writers of it all see."""
    head = spoilt.heads(["c"])["c"]
    log = spoilt.commits({"c": (0, 4)})["c"]
    state = replay.advance_all(None, "k", log)
    assert state is not None
    patch: Any = [{"op": "add", "path": "/5", "value": 1}]
    named = ChangeRecord("k", "patch", 1, patch, base_revision=4, base_id=state.commit_id)
    commit = CommitRecord("c", 5, head.time_us + 1, "5" * 32, "ann", None, None, 1, (named,))
    move = HeadMove("c", 4, (commit,), 4, last=head.last)
    spoilt.move_heads([move])
    expected = {"1": 1, "2": 1, "3": 1, "5": 1}
    meters = Noted()
    ours = gateway_that_never_writes_out(spoilt, meters)
    with caplog.at_level(logging.ERROR, logger="gateway"):
        assert content_of(ours) == expected
    assert meters.refused == 1
    assert "the change of 'k' at 5 wasn't made from the document at revision 4" in caplog.text
    decided = applied(
        gateway_that_never_writes_out(spoilt, meters).write("c", "k", add("/6", 1)).outcome
    )
    assert decided.documents["k"].content == {**expected, "6": 1}
    settler_of(spoilt, ThreadRuntime()).settle("c")
    assert spoilt.documents({"c": ["k"]})["c", "k"].content == {**expected, "6": 1}
    assert findings(spoilt, "c") == []
