"""Messages between the worker processes of one machine: a question and its answer.

Each worker listens at a socket named after its process id, in Linux's abstract namespace, so that a
worker that dies leaves nothing behind. A name says who may talk to whom: workers of other settings
or of another version have other names. A message is pickled, and pickle trusts its sender: so both
ends of a connection see to it that the other is a process of the same user.

Questions and answers pass one connection in any order. What is to be sent while a send is under way
goes with the next one.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

_log = logging.getLogger(__name__)

_HEAD: Final = struct.Struct("!I")
_RECEIVE_BYTES: Final = 1 << 18
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group
# A worker with questions that says nothing for so long is asked nothing more.
_SILENT_S: Final = 1.0
# What is under way when a worker ends has this time.
_ENDS_WITHIN_S: Final = 20.0
_LOOK_S: Final = 0.01
_GREETING: Final = b"!"
_LEAVE: Final = -1  # in the place of a question's number


class Neighbours:
    """``group`` is what all workers have in common that may talk to each other."""

    def __init__(self, group: str) -> None:
        digest = hashlib.sha256(group.encode()).hexdigest()[:16]
        self._prefix = f"\0metadata-gateway-{os.getuid()}-{digest}-"
        self._lock = threading.Lock()
        self._links: dict[int, _Link] = {}
        # Held while a connection is taken, so that all that were taken are known when this closes.
        self._taking = threading.Lock()
        self._answering: set[_Answering] = set()
        self.closing = False
        self._listener: socket.socket | None = None

    def listen(self, answer: Callable[[Any, int], Any]) -> None:
        """Answer the questions of others; ``answer`` gets a question and its worker.

        Raises OSError where this machine has no such sockets.
        """
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self._prefix}{os.getpid()}")
        listener.listen()
        self._listener = listener
        _spawn(self._accept, listener, answer)

    def ask(self, worker: int, question: Any, until: float) -> Any:
        """The worker's answer; None where it isn't there, or doesn't take questions now.

        Raises OSError where the question was sent, and the worker died or didn't answer ``until``
        then, in monotonic seconds.
        """
        link = self._link(worker)
        return None if link is None else link.ask(question, until)

    def close(self) -> None:
        """Take no more questions; wait, within bounds, until the others have their answers."""
        with self._taking:
            self.closing = True
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for each in list(self._answering):
            each.take_leave()
        until = time.monotonic() + _ENDS_WITHIN_S
        while any(each.is_open for each in self._answering) and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def _link(self, worker: int) -> _Link | None:
        link = self._links.get(worker)
        if link is not None and link.is_open:
            return link if link.takes_questions() else None
        with self._lock:
            link = self._links.get(worker)
            if link is None or not link.is_open:
                connection = self._connected(worker)
                if connection is None:
                    self._links.pop(worker, None)
                    return None
                link = self._links[worker] = _Link(connection)
            return link

    def _connected(self, worker: int) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(_SILENT_S)
            connection.connect(f"{self._prefix}{worker}")
            # Without a greeting it may never have been accepted.
            if _process_of(connection) == worker and connection.recv(1) == _GREETING:
                connection.settimeout(None)
                return connection
        except OSError:
            pass
        connection.close()
        return None

    def _accept(self, listener: socket.socket, answer: Callable[[Any, int], Any]) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            worker = _process_of(connection)
            with self._taking:
                if worker is None or self.closing:
                    connection.close()
                    continue
                with suppress(OSError):
                    connection.send(_GREETING)
                self._answering = {each for each in self._answering if each.is_open}
                self._answering.add(_Answering(self, connection, worker, answer))


class _Channel:
    """One connection. ``received`` is called with each message, ``lost`` once when it ends."""

    def __init__(
        self,
        connection: socket.socket,
        received: Callable[[Any], None],
        lost: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._received = received
        self._lost = lost
        self._lock = threading.Lock()
        self._outbox: list[bytes] = []
        self._filled = threading.Event()
        self.is_open = True
        _spawn(self._receive)
        _spawn(self._send)

    def send(self, message: Any) -> None:
        """Raises BrokenPipeError where the connection has ended; then nothing is sent."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            if not self.is_open:
                raise BrokenPipeError
            self._outbox += (_HEAD.pack(len(body)), body)
        self._filled.set()

    def _send(self) -> None:
        with suppress(OSError):
            while self._filled.wait() and self.is_open:
                with self._lock:
                    self._filled.clear()
                    sent, self._outbox = self._outbox, []
                self._connection.sendall(b"".join(sent))
        self._end()

    def _receive(self) -> None:
        try:
            self._receive_all()
        except OSError:
            pass
        except Exception:  # noqa: BLE001 - whoever waits has to be told
            _log.exception("a message of another worker can't be read")
        finally:
            self._end()

    def _receive_all(self) -> None:
        buffer = b""
        while data := self._connection.recv(_RECEIVE_BYTES):
            buffer += data
            at = 0
            while len(buffer) - at >= _HEAD.size:
                (size,) = _HEAD.unpack_from(buffer, at)
                end = at + _HEAD.size + size
                if len(buffer) < end:
                    break
                self._received(pickle.loads(memoryview(buffer)[at + _HEAD.size : end]))
                at = end
            buffer = buffer[at:]

    def _is_idle(self) -> bool:
        """Whether nothing is waited for. Called with the lock held."""
        return True

    def _end(self, *, if_idle: bool = False) -> None:
        with self._lock:
            if if_idle and not self._is_idle():
                return
            was_open, self.is_open = self.is_open, False
        self._filled.set()
        if was_open:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            self._connection.close()
            self._lost()


