"""What requests take is on their account: they are refused, or wait, before the process has it."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import psutil
import pytest
from werkzeug.test import TestResponse

from gateway.commit.queue import Queue
from gateway.decide import decide
from gateway.decide.edits import Put
from gateway.http import create_app
from gateway.http.context import Observed
from gateway.http.routes import documents
from gateway.http.wire import body, problems
from gateway.http.wire.responses import encode
from gateway.limits import (
    MIB,
    AdmissionLimits,
    MemoryLimits,
    ServiceLimits,
    WatchLimits,
)
from gateway.memory import trees
from gateway.model import BareDocument, DocumentRecord
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import SCANNED_BYTES_MAX, Store
from gateway.store.mongodb import connect
from tests.http.conftest import JSON_PATCH, Catalog, problem
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS, WAIT_S
from tests.service import RunningGateway, own_database

Eventually = Callable[..., Any]


def gateway_with(store: Store, **memory: Any) -> GatewayService:
    return GatewayService(store, ThreadRuntime(), ServiceLimits(memory=MemoryLimits(**memory)))


def catalog_of(gateway: GatewayService, **admission: int) -> Catalog:
    app = create_app(gateway, admission=AdmissionLimits(**admission))
    return Catalog(app.test_client(), "c")


@pytest.fixture
def store(mongodb_uri: str) -> Iterator[Store]:
    with own_database(mongodb_uri) as database:
        yield connect(mongodb_uri, database, timeout_ms=WAIT_MS)


def reader_of(gateway: GatewayService) -> Any:
    from gateway.access import Grant, Principal, Role

    return gateway.acls.viewer(Principal("eve", (Grant(Role.READ, "*"),)), "c")


HEAVY_ACL: Any = {"acl": {"read": ["*b" * 250] * 100}}


def test_pages_end_early_if_acls_are_large(store: Store) -> None:
    """As they do where contents do: nothing but acls is read of many documents otherwise."""
    gateway = gateway_with(store)
    names = [f"k{number:03}" for number in range(200)]
    gateway.write("c", "other", Put(1, 1))
    store.write_documents(
        {"c": [DocumentRecord(name, 1, 1, 1, "a" * 32, 0, 0, 1, HEAVY_ACL) for name in names]}
    )
    scanned = store.scan_digests("c", "", "k", 1000)
    assert not scanned.is_whole
    assert SCANNED_BYTES_MAX <= len(scanned) * 50_000 < 2 * SCANNED_BYTES_MAX
    rest = store.scan_digests("c", scanned[-1].key, "k", 1000)
    while not rest.is_whole:
        scanned += rest
        rest = store.scan_digests("c", scanned[-1].key, "k", 1000)
    assert [each.key for each in (*scanned, *rest)] == names
    found, left = store.bare_documents([("c", name) for name in names])
    assert len(found) + len(left) == len(names)
    assert {name for _, name in left} == set(names[len(found) :])
    assert gateway.acls.present("c", names) is not None
    present = dict(gateway.acls.present("c", names))
    assert list(map(type, present.values())) == [BareDocument] * 200, "piece by piece, all of them"
    assert reader_of(gateway).hidden_keys(names) == frozenset(names)


def test_a_revert_that_needs_too_much_memory_is_refused_early(store: Store) -> None:
    gateway = gateway_with(store, request_bytes_max=32 * MIB)
    catalog = catalog_of(gateway)
    assert catalog.put([f"{number:05}" for number in range(20_000)]).status_code == 201
    for number in range(60):
        patch = [{"op": "replace", "path": f"/{number}", "value": "zz"}]
        catalog.client.patch(catalog.document("k"), json=patch, content_type=JSON_PATCH)
    rebuilt: list[int] = []
    records = gateway.differences.records

    def counted(*asked: Any) -> Any:
        rebuilt.append(asked[2])
        return records(*asked)

    gateway.differences.records = counted  # type: ignore[method-assign]
    body = {"revisions": [*range(2, 60, 2)], "dry_run": True, "conflict": "skip"}
    refused = problem(catalog.client.post(f"{catalog.path}/reverts", json=body), 413, "over_limit")
    assert refused["limit"] == "request_memory_bytes_max"
    assert len(rebuilt) < 20, "a state takes 1.4 MiB"
    few = {**body, "revisions": [4, 6]}
    assert catalog.client.post(f"{catalog.path}/reverts", json=few).status_code == 200
    assert gateway.memory.readings().held_bytes == 0


def test_an_answer_holds_its_seat_and_memory_until_it_is_sent(store: Store) -> None:
    gateway = gateway_with(store)
    catalog = catalog_of(gateway, reads_in_flight_max=1)
    catalog.put("x" * MIB)
    for path in ("export", "documents", "documents/k"):
        answer = catalog.client.get(f"{catalog.path}/{path}")
        problem(catalog.client.get(f"{catalog.path}/documents/k"), 429, "overloaded")
        if path != "export":  # which reads its first page, and counts it as it begins to be sent
            assert gateway.memory.readings().unsent_bytes > MIB
        assert len(answer.get_data()) > MIB
        assert gateway.memory.readings().held_bytes == 0
    unread = catalog.client.get(f"{catalog.path}/export")
    unread.close()
    assert catalog.client.get(f"{catalog.path}/documents/k").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("documents?limit=9", "documents?key=k&key=l", "export", "differences?from=0"),
        *("commits?limit=9", "commits/1", "documents/k?revision=1", "documents?select=digest"),
        "partitions?count=2",
    ],
)
def test_a_reader_waits_while_others_hold_all_memory(
    path: str, store: Store, eventually: Eventually
) -> None:
    gateway = gateway_with(store, bytes_max=64 * MIB, request_bytes_max=64 * MIB)
    catalog = catalog_of(gateway)
    catalog.put({"n": 1})
    other = gateway.memory.account()
    other.take(64 * MIB)
    answers: list[TestResponse] = []
    client = catalog.client.application.test_client()
    asked = threading.Thread(
        target=lambda: answers.append(client.get(f"{catalog.path}/{path}", buffered=True))
    )
    asked.start()
    eventually(lambda: gateway.memory.readings().waiting == 1)
    assert not answers
    other.close()
    asked.join(WAIT_S)
    assert answers[0].status_code == 200
    assert gateway.memory.readings().held_bytes == 0


def test_a_request_that_waited_in_vain_for_memory_can_be_retried() -> None:
    gateway = gateway_with(MemoryStore(), bytes_max=64 * MIB, patience_s=0.01)
    catalog = catalog_of(gateway)
    catalog.put(1)
    other = gateway.memory.account()
    other.take(64 * MIB)
    answer = catalog.client.get(f"{catalog.path}/documents")
    refused = problem(answer, 429, "overloaded")
    assert (refused["applied"], refused["retryable"]) == ("no", True)
    assert answer.headers["Retry-After"]
    other.close()
    assert catalog.client.get(f"{catalog.path}/documents").status_code == 200


def test_forty_clients_of_heavy_pages_stay_within_the_memory_bound(mongodb_uri: str) -> None:
    """A worker's own memory; about 2 GiB without the account."""
    heavy = json.dumps([{"a": number, "b": [f"x{number}"]} for number in range(40_000)]).encode()
    import http.client

    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, workers=1) as gateway,
    ):

        def send(method: str, path: str, body: bytes | None = None) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S * 10)
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, f"/v1/catalogs/c/{path}", body, headers)
            with connection.getresponse() as answer:
                answer.read()
                return answer.status

        processes = psutil.Process(gateway.master_pid).children(recursive=True)
        worker = max(processes, key=lambda each: each.memory_info().rss)
        idle = worker.memory_info().rss
        for number in range(6):
            assert send("PUT", f"documents/k{number}", heavy) == 201
        statuses: list[int] = []
        paths = ["documents", "differences?from=0", "commits", "documents?key=k1&key=k2"] * 10
        clients = [
            threading.Thread(target=lambda path=path: statuses.append(send("GET", path)))
            for path in paths
        ]
        peak = idle
        for each in clients:
            each.start()
        while any(each.is_alive() for each in clients):
            peak = max(peak, worker.memory_info().rss)
            clients[0].join(0.01)
            next((each for each in clients if each.is_alive()), clients[0]).join(0.01)
        assert len(statuses) == len(paths)
        assert set(statuses) <= {200, 429}
        assert peak - idle < 640 * MIB


