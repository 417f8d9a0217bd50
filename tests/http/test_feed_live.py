"""The feed as it goes over the wire: real workers, a real MongoDB, real sockets."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any

import pytest

from tests.failure.clients import send
from tests.http.event_stream import EventStream
from tests.patience import WAIT_S
from tests.service import RunningGateway, own_database

pytestmark = pytest.mark.mongod

CATALOG = "/v1/catalogs/live"
CHANGES = f"{CATALOG}/changes"
Eventually = Callable[..., Any]


@pytest.fixture
def serve(mongodb_uri: str, database_name: str) -> Iterator[Callable[..., RunningGateway]]:
    with ExitStack() as running:

        def start(**settings: Any) -> RunningGateway:
            return running.enter_context(RunningGateway(mongodb_uri, database_name, **settings))

        yield start


@pytest.fixture(scope="module")
def shared(mongodb_uri: str) -> Iterator[Callable[..., RunningGateway]]:
    """`serve` for tests that neither write nor stop it: those of equal settings have the same."""
    with own_database(mongodb_uri) as database, ExitStack() as running:
        yield cache(
            lambda **settings: running.enter_context(
                RunningGateway(mongodb_uri, database, workers=1, **settings)
            )
        )


def put(port: int, key: str, value: Any) -> int:
    status, answer = send(
        port, "PUT", f"{CATALOG}/documents/{key}", value, Content_Type="application/json"
    )
    assert status in (200, 201), answer
    return int(answer["revision"])


def test_a_stream_is_chunked_and_begins_at_once(serve: Callable[..., RunningGateway]) -> None:
    service = serve(workers=1, watch_bookmark_s=1)
    with EventStream(service.port, CHANGES) as stream:
        assert stream.response.getheader("Transfer-Encoding") == "chunked"
        assert stream.response.getheader("Content-Length") is None
        told = iter(stream)
        assert next(told)[:2] == ("bookmark", 0)
        assert put(service.port, "k", {"a": 1}) == 1
        event = next(each for each in told if each.name == "commit")
        assert (event.id, event.data["changes"][0]["key"]) == (1, "k")
        assert next(told)[:2] == ("bookmark", 1)
    status, answer = send(service.port, "GET", f"{CHANGES}?after=0")
    assert (status, answer["revision"]) == (200, 1)
    assert answer["commits"] == [event.data]


def test_a_connection_can_be_reused_after_a_long_poll(serve: Callable[..., RunningGateway]) -> None:
    service = serve(workers=1)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=WAIT_S)
    for _ in range(3):
        connection.request("GET", f"{CHANGES}?timeout=0")
        told = json.loads(connection.getresponse().read())
        assert told == {"commits": [], "revision": 0, "commit_id": None}
    connection.close()


def test_300_watchers_of_one_worker_all_get_a_commit(serve: Callable[..., RunningGateway]) -> None:
    service = serve(workers=1)
    put(service.port, "k", 0)
    with ExitStack() as open_streams:
        streams = [
            open_streams.enter_context(EventStream(service.port, f"{CHANGES}?after=1"))
            for _ in range(320)
        ]
        told = [iter(stream) for stream in streams]
        assert [next(each).name for each in told] == ["bookmark"] * len(streams)
        assert put(service.port, "k", {"n": 1}) == 2
        assert [next(e.id for e in each if e.name == "commit") for each in told] == [2] * 320
        status, _ = send(service.port, "GET", f"{CATALOG}/documents/k")
        assert status == 200


def test_a_stop_ends_streams_and_polls_at_once(serve: Callable[..., RunningGateway]) -> None:
    service = serve(workers=1, graceful_timeout_s=3600)
    put(service.port, "k", 1)
    poll = http.client.HTTPConnection("127.0.0.1", service.port, timeout=WAIT_S)
    with EventStream(service.port, CHANGES) as stream:
        told = iter(stream)
        assert next(told).id == 1
        poll.request("GET", f"{CHANGES}?after=1&timeout=60")
        # Its being there is seen by the worker's answering something that was asked later.
        assert send(service.port, "GET", f"{CATALOG}/documents/k")[0] == 200
        os.kill(service.master_pid, signal.SIGTERM)
        (end,) = [event for event in told if event.name == "end"]
        assert end.data["code"] == "shutting_down"
        page = json.loads(poll.getresponse().read())
        assert (page["commits"], page["revision"]) == ([], 1)
        poll.close()
    assert service.stop() == 0


def lazy_reader(port: int, path: str) -> socket.socket:
    """A client that asks for a stream and takes next to nothing of it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.settimeout(WAIT_S)
    request = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Accept: text/event-stream\r\n\r\n"
    )
    connection.sendall(request.encode())
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def test_a_client_that_reads_nothing_is_cut_off_and_others_continue(
    serve: Callable[..., RunningGateway], eventually: Eventually
) -> None:
    service = serve(workers=1, send_stall_s=1, watchers_max=2)
    with lazy_reader(service.port, CHANGES), EventStream(service.port, CHANGES) as quick:
        told = iter(quick)
        text = "x" * 500_000
        last = 0
        for number in range(24):  # more than the buffers between the two hold
            last = put(service.port, "k", {"n": number, "text": text})
            assert next(event.id for event in told if event.name == "commit") == last
        eventually(lambda: "takes nothing" in service.log())
        # Its place is free again.
        with EventStream(service.port, f"{CHANGES}?after={last}") as another:
            assert another.response.status == 200
        assert put(service.port, "k", 1) == last + 1
        assert next(event.id for event in told if event.name == "commit") == last + 1
    assert "Traceback" not in service.log()


