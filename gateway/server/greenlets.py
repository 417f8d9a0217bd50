"""The gevent worker. Imported only where it is used: gevent is of no use to the others."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from types import FrameType, TracebackType
from typing import Any

import gevent
from gevent import monkey
from gevent.server import StreamServer
from gunicorn.workers.ggevent import GeventWorker

from gateway.server.requests import CheckedBodies, RefusingWorker, problem_bytes
from gateway.server.turnstile import PatientSocket, Turnstile, WaitingRoom

# How long a connection without a request is kept when the worker stops. A request that arrives in
# this time is answered, and told to use another connection from then on.
LINGER_S = 1.0
# Where so many requests are under way, more than one connection is accepted at a time.
_MANY_UNDER_WAY = 64
_ACCEPTED_AT_ONCE = 64
# Connections beyond those that are allowed: to be told so, and to ask whether the service lives.
_SURPLUS = 64
_SURPLUS_TIMEOUT_S = 5.0


class GreenletWorker(RefusingWorker, GeventWorker):
    """Stops without waiting for idle connections; gunicorn would wait for their whole keepalive.

    However much arrives at once, it goes on looking at its sockets, accepts connections, and
    answers ``/livez``.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections: dict[Any, Any] = {}  # by the greenlet that serves it
        self._connections_max = self.worker_connections
        self.worker_connections += _SURPLUS
        self._surplus: set[Any] = set()
        self.idle: dict[Any, None] = {}  # who has been so for longest comes first
        self._turnstile = Turnstile(self._is_full)
        self._waiting_room = WaitingRoom(time.monotonic)
        self._under_way = 0

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        greenlet = gevent.getcurrent()
        self._connections[greenlet] = client
        if len(self._connections) > self._connections_max:
            self._surplus.add(client)
            for longest_idle in tuple(self.idle)[:1]:
                _end(longest_idle)
        PatientSocket.make(client, self)
        try:
            super().handle(listener, client, addr)
        finally:
            del self._connections[greenlet]
            self._surplus.discard(client)

    def let_in(self, start: bytes) -> None:
        """Wait until a request that starts so may be read."""
        self._turnstile.go_through()
        if self._has_too_much_for(start):
            self._waiting_room.wait()

    def _is_full(self) -> bool:
        return self._has_too_much_for(b"PUT")

    def _has_too_much_for(self, start: bytes) -> bool:
        application = self.wsgi
        return isinstance(application, CheckedBodies) and not application.has_room_for(start)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        if sock in self._surplus and len(self._connections) <= self._connections_max:
            self._surplus.discard(sock)  # there is room by now
        if sock not in self._surplus:
            return self._handled(listener_name, req, sock, addr)
        if req.path == "/livez":
            self._handled(listener_name, req, sock, addr)
        else:
            sock.sendall(_surplus_answer(self._connections_max))
        raise StopIteration  # which makes gunicorn close the connection

    def _handled(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        if type(sock) is not PatientSocket and req.path != "/livez":
            self.let_in(req.method.encode())
        self._under_way += 1
        try:
            return super().handle_request(listener_name, req, sock, addr)
        finally:
            self._under_way -= 1
            if not self._is_full():
                self._waiting_room.let_one_in()

    def is_busy(self) -> bool:
        return self._under_way > _MANY_UNDER_WAY

    def server_class(  # type: ignore[override] # for gunicorn it may be any callable
        self, listener: Any, *, spawn: Any, **given: Any
    ) -> StreamServer:
        """What gunicorn calls to make the server of ``listener``."""
        ssl = {name: value for name, value in given.items() if name == "ssl_context"}
        return _Server(self, listener, handle=partial(self.handle, listener), spawn=spawn, **ssl)

    def timeout_ctx(self) -> Any:
        """Entered while a connection waits for its next request."""
        client = self._connections[gevent.getcurrent()]
        seconds = self.cfg.keepalive if self.alive else LINGER_S
        if client in self._surplus:
            seconds = min(seconds, _SURPLUS_TIMEOUT_S)
        return _Idle(self, client, seconds)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        gevent.spawn(self.begin_stop)
        gevent.spawn_later(LINGER_S, self._end_idle)

    def _end_idle(self) -> None:
        for client in tuple(self.idle):
            _end(client)


class _Server(StreamServer):
    """Accepts one connection at a time where there are other workers, so that all get some.

    Where much is under way, that would be one in many milliseconds, and whoever connects, be it to
    ask whether the service lives, would wait for seconds behind those who came before.
    """

    def __init__(self, worker: GreenletWorker, *arguments: Any, **named: Any) -> None:
        self._worker = worker
        super().__init__(*arguments, **named)

    @property
    def max_accept(self) -> int:  # type: ignore[override] # gevent only reads it
        alone = self._worker.cfg.workers == 1
        return _ACCEPTED_AT_ONCE if alone or self._worker.is_busy() else 1


class _Idle:
    def __init__(self, worker: GreenletWorker, client: Any, seconds: float) -> None:
        self._worker = worker
        self._client = client
        self._timeout = gevent.Timeout(seconds)

    def __enter__(self) -> None:
        self._worker.idle[self._client] = None
        self._timeout.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._worker.idle.pop(self._client, None)
        self._timeout.close()
        # Swallowed, it leaves gunicorn without a request, and so it closes the connection.
        return error is self._timeout


def _end(client: Any) -> None:
    """Its reads see the end of the stream.

    Nothing is thrown into a greenlet: one that has just been sent a request must go on, and
    can, since what was received already stays readable. For the same reason the system's
    socket is used: gevent's would throw an error into the greenlet that reads.
    """
    system_socket = monkey.get_original("socket", "socket")
    with (
        suppress(OSError),  # closed meanwhile
        system_socket(fileno=os.dup(client.fileno())) as connection,
    ):
        connection.shutdown(socket.SHUT_RD)


def _surplus_answer(connections_max: int) -> bytes:
    detail = f"this process has {connections_max} connections (connections_max) already"
    return problem_bytes(
        HTTPStatus.TOO_MANY_REQUESTS, "overloaded", detail, retryable=True, retry_after_s=2
    )
