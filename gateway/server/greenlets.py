"""The worker, which serves each connection in a greenlet of gevent."""

from __future__ import annotations

import errno
import socket
import ssl
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from mmap import mmap
from types import FrameType, TracebackType
from typing import Any

import gevent
import gevent.event
import gevent.socket
import gevent.ssl
from gevent.pool import Pool
from gevent.server import StreamServer
from gunicorn import util
from gunicorn.http.errors import NoMoreData
from gunicorn.sock import ssl_context
from gunicorn.workers.ggevent import GeventWorker

from gateway.limits import MIB
from gateway.server.broken_requests import RefusingWorker, problem_bytes
from gateway.server.certificates import CertificateFiles, CertificateUnusable
from gateway.server.connection_limits import (
    BoundedSending,
    await_delivery,
    drop_queued,
    shut_down,
)
from gateway.server.exchange import Environ, Exchange, environ_of_connection
from gateway.server.garbage import Garbage
from gateway.server.openssl_errors import clear_after_failures
from gateway.server.parsing import HeadRequest, Parser
from gateway.server.time_slices import TimeSlices, Turnstile, WaitingRoom, is_urgent

# How long a stopping worker keeps connections that have no request. A request that arrives within
# that time is answered, and then its connection is closed.
LINGER_S = 1.0
# The worker tells the master at least this often that it lives.
_NOTIFY_S = 1.0
# With more requests under way, up to ``_ACCEPTED_AT_ONCE`` connections are accepted at a time.
_MANY_UNDER_WAY = 64
_ACCEPTED_AT_ONCE = 64
# Connections beyond the limit, for refusals and for /livez; and how long such a client may be idle.
_SURPLUS = 64
_SURPLUS_TIMEOUT_S = 5.0
# How much, and for how long, is read and dropped on a connection that is to end after its answer.
_DISCARDED_BYTES_MAX = 16 * MIB
_DISCARD_S = 10.0
# Errors if nothing is left for another connection; when to accept again; how often this is logged.
_LACKING = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_LOOK_AGAIN_S = 0.02
_LOGGED_EVERY_S = 60.0
_GONE = {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ETIMEDOUT, errno.EBADF}


