"""What a connection may leave undone: how slowly answers may be taken, and how requests come in."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http.errors import NoMoreData, ParseException

from gateway.limits import ConnectionLimits
from gateway.server.broken_requests import RefusingWorker
from gateway.server.connection_limits import (
    PIECE_BYTES,
    BoundedSending,
    UntakenAnswers,
    shut_down,
)
from gateway.server.parsing import ChunkFraming, Parser

STALL_S = 30.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Client(BoundedSending):
    """One that takes ``piece_bytes`` every ``pause_s``."""

    def __init__(self, clock: Clock, piece_bytes: int, pause_s: float) -> None:
        self._pair = socket.socketpair()
        self._clock = clock
        self._piece_bytes = piece_bytes
        self._pause_s = pause_s
        self._just_took = False
        self.taken = 0
        self.was_cut = False

    def send_now(self, data: bytes | memoryview) -> int:
        self._just_took = not self._just_took
        if not self._just_took:
            return 0
        self._clock.now += self._pause_s
        size = min(len(data), self._piece_bytes)
        self.taken += size
        return size

    def fileno(self) -> int:
        return self._pair[0].fileno()

    def setsockopt(self, *option: Any) -> None:  # noqa: ARG002
        self.was_cut = True

    def close(self) -> None:
        for each in self._pair:
            each.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize("pause_s", [0.001, STALL_S / 2, STALL_S * 0.99])
def test_a_client_may_be_slow_while_it_takes_pieces(clock: Clock, pause_s: float) -> None:
    unsent = UntakenAnswers(ConnectionLimits(send_stall_s=STALL_S), clock)
    client = Client(clock, PIECE_BYTES, pause_s)
    unsent.send(client, bytes(PIECE_BYTES * 100), 0)
    assert client.taken == PIECE_BYTES * 100
    client.close()


@pytest.mark.parametrize(
    ("piece_bytes", "pause_s"), [(1, 1.0), (1000, 1.0), (PIECE_BYTES - 1, STALL_S), (1, STALL_S)]
)
def test_a_client_that_takes_less_is_cut_off(
    clock: Clock, piece_bytes: int, pause_s: float
) -> None:
    unsent = UntakenAnswers(ConnectionLimits(send_stall_s=STALL_S), clock)
    client = Client(clock, piece_bytes, pause_s)
    begun = clock.now
    with pytest.raises(TimeoutError):
        unsent.send(client, bytes(PIECE_BYTES * 100), 0)
    assert clock.now - begun <= 2 * STALL_S
    assert client.was_cut
    client.close()


class Accepted(BoundedSending, socket.socket):
    """The server's side of a connection."""

    def send_now(self, data: bytes | memoryview) -> int:
        return socket.socket.send(self, data)


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="only Linux tells")
@pytest.mark.parametrize("how", ["closed", "shut down", "reset"])
def test_a_disconnected_client_is_noticed_without_reading(
    how: str, eventually: Callable[..., Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        handle, _ = listener._accept()  # type: ignore[attr-defined]
        with client, Accepted(fileno=handle) as server:
            client.sendall(b"a request that nobody has read yet")
            assert not server.has_left()
            if how == "shut down":
                client.shutdown(socket.SHUT_WR)
            else:
                if how == "reset":
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            eventually(server.has_left)


def test_above_the_bound_the_client_idle_longest_is_cut_off(clock: Clock) -> None:
    """And one alone may be larger than the bound."""
    unsent = UntakenAnswers(ConnectionLimits(STALL_S, STALL_S, 3 * PIECE_BYTES), clock)
    order: list[Client] = []

    class Another(Client):
        """While it takes its first piece, the next one begins."""

        def send_now(self, data: bytes | memoryview) -> int:
            if self not in order:
                order.append(self)
                if len(order) < 4:
                    unsent.send(Another(clock, PIECE_BYTES, 0.1), bytes(size_bytes), 0)
            return super().send_now(data)

    size_bytes = PIECE_BYTES
    unsent.send(Another(clock, PIECE_BYTES, 0.1), bytes(size_bytes), 0)
    assert [each.was_cut for each in order] == [True, False, False, False]
    order.clear()
    size_bytes = 4 * PIECE_BYTES
    unsent.send(Client(clock, PIECE_BYTES, 0.1), bytes(size_bytes), 0)
    unsent.send(Another(clock, PIECE_BYTES, 0.1), bytes(size_bytes), 0)
    assert [each.was_cut for each in order] == [True, True, True, False]


class Door:
    """Notes what passes."""

    def __init__(self) -> None:
        self.let_in_starts: list[bytes] = []
        self.turns = 0

    def let_in(self, start: bytes) -> None:
        self.let_in_starts.append(start)

    def head_goes_on(self) -> None:
        pass

    def let_go_on(self) -> None:
        self.turns += 1


class Wire:
    """What a client sends, in pieces of at most ``size`` bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self._pieces = iter(data[at : at + size] for at in range(0, len(data), size))

    def recv(self, size: int) -> bytes:  # noqa: ARG002
        return next(self._pieces, b"")


def requests(data: bytes, door: Door, size: int = 8192) -> Iterator[Any]:
    return Parser(Config(), Wire(data, size), ("127.0.0.1", 1), door)


def test_a_worker_can_be_stopped_before_it_has_its_application() -> None:
    worker = RefusingWorker.__new__(RefusingWorker)
    worker.begin_stop()
    assert worker.held_bytes() == 0


def test_every_pipelined_request_is_counted() -> None:
    door = Door()
    request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    for number, _ in enumerate(requests(request * 500, door), 1):
        assert len(door.let_in_starts) == number
    assert door.let_in_starts == [request[:16]] * 500


CHUNKED = b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def body_of(data: bytes, door: Door, size: int = 8192) -> bytes:
    return bytes(next(requests(CHUNKED + data, door, size)).body.read())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 8192])
def test_chunks_are_joined_wherever_packets_end(size: int) -> None:
    chunks = [b"a", b"bc" * 20, b"\r\n", b"0\r\n\r\n", b"d" * 9000, b"e" * 15]
    data = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks * 3)
    data += b"00003 ;x=y\r\nfgh\r\n0\r\nChecked: 1\r\n\r\n"
    assert body_of(data, Door(), size) == b"".join(chunks * 3) + b"fgh"


@pytest.mark.parametrize(
    "broken",
    [b"2\r\nabc\r\n", b"-1\r\na\r\n", b"1_0\r\na\r\n", b"\r\n", b"0x1\r\na\r\n", b" 1\r\na\r\n"],
)
def test_an_invalid_chunk_is_refused(broken: bytes) -> None:
    with pytest.raises(ParseException):
        body_of(b"1\r\na\r\n" + broken + b"0\r\n\r\n", Door())
    with pytest.raises((ParseException, NoMoreData)):
        body_of(b"1\r\na\r\n5\r\nab", Door())


@pytest.mark.parametrize("chunk", [b"1\r\nx\r\n", b"00000001\r\nx\r\n", b"6;x=yz\r\n123456\r\n"])
def test_chunks_that_are_mostly_framing_are_refused_early(chunk: bytes) -> None:
    with pytest.raises(ChunkFraming):
        body_of(chunk * 65_536 + b"0\r\n\r\n", Door())


def test_reading_many_chunks_yields_to_others() -> None:
    door = Door()
    assert len(body_of(b"8\r\n12345678\r\n" * 25_600 + b"0\r\n\r\n", door)) == 8 * 25_600
    assert door.turns >= 40


def test_a_connection_is_shut_down_without_another_open_file() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
            try:
                shut_down(ours, socket.SHUT_RDWR)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            assert theirs.recv(1) == b""
            assert ours.recv(1) == b""
        shut_down(ours, socket.SHUT_RDWR)
