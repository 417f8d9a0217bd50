"""The gevent worker. Imported only where it is used: gevent is of no use to the others."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

import gevent
from gevent import monkey
from gunicorn.workers.ggevent import GeventWorker

from gateway.server.requests import RefusingWorker

# How long a connection without a request is kept when the worker stops. A request that arrives in
# this time is answered, and told to use another connection from then on.
LINGER_S = 1.0


class GreenletWorker(RefusingWorker, GeventWorker):
    """Stops without waiting for idle connections; gunicorn would wait for their whole keepalive."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections: dict[Any, Any] = {}  # by the greenlet that serves it
        self.idle: set[Any] = set()

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        greenlet = gevent.getcurrent()
        self._connections[greenlet] = client
        try:
            super().handle(listener, client, addr)
        finally:
            del self._connections[greenlet]

    def timeout_ctx(self) -> Any:
        """Entered while a connection waits for its next request."""
        return _Idle(self, self._connections[gevent.getcurrent()])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        gevent.spawn(self.begin_stop)
        gevent.spawn_later(LINGER_S, self._end_idle)

    def _end_idle(self) -> None:
        """Their reads see the end of the stream.

        Nothing is thrown into a greenlet: one that has just been sent a request must go on, and
        can, since what was received already stays readable. For the same reason the system's
        socket is used: gevent's would throw an error into the greenlet that reads.
        """
        system_socket = monkey.get_original("socket", "socket")
        for client in tuple(self.idle):
            with (
                suppress(OSError),  # closed meanwhile
                system_socket(fileno=os.dup(client.fileno())) as connection,
            ):
                connection.shutdown(socket.SHUT_RD)


class _Idle:
    def __init__(self, worker: GreenletWorker, client: Any) -> None:
        self._worker = worker
        self._client = client
        seconds = worker.cfg.keepalive if worker.alive else LINGER_S
        self._timeout = gevent.Timeout(seconds)

    def __enter__(self) -> None:
        self._worker.idle.add(self._client)
        self._timeout.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._worker.idle.discard(self._client)
        self._timeout.close()
        # Swallowed, it leaves gunicorn without a request, and so it closes the connection.
        return error is self._timeout
