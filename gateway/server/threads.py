"""The gthread worker."""

from __future__ import annotations

import errno
import socket
import ssl
import time
from typing import Any

from gunicorn import util
from gunicorn.http.errors import NoMoreData
from gunicorn.http.message import Request
from gunicorn.sock import ssl_wrap_socket
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, TConn  # type: ignore[attr-defined]
from gunicorn.workers.gthread import ThreadWorker as GunicornThreadWorker

from gateway.server.connections import BoundedSending, await_writable, is_dropped, set_user_timeout
from gateway.server.parsing import Parser
from gateway.server.requests import RefusingWorker

# Bytes to discard on a connection that was answered and is to end.
_DISCARDED_BYTES_MAX = 16 * 1024 * 1024


class ThreadWorker(RefusingWorker, GunicornThreadWorker):
    """Closes its sockets when it stops, and has the application end requests that wait.

    gunicorn leaves the sockets open until the last request is done: a client that connects
    meanwhile waits and is cut off, instead of being refused at once and going elsewhere. And
    gunicorn waits for connections that never sent anything as long as a running worker does.
    """

    def set_accept_enabled(self, enabled: bool | None) -> None:
        super().set_accept_enabled(enabled)
        if not enabled and not self.alive:
            for listener in self.sockets:
                listener.close()
            until = time.monotonic() + STOP_KEEPALIVE_LINGER
            for unused in self.pending_conns:
                unused.timeout = min(unused.timeout, until)
            self.begin_stop()

    def murder_pending(self) -> None:
        """Called between requests. Where all connections are used, one that idles makes room."""
        super().murder_pending()
        if self.nr_conns < self.worker_connections:
            return
        for waiting in (self.pending_conns, self.keepalived_conns):
            if waiting:
                longest_idle = waiting.popleft()
                self.poller.unregister(longest_idle.sock)
                self.nr_conns -= 1
                longest_idle.close()
                return

    def accept(self, listener: Any) -> None:
        """gunicorn's, but for what it makes of the connection."""
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        self.nr_conns += 1
        client.setblocking(True)
        self.enqueue_req(_Connection(self, client, address, listener.getsockname()))

    def handle(self, conn: Any) -> Any:
        """Whether the connection goes on."""
        goes_on = super().handle(conn)
        if not goes_on and not is_dropped(conn.sock):
            # Here, and not in the one thread that looks at all of them: it can take seconds.
            util.close_graceful(conn.sock, max_drain=_DISCARDED_BYTES_MAX)
        return goes_on


class _Connection(TConn):
    def __init__(self, worker: ThreadWorker, client: Any, address: Any, server: Any) -> None:
        super().__init__(worker.cfg, client, address, server)
        self._worker = worker

    def init(self) -> None:
        """gunicorn's, with a limit for the handshake. Raises NoMoreData where it is over."""
        if self.initialized:
            return
        self.initialized = True
        limits = self._worker.limits
        set_user_timeout(self.sock, limits.send_stall_s)
        self.sock.settimeout(limits.head_timeout_s)
        if self.cfg.is_ssl:
            try:
                self.sock = ssl_wrap_socket(self.sock, self.cfg)
                self.sock.do_handshake()
            except TimeoutError as error:
                raise NoMoreData(b"") from error
        self.sock.settimeout(None)
        BoundedSending.unsent = self._worker.unsent
        self.sock.__class__ = _BoundedTlsSocket if self.cfg.is_ssl else _BoundedSocket
        self.parser = _Parser(self.cfg, self.sock, self.client, limits.head_timeout_s)

    def wait_for_data(self, timeout: float | None) -> bool:  # noqa: ARG002 - gunicorn would wait
        """Whether there is some; if not, the connection waits without a thread."""
        return super().wait_for_data(0.0)

    def close(self, graceful: bool = False) -> None:  # noqa: ARG002 - a thread has been graceful
        util.close(self.sock)


class _Parser(Parser):
    """A parser and its own door: each request has a thread, and heads have to come in time."""

    def __init__(self, cfg: Any, connection: Any, address: Any, head_timeout_s: float) -> None:
        super().__init__(cfg, connection, address, self)
        self._connection = connection
        self._head_timeout_s = head_timeout_s
        self._until = 0.0

    def __next__(self) -> Request:
        """Raises NoMoreData where the rest of the head doesn't come in time."""
        self._until = time.monotonic() + self._head_timeout_s
        self._connection.settimeout(self._head_timeout_s)
        try:
            return super().__next__()
        except TimeoutError as error:
            raise NoMoreData(b"") from error
        finally:
            self._connection.settimeout(None)

    def let_in(self, start: bytes) -> None:
        pass

    def head_goes_on(self) -> None:
        self._connection.settimeout(max(0.001, self._until - time.monotonic()))

    def let_go_on(self) -> None:
        pass


class _BoundedSocket(BoundedSending, socket.socket):
    __slots__ = ()

    def send_now(self, data: bytes | memoryview) -> int:
        # A timeout that is set for reading would let sending wait.
        if not await_writable(self, 0):
            return 0
        try:
            return socket.socket.send(self, data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0


class _BoundedTlsSocket(BoundedSending, ssl.SSLSocket):
    def send_now(self, data: bytes | memoryview) -> int:
        """Waits where there is room for a part of a record of 16 KiB alone."""
        return int(self.write(data)) if await_writable(self, 0) else 0