def test_a_lagging_client_gets_an_end_event(serve: Callable[..., RunningGateway]) -> None:
    service = serve(workers=1, watch_lag_max=20)
    with lazy_reader(service.port, CHANGES) as slow, EventStream(service.port, CHANGES) as quick:
        told = iter(quick)
        for number in range(60):
            last = put(service.port, "k", {"n": number, "text": "x" * 200_000})
            assert next(event.id for event in told if event.name == "commit") == last
        taken = b"".join(iter(lambda: slow.recv(1 << 20), b""))
    assert b"event: end\n" in taken
    assert b'"code":"watcher_too_slow"' in taken


def test_disconnected_clients_free_their_seats(
    serve: Callable[..., RunningGateway], eventually: Eventually
) -> None:
    service = serve(workers=1, watchers_max=3, watch_bookmark_s=1)

    def answers() -> int:
        with EventStream(service.port, CHANGES) as stream:
            return stream.response.status

    with ExitStack() as open_streams:
        for _ in range(3):
            open_streams.enter_context(EventStream(service.port, CHANGES))
        assert answers() == 429
    eventually(lambda: answers() == 200)


class TestBodies:
    """A body that is begun and not gone on with holds nothing for long."""

    HEAD = (
        b"PUT /v1/catalogs/live/documents/k HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\n"
    )

    @pytest.mark.parametrize(
        "begun", [b"Content-Length: 10\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}"]
    )
    def test_a_stalled_body_is_refused_and_its_connection_closed(
        self, shared: Callable[..., RunningGateway], begun: bytes
    ) -> None:
        service = shared(body_timeout_s=1)
        with socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S) as connection:
            connection.sendall(self.HEAD + begun)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 "), head
        problem = json.loads(body)
        assert (problem["code"], problem["applied"]) == ("request_timeout", "no")
        assert problem["retryable"] is True

    def test_a_slow_body_is_accepted(
        self, shared: Callable[..., RunningGateway], eventually: Eventually
    ) -> None:
        """Longer than a body may stall, and never as long without a byte; where this machine was
        that slow, it gets another chance."""
        service = shared(body_timeout_s=1)
        body = b"1234567"

        def is_taken() -> bool:
            with socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S) as slow:
                slow.sendall(
                    self.HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
                )
                with suppress(OSError):  # it was refused
                    for byte in body:
                        time.sleep(0.2)
                        slow.sendall(bytes([byte]))
                    return slow.recv(10) == b"HTTP/1.1 2"
            return False

        eventually(is_taken)

    @pytest.mark.parametrize("chunked", [False, True])
    def test_a_body_that_never_stalls_and_never_ends_is_refused(
        self, shared: Callable[..., RunningGateway], chunked: bool
    ) -> None:
        """However often a byte comes: less than a kilobyte, and more than is read at a time."""
        service = shared(body_timeout_s=60, body_whole_timeout_s=1)
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 2000000"
        with socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S) as connection:
            connection.sendall(self.HEAD + framing + b"\r\n\r\n")
            answered = False
            while not answered:
                with suppress(OSError):  # it is closed
                    connection.sendall(b"1\r\n1\r\n" if chunked else b"1")
                answered = bool(select.select([connection], [], [], 0.05)[0])
            answer = b""
            with suppress(OSError):  # it is closed while more is sent
                while received := connection.recv(65536):
                    answer += received
        assert answer.startswith(b"HTTP/1.1 408 "), answer
        assert b"body_whole_timeout_s" in answer

    def test_bodies_being_received_are_bounded_together(
        self, serve: Callable[..., RunningGateway], eventually: Eventually
    ) -> None:
        service = serve(workers=1, bodies_bytes_max=1 << 20)
        whole = json.dumps("x" * 700_000).encode()
        begun = self.HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(whole)
        with socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S) as slow:
            slow.sendall(begun + whole[:600_000])

            def refused() -> bool:
                """Once the worker has taken in what the slow one sent."""
                with socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S) as other:
                    with suppress(OSError):  # it may be refused before it has sent everything
                        other.sendall(begun + whole)
                    return other.recv(12) == b"HTTP/1.1 429"

            eventually(refused)
            assert send(service.port, "GET", "/livez")[0] == 200
            slow.sendall(whole[600_000:])
            # 200 if one of the others was taken before: that one has made the document then.
            assert slow.recv(12) in (b"HTTP/1.1 201", b"HTTP/1.1 200")
        assert not refused()
