"""A worker with as much to do as it takes on: it refuses, loses nothing, and says that it lives."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from io import BytesIO
from typing import Any, cast

import psutil
import pytest

from gateway.http import create_app
from gateway.http.door import admission
from gateway.http.door.admission import Held
from gateway.limits import AdmissionLimits, MemoryLimits
from gateway.memory import Memory, account, work_for
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.embedded import EmbeddedMongod
from tests.http.conftest import Catalog, held_up, problem
from tests.http.served import Answered, Server
from tests.patience import WAIT_S
from tests.service import RunningGateway

Eventually = Callable[..., Any]
JSON = [("Content-Type", "application/json")]


class UnreadBody(BytesIO):
    """A body that must not be read."""

    def read(self, *_: Any) -> bytes:
        raise AssertionError

    readinto = readline = read  # type: ignore[assignment]


def behind(gateway: GatewayService, **bounds: int) -> Catalog:
    app = create_app(gateway, admission=AdmissionLimits(**bounds))
    return Catalog(app.test_client(), f"admitted-{uuid.uuid4().hex}")


def in_background(stack: ExitStack, call: Callable[[], Any]) -> list[Any]:
    results: list[Any] = []

    def run() -> None:
        answer = call()
        answer.get_data()  # its seat is held until it is taken
        results.append(answer)

    thread = threading.Thread(target=run)
    thread.start()
    stack.callback(thread.join)
    return results


def refused(answer: Any, setting: str) -> None:
    content = problem(answer, 429, "overloaded")
    assert (content["applied"], content["retryable"]) == ("no", True)
    assert setting in content["detail"]
    assert 1 <= int(answer.headers["Retry-After"]) <= 3


def test_a_write_above_the_bound_is_refused_before_its_body_is_read(
    memory_gateway: GatewayService, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    catalog = behind(memory_gateway, writes_in_flight_max=1)
    other = Catalog(catalog.client.application.test_client(), catalog.name)
    with ExitStack() as stack, held_up(monkeypatch, memory_gateway, "commit"):
        first = in_background(stack, lambda: catalog.put(1))

        eventually(lambda: not other.client.application.has_room_for(b"PUT"))
        # The test client says how long it is.
        answer = other.client.put(
            other.document("k"), input_stream=UnreadBody(b"11"), content_type="application/json"
        )
        refused(answer, "writes_in_flight_max")
        refused(other.delete(), "writes_in_flight_max")
        assert other.client.get("/livez").status_code == 200
        assert other.get("absent").status_code == 404
    assert first[0].status_code == 201
    assert catalog.put(2).status_code == 200


def test_bytes_in_flight_are_bounded_but_a_single_write_may_exceed_the_bound(
    memory_gateway: GatewayService, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    catalog = behind(memory_gateway, writes_in_flight_bytes_max=100)
    other = Catalog(catalog.client.application.test_client(), catalog.name)
    assert catalog.put("x" * 1000).status_code == 201
    with ExitStack() as stack, held_up(monkeypatch, memory_gateway, "commit"):
        first = in_background(stack, lambda: catalog.put("y" * 1000))
        eventually(lambda: not other.client.application.has_room_for(b"PUT"))
        refused(other.put("z" * 98), "writes_in_flight_bytes_max")
    assert first[0].status_code == 200


def test_reads_are_bounded_and_feeds_do_not_count(
    memory_gateway: GatewayService, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    catalog = behind(memory_gateway, reads_in_flight_max=1)
    other = Catalog(catalog.client.application.test_client(), catalog.name)
    catalog.put(1)
    with ExitStack() as stack, held_up(monkeypatch, memory_gateway, "read"):
        first = in_background(stack, catalog.get)
        eventually(lambda: not other.client.application.has_room_for(b"GET"))
        refused(other.get(), "reads_in_flight_max")
        assert other.put(2).status_code == 200
        changes = other.client.get(f"{other.path}/changes?after=0")
        assert changes.status_code == 200
    assert first[0].status_code == 200


@pytest.fixture(scope="module")
def own_mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMongod]:
    """One that can be stopped without stopping other tests."""
    with EmbeddedMongod(tmp_path_factory.mktemp("stopped"), start_timeout_s=WAIT_S) as running:
        yield running


@contextmanager
def stopped(mongod: EmbeddedMongod) -> Iterator[None]:
    assert mongod.pid is not None
    os.kill(mongod.pid, signal.SIGSTOP)
    try:
        while psutil.Process(mongod.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)  # its other threads still answer
        yield
    finally:
        os.kill(mongod.pid, signal.SIGCONT)


@pytest.mark.mongod
def test_a_saturated_worker_refuses_writes_stays_alive_and_applies_what_it_accepted(
    own_mongod: EmbeddedMongod, eventually: Eventually
) -> None:
    database, room, clients = f"test_{uuid.uuid4().hex}", 4, 40
    with RunningGateway(own_mongod.uri, database, workers=1, writes_in_flight_max=room) as gateway:
        server = Server(gateway.port)
        assert server.send("PUT", "/v1/catalogs/c/documents/first", b"0", JSON).status == 201
        answers: dict[int, Answered] = {}

        def put(number: int) -> None:
            path = f"/v1/catalogs/c/documents/k{number}"
            answers[number] = server.send("PUT", path, str(number).encode(), JSON)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(clients)]
        with stopped(own_mongod):
            for thread in threads:
                thread.start()
            eventually(lambda: len(answers) == clients - room)
            for answer in dict(answers).values():
                content = answer.json()
                assert (answer.status, content["code"]) == (429, "overloaded")
                assert (content["applied"], content["retryable"]) == ("no", True)
                assert 1 <= int(answer.headers["Retry-After"]) <= 3
            for _ in range(5):
                assert server.send("GET", "/livez").status == 200
        for thread in threads:
            thread.join(WAIT_S)
        accepted = {number for number, answer in answers.items() if answer.status == 201}
        assert len(accepted) == room
        for number in range(clients):
            found = server.send("GET", f"/v1/catalogs/c/documents/k{number}")
            assert found.status == (200 if number in accepted else 404)


class Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)

    def begin(self, method: str, path: str, body_bytes: int, more: str = "") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}"
        head += "Content-Type: application/json\r\n"
        self.socket.sendall(f"{head}Content-Length: {body_bytes}\r\n\r\n".encode())

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        self.begin(method, path, len(body))
        self.socket.sendall(body)

    def answer(self) -> tuple[int, dict[str, Any], HTTPResponse]:
        response = HTTPResponse(self.socket)
        response.begin()
        return response.status, json.loads(response.read()), response


@contextmanager
def connections(port: int, number: int) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        opened = [Connection(port) for _ in range(number)]
        for each in opened:
            stack.callback(each.socket.close)
        yield opened


def test_requests_that_arrive_all_at_once_are_applied_or_refused(
    mongodb_uri: str, database_name: str
) -> None:
    """More than is refused at once: the others wait, and some find room.

    Those who have not sent their bodies take none of it.
    """
    clients, slow = 400, 20
    with (
        RunningGateway(mongodb_uri, database_name, workers=1, writes_in_flight_max=8) as gateway,
        connections(gateway.port, slow) as slow_ones,
        connections(gateway.port, clients) as opened,
    ):
        for each in slow_ones:
            each.begin("PUT", "/v1/catalogs/c/documents/slow", 1, "Expect: 100-continue\r\n")
            assert each.socket.recv(65536).startswith(b"HTTP/1.1 100 ")
        for number, each in enumerate(opened):
            each.send("PUT", f"/v1/catalogs/c/documents/k{number}", b"1")
        statuses = [each.answer()[0] for each in opened]
        assert set(statuses) <= {201, 429}
        assert statuses.count(201) > 8
        for number, each in enumerate(opened):
            each.send("GET", f"/v1/catalogs/c/documents/k{number}")
        found = [each.answer()[0] for each in opened]
        assert [status == 200 for status in found] == [status == 201 for status in statuses]


def test_with_all_connections_in_use_the_longest_idle_one_is_closed(
    mongodb_uri: str, database_name: str
) -> None:
    with (
        RunningGateway(mongodb_uri, database_name, workers=1, connections_max=4) as gateway,
        connections(gateway.port, 4) as opened,
    ):
        for each in opened:
            each.send("GET", "/livez")
            assert each.answer()[0] == 200
        with connections(gateway.port, 1) as (another,):
            another.send("GET", "/livez")
            assert another.answer()[0] == 200
            assert opened[0].socket.recv(1) == b""
            for each in opened[1:]:
                each.send("GET", "/livez")
                assert each.answer()[0] == 200


def test_with_all_connections_busy_a_worker_refuses_and_livez_still_answers(
    mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    with (
        RunningGateway(mongodb_uri, database_name, workers=1, connections_max=4) as gateway,
        connections(gateway.port, 4) as opened,
    ):
        opened[0].send("PUT", "/v1/catalogs/c/documents/k", b"1")
        assert opened[0].answer()[0] == 201
        for each in opened[:3]:
            each.send("GET", "/v1/catalogs/c/changes?after=1&timeout=30")
        opened[3].begin("PUT", "/v1/catalogs/c/documents/k", 2)

        def asked(path: str) -> tuple[int, dict[str, Any], HTTPResponse]:
            with connections(gateway.port, 1) as (another,):
                another.send("GET", path)
                return another.answer()

        # Until all four are known to be busy, one of them may make room.
        eventually(lambda: asked("/v1/catalogs")[0] == 429)
        status, content, response = asked("/v1/catalogs")
        assert (status, content["code"], content["retryable"]) == (429, "overloaded", True)
        assert "connections_max" in content["detail"]
        assert response.getheader("X-Content-Type-Options") == "nosniff"
        assert int(response.headers["Retry-After"]) >= 1
        assert asked("/livez")[0] == 200


def test_feeds_leave_a_quarter_of_the_connections_to_other_requests(
    mongodb_uri: str, database_name: str
) -> None:
    with (
        RunningGateway(mongodb_uri, database_name, workers=1, connections_max=4) as gateway,
        connections(gateway.port, 4) as opened,
    ):
        for each in opened:
            each.send("GET", "/v1/catalogs/c/changes?timeout=30")
        refused, _, _ = select.select([each.socket for each in opened], [], [], WAIT_S)
        (told,) = (each for each in opened if each.socket in refused)
        status, content, response = told.answer()
        assert (status, content["code"], content["retryable"]) == (429, "too_many_watchers", True)
        assert int(response.headers["Retry-After"]) >= 1
        told.send("PUT", "/v1/catalogs/other/documents/k", b"1")
        assert told.answer()[0] == 201
        assert "not 2000 (watchers_max)" in gateway.log()


class _Seat:
    left = 0

    def leave(self) -> None:
        self.left += 1


def test_an_answer_holds_its_seat_until_its_last_byte_is_taken(
    memory_gateway: GatewayService,
) -> None:
    catalog = behind(memory_gateway, reads_in_flight_max=1)
    assert catalog.put("x" * 200_000).status_code == 201
    exported = catalog.client.get(f"{catalog.path}/export")
    pieces = iter(exported.response)
    assert next(pieces)
    refused(catalog.get(), "reads_in_flight_max")
    assert next(pieces)
    refused(catalog.get(), "reads_in_flight_max")
    list(pieces)
    exported.close()
    assert catalog.get().status_code == 200


def test_an_answer_that_is_never_closed_frees_its_seat_for_the_next_request(
    memory_gateway: GatewayService,
) -> None:
    catalog = behind(memory_gateway, reads_in_flight_max=1)
    catalog.put(1)
    for _ in range(3):
        assert catalog.client.get(f"{catalog.path}/documents/k").status_code == 200
        gc.collect()


def test_garbage_collection_of_an_answer_ends_nothing_during_another_request() -> None:
    """Garbage is collected in the midst of any code: whoever holds a lock is interrupted, too."""
    memory = Memory(ThreadRuntime(), MemoryLimits())
    mine, forgotten, seat = memory.account(), memory.account(), _Seat()
    held = Held(cast(Any, seat))
    held.account = forgotten
    cycle: list[Any] = [held]
    cycle.append(cycle)
    work_for(mine)
    try:
        del cycle, held
        gc.collect()
        assert account() is mine
        assert seat.left == 0
        admission._close_forgotten()
        assert seat.left == 1
    finally:
        work_for(None)