class GreenletWorker(RefusingWorker, GeventWorker):
    """A worker that, unlike gunicorn's, doesn't wait for idle connections when it stops.

    However much arrives at once, it keeps looking at its sockets, accepts connections, and answers
    ``/livez``.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The master makes each worker before it forks, so it sees when this becomes 1.
        self.serving = mmap(-1, 1)
        self.is_replaced = False  # in the master: it has to stop
        self._connections: dict[Any, None] = {}
        self._connections_max = self.worker_connections
        self.worker_connections += _SURPLUS
        self._surplus: set[Any] = set()
        # The clients that are to send something, the longest idle one first; when each is cut off.
        self.idle: dict[Any, float] = {}
        self.turnstile = Turnstile(self._is_full)
        self._waiting_room = WaitingRoom(time.monotonic)
        self._under_way = 0
        self._stops = gevent.event.Event()
        self._garbage = Garbage(self.held_bytes, self.pause, self.drop_kept)

    def run(self) -> None:
        """Serve until the worker is to stop."""
        hub: Any = gevent.get_hub()
        # A MemoryError that isn't answered kills its greenlet, and would kill all later ones. So it
        # ends the worker, and the master replaces it.
        hub.SYSTEM_ERROR = (*hub.SYSTEM_ERROR, MemoryError)
        clear_after_failures(gevent.ssl.SSLSocket)
        slices = TimeSlices()
        slices.start()
        self._garbage.start()
        try:
            self._serve_until_stopped()
        finally:
            slices.stop()

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve a connection until it ends."""
        _BoundedSocket.make(client)
        client.setblocking(True)
        client.let_kernel_drop_after(self.limits.send_stall_s)
        self._connections[client] = None
        if len(self._connections) > self._connections_max:
            self._surplus.add(client)
            self.make_room()
        try:
            self._serve(listener.getsockname(), client, addr)
        finally:
            del self._connections[client]
            self._surplus.discard(client)
            util.close(client)

    def _serve(self, listener_name: Any, client: Any, addr: Any) -> None:
        visit = _Visit(self, client)
        parser = Parser(self.cfg, client, addr, visit)
        request: Any = None
        try:
            encrypted = isinstance(client, gevent.ssl.SSLSocket)
            if encrypted and not visit.shake_hands():
                return
            environ = environ_of_connection(listener_name, addr, client, encrypted=encrypted)
            while True:
                request = None
                with visit.between_requests():
                    request = next(parser)
                if request is None:
                    return
                self._answer(request, client, environ)
        except (StopIteration, NoMoreData) as error:
            self.log.debug("connection with %s ends: %s", addr, error)
            if parser.has_much_left():
                visit.discard()
        except OSError as error:
            if isinstance(error, ssl.SSLError) or error.errno in _GONE:
                self.log.debug("connection with %s broke: %s", addr, error)
            else:
                self.log.exception("connection with %s broke", addr)
        except Exception as error:  # noqa: BLE001 - answered, and logged unless the client caused it
            self.handle_error(request, client, addr, error)
            visit.discard()

    def let_in(self, start: bytes) -> None:
        """Wait until a request with these first bytes may be parsed."""
        if is_urgent(start):
            self.turnstile.go_through(urgent=True)
            return
        self.turnstile.go_through()
        if self._is_full(start):
            self._waiting_room.wait()

    def make_room(self) -> None:
        """End the connection that has been idle for longest or, if none is idle, one that takes
        nothing of its answer."""
        for longest_idle in tuple(self.idle)[:1]:
            del self.idle[longest_idle]
            shut_down(longest_idle, socket.SHUT_RD)
            return
        self.unsent.cut_stalled()

    def _is_full(self, start: bytes = b"PUT") -> bool:
        """Whether too much is under way for a request with these first bytes."""
        return bool(self.wsgi) and not self.wsgi.application.has_room_for(start)

    def _answer(self, request: HeadRequest, client: Any, environ: Environ) -> None:
        """Answer a request. Raises StopIteration if the connection ends after the answer."""
        if self._surplus and len(self._connections) <= self._connections_max:
            self._surplus.discard(client)  # meanwhile there is room
        is_surplus = client in self._surplus
        if is_surplus and request.path != "/livez":
            client.sendall(_surplus_answer(self._connections_max))
            raise StopIteration
        exchange = Exchange(request, client, is_last=is_surplus or not self.alive)
        self._under_way += 1
        try:
            exchange.run(self.wsgi, environ)
        except TimeoutError as error:
            self.log.warning("cut off a client that takes nothing of its answer: %s", error)
            raise StopIteration from error
        except OSError:
            raise
        except (Exception, SystemExit) as error:
            if not exchange.has_begun:
                raise
            self.log.exception("an answer that has begun can't be finished")
            shut_down(client, socket.SHUT_RDWR)
            raise StopIteration from error
        finally:
            self._under_way -= 1
            self._waiting_room.let_one_in_unless(self._is_full)
        if exchange.is_last:
            raise StopIteration

    def is_surplus(self, client: Any) -> bool:
        return client in self._surplus

    def is_busy(self) -> bool:
        return self._under_way > _MANY_UNDER_WAY

    def server_class(  # type: ignore[override] # for gunicorn it may be any callable
        self, listener: Any, *, spawn: Any, **given: Any
    ) -> StreamServer:
        """gunicorn's hook: makes the server for ``listener``."""
        tls: dict[str, Any] = {}
        if "ssl_context" in given:
            # The handshake belongs to its connection, which is counted and limited.
            tls = {"ssl_context": given["ssl_context"], "do_handshake_on_connect": False}
        BoundedSending.unsent = self.unsent
        return _Server(self, listener, handle=partial(self.handle, listener), spawn=spawn, **tls)

    def _serve_until_stopped(self) -> None:
        """Replaces gunicorn's loop, which checks only each second whether to stop or all ended."""
        files = CertificateFiles(self.cfg, ssl_context) if self.cfg.is_ssl else None
        try:
            tls = {} if files is None else {"ssl_context": files.context()}
        except CertificateUnusable as error:  # it was usable when the service was started
            self.log.error("a worker can't begin: %s", error)
            sys.exit(1)
        pools = [Pool(self.worker_connections) for _ in self.sockets]
        pairs = zip(self.sockets, pools, strict=True)
        servers = [self.server_class(listener, spawn=pool, **tls) for listener, pool in pairs]
        for server in servers:
            server.start()
        self.serving[0] = 1
        while self.alive:
            self.notify()
            self._garbage.check()
            if files is not None and (renewed := files.renewed()) is not None:
                _use_context(servers, renewed)
            self._end_overdue()
            self._stops.wait(_NOTIFY_S)
        for server in servers:
            server.close()
        left_s = float(self.cfg.graceful_timeout)
        while any(pools) and left_s > 0:
            self.notify()
            begun = time.monotonic()
            gevent.wait([each for pool in pools for each in pool], min(_NOTIFY_S, left_s))
            left_s -= time.monotonic() - begun
        if any(pools):
            self.log.warning("requests under way are ended: graceful_timeout_s is over")
            for server in servers:
                server.stop(timeout=_NOTIFY_S)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        gevent.spawn(self._stops.set)
        gevent.spawn(self.begin_stop)
        gevent.spawn_later(LINGER_S, self._end_idle)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for client, until in tuple(self.idle.items()):
            if until < now:
                shut_down(client, socket.SHUT_RD)

    def _end_idle(self) -> None:
        for client in tuple(self.idle):
            # Reads see the end of the stream, but only after what was received already: a request
            # that was just sent is answered.
            shut_down(client, socket.SHUT_RD)