def stream_of(gateway: GatewayService) -> Iterator[bytes]:
    """The pieces of a feed from the beginning, which is behind what the ring holds."""
    stream = {"Accept": "text/event-stream"}
    client = create_app(gateway).test_client()
    return iter(client.get("/v1/catalogs/c/changes?after=0", headers=stream).iter_encoded())


def with_a_log(**memory: Any) -> GatewayService:
    limits = ServiceLimits(memory=MemoryLimits(**memory), watch=WatchLimits(ring_commits_max=1))
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), limits)
    for number in range(600):
        size = 100_000 if number < 3 else 1
        gateway.write("c", f"k{number}", Put("x" * size, size + 2))
    return gateway


def test_events_from_the_log_are_charged_until_they_are_taken() -> None:
    """Each stream that nobody reads holds a page; hundreds of them once filled a worker."""
    gateway = with_a_log()
    pieces = stream_of(gateway)
    told = next(pieces)
    held = gateway.memory.readings()
    assert held.held_bytes == held.unsent_bytes >= 300_000
    while b"id: 600\n" not in told:
        told += next(pieces)
    assert gateway.memory.readings().held_bytes < 100_000  # of the last page


def test_a_feed_without_room_ends_with_an_event() -> None:
    gateway = with_a_log(bytes_max=40 * MIB, patience_s=0.0)
    other = gateway.memory.account()
    other.take(MIB * 20)
    assert b"overloaded" in b"".join(stream_of(gateway))
    other.close()


