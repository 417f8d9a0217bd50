"""What the server looks at, by its own profiler: little, however much there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from pymongo import MongoClient

from gateway.model import ChangeRecord, Idempotency
from gateway.store.contract import StoreUnreachable, Swept
from gateway.store.mongodb import MongoStore, connect
from patching import ABSENT
from tests.patience import WAIT_MS, WAIT_S
from tests.store.contract_suite import commit, document

Profiled = Callable[[], Any]
_LIVE = 500


@pytest.fixture
def store(mongodb_uri: str, database_name: str) -> Iterator[MongoStore]:
    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    yield store
    store.close()


@pytest.fixture
def profiled(mongodb_uri: str, database_name: str) -> Iterator[Profiled]:
    """A context; within it the server notes what it does, and the list it gives has it after."""
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        database = client[database_name]

        @contextmanager
        def profile() -> Iterator[list[dict[str, Any]]]:
            noted: list[dict[str, Any]] = []
            database.command("profile", 2)
            yield noted
            database.command("profile", 0)
            noted.extend(database["system.profile"].find())

        yield profile


def test_dropping_replies_examines_nothing_else(store: MongoStore, profiled: Profiled) -> None:
    asked = [
        commit(n, idempotency=Idempotency("ann", f"{n}", "1"), key=f"k{n % 7}")
        for n in range(1, _LIVE)
    ]
    store.write_commits(asked)
    store.write_commits([replace(each, catalog="d") for each in asked])
    store.sweep("c", [Swept(n, replace(asked[n - 1], changes=())) for n in (3, 5, 7)])
    store.heads(["none"])
    with profiled() as noted:
        assert store.drop_replies("c", _LIVE, 1_000_000) == 3
    (removal,) = [entry for entry in noted if entry["op"] == "remove"]
    assert removal["docsExamined"] <= 3
    assert removal["keysExamined"] <= 5


def test_purging_tombstones_examines_no_live_document(
    store: MongoStore, profiled: Profiled
) -> None:
    store.write_documents({"c": [document(n, key=f"k{n}") for n in range(1, _LIVE)]})
    gone = [replace(document(n, key=f"gone{n}"), content=ABSENT) for n in (3, 5, 7, 900)]
    store.write_documents({"c": gone, "d": gone})
    store.heads(["none"])
    with profiled() as noted:
        assert store.purge_tombstones("c", _LIVE, 1_000_000, 100) == 3
    examined = [entry["docsExamined"] for entry in noted if entry["op"] in ("query", "remove")]
    assert len(examined) == 4
    assert sum(examined) <= 6


def test_a_scan_reads_one_page(store: MongoStore, profiled: Profiled) -> None:
    store.write_documents({"c": [document(n, key=f"k{n:04}") for n in range(1, _LIVE)]})
    store.write_documents({"b": [document(1)], "d": [document(1)]})
    store.heads(["none"])  # looks at the format first
    with profiled() as noted:
        assert len(store.scan_documents("c", "k0100", "k0", 10, 1_000_000)) == 10
    (query,) = [entry for entry in noted if entry["op"] == "query"]
    assert query["keysExamined"] <= 11


def test_a_range_is_read_from_the_keys_without_contents(
    store: MongoStore, profiled: Profiled
) -> None:
    heavy = [document(n, key=f"k{n:03}", content="x" * 10_000) for n in range(1, _LIVE)]
    store.write_documents({"c": heavy, "d": heavy[:9]})
    store.heads(["none"])
    with profiled() as noted:
        assert len(store.list_range("c", "k1", _LIVE, 99)) == 99
        assert len(store.list_range("c", "k1", _LIVE, 1)) == 1
    both = [entry for entry in noted if entry["op"] == "query"]
    assert [entry["planSummary"] for entry in both] == ["IXSCAN { _id: 1 }"] * 2
    assert both[0]["responseLength"] < 30_000
    assert both[1]["keysExamined"] <= 2


def test_a_change_in_a_range_is_found_among_recent_commits_or_by_key(
    store: MongoStore, profiled: Profiled
) -> None:
    """Near: each commit since. Far: each key of the range, however many commits there are."""
    store.write_commits([commit(n, key=f"k{n % 7}") for n in range(1, 3_000)])
    store.heads(["none"])
    with profiled() as noted:
        assert store.range_changed("c", "other/", 2_900, 2_999) is None
        assert store.range_changed("c", "k", 2_900, 2_999) == 2_999
        assert store.range_changed("c", "k3", 10, 2_999) is not None
        assert store.range_changed("c", "other/", 10, 2_999) is None
    queries = [entry for entry in noted if entry["op"] == "query"]
    plans = [entry["planSummary"] for entry in queries]
    by_key = "IXSCAN { catalog: 1, keys: 1, revision: 1 }"
    assert plans == ["IXSCAN { _id: 1 }"] * 2 + [by_key] * 2
    examined = [entry["keysExamined"] for entry in queries]
    assert examined[0] <= 100
    assert examined[1] <= 1
    assert examined[2] <= 3
    assert examined[3] <= 1


def test_a_scan_of_digests_answers_without_contents(store: MongoStore, profiled: Profiled) -> None:
    heavy = [document(n, key=f"k{n}", content="x" * 100_000) for n in range(1, 4)]
    store.write_documents({"c": heavy})
    store.heads(["none"])
    with profiled() as noted:
        assert len(store.scan_digests("c", "", "", 9)) == 3
    (query,) = [entry for entry in noted if entry["op"] == "query"]
    assert query["responseLength"] < 2_000


def test_documents_changed_by_few_commits_are_found_without_a_scan(
    store: MongoStore, profiled: Profiled
) -> None:
    """With more commits, all documents are examined; the answer is the same."""
    store.write_documents({"c": [document(n, key=f"k{n:04}") for n in range(1, 2_001)]})
    made = [(n, ChangeRecord(f"k{n:04}", "put", n, value=1)) for n in range(1, 2_001)]
    store.write_commits([commit(n, changes=(change,)) for n, change in made])
    store.heads(["none"])
    with profiled() as noted:
        near = store.scan_digests("c", "", "", 100, above=1_990)
        far = store.scan_digests("c", "k1990", "", 100, above=900)
    assert [d.revision for d in near] == [*range(1_991, 2_001)]
    assert far == near
    by_op = [entry for entry in noted if entry["op"] in ("query", "command")]
    examined = [entry["docsExamined"] for entry in by_op if entry.get("docsExamined") is not None]
    assert sum(examined[:-1]) <= 20
    assert all("COLLSCAN" not in entry.get("planSummary", "") for entry in by_op)


def test_documents_not_yet_written_out_are_skipped_however_large_their_acls(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is none of what was changed, and what was is behind it; each is looked at alone."""
    monkeypatch.setattr("gateway.store.mongodb.reads.SCANNED_BYTES_MAX", 1)
    monkeypatch.setattr("gateway.store.mongodb.reads._PIECE_BYTES", 1)
    changed = {f"k{number}": number + 10 for number in range(5)}
    store.write_commits(
        [commit(n, changes=(ChangeRecord(key, "put", n, value=1),)) for key, n in changed.items()]
    )
    store.write_documents({"c": [document(1, key=key) for key in list(changed)[:3]]})
    store.write_documents({"c": [document(changed[key], key=key) for key in list(changed)[3:]]})
    found = store.scan_digests("c", "", "", 9, above=9)
    assert ([each.key for each in found], found.is_whole) == (["k3"], False)
    found = store.scan_digests("c", "k3", "", 9, above=9)
    assert [each.key for each in found] == ["k4"]
    assert store.scan_digests("c", "k4", "", 9, above=9) == []


