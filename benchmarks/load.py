"""A closed-loop HTTP/1.1 load generator: n keep-alive connections, one thread, one epoll.

It shares its two cores with what it measures, so it spends about 30 µs on a request:
request bytes come ready-made from the clients, answers are cut out of the socket's bytes
with two searches, and nothing is parsed that no client asks for. It speaks only what the
measured servers speak: answers with Content-Length, no chunks, no redirects.
"""

from __future__ import annotations

import heapq
import itertools
import re
import select
import socket
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from benchmarks.measurement import Measurement, measured

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ATTEMPTS = re.compile(rb"\r\nattempts: *(\d+)", re.IGNORECASE)
_BODYLESS = frozenset({204, 304})
_RECEIVE_BYTES = 1 << 18
_DRAIN_S = 30.0
_SEND_ALL_S = 300.0


class UnexpectedAnswer(Exception):
    """An answer that the client of that connection didn't allow for; the run is void."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status}: {(answer.head + answer.body)[:2000]!r}")
        self.answer = answer


class ConnectionLost(Exception):
    """The server closed a connection, or didn't answer in time, in the middle of a run."""


class Answer(NamedTuple):
    """`head` is the status line and the headers, without the empty line."""

    status: int
    head: bytes
    body: bytes


class Client(Protocol):
    """One closed-loop client. An operation is one or more requests, one after the other."""

    def request(self) -> bytes | None:
        """The next request, complete; None when this client has no more to send."""

    def answered(self, answer: Answer) -> float | None:
        """Take the answer. None: the operation is complete. A number: it goes on with
        another request after that many seconds (0.0: at once).

        Raises UnexpectedAnswer for an answer that has no place in the scenario.
        """


class _Connection:
    __slots__ = ("begun_s", "buffer", "client", "socket")

    def __init__(self, host: str, port: int, client: Client) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client = client
        self.buffer = b""
        self.begun_s = 0.0

    def receive(self) -> Answer | None:
        """The answer if it is complete now, else None."""
        received = self.socket.recv(_RECEIVE_BYTES)
        if not received:
            raise ConnectionLost("the server closed a connection before it had answered")
        buffer = self.buffer + received if self.buffer else received
        answer, self.buffer = cut(buffer)
        return answer


def cut(buffer: bytes) -> tuple[Answer | None, bytes]:
    """The answer that the bytes are, if it is complete, and what is kept until it is."""
    head_bytes = buffer.find(b"\r\n\r\n")
    if head_bytes < 0:
        return None, buffer
    head = buffer[:head_bytes]
    length = _CONTENT_LENGTH.search(head)
    status = int(head[9:12])
    if length is None and status not in _BODYLESS:
        raise ConnectionLost(f"an answer without Content-Length: {head!r}")
    end = head_bytes + 4 + (int(length[1]) if length and status != 304 else 0)
    if len(buffer) < end:
        return None, buffer
    return Answer(status, head, buffer[head_bytes + 4 : end]), b""


