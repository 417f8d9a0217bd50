"""Bulk over the wire, through real workers to a real MongoDB, with clients of all habits."""

from __future__ import annotations

import json
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from itertools import islice
from typing import Any

import psutil
import pytest

from tests.patience import WAIT_S
from tests.service import RunningGateway, own_database

# What a client meets whose request was ended before it had sent all of it.
GONE = (OSError, HTTPException)
_HEAD = "POST /v1/bulk{query} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"


class Client:
    """A connection that shows when bytes go out and come in."""

    def __init__(self, port: int, *, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(("127.0.0.1", port))
        self.response = HTTPResponse(self.socket, method="POST")
        self._begun = False

    def begin(self, query: str = "", length: int | None = None) -> None:
        framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        self.socket.sendall(f"{_HEAD.format(query=query)}{framing}\r\n\r\n".encode())

    def chunk(self, data: bytes) -> None:
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.socket.sendall(b"0\r\n\r\n")

    def answer(self) -> dict[str, Any]:
        """The next line of the response."""
        if not self._begun:
            self.response.begin()
            assert self.response.status == 200, self.response.read()
            self._begun = True
        return dict(json.loads(self.response.readline()))

    def answers(self) -> Iterator[dict[str, Any]]:
        """Those that are left."""
        if not self._begun:
            yield self.answer()
        for line in self.response:
            yield json.loads(line)


@contextmanager
def connected(gateway: RunningGateway, **options: Any) -> Iterator[Client]:
    client = Client(gateway.port, **options)
    try:
        yield client
    finally:
        client.response.close()
        client.socket.close()


_CATALOGS = ""


@pytest.fixture(autouse=True)
def catalogs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `put` are the test's own."""
    monkeypatch.setattr(sys.modules[__name__], "_CATALOGS", f"{uuid.uuid4().hex}-")


def put(number: int, value: Any = None, **members: Any) -> bytes:
    line = {
        "catalog": f"{_CATALOGS}{number % 20}",
        "key": f"k{number % 1000}",
        "op": "put",
        **members,
    }
    return json.dumps({**line, "value": number if value is None else value}).encode() + b"\n"


Serve = Callable[..., RunningGateway]


@pytest.fixture(scope="module")
def serve(mongodb_uri: str) -> Iterator[Serve]:
    """`serve(**settings)` is a gateway of one worker, which those with the same settings share."""
    running: dict[str, RunningGateway] = {}

    def start(**settings: Any) -> RunningGateway:
        shared = running.get(repr(settings))
        if shared is None or not shared.is_running():
            shared = RunningGateway(mongodb_uri, database, workers=1, **settings)
            running[repr(settings)] = shared.start()
        return shared

    with own_database(mongodb_uri) as database:
        yield start
        for each in running.values():
            each.stop()


def test_a_client_that_sends_everything_before_it_reads_is_answered(serve: Serve) -> None:
    """8 MB of answers, more than all buffers on the way hold."""
    gateway = serve()
    lines = 20_000
    with connected(gateway, receive_bytes=4096) as client:
        client.begin()
        for start in range(0, lines, 100):
            numbers = range(start, start + 100)
            terms = [{} if n % 8 == 0 else {"if_match": "0-x"} for n in numbers]
            client.chunk(b"".join(put(n, **each) for n, each in zip(numbers, terms, strict=True)))
        client.end()
        answers = list(client.answers())
    assert [answer["index"] for answer in answers] == list(range(lines))
    assert {answer["status"] for answer in answers[::8]} == {200, 201}
    assert {answer["status"] for n, answer in enumerate(answers) if n % 8} == {412}


def test_a_client_that_sends_slowly_may_read_nothing_for_a_long_time(
    serve: Serve, eventually: Callable[..., Any]
) -> None:
    """Longer than its body may stall: that isn't said of the answers. Where this machine lets the
    body stall for as long, it gets another chance."""
    gateway = serve(body_timeout_s=1, bulk_refused_lines_max=10_000)
    long_answer = json.dumps({"op": "delete", "x" * 1000: 1}).encode() + b"\n"

    def is_answered() -> bool:
        with suppress(*GONE), connected(gateway, receive_bytes=4096) as client:
            client.begin()
            for _ in range(80):
                client.chunk(long_answer * 100)
                time.sleep(0.02)  # so that the gateway waits for lines, not for its own work
            for _ in range(5):
                client.chunk(b"\n")
                time.sleep(0.2)
            client.end()
            return [answer["status"] for answer in client.answers()] == [400] * 8000
        return False

    eventually(is_answered)


def test_a_line_is_answered_before_the_next_one_is_sent(serve: Serve) -> None:
    with connected(serve()) as client:
        client.begin()
        for number in range(50):
            client.chunk(put(number))
            assert client.answer()["index"] == number
        client.end()
        assert client.response.read() == b""


def test_a_line_is_answered_before_the_rest_of_a_known_length(serve: Serve) -> None:
    with connected(serve()) as client:
        lines = [put(number) for number in range(10)]
        client.begin(length=sum(map(len, lines)))
        for number, line in enumerate(lines):
            client.socket.sendall(line)
            assert client.answer()["index"] == number
        assert client.response.read() == b""


def test_the_connection_can_be_reused_after_a_bulk_request(serve: Serve) -> None:
    with connected(serve()) as client:
        line = put(1)
        client.begin(length=len(line))
        # Pipelined: it comes in one piece with the body.
        client.socket.sendall(line + b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b'"alive"' not in received:
            piece = client.socket.recv(4096)
            assert piece, received
            received += piece
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.count(b'"index":0,"status":201') == 1


@pytest.mark.parametrize("broken", ["chunk", "length", "garbage"])
def test_the_complete_lines_of_a_truncated_body_are_committed(serve: Serve, broken: str) -> None:
    gateway = serve()
    whole = b"".join(put(number) for number in range(40))
    with connected(gateway) as client:
        client.begin(length=10_000 if broken == "length" else None)
        sent = whole + put(41)[:-5]
        if broken == "length":
            client.socket.sendall(sent)
        elif broken == "chunk":
            client.socket.sendall(b"%x\r\n%b" % (len(sent) + 100, sent))
        else:
            client.chunk(sent)
            client.socket.sendall(b"not a size\r\n")
        client.socket.shutdown(socket.SHUT_WR)
        *done, last = client.answers()
    assert [answer["status"] for answer in done] == [201] * 40
    assert (last["index"], last["status"]) == (40, 400)
    assert (last["problem"]["code"], last["problem"]["applied"]) == ("malformed_request", "no")


def test_a_stalled_body_ends_after_its_complete_lines(serve: Serve) -> None:
    with connected(serve(body_timeout_s=1)) as client:
        client.begin()
        client.chunk(put(1) + put(2)[:-5])
        first, last = client.answers()
    assert (first["status"], last["status"]) == (201, 408)
    assert last["problem"]["retryable"] is True


def test_a_client_that_disconnects_leaves_the_worker_unharmed(
    serve: Serve, eventually: Callable[..., Any]
) -> None:
    gateway = serve()
    (worker,) = gateway.worker_pids()

    def held() -> list[Any]:
        """The worker's connections to clients; those to MongoDB are a pool that may grow."""
        connections = psutil.Process(worker).net_connections("tcp")
        return [each for each in connections if each.laddr.port == gateway.port and each.raddr]

    with connected(gateway) as client:
        client.begin(length=len(put(0)))
        client.socket.sendall(put(0))
        client.answer()
        assert held()
    for _ in range(5):
        with connected(gateway, receive_bytes=4096) as client:
            client.begin()
            client.chunk(b"".join(put(number) for number in range(500)))
            client.answer()
    eventually(lambda: not held())
    assert gateway.worker_pids() == [worker]
    assert "Traceback" not in gateway.log()


def test_memory_does_not_grow_with_the_request(serve: Serve) -> None:
    """30 MB of lines; the client reads nothing until it has sent them all."""
    gateway = serve(cache_bytes_max=4 * 1024 * 1024)
    worker = psutil.Process(gateway.worker_pids()[0])
    value = {"text": "x" * 900}
    piece = b"".join(put(number, value) for number in range(100))
    pieces = 30_000_000 // len(piece)
    seen: list[int] = []
    with connected(gateway, receive_bytes=4096) as client:
        client.begin("?dry_run=true")
        for number in range(pieces):
            client.chunk(piece)
            if number % 10 == 0:
                seen.append(worker.memory_info().rss)
        client.end()
        count = 0
        for answer in client.answers():
            assert answer["index"] == count
            count += 1
        seen.append(worker.memory_info().rss)
    assert count == pieces * 100
    early = max(islice(seen, len(seen) // 5))
    assert max(seen) - early < 12_000_000, [rss // 1_000_000 for rss in seen]


def test_an_oversized_line_takes_no_memory(serve: Serve) -> None:
    gateway = serve(bulk_line_bytes_max=1_000_000)
    worker = psutil.Process(gateway.worker_pids()[0])
    with connected(gateway) as client:
        client.begin()
        client.chunk(put(1))
        client.answer()
        before = worker.memory_info().rss
        for _ in range(60):
            client.chunk(b"x" * 1_000_000)
        client.chunk(b"\n" + put(2))
        client.end()
        long, last = client.answers()
        after = worker.memory_info().rss
    assert (long["status"], long["problem"]["actual"]) == (413, 60_000_000)
    assert last["status"] == 201
    assert after - before < 12_000_000


def test_two_hundred_streams_on_one_catalog_queue_their_lines(serve: Serve) -> None:
    """Of which the queue holds a few lines. None is refused, and none waits for others to end."""
    gateway = serve(queue_requests_max=64)
    streams, lines = 200, 4
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(gateway)) for _ in range(streams)]
        for client in clients:
            client.begin()
        for part in range(2):
            for number, client in enumerate(clients):
                numbers = range(part * lines, (part + 1) * lines)
                client.chunk(b"".join(put(0, key=f"{number}-{n}") for n in numbers))
            # All of them are under way until the end.
            for client in clients:
                answers = [client.answer() for _ in range(lines)]
                assert [answer["status"] for answer in answers] == [201] * lines
        for client in clients:
            client.end()
            assert list(client.response) == []