def test_cached_data_can_be_dropped() -> None:
    """Before somebody looks through all objects for cycles."""
    gateway = gateway_with(MemoryStore())
    for n in range(24):
        gateway.write("c", f"k{n}", Put("x" * MIB, MIB + 2))
    assert gateway.readings().cache.bytes > 20 * MIB
    gateway.memory.drop_kept()
    assert gateway.readings().cache.bytes <= 16 * MIB


class Ended:
    """What contexts have when the answer is made."""

    def __init__(self) -> None:
        self.decided: list[object] = []

    def began(self, observed: Observed) -> None: ...

    def ended(self, observed: Observed) -> None:
        self.decided.append(observed.decided_write)


def test_a_decision_is_released_while_its_answer_waits_to_be_sent() -> None:
    seen = Ended()
    app = create_app(gateway_with(MemoryStore()), observers=[seen])
    catalog = Catalog(app.test_client(), "c")
    assert catalog.put({"n": 1}).status_code == 201
    assert catalog.patch({"op": "replace", "path": "/n", "value": 2}).status_code == 200
    assert seen.decided == [None, None]


def _no_memory(*_: object, **__: object) -> Any:
    raise MemoryError


_NO_MEMORY: dict[str, tuple[Any, str, str, str]] = {
    "a body": (BytesIO, "read", "PUT", "no"),
    "parsing": (trees, "parse", "PUT", "no"),
    "deciding": (decide.RequestDrafts, "__init__", "PUT", "no"),
    "encoding an answer": (documents, "document_answer", "PUT", "unknown"),
    "waiting for the outcome": (Queue, "until_answered", "PUT", "unknown"),
    "reading": (GatewayService, "read", "GET", "no"),
    "encoding what was read": (documents, "state_headers", "GET", "no"),
}


@pytest.mark.parametrize("place", _NO_MEMORY)
def test_a_request_that_runs_out_of_memory_reports_whether_it_was_applied(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name, method, applied = _NO_MEMORY[place]
    gateway = gateway_with(MemoryStore())
    catalog = catalog_of(gateway)
    catalog.put(1)
    catalog.client.get("/v1/catalogs")
    with monkeypatch.context() as patched:
        if where is BytesIO:
            patched.setattr(body, "get_input_stream", lambda _: _Unread())
        else:
            patched.setattr(where, name, _no_memory)
        answer = catalog.put(2) if method == "PUT" else catalog.get()
    if applied == "no":
        told = problem(answer, 429, "overloaded")
        assert answer.headers["Retry-After"]
    else:
        told = problem(answer, 504, "outcome_unknown")
    assert (told["applied"], told["retryable"]) == (applied, applied == "no")
    assert "no memory" in told["detail"]
    assert gateway.memory.readings().held_bytes == 0
    assert catalog.put(3).status_code == 200
    assert catalog.get().get_json() == 3


class _Unread(BytesIO):
    def read(self, _: int | None = -1) -> bytes:
        raise MemoryError


def test_memory_is_freed_before_the_out_of_memory_answer_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Taken:
        pass

    held: list[weakref.ref[Taken]] = []

    def fail(*_: object) -> Any:
        taken = Taken()
        held.append(weakref.ref(taken))
        raise MemoryError

    def encoded(content: Any) -> bytes:
        assert held[0]() is None
        return encode(content)

    catalog = catalog_of(gateway_with(MemoryStore()))
    monkeypatch.setattr(GatewayService, "read", fail)
    monkeypatch.setattr(problems, "encode", encoded)
    problem(catalog.get(), 429, "overloaded")
