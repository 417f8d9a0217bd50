"""Clients that hold connections instead of using them: each is bounded, and others are served.

Every attack here is one over real sockets, on a gateway with one worker, and none needs a token.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from gateway.server.greenlets import _Visit
from tests.access.certificates import Authority
from tests.http.served import Server
from tests.service import RunningGateway

Eventually = Callable[..., Any]
LARGE = b"GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n"
SMALL = b"GET /v1/catalogs HTTP/1.1\r\nHost: localhost\r\n\r\n"
# Only a hang lasts as long.
PATIENCE_S = 240
NEVER_S = 3600


@contextmanager
def connected(port: int, number: int = 1, receive_bytes: int = 4096) -> Iterator[list[Any]]:
    """So many connections, which take in at most about ``receive_bytes`` without being read."""
    with ExitStack() as stack:
        opened = []
        for _ in range(number):
            each = stack.enter_context(socket.socket())
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            each.settimeout(PATIENCE_S)
            each.connect(("127.0.0.1", port))
            opened.append(each)
        yield opened


def read_on(connection: socket.socket) -> bytes:
    """What still comes on a connection, until the server ends it."""
    received = []
    with suppress(ConnectionError):
        while data := connection.recv(1 << 16):
            received.append(data)
    return b"".join(received)


def push(connection: socket.socket, data: bytes) -> bool:
    """Send all of it, and return whether that was possible."""
    try:
        connection.sendall(data)
    except ConnectionError:
        return False
    return True


def held(gateway: RunningGateway) -> int:
    """The connections that the worker has open."""
    (worker,) = gateway.worker_pids()
    found = psutil.Process(worker).net_connections("tcp")
    return sum(
        each.laddr.port == gateway.port and each.status == psutil.CONN_ESTABLISHED for each in found
    )


def pipelined(connection: socket.socket, request: bytes) -> None:
    """Send a great many requests, as far as the server takes them at once."""
    connection.setblocking(False)
    with suppress(BlockingIOError):
        for _ in range(100):
            connection.sendall(request * 100)
    connection.settimeout(PATIENCE_S)


def test_a_client_that_stops_reading_an_answer_is_cut_off(
    mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    with (
        RunningGateway(mongodb_uri, database_name, workers=1, send_stall_s=1) as gateway,
        connected(gateway.port, 8) as attackers,
    ):
        for each in attackers:
            pipelined(each, LARGE)
        # The worker may not have accepted any of them yet.
        eventually(lambda: "takes nothing" in gateway.log(), PATIENCE_S)
        eventually(lambda: held(gateway) == 0, PATIENCE_S)
        assert Server(gateway.port).send("GET", "/v1/catalogs").status == 200
        assert "Traceback" not in gateway.log()


def test_unread_answers_are_bounded_together(
    mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    """Whoever has taken nothing for longest goes."""
    document, room = 4_000_000, 4
    with RunningGateway(
        mongodb_uri,
        database_name,
        workers=1,
        send_stall_s=NEVER_S,
        unsent_bytes_max=(room + 1) * document,
    ) as gateway:
        server = Server(gateway.port)
        path = "/v1/catalogs/c/documents/k"
        value = json.dumps("x" * document).encode()
        headers = [("Content-Type", "application/json")]
        assert server.send("PUT", path, value, headers).status == 201
        with connected(gateway.port, 20) as attackers:
            for each in attackers:
                # More than kernels take of it.
                each.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 8)
            eventually(lambda: held(gateway) == room, PATIENCE_S)
            # Who takes what was asked for is not concerned.
            for _ in range(3):
                assert server.send("GET", path).body == value + b"\n"


def test_with_all_connections_in_use_a_client_that_reads_nothing_is_cut_off(
    mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    with (
        RunningGateway(
            mongodb_uri, database_name, workers=1, connections_max=4, send_stall_s=NEVER_S
        ) as gateway,
        connected(gateway.port, 4) as attackers,
    ):
        for each in attackers:
            pipelined(each, LARGE)
        server = Server(gateway.port)

        def answered() -> bool:
            answer = server.send("GET", "/v1/catalogs")
            assert answer.status in (200, 429)
            return answer.status == 200

        for _ in range(4):
            eventually(answered, PATIENCE_S)
        assert gateway.log().count("others need its place") in range(1, 5)


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_NOFILE"), reason="psutil can't limit others here")
def test_without_free_file_descriptors_idle_connections_are_closed(
    mongodb_uri: str, database_name: str
) -> None:
    with (
        RunningGateway(mongodb_uri, database_name, workers=1) as gateway,
        connected(gateway.port, 4),
    ):
        server = Server(gateway.port)
        assert server.send("GET", "/v1/catalogs").status == 200
        (worker,) = gateway.worker_pids()
        process = psutil.Process(worker)
        process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds(), process.num_fds()))
        with connected(gateway.port, 20):
            for path in ("/livez", "/readyz", "/v1/catalogs"):
                assert server.send("GET", path).status == 200
        assert "Too many open files" in gateway.log()
        assert "Traceback" not in gateway.log()


@contextmanager
def pipelining(port: int, request: bytes, answer: bytes) -> Iterator[Callable[[], int]]:
    """One connection that sends requests without end; how many answers came so far."""
    count = 0
    with connected(port, receive_bytes=1 << 20) as (attacker,):

        def send() -> None:
            with suppress(OSError):
                while True:
                    attacker.sendall(request * 200)

        def read() -> None:
            nonlocal count
            rest = b""
            with suppress(OSError):
                while data := attacker.recv(1 << 18):
                    rest += data
                    count += rest.count(answer)
                    rest = rest[rest.rfind(answer) + len(answer) :] if answer in rest else rest

        threads = [threading.Thread(target=each, daemon=True) for each in (send, read)]
        for each in threads:
            each.start()
        try:
            yield lambda: count
        finally:
            attacker.shutdown(socket.SHUT_RDWR)
            for each in threads:
                each.join()


@pytest.mark.parametrize("path", ["/v1/catalogs", "/livez"])
def test_a_connection_that_pipelines_takes_turns_with_others(
    mongodb_uri: str, database_name: str, path: str, eventually: Eventually
) -> None:
    """The requests are in the server's buffers already: no look at a socket is between them."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with (
        RunningGateway(mongodb_uri, database_name, workers=1, access=True) as gateway,
        pipelining(gateway.port, request, b"HTTP/1.1 ") as count,
    ):
        other = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE_S)
        eventually(lambda: count() > 2000, PATIENCE_S)
        meanwhile = []
        for asked in ["/livez", "/v1/catalogs"] * 10:
            before = count()
            other.request("GET", asked)
            assert other.getresponse().read()
            meanwhile.append(count() - before)
        other.close()
        assert statistics.median(meanwhile) < 500, meanwhile


