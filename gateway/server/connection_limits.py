"""Limits of a client's connection: time to send a body and to take an answer, and bytes in memory.

Without them, a client that stops in the middle of a body, or sends a byte now and then, would hold
its place for ever, and many slow clients would hold unlimited memory. A client that takes nothing
of its answer would hold the answer and the connection as long as it likes. The limits apply to
every connection, whatever is sent on it.
"""

from __future__ import annotations

import _socket
import fcntl
import logging
import math
import select
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from werkzeug.exceptions import RequestTimeout, TooManyRequests

from gateway.access.principal import Shares
from gateway.cpu import slices
from gateway.limits import ConnectionLimits

# Bytes of one read. A body that comes in one read isn't counted.
_STEP_BYTES = 64 * 1024


class BodiesUnderWay:
    """The bodies that one process is receiving. Thread-safe."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._shares = Shares(limits.bodies_bytes_max)
        self._lock = threading.Lock()

    def read(self, read: Callable[[int], bytes], size: int, holder: str | None) -> bytes:
        """Read ``size`` bytes with ``read``, fewer only at the end of the body. They count in the
        share of ``holder`` (see ``gateway.access.principal``); None: in nobody's.

        Raises werkzeug's TooManyRequests.
        """
        data = read(min(size, _STEP_BYTES))
        if len(data) < _STEP_BYTES or len(data) == size:
            return data
        return self._read_on(read, size, data, holder)

    def deadline(self) -> float:
        """The monotonic time by which a body that begins now has to be complete."""
        return time.monotonic() + self._limits.body_whole_timeout_s

    @contextmanager
    def patience(self, source: Any, deadline: float = math.inf) -> Iterator[None]:
        """A context in which reads wait at most ``body_timeout_s`` for the next bytes, and never
        beyond ``deadline``. After that, it raises werkzeug's RequestTimeout.

        ``source`` is gunicorn's reader of the socket.
        """
        connection = source.sock
        before = connection.gettimeout()
        source.sock = _Hurried(connection, self._limits.body_timeout_s, deadline)
        try:
            yield
        except TimeoutError as error:
            limits = self._limits
            if time.monotonic() >= deadline:
                whole_s = limits.body_whole_timeout_s
                late = f"the body wasn't complete after {whole_s:g} s (body_whole_timeout_s)"
            else:
                late = (
                    f"no byte of the body arrived for {limits.body_timeout_s:g} s (body_timeout_s)"
                )
            raise RequestTimeout(late) from error
        finally:
            source.sock = connection
            connection.settimeout(before)

    def _read_on(
        self, read: Callable[[int], bytes], size: int, data: bytes, holder: str | None
    ) -> bytes:
        pieces = [data]
        received = counted = len(data)
        self._count(received, holder)
        try:
            while received < size:
                if slices.is_over:  # a fast client never makes its reader wait
                    slices.yield_now()
                piece = read(min(size - received, _STEP_BYTES))
                if not piece:
                    break
                pieces.append(piece)
                received += len(piece)
                self._count(len(piece), holder)
                counted = received
            return b"".join(pieces)
        finally:
            with self._lock:
                self._shares.give_back(holder, counted)

    def _count(self, added: int, holder: str | None) -> None:
        with self._lock:
            shares = self._shares
            if shares.held + added > shares.maximum:
                raise TooManyRequests(
                    f"the bodies being received already take all {shares.maximum} bytes"
                    " (bodies_bytes_max)"
                )
            if holder is not None and not shares.has_room_for(holder, added):
                raise TooManyRequests(
                    f"the bodies being received from principal {holder!r} take as much as its"
                    " share allows (bodies_bytes_max)"
                )
            shares.take(holder, added)


class _Hurried:
    """A socket whose reads raise TimeoutError after ``stall_s`` without a byte, and always after
    ``deadline``.
    """

    __slots__ = ("_connection", "_deadline", "_stall_s")

    def __init__(self, connection: Any, stall_s: float, deadline: float) -> None:
        self._connection = connection
        self._stall_s = stall_s
        self._deadline = deadline

    def recv(self, size: int) -> bytes:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(min(self._stall_s, left_s))
        data: bytes = self._connection.recv(size)
        return data


# States in Linux's tcp_states.h: our side is shut down, the client's is open. In the second one the
# client has acknowledged everything.
_FIN_WAIT1 = 4
_FIN_WAIT2 = 5
# States: the client's side is shut down, and ours is open, or was shut down later.
_LEFT = (7, 8)
_BETWEEN_LOOKS_S = 0.05
# How much of its answer a client has to take within `send_stall_s`.
PIECE_BYTES: Final = 64 * 1024
# How long a connection has to be without progress to be cut when others need its place.
_STALLED_S: Final = 2.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    size_bytes: int
    since: float  # when the last piece of it was taken


class UntakenAnswers:
    """The answers of one process that clients have not taken yet. Thread-safe."""

    def __init__(
        self, limits: ConnectionLimits, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._bytes = 0
        # By connection, in order: the first one has been without progress for longest.
        self._held: dict[BoundedSending, _Held] = {}
        self._lock = threading.Lock()

    def send(self, connection: BoundedSending, data: bytes, sent: int) -> None:
        """Send ``data`` from ``sent`` on, as fast as the client takes it.

        Raises TimeoutError if the client takes no piece within `send_stall_s`, and OSError if the
        connection broke, or was cut because others needed the room.
        """
        self._hold(connection, len(data))
        try:
            self._send(connection, memoryview(data), sent)
        finally:
            self._let_go(connection)

    def cut_stalled(self) -> None:
        """Cut the connection that has been without progress for longest, if that is long enough."""
        with self._lock:
            longest = next(iter(self._held.items()), None)
            if longest is None or self._monotonic() - longest[1].since < _STALLED_S:
                return
            self._forget(longest[0])
        _cut(longest[0])

    def _send(self, connection: BoundedSending, data: memoryview, sent: int) -> None:
        stall_s = self._limits.send_stall_s
        until = self._monotonic() + stall_s
        # The kernel may have taken megabytes that the client hasn't.
        marked, taken = sent, sent - _queued(connection)
        while sent < len(data):
            now = self._monotonic()
            if now >= until:
                taken_before, taken = taken, sent - _queued(connection)
                if taken - taken_before < PIECE_BYTES:
                    drop_queued(connection)
                    raise TimeoutError(f"{taken - taken_before} bytes in {stall_s:g} s")
                until = now + stall_s
            connection.await_writable(until - now)
            while sent < len(data) and (just := connection.send_now(data[sent:])):
                sent += just
            if sent - marked >= PIECE_BYTES:
                marked = sent
                self._note_taken(connection)

    def _hold(self, connection: BoundedSending, size_bytes: int) -> None:
        too_many: list[BoundedSending] = []
        with self._lock:
            self._held[connection] = _Held(size_bytes, self._monotonic())
            self._bytes += size_bytes
            # A single answer may be larger than the bound.
            while self._bytes > self._limits.unsent_bytes_max and len(self._held) > 1:
                too_many.append(next(iter(self._held)))
                self._forget(too_many[-1])
        for each in too_many:
            _cut(each)

    def _note_taken(self, connection: BoundedSending) -> None:
        with self._lock:
            held = self._held.pop(connection, None)
            if held is not None:  # else it was cut
                held.since = self._monotonic()
                self._held[connection] = held

    def _let_go(self, connection: BoundedSending) -> None:
        with self._lock:
            if connection in self._held:  # else it was cut
                self._forget(connection)

    def _forget(self, connection: BoundedSending) -> None:
        self._bytes -= self._held.pop(connection).size_bytes


class BoundedSending:
    """A mixin for classes of sockets: sending waits no longer than ``unsent`` allows.

    gevent makes the sockets; changing their class makes them bounded.
    """

    __slots__ = ()

    # One for the process.
    unsent: ClassVar[UntakenAnswers]

    def send_now(self, data: bytes | memoryview) -> int:
        """Send without waiting, and return the number of bytes sent."""
        raise NotImplementedError

    def sendall(self, data: Any, flags: int = 0) -> None:  # noqa: ARG002 - gunicorn has none
        sent = self.send_now(data)
        if sent < len(data):
            self.unsent.send(self, data, sent)

    def send(self, data: Any, flags: int = 0) -> int:  # noqa: ARG002 - gunicorn has none
        self.sendall(data)
        return len(data)

    def let_kernel_drop_after(self, seconds: float) -> None:
        """Have the kernel drop a client that acknowledges nothing for that long.

        0, the default, means a quarter of an hour, and no limit for a client that is connected but
        takes nothing.
        """
        connection: Any = self
        option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux alone has it
        if option is not None:
            with suppress(OSError):  # closed, or no TCP
                connection.setsockopt(socket.IPPROTO_TCP, option, int(seconds * 1000))

    def await_writable(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for room to send; whether there is some. The socket's timeout is
        ignored, because it is for reading."""
        connection: Any = self
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLOUT)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def has_left(self) -> bool:
        """Whether the client has closed its side; False if the system doesn't say."""
        return _state(self) in _LEFT

    def stop_receiving(self) -> None:
        """Have the reader see the end of the body after the bytes that have been sent so far."""
        shut_down(self, socket.SHUT_RD)