def test_events_are_tiny_however_large_the_commits(store: MongoStore, profiled: Profiled) -> None:
    heavy = (ChangeRecord("k", "put", 1, None, "x" * 1_000_000),)
    signals = store.commit_signals()
    with profiled() as noted:
        store.write_commits([commit(n, changes=heavy) for n in range(1, 4)])
        while signals.next(WAIT_S).get("c") != 3:
            pass
    signals.close()
    answers = [e for e in noted if e["op"] == "getmore" and e.get("nreturned")]
    assert sum(entry["nreturned"] for entry in answers) == 3
    assert sum(entry["responseLength"] for entry in answers) < 10_000


def test_waiting_for_signals_is_one_call_per_second(store: MongoStore, profiled: Profiled) -> None:
    """A process whose watchers hear nothing costs next to nothing."""
    signals = store.commit_signals()
    with profiled() as noted:
        assert signals.next(2.0) == {}
    signals.close()
    assert len([entry for entry in noted if entry["op"] == "getmore"]) <= 3


def test_keys_are_scanned_without_reading_documents(store: MongoStore, profiled: Profiled) -> None:
    store.write_documents({"c": [document(1, key=f"k{n:03}") for n in range(_LIVE)]})
    with profiled() as noted:
        assert len(store.scan_keys("c", "k099", "k", 50)) == 50
    (scan,) = [each for each in noted if each["op"] == "query" and each["ns"].endswith("documents")]
    assert scan["docsExamined"] == 0
    assert scan["keysExamined"] <= 55


def test_a_lookup_far_into_the_log_ends_at_its_timeout(store: MongoStore) -> None:
    store.write_commits([commit(2_000)])
    assert store.range_changed("c", "", 0, 2_000, WAIT_S) == 2_000
    with pytest.raises(StoreUnreachable):
        store.range_changed("c", "", 0, 2_000, 1e-6)