@dataclass(slots=True)
class _Question:
    done: threading.Event = field(default_factory=threading.Event)
    answer: Any = None
    lost: bool = False


class _Link(_Channel):
    """Questions to one worker."""

    def __init__(self, connection: socket.socket) -> None:
        self._numbers = itertools.count()
        self._questions: dict[int, _Question] = {}
        self._heard = 0.0
        self._leaving = False
        super().__init__(connection, self._answered, self._abandon)

    def takes_questions(self) -> bool:
        """Whether it doesn't take its leave, nor owes answers and has given none for a while."""
        silent = bool(self._questions) and time.monotonic() - self._heard > _SILENT_S
        return not silent and not self._leaving

    def ask(self, question: Any, until: float) -> Any:
        number, asked = next(self._numbers), _Question()
        with self._lock:
            if not self.is_open:
                return None
            if not self._questions:
                self._heard = time.monotonic()
            self._questions[number] = asked
        try:
            self.send((number, question))
        except BrokenPipeError:
            self._questions.pop(number, None)
            return None
        if not asked.done.wait(max(until - time.monotonic(), 0.0)):
            raise TimeoutError
        if asked.lost:
            raise ConnectionResetError
        return asked.answer

    def _answered(self, message: Any) -> None:
        number, answer = message
        self._heard = time.monotonic()
        self._leaving = self._leaving or number == _LEAVE
        asked = self._questions.pop(number, None)
        if asked is not None:
            asked.answer = answer
            asked.done.set()
        if self._leaving:
            self._end(if_idle=True)

    def _is_idle(self) -> bool:
        return not self._questions

    def _abandon(self) -> None:
        for asked in list(self._questions.values()):
            asked.lost = True
            asked.done.set()
        self._questions.clear()


class _Answering(_Channel):
    """Answers to one worker, each question in a thread of its own."""

    def __init__(
        self,
        neighbours: Neighbours,
        connection: socket.socket,
        worker: int,
        answer: Callable[[Any, int], Any],
    ) -> None:
        self._neighbours = neighbours
        self._worker = worker
        self._answer = answer
        super().__init__(connection, self._take, lambda: None)

    def _take(self, message: Any) -> None:
        number, question = message
        if not self._neighbours.closing:
            _spawn(self._reply, number, question)
        else:
            with suppress(BrokenPipeError):
                self.send((number, None))

    def take_leave(self) -> None:
        """Have the other end the connection as soon as it has its answers."""
        with suppress(BrokenPipeError):
            self.send((_LEAVE, None))

    def _reply(self, number: int, question: Any) -> None:
        try:
            self.send((number, self._answer(question, self._worker)))
        except BrokenPipeError:
            pass
        except Exception:  # noqa: BLE001 - whoever asked has to be told
            _log.exception("a question of worker %d can't be answered", self._worker)
            self._end()


def _process_of(connection: socket.socket) -> int | None:
    """The process at the other end; None where it is another user's."""
    size = _CREDENTIALS.size
    sent = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, _ = _CREDENTIALS.unpack(sent)
    return process if user == os.getuid() else None


def _spawn(run: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=run, args=arguments, daemon=True).start()
