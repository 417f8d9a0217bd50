"""What a principal may hold of what a process takes on: as much as it leaves to others."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from gateway.access import Grant, Principal, Role
from gateway.access.principal import Shares
from gateway.http import create_app
from gateway.limits import AdmissionLimits, ServiceLimits, WatchLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.mongodb import connect
from gateway.tokens.issued import Tokens
from tests.http.conftest import held_up, problem
from tests.memory_store import MemoryStore
from tests.patience import UNHURRIED, WAIT_MS, WAIT_S
from tests.service import RunningGateway

Eventually = Callable[..., Any]
EVERYTHING = (Grant(Role.ADMIN, "*"),)
PATH = "/v1/catalogs/c"
FOUR = AdmissionLimits(writes_in_flight_max=4, reads_in_flight_max=4, bulk_requests_max=4)


class World:
    """A service with room for four of each kind; the bearer token is the principal's name."""

    def __init__(self, *, access: bool = True) -> None:
        limits = ServiceLimits(watch=WatchLimits(watchers_max=4))
        self.gateway = GatewayService(MemoryStore(), ThreadRuntime(), limits)
        options: dict[str, Any] = {"admission": FOUR}
        if access:
            options["authenticate"] = lambda header: Principal(header[7:], EVERYTHING)
        self.app = create_app(self.gateway, **options)

    def send(self, name: str, method: str, path: str, **sent: Any) -> TestResponse:
        client: FlaskClient = self.app.test_client()
        headers = {"Authorization": f"Bearer {name}", **sent.pop("headers", {})}
        return client.open(path, method=method, headers=headers, **sent)

    def put(self, name: str) -> TestResponse:
        return self.send(name, "PUT", f"{PATH}/documents/{uuid.uuid4().hex}", json=1)

    def get(self, name: str) -> TestResponse:
        return self.send(name, "GET", f"{PATH}/documents/k")

    def bulk(self, name: str) -> TestResponse:
        """It lasts until it is read."""
        line = json.dumps({"catalog": "c", "key": "k", "op": "touch"}).encode()
        return self.send(name, "POST", "/v1/bulk", data=line, content_type="application/x-ndjson")

    def watch(self, name: str) -> TestResponse:
        """It lasts until it is closed."""
        headers = {"Accept": "text/event-stream"}
        return self.send(name, "GET", f"{PATH}/changes?after=0", headers=headers)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.app.begin_stop()  # type: ignore[attr-defined]


def refused(answer: TestResponse, code: str, setting: str, name: str) -> None:
    content = problem(answer, 429, code)
    assert (content["applied"], content["retryable"]) == ("no", True)
    assert setting in content["detail"]
    assert repr(name) in content["detail"]


@pytest.mark.parametrize(
    ("kind", "code", "setting"),
    [("bulk", "overloaded", "bulk_requests_max"), ("watch", "too_many_watchers", "watchers_max")],
)
def test_long_requests_of_one_principal_leave_room_for_others(
    world: World, kind: str, code: str, setting: str
) -> None:
    ask: Callable[[str], TestResponse] = getattr(world, kind)
    lasting = [ask("ann"), ask("ann")]
    refused(ask("ann"), code, setting, "ann")
    lasting.append(ask("bob"))
    refused(ask("bob"), code, setting, "bob")
    lasting.append(ask("eve"))
    assert [answer.status_code for answer in lasting] == [200] * 4
    problem(ask("joe"), 429, code)  # none is left
    lasting[0].close()
    refused(ask("ann"), code, setting, "ann")  # she left one, and there is one left
    assert ask("joe").status_code == 200


@pytest.mark.parametrize(
    ("kind", "method", "setting"),
    [("get", "read", "reads_in_flight_max"), ("put", "commit", "writes_in_flight_max")],
)
def test_concurrent_requests_of_one_principal_leave_room_for_others(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
    kind: str,
    method: str,
    setting: str,
) -> None:
    ask: Callable[[str], TestResponse] = getattr(world, kind)
    answers: list[int] = []
    with ExitStack() as stack, held_up(monkeypatch, world.gateway, method) as held:
        for count, name in enumerate(("ann", "ann", "bob"), 1):
            thread = threading.Thread(target=lambda who=name: answers.append(ask(who).status_code))
            thread.start()
            stack.callback(thread.join)
            eventually(lambda wanted=count: len(held) == wanted)
            if count == 2:
                refused(ask("ann"), "overloaded", setting, "ann")
    assert set(answers) <= {201, 404}
    assert len(answers) == 3
    assert ask("ann").status_code in (201, 404)


def test_bodies_of_one_principal_leave_room_for_others(
    mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    document = json.dumps("x" * 250_000).encode()

    def put(name: str, connection: HTTPConnection) -> int:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {tokens[name]}"}
        connection.request("PUT", f"{PATH}/documents/{name}", body=document, headers=headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        if answer.status == 429:
            assert (content["code"], repr(name) in content["detail"]) == ("queue_full", True)
        return answer.status

    store = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    issue = Tokens(store.tokens()).issue
    tokens = {name: issue(name, EVERYTHING, None).text for name in ("ann", "bob")}
    store.close()
    settings = {**UNHURRIED, "bodies_bytes_max": 1024 * 1024, "access": True, "workers": 1}
    with (
        RunningGateway(mongodb_uri, database_name, **settings) as gateway,
        closing(HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)) as connection,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=WAIT_S) as slow,
    ):
        head = (
            f"PUT {PATH}/documents/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 450002\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {tokens['ann']}\r\n\r\n"
        )
        slow.sendall(head.encode() + b'"' + b"x" * 400_000)

        def is_refused() -> bool:
            with closing(HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)) as another:
                return put("ann", another) == 429

        eventually(is_refused)
        assert put("bob", connection) == 201
        slow.sendall(b"x" * 50_000 + b'"')
        assert slow.recv(12) == b"HTTP/1.1 201"
        assert put("ann", connection) in (200, 201)


def test_without_access_control_there_are_no_shares() -> None:
    world = World(access=False)
    lasting = [world.bulk("") for _ in range(4)] + [world.watch("") for _ in range(4)]
    assert [answer.status_code for answer in lasting] == [200] * 8
    problem(world.bulk(""), 429, "overloaded")
    world.app.begin_stop()  # type: ignore[attr-defined]


def test_a_share_is_half_of_what_is_left() -> None:
    shares = Shares(12)
    held = {}
    for name in ("ann", "bob", "eve", "joe"):
        held[name] = 0
        while shares.has_room_for(name):
            shares.take(name)
            held[name] += 1
    assert held == {"ann": 6, "bob": 3, "eve": 2, "joe": 1}
    shares.give_back("ann", 6)
    assert shares.has_room_for("joe", 3)
    assert not shares.has_room_for("joe", 6)
