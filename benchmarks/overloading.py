"""`python -m benchmarks.overloading`: very many clients in one process, each with its own counter.

Either closed loop (rate 0: every client sends again once it is answered) or open loop: requests
fall due at a fixed rate, whatever becomes of the ones before, and each goes out on a connection
that waits for no answer. Where there is none, it is counted as not sent: all connections are busy
then, and more load than that can't be offered over them. Nobody heeds Retry-After.

Says `connected` on a line of its own when all connections are open and were served once, begins
with a line of its input, and ends with one line of JSON: `Overloaded`.
"""

from __future__ import annotations

import resource
import select
import socket
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field

import msgspec

from benchmarks import load, stored, wire
from benchmarks.clients import Target, target

# What certainly wasn't applied; any other answer that is no success voids the run.
_REFUSED = frozenset({429, 503})
_DRAIN_S = 30.0
_TICK_S = 0.005


@dataclass
class Overloaded:
    """What became of the requests. `acknowledged` and `sent`: the last value of each client.

    `accepted_at_s` are the times of the successes since the beginning, `latencies_s` theirs.
    """

    offered: int = 0
    not_sent: int = 0
    unanswered: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    without_retry_after: int = 0
    accepted_at_s: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)


def place(catalog: str, number: int) -> tuple[Target, str]:
    """The document and the counter in it that are the client's own."""
    return target(catalog, f"dataset/{number % stored.MANY}"), f"/counters/c{number // stored.MANY}"


class _Client:
    __slots__ = ("begun_s", "buffer", "head", "number", "prefix", "socket", "value")

    def __init__(self, port: int, catalog: str, number: int, floor: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = number
        self.value = floor
        owned, pointer = place(catalog, number)
        self.head = owned.head
        self.prefix = b'[{"op":"replace","path":"%b","value":' % pointer.encode()
        self.buffer = b""
        self.begun_s = 0.0

    def greet(self) -> None:
        """One request: then the connection is known to be served, and has what memory it takes."""
        self.socket.sendall(wire.get("/livez"))
        while self.receive() is None:
            pass

    def send(self, now: float) -> None:
        self.begun_s = now
        self.socket.sendall(wire.with_body(self.head, b"%b%d}]" % (self.prefix, self.value + 1)))

    def receive(self) -> load.Answer | None:
        received = self.socket.recv(1 << 16)
        if not received:
            raise load.ConnectionLost("the server closed a connection before it had answered")
        answer, self.buffer = load.cut(self.buffer + received)
        return answer


class _Run:
    def __init__(self, clients: list[_Client], rate: float) -> None:
        self._clients = {each.socket.fileno(): each for each in clients}
        self._free = deque(clients)
        self._rate = rate
        self._result = Overloaded(sent={each.number: each.value for each in clients})
        self._statuses: Counter[int] = Counter()

    def run(self, seconds: float) -> Overloaded:
        with select.epoll() as poll:
            for number in self._clients:
                poll.register(number, select.EPOLLIN)
            self._began = time.perf_counter()
            while (now := time.perf_counter()) < self._began + seconds:
                self._send_due(now)
                self._receive(poll, _TICK_S)
            self._rate = -1.0
            until = time.perf_counter() + _DRAIN_S
            while len(self._free) < len(self._clients) and time.perf_counter() < until:
                self._receive(poll, 0.1)
        self._result.unanswered = len(self._clients) - len(self._free)
        self._result.statuses = dict(self._statuses)
        return self._result

    def _send_due(self, now: float) -> None:
        result, free = self._result, self._free
        due = len(free)
        if self._rate:
            due = int((now - self._began) * self._rate) - result.offered - result.not_sent
            result.not_sent += max(0, due - len(free))
        for _ in range(min(due, len(free))):
            client = free.popleft()
            result.offered += 1
            result.sent[client.number] = client.value + 1
            client.send(time.perf_counter())

    def _receive(self, poll: select.epoll, wait_s: float) -> None:
        for number, _ in poll.poll(wait_s):
            client = self._clients[number]
            answer = client.receive()
            if answer is not None:
                self._take(client, answer, time.perf_counter())
                self._free.append(client)

    def _take(self, client: _Client, answer: load.Answer, now: float) -> None:
        result = self._result
        self._statuses[answer.status] += 1
        if 200 <= answer.status < 300:
            client.value += 1
            result.acknowledged[client.number] = client.value
            result.accepted_at_s.append(now - self._began)
            result.latencies_s.append(now - client.begun_s)
        elif answer.status not in _REFUSED:
            raise load.UnexpectedAnswer(answer)
        elif b"\r\nRetry-After: " not in answer.head:
            result.without_retry_after += 1


def main() -> None:
    """Arguments: port, catalog, first client, clients, requests/s (0: closed loop), s, floor."""
    port, catalog = int(sys.argv[1]), sys.argv[2]
    first, count = int(sys.argv[3]), int(sys.argv[4])
    rate, seconds, floor = float(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clients = [_Client(port, catalog, number, floor) for number in range(first, first + count)]
    for client in clients:
        client.greet()
    print("connected", flush=True)
    sys.stdin.readline()
    result = _Run(clients, rate).run(seconds)
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main()
