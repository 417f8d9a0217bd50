"""Settings that declare lists are decided on every document, however many are written meanwhile."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from gateway.access import NOBODY
from gateway.commit import inputs
from gateway.decide.edits import Delete, KeyEdit
from gateway.decide.request import Applied, Request
from gateway.errors import DeadlineExceeded, DocumentsBreakSettings
from gateway.limits import ServiceLimits
from gateway.model import SETTINGS_KEY
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from tests.memory_store import MemoryStore
from tests.without_http import SetClock, WatchedStore, once, put, wait_until

SETTINGS = {"arrays": [{"keys": "*", "pointer": "/tags", "set": True}]}
RIGHT = {"tags": ["a", "b"]}
DOUBLE = {"tags": ["a", "a"]}


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore(MemoryStore())


@pytest.fixture
def gateway(store: WatchedStore) -> GatewayService:
    gateway = GatewayService(cast(Store, store), ThreadRuntime(), ServiceLimits())
    for n in range(5):
        gateway.write("c", f"k{n}", put(RIGHT))
    return gateway


def settings(gateway: GatewayService, **terms: Any) -> Request:
    return gateway.request("c", (KeyEdit(SETTINGS_KEY, put(SETTINGS)),), by=NOBODY, **terms)


def scans(store: WatchedStore) -> int:
    return store.calls.count("scan_documents")


def test_one_check_of_all_documents_is_enough(gateway: GatewayService, store: WatchedStore) -> None:
    assert isinstance(gateway.catalogs.set_up(settings(gateway)).outcome, Applied)
    assert scans(store) <= 2  # the second: whether there is more


def test_documents_written_during_the_check_are_checked_by_the_decision(
    gateway: GatewayService, store: WatchedStore
) -> None:
    store.after["scan_documents"] = once(lambda: gateway.write("c", "k1", put({"tags": [1, 2]})))
    assert isinstance(gateway.catalogs.set_up(settings(gateway)).outcome, Applied)
    assert scans(store) <= 2


@pytest.mark.parametrize("key", ["k1", "new"])
def test_a_document_written_during_the_check_can_refuse_the_settings(
    gateway: GatewayService, store: WatchedStore, key: str
) -> None:
    store.after["scan_documents"] = once(lambda: gateway.write("c", key, put(DOUBLE)))
    refused = gateway.catalogs.set_up(settings(gateway)).outcome
    error = getattr(refused, "error", None)
    assert isinstance(error, DocumentsBreakSettings)
    assert [each["key"] for each in error.documents] == [key]


@pytest.mark.parametrize("last", [RIGHT, DOUBLE])
def test_too_many_changes_for_one_decision_are_checked_before_the_next(
    gateway: GatewayService, store: WatchedStore, monkeypatch: pytest.MonkeyPatch, last: Any
) -> None:
    monkeypatch.setattr(inputs, "_CHANGED_MAX", 2)

    def write_many() -> None:
        for n in range(4):
            gateway.write("c", f"a{n}", put(last if n == 3 else RIGHT))

    store.after["scan_documents"] = once(write_many)
    if last is RIGHT:
        assert isinstance(gateway.catalogs.set_up(settings(gateway)).outcome, Applied)
    else:
        with pytest.raises(DocumentsBreakSettings):
            gateway.catalogs.set_up(settings(gateway))
    assert scans(store) <= 2


def test_a_constantly_written_catalog_can_still_declare_lists(gateway: GatewayService) -> None:
    stop = threading.Event()

    def write(name: str) -> None:
        n = 0
        while not stop.is_set():
            n += 1
            gateway.write("c", f"{name}{n % 10}", put({"tags": [n]}))

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    try:
        outcome = gateway.catalogs.set_up(settings(gateway)).outcome
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert isinstance(outcome, Applied)


def test_a_check_ends_at_its_deadline_within_a_page(store: WatchedStore) -> None:
    """Each document of the page was written meanwhile, so it is rebuilt, which takes its time."""
    clock = SetClock()
    limits = ServiceLimits(deadline_ms=30_000)
    gateway = GatewayService(cast(Store, store), clock, limits)
    for n in range(5):
        gateway.write("c", f"k{n}", put(RIGHT))

    def is_written_out() -> bool:
        keys = {f"k{n}" for n in range(5)}
        found = store.documents({"c": keys})
        return {each.content["tags"][0] for each in found.values()} == set(range(5))

    def write_all() -> None:
        for n in range(5):
            gateway.write("c", f"k{n}", put({"tags": [n]}))
        wait_until(is_written_out)

    def take_long() -> None:
        clock.passed_s += 20

    store.before["scan_documents"] = once(write_all)
    store.after["changes_of"] = take_long
    with pytest.raises(DeadlineExceeded, match="deadline passed before all documents were checked"):
        gateway.catalogs.set_up(settings(gateway))
    assert store.calls.count("changes_of") == 2
    assert gateway.read("c", SETTINGS_KEY).document is None


def test_a_check_of_deleted_documents_ends_at_its_deadline_too(store: WatchedStore) -> None:
    clock = SetClock()
    limits = ServiceLimits(deadline_ms=30_000, listing_page_documents=1)
    gateway = GatewayService(cast(Store, store), clock, limits)
    for n in range(5):
        gateway.write("c", f"k{n}", put(RIGHT))
        gateway.write("c", f"k{n}", Delete())

    def take_long() -> None:
        clock.passed_s += 20

    store.after["scan_documents"] = take_long
    with pytest.raises(DeadlineExceeded, match="deadline passed before all documents were checked"):
        gateway.catalogs.set_up(settings(gateway))
    assert scans(store) == 2
