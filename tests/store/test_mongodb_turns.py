"""Where the slice is over, others have their turn before the store computes for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import get_ident

import pytest
from bson.raw_bson import RawBSONDocument
from msgspec.structs import replace

from gateway import cpu
from gateway.memory import parsed_bytes
from gateway.store.mongodb import MongoStore, connect, records
from gateway.store.unreachable import as_unknown
from patching import Json
from tests.patience import WAIT_MS
from tests.store.contract_suite import commit, document, move

LARGE = {"text": "x" * 100_000}
Turns = Callable[[], int]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """How many turns were given since it was asked for last; the slice is always over."""
    given: list[int] = []
    monkeypatch.setattr(cpu.slices, "is_over", True)
    monkeypatch.setattr(cpu.slices, "yield_now", lambda: given.append(get_ident()))

    def since() -> int:
        count = given.count(get_ident())  # threads that other tests left have turns, too
        given.clear()
        return count

    return since


@pytest.fixture
def store(mongodb_uri: str, database_name: str) -> Iterator[MongoStore]:
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    yield store
    store.close()


def test_a_call_of_the_database_yields_first(store: MongoStore, turns: Turns) -> None:
    store.move_heads([move(commit(1))])
    store.heads(["c"])
    turns()
    store.heads(["c"])
    assert turns() == 1
    store.move_heads([move(commit(2))])
    assert turns() == 1


def test_an_exhausted_account_sends_no_further_call(store: MongoStore) -> None:
    cpu.begin(1.0)
    try:
        store.heads(["c"])
        cpu.draw(1.5)
        with pytest.raises(cpu.TooMuchWork):
            store.heads(["c"])
        with pytest.raises(cpu.TooMuchWork):
            store.list_heads("", "", 9)
        store.move_heads([move(commit(1))])  # what is decided is done
        cpu.conclude()
        assert store.heads(["c"])["c"].revision == 1
    finally:
        cpu.work_for(None)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_request_is_not_broken_off_after_its_change(store: MongoStore, is_done: bool) -> None:
    """It would be reported as not applied."""
    cpu.begin(1.0)
    try:
        cpu.draw(1.5)
        with as_unknown(is_done=is_done):
            store.move_heads([move(commit(1))])
            if is_done:
                assert store.heads(["c"])["c"].revision == 1
        assert store.heads(["c"])["c"].revision == 1
    finally:
        cpu.work_for(None)


def test_writing_a_large_document_yields_first(store: MongoStore, turns: Turns) -> None:
    large = [replace(document(5, key=f"k{n}", content=LARGE), size_bytes=100_011) for n in range(3)]
    store.heads(["c"])
    turns()
    store.write_documents({"c": large})
    assert turns() == 3 + 1
    assert store.documents({"c": ["k1"]})["c", "k1"].content == LARGE


@pytest.mark.parametrize("created", [4, 5])
def test_writing_thousands_of_documents_yields_for_each_and_takes_several_calls(
    store: MongoStore, turns: Turns, created: int
) -> None:
    """The driver prepares all of a call in one go."""
    keys = [f"{number:04}" for number in range(4_500)]
    many = [replace(document(5, key=key), create_revision=created) for key in keys]
    store.heads(["c"])
    turns()
    store.write_documents({"c": many})
    assert turns() == len(many) + 3
    assert store.scan_keys("c", "", "", len(many) + 1) == keys


def test_reading_a_range_with_large_acls_yields_between_its_pieces(
    store: MongoStore, turns: Turns
) -> None:
    acl: dict[str, Json] = {"acl": {"read": ["x" * 1_000] * 50}}
    wide = [replace(document(5, key=f"{number:02}"), attributes=acl) for number in range(50)]
    store.write_documents({"c": wide})
    turns()
    assert len(store.list_range("c", "", 9, 99)) == len(wide)
    assert turns() > 1 + 50 * 50_000 // 2**20


def test_a_large_document_is_encoded_separately() -> None:
    """One call of the driver encodes all of a bulk."""
    large = replace(document(5, content=LARGE), size_bytes=100_011)
    assert isinstance(records.document_update("c", large)["$max"]["state"], RawBSONDocument)
    assert isinstance(records.document_record("c", large)["state"], RawBSONDocument)
    assert isinstance(records.document_update("c", document(5))["$max"]["state"], dict)


def test_writing_a_large_commit_yields_first(turns: Turns) -> None:
    records.commit_record(commit(1, size_bytes=100_000))
    assert turns() == 1
    records.commit_record(commit(1, size_bytes=100))
    assert turns() == 0


def test_weighing_a_value_yields_first(turns: Turns) -> None:
    parsed_bytes(LARGE, LARGE)
    assert turns() == 2