def shut_down(connection: Any, how: int) -> None:
    """End ``connection`` for its readers, its writers, or both (``how``).

    It uses the system's socket, because gevent's would throw an error into the greenlet that reads.
    It needs no new descriptor: perhaps none is left, and a connection has to end for that reason.
    """
    with suppress(OSError, ValueError):  # closed meanwhile
        same = _socket.socket(fileno=connection.fileno())
        try:
            same.shutdown(how)
        finally:
            same.detach()


def _cut(connection: Any) -> None:
    """Break the connection, so that its sender drops the answer."""
    _log.warning("cut off a client that takes nothing of its answer: others need its place")
    drop_queued(connection)
    shut_down(connection, socket.SHUT_RDWR)


def await_delivery(connection: Any, seconds: float) -> bool:
    """Wait at most ``seconds`` until the client has acknowledged everything on a connection whose
    sending side is shut down; whether it has. False also if the client has closed its side, and if
    the system doesn't say.
    """
    until = time.monotonic() + seconds
    while (state := _state(connection)) == _FIN_WAIT1 and time.monotonic() < until:
        time.sleep(_BETWEEN_LOOKS_S)
    return state == _FIN_WAIT2


def _state(connection: Any) -> int:
    try:
        info: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except (AttributeError, OSError):  # only Linux has it; closed
        return 0
    return info[0]


def drop_queued(connection: Any) -> None:
    """Have the kernel drop its unsent bytes of the connection when that is closed."""
    with suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def _queued(connection: Any) -> int:
    """The bytes in the kernel that the client hasn't acknowledged."""
    try:
        answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except OSError:  # closed, or not known here
        return 0
    return int(struct.unpack("i", answer)[0])