HEAD = (
    b"PUT /v1/catalogs/c/documents/k HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\n"
)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def gateway(mongodb_uri: str) -> Iterator[RunningGateway]:
    """Open to everybody; heads have little time."""
    with RunningGateway(
        mongodb_uri,
        "test_connections_open",
        workers=1,
        head_timeout_s=1,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def closed_gateway(mongodb_uri: str) -> Iterator[RunningGateway]:
    """One that everybody needs a token for."""
    with RunningGateway(mongodb_uri, "test_connections", workers=1, access=True) as running:
        yield running


def answered(connection: socket.socket) -> tuple[int, bytes, dict[str, Any]]:
    """Status, head and problem of the only answer of a connection that the server ends."""
    head, _, body = read_on(connection).partition(b"\r\n\r\n")
    return int(head.split()[1]), head, json.loads(body)


def test_a_body_in_chunks_of_one_byte_is_refused_and_the_connection_closed(
    gateway: RunningGateway,
) -> None:
    with connected(gateway.port) as (attacker,):
        push(attacker, CHUNKED + b'3\r\n" "\r\n' + b"1\r\n \r\n" * (1 << 20) + b"0\r\n\r\n")
        status, head, problem = answered(attacker)
    assert (status, problem["code"]) == (400, "malformed_request")
    assert "framing" in problem["detail"]
    assert b"Connection: close" in head
    assert b"X-Content-Type-Options: nosniff" in head
    assert Server(gateway.port).send("GET", "/v1/catalogs").status == 200


def test_a_client_that_resets_its_connection_amid_a_body_meets_no_defect(
    mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    head = b"PUT /v1/catalogs/c/documents/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
    head += b"Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n"
    with (
        RunningGateway(mongodb_uri, database_name, workers=1, access_log=True) as gateway,
        connected(gateway.port) as (client,),
    ):
        client.sendall(head)
        assert b"100 Continue" in client.recv(1 << 16)  # it reads the body
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        eventually(lambda: '"route":' in gateway.log(), PATIENCE_S)
        assert '"status":400' in gateway.log()
        assert '"level":"error"' not in gateway.log()


def test_a_body_in_small_chunks_is_taken(gateway: RunningGateway) -> None:
    """Chunks of eight bytes, with and without extensions, however they are cut into packets."""
    number = 20_000
    sent = CHUNKED.replace(b"/k ", b"/small ") + b'1\r\n"\r\n'
    sent += b"8\r\n12345678\r\n00008;a=b\r\nabcdefgh\r\n" * number
    sent += b'1\r\n"\r\n0\r\nChecked: x\r\n\r\n'
    value = '"' + "12345678abcdefgh" * number + '"'
    with connected(gateway.port) as (client,):
        for start in range(0, len(sent), 7001):
            client.sendall(sent[start : start + 7001])
        assert client.recv(12) in (b"HTTP/1.1 201", b"HTTP/1.1 200")
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b'"alive"' in read_on(client)
    found = Server(gateway.port).send("GET", "/v1/catalogs/c/documents/small")
    assert found.body.decode() == value + "\n"


@pytest.mark.parametrize(
    "framing", [b"Transfer-Encoding: chunked\r\n\r\n", b"Content-Length: 100000000000\r\n\r\n"]
)
def test_the_body_of_a_refused_request_is_not_read_to_its_end(
    closed_gateway: RunningGateway, framing: bytes
) -> None:
    """The gateway reads just enough for the client to get its answer."""
    chunks = b"1\r\nx\r\n" * 10_000
    with connected(closed_gateway.port, receive_bytes=1 << 16) as (attacker,):
        attacker.sendall(HEAD + framing)
        sent = 0
        while push(attacker, chunks):
            sent += len(chunks)
            assert sent < 200_000_000
        # What of the answer was in flight when the connection was reset may be lost.
        received = read_on(attacker)
    assert received == b"" or received.startswith(b"HTTP/1.1 401 ")
    assert Server(closed_gateway.port).send("GET", "/livez").status == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_refused_large_body_gets_its_answer_and_the_connection_is_closed(
    closed_gateway: RunningGateway, chunked: bool
) -> None:
    body = b"x" * 4_000_000
    framing = b"Content-Length: %d\r\n\r\n" % len(body)
    if chunked:
        framing = b"Transfer-Encoding: chunked\r\n\r\n"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with connected(closed_gateway.port) as (client,):
        assert push(client, HEAD + framing + body)
        status, head, problem = answered(client)
    assert (status, problem["code"]) == (401, "unauthenticated")
    assert b"\r\nConnection: close\r\n" in head
    assert b"X-Content-Type-Options: nosniff" in head


def test_a_client_that_keeps_sending_after_its_answer_is_reset() -> None:
    """Otherwise, its kernel might send again only two minutes later, and only then notice the
    end."""
    worker: Any = SimpleNamespace(alive=True, idle={}, is_surplus=lambda _: False)
    worker.turnstile = SimpleNamespace(go_through=lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        client.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                client.send(b"x" * 65_536)
        client.settimeout(PATIENCE_S)
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"the answer")
            accepted.shutdown(socket.SHUT_RD)  # a reader of the body has been told to stop
            _Visit(worker, accepted).discard()
            at_close = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
        assert struct.unpack("ii", at_close) == (1, 0)
        assert client.recv(100) == b"the answer"
        with pytest.raises(ConnectionError):
            client.sendall(b"x" * 10_000_000)


def test_a_client_that_has_closed_its_side_is_not_reset() -> None:
    worker: Any = SimpleNamespace(alive=True, idle={}, is_surplus=lambda _: False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
        with accepted:
            _Visit(worker, accepted).discard()
            at_close = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
        assert struct.unpack("ii", at_close)[0] == 0


def test_a_refused_small_body_keeps_the_connection(
    closed_gateway: RunningGateway,
) -> None:
    with connected(closed_gateway.port) as (client,):
        client.sendall((HEAD + b"Content-Length: 60000\r\n\r\n" + b"x" * 60_000) * 3)
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = read_on(client)
    assert received.count(b"HTTP/1.1 401 ") == 3
    assert received.count(b"Connection: keep-alive") == 3
    assert b'"alive"' in received


def test_a_request_head_has_a_size_limit(gateway: RunningGateway) -> None:
    field = b"X-%d: " + b"x" * 8000 + b"\r\n"
    with connected(gateway.port) as (attacker,):
        push(attacker, b"GET /livez HTTP/1.1\r\n" + b"".join(field % n for n in range(10)))
        status, _, problem = answered(attacker)
    assert (status, problem["code"]) == (431, "headers_too_large")


@pytest.mark.parametrize("begun", [b"G", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_request_head_has_a_time_limit_however_steadily_it_is_sent(
    gateway: RunningGateway, begun: bytes
) -> None:
    with connected(gateway.port) as (attacker,):
        attacker.sendall(begun)
        # Each byte in less than the limit.
        while push(attacker, b"x"):
            time.sleep(0.05)
        assert Server(gateway.port).send("GET", "/v1/catalogs").status == 200


def test_a_tls_handshake_has_a_time_limit_and_counts_as_a_connection(
    mongodb_uri: str, database_name: str, tmp_path: Path, eventually: Eventually
) -> None:
    """More silent ones than there are connections at all; and then some that take nothing."""
    authority = Authority(tmp_path, "authority")
    signed = authority.sign("server")
    context = ssl.create_default_context(cafile=authority.certificate)

    def asked(path: str) -> bytes:
        with connected(gateway.port) as (plain,):
            try:
                client = context.wrap_socket(plain, server_hostname="127.0.0.1")
                client.sendall(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
                return client.recv(12)
            except OSError:  # its place went to somebody else before it had spoken
                return b""

    with RunningGateway(
        mongodb_uri,
        database_name,
        workers=1,
        connections_max=8,
        head_timeout_s=2,
        send_stall_s=1,
        tls_certificate=signed.certificate,
        tls_key=signed.key,
    ) as gateway:
        with connected(gateway.port, 90) as silent:
            while asked("/livez") != b"HTTP/1.1 200":
                pass
            while asked("/v1/catalogs") != b"HTTP/1.1 200":
                pass
            for each in silent:
                read_on(each)  # to its end
        with connected(gateway.port, 3) as plain, ExitStack() as stack:
            for each in plain:
                attacker = context.wrap_socket(
                    each, server_hostname="127.0.0.1", do_handshake_on_connect=True
                )
                stack.enter_context(attacker)
                attacker.sendall(LARGE * 100)
            eventually(lambda: held(gateway) == 0, PATIENCE_S)
            assert asked("/v1/catalogs") == b"HTTP/1.1 200"
        assert "Traceback" not in gateway.log()