def _use_context(servers: Iterable[StreamServer], context: ssl.SSLContext) -> None:
    for server in servers:
        vars(server)["wrap_socket"] = context.wrap_socket  # for new connections


class _Server(StreamServer):
    """Accepts one connection at a time if there are other workers, so that all get some.

    A busy worker accepts several: with one every many milliseconds, new connections, ``/livez``
    included, would wait for seconds behind the older ones.
    """

    def __init__(self, worker: GreenletWorker, *arguments: Any, **named: Any) -> None:
        self._worker = worker
        self._log_at = 0.0
        super().__init__(*arguments, **named)

    @property
    def max_accept(self) -> int:  # type: ignore[override] # gevent only reads it
        alone = self._worker.cfg.workers == 1
        return _ACCEPTED_AT_ONCE if alone or self._worker.is_busy() else 1

    def do_read(self) -> Any:
        """gevent's hook: accepts a connection.

        If that fails for lack of something, such as open files, end another connection, as at the
        limit of connections; gevent would wait until one ends by itself.
        """
        try:
            return super().do_read()
        except OSError as error:
            if error.errno not in _LACKING:
                raise
            self._log_lack(error)
        self._worker.make_room()
        self.stop_accepting()
        gevent.spawn_later(_LOOK_AGAIN_S, self._accept_again)
        return None

    def _accept_again(self) -> None:
        if self.started:
            self.start_accepting()

    def _log_lack(self, error: OSError) -> None:
        now = time.monotonic()
        if now >= self._log_at:
            self._log_at = now + _LOGGED_EVERY_S
            self._worker.log.warning("idle connections are closed to make room: %s", error)