class _Run:
    """The state of one run."""

    def __init__(self, ports: Sequence[int], clients: Sequence[Client], host: str) -> None:
        self.connections: dict[int, _Connection] = {}
        for client, port in zip(clients, itertools.cycle(ports), strict=False):
            connection = _Connection(host, port, client)
            self.connections[connection.socket.fileno()] = connection
        self.paused: list[tuple[float, int]] = []  # heap of (wake time, connection)
        self.waiting = 0  # answers outstanding
        self.latencies_s: list[float] = []
        self.attempts = 0
        self.statuses: Counter[int] = Counter()

    def close(self) -> None:
        for connection in self.connections.values():
            connection.socket.close()

    def run(self, warmup_s: float, seconds: float) -> Measurement:
        with select.epoll() as poll:
            for number in self.connections:
                poll.register(number, select.EPOLLIN)
            start = time.perf_counter()
            for connection in self.connections.values():
                self._send(connection, start)
            self._loop(poll, start + warmup_s)
            self.latencies_s, self.attempts = [], 0
            window = time.perf_counter()
            self._loop(poll, window + seconds)
            lasted_s = time.perf_counter() - window
            counted_s, counted_attempts = self.latencies_s, self.attempts
            self.latencies_s = []
            self._drain(poll)
        return measured(counted_s, lasted_s, counted_attempts, self.statuses)

    def _loop(self, poll: select.epoll, until: float) -> None:
        """Serve until that time, or until no client has anything more to send."""
        while (now := time.perf_counter()) < until and (self.waiting or self.paused):
            self._wake(now)
            wake = self.paused[0][0] if self.paused else until
            for number, _ in poll.poll(max(0.0, min(until, wake) - now)):
                connection = self.connections[number]
                answer = connection.receive()
                if answer is None:
                    continue
                now = time.perf_counter()
                pause_s = self._take(connection, answer, now)
                if pause_s is None:
                    self._send(connection, now)
                elif pause_s <= 0:
                    self._send(connection, connection.begun_s)
                else:
                    heapq.heappush(self.paused, (now + pause_s, number))

    def _drain(self, poll: select.epoll) -> None:
        """Take the answers that are still under way, so that every client knows what it did."""
        until = time.perf_counter() + _DRAIN_S
        while self.waiting:
            if time.perf_counter() > until:
                raise ConnectionLost(f"{self.waiting} requests unanswered after {_DRAIN_S} s")
            for number, _ in poll.poll(1.0):
                connection = self.connections[number]
                answer = connection.receive()
                if answer is not None:
                    self._take(connection, answer, time.perf_counter())

    def _wake(self, now: float) -> None:
        while self.paused and self.paused[0][0] <= now:
            connection = self.connections[heapq.heappop(self.paused)[1]]
            self._send(connection, connection.begun_s)

    def _send(self, connection: _Connection, begun_s: float) -> None:
        request = connection.client.request()
        if request is None:
            return
        connection.begun_s = begun_s
        connection.socket.sendall(request)
        self.waiting += 1

    def _take(self, connection: _Connection, answer: Answer, now: float) -> float | None:
        self.waiting -= 1
        self.statuses[answer.status] += 1
        pause_s = connection.client.answered(answer)
        if pause_s is None:
            self.latencies_s.append(now - connection.begun_s)
            attempts = _ATTEMPTS.search(answer.head)
            self.attempts += int(attempts[1]) if attempts else 0
        return pause_s


def run(
    port: int | Sequence[int],
    clients: Sequence[Client],
    seconds: float,
    warmup_s: float = 0.0,
    host: str = "127.0.0.1",
) -> Measurement:
    """Drive one connection per client for `warmup_s` (not counted) and then `seconds`.

    Where there are several ports, the clients are dealt out to them in turn.
    Returns early when no client has anything more to send. Requests still under way at the
    end are answered before it returns, but not counted.
    Raises UnexpectedAnswer as the clients do, and ConnectionLost.
    """
    state = _Run((port,) if isinstance(port, int) else port, clients, host)
    try:
        return state.run(warmup_s, seconds)
    finally:
        state.close()


def send_all(port: int, requests: Sequence[bytes], connections: int = 16) -> list[Answer]:
    """Send every request once; all must be answered with 2xx. Answers come in any order."""
    queue = iter(requests)
    answers: list[Answer] = []

    class Sender:
        def request(self) -> bytes | None:
            return next(queue, None)

        def answered(self, answer: Answer) -> float | None:
            if not 200 <= answer.status < 300:
                raise UnexpectedAnswer(answer)
            answers.append(answer)
            return None

    run(port, [Sender() for _ in range(min(connections, len(requests)))], _SEND_ALL_S)
    if len(answers) < len(requests):
        raise ConnectionLost(f"{len(answers)} of {len(requests)} requests in {_SEND_ALL_S} s")
    return answers


def ask(port: int, request: bytes) -> Answer:
    """Send one request and return its answer, whatever the status."""
    answers: list[Answer] = []
    queue = iter([request])

    class Asker:
        def request(self) -> bytes | None:
            return next(queue, None)

        def answered(self, answer: Answer) -> float | None:
            answers.append(answer)
            return None

    run(port, [Asker()], _SEND_ALL_S)
    if not answers:
        raise ConnectionLost(f"no answer in {_SEND_ALL_S} s")
    return answers[0]