class _Visit:
    """What one connection does apart from its requests; the ``Door`` of its parser."""

    def __init__(self, worker: GreenletWorker, client: Any) -> None:
        self._worker = worker
        self._client = client
        self._waiting: _Waiting | None = None

    def between_requests(self) -> _Waiting:
        """A context in which the client is to send a request. The worker checks each second whose
        time is over: a timer for each request would cost a twentieth of its time."""
        worker = self._worker
        if not worker.alive or worker.is_surplus(self._client):
            return self.waiting(_SURPLUS_TIMEOUT_S if worker.alive else LINGER_S)
        self._waiting = _Waiting(worker.idle, self._client, worker.cfg.keepalive, None)
        return self._waiting

    def waiting(self, seconds: float) -> _Waiting:
        """A context in which the client has to act within ``seconds``; after that it just ends."""
        if self._worker.is_surplus(self._client):
            seconds = min(seconds, _SURPLUS_TIMEOUT_S)
        self._waiting = _Waiting(self._worker.idle, self._client, seconds, gevent.Timeout(seconds))
        return self._waiting

    def let_in(self, start: bytes) -> None:
        self._worker.let_in(start)

    def head_goes_on(self) -> None:
        if self._waiting is not None:
            self._waiting.hurry(self._worker.limits.head_timeout_s)

    def let_go_on(self) -> None:
        self._worker.turnstile.go_through()

    def shake_hands(self) -> bool:
        """Whether the TLS handshake succeeded in time. Raises OSError (SSLError is one)."""
        with self.waiting(self._worker.limits.head_timeout_s):
            self._client.do_handshake()
            return True
        return False

    def discard(self) -> None:
        """Discard further bytes until the client closes, so that it can read its answer.

        A connection that is closed with unread bytes is reset, and the answer is lost. A client
        that has its answer but still sends is reset on purpose: if its window were full, its kernel
        would learn of the end only minutes later.
        """
        left = _DISCARDED_BYTES_MAX
        with self.waiting(_DISCARD_S if self._worker.alive else LINGER_S), suppress(OSError):
            self._client.shutdown(socket.SHUT_WR)
            while left > 0 and (thrown_away := self._client.recv(64 * 1024)):
                left -= len(thrown_away)
                self.let_go_on()
            # One that reads its answer slowly isn't reset: it doesn't acknowledge it in time.
            if await_delivery(self._client, LINGER_S):
                drop_queued(self._client)


class _Waiting:
    """A context in which a client is idle. ``timeout`` None: the worker ends it when it is time."""

    def __init__(
        self,
        idle: dict[Any, float],
        client: Any,
        seconds: float,
        timeout: gevent.Timeout | None,
    ) -> None:
        self._idle = idle
        self._client = client
        self._seconds = seconds
        self._timeout = timeout

    def __enter__(self) -> None:
        self._idle[self._client] = time.monotonic() + self._seconds
        if self._timeout is not None:
            self._timeout.start()

    def hurry(self, seconds: float) -> None:
        """Let the time end ``seconds`` from now, unless it is as short already."""
        if seconds < self._seconds:
            self._seconds = seconds
            if self._timeout is not None:
                self._timeout.close()
            self._timeout = gevent.Timeout(seconds)
            self._timeout.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._idle.pop(self._client, None)
        if self._timeout is None:
            return False
        self._timeout.close()
        return error is self._timeout


class _BoundedSocket(BoundedSending, gevent.socket.socket):
    __slots__ = ()

    @staticmethod
    def make(client: Any) -> None:
        """Turn ``client``, a socket that gevent has made, into one of this class."""
        encrypted = isinstance(client, gevent.ssl.SSLSocket)
        client.__class__ = _BoundedTlsSocket if encrypted else _BoundedSocket

    def send_now(self, data: bytes | memoryview) -> int:
        try:
            return int(gevent.socket.socket.send(self, data, 0, timeout=0.0))  # type: ignore[call-arg]
        except BlockingIOError:
            return 0


class _BoundedTlsSocket(BoundedSending, gevent.ssl.SSLSocket):
    def send_now(self, data: bytes | memoryview) -> int:
        timeout = self.gettimeout()
        self.settimeout(0.0)  # no other greenlet runs until it is reset
        try:
            return int(self.write(data))
        except ssl.SSLWantWriteError:
            return 0
        finally:
            self.settimeout(timeout)


def _surplus_answer(connections_max: int) -> bytes:
    detail = f"this worker has {connections_max} connections, the maximum (connections_max)"
    return problem_bytes(
        HTTPStatus.TOO_MANY_REQUESTS, "overloaded", detail, retryable=True, retry_after_s=2
    )
