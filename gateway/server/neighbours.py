"""Messages between the workers of one machine: questions and their answers.

Each worker listens at a socket named after its process id, in Linux's abstract namespace, so that a
worker that dies leaves nothing behind. The names of workers with other settings, or of another
version, differ, so that these don't talk to each other. Anybody in the network namespace can take
such a name, or connect to it. So each end of a connection proves to the other, before any message
is read, that it knows the secret of the machine's workers (``gateway.server.turns``), and is a
process of the same user. This module doesn't interpret the messages, which are bytes.

Nothing waits for a connection: it is made in the background, and questions get no answer meanwhile.
On one connection, questions go one way and answers the other, in any order. Messages that come
during a send go together with the next one.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

_log = logging.getLogger(__name__)

# The head of a message: its length; the number of its question; whether there is an answer.
_HEAD: Final = struct.Struct("!Iq?")
_RECEIVE_BYTES: Final = 1 << 18
# A worker that owes answers and has sent nothing for this long is asked nothing more.
SILENT_S: Final = 1.0
_LEAVE: Final = -1  # instead of a question's number: the worker takes its leave


class _Channel:
    """One connection. It calls ``received`` with each message and the number of its question, and
    ``lost`` once when it ends.
    """

    def __init__(
        self,
        connection: socket.socket,
        received: Callable[[int, bytes | None], None],
        lost: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._received = received
        self._lost = lost
        self._lock = threading.Lock()
        self._outbox: list[bytes] = []
        self._filled = threading.Event()
        self.is_open = True
        spawn(self._guarded, self._receive_all)
        spawn(self._guarded, self._send_all)

    def send(self, number: int, message: bytes | None) -> None:
        """Send a message. Raises BrokenPipeError if the connection has ended; then nothing is
        sent."""
        body = message or b""
        with self._lock:
            if not self.is_open:
                raise BrokenPipeError
            self._outbox += (_HEAD.pack(len(body), number, message is not None), body)
        self._filled.set()

    def _guarded(self, run: Callable[[], None]) -> None:
        """Call ``run``. However that ends, end the connection, so that nothing waits for it."""
        try:
            run()
        except OSError:
            pass
        except Exception:  # noqa: BLE001 - a defect must end the connection too
            _log.exception("the connection to another worker failed")
        finally:
            self._end()

    def _send_all(self) -> None:
        while self._filled.wait() and self.is_open:
            with self._lock:
                self._filled.clear()
                sent, self._outbox = self._outbox, []
            self._connection.sendall(b"".join(sent))

    def _receive_all(self) -> None:
        buffer = b""
        while data := self._connection.recv(_RECEIVE_BYTES):
            buffer += data
            at = 0
            while len(buffer) - at >= _HEAD.size:
                size, number, is_there = _HEAD.unpack_from(buffer, at)
                end = at + _HEAD.size + size
                if len(buffer) < end:
                    break
                self._received(number, buffer[at + _HEAD.size : end] if is_there else None)
                at = end
            buffer = buffer[at:]

    def _is_idle(self) -> bool:
        """Whether no answer is outstanding. Called with the lock held."""
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
    answer: bytes | None = None
    lost: bool = False


class Link(_Channel):
    """The connection on which one worker is asked."""

    def __init__(self, connection: socket.socket) -> None:
        self._numbers = itertools.count()
        self._questions: dict[int, _Question] = {}
        self._heard = 0.0
        self._leaving = False
        super().__init__(connection, self._answered, self._abandon)

    def takes_questions(self) -> bool:
        """Whether the worker may be asked: it isn't leaving, nor silent while it owes answers."""
        silent = bool(self._questions) and time.monotonic() - self._heard > SILENT_S
        return not silent and not self._leaving

    def ask(self, question: bytes, until: float) -> bytes | None:
        number, asked = next(self._numbers), _Question()
        with self._lock:
            if not self.is_open:
                return None
            if not self._questions:
                self._heard = time.monotonic()
            self._questions[number] = asked
        try:
            self.send(number, question)
        except BrokenPipeError:
            self._questions.pop(number, None)
            return None
        if not asked.done.wait(max(until - time.monotonic(), 0.0)):
            raise TimeoutError
        if asked.lost:
            raise ConnectionResetError
        return asked.answer

    def _answered(self, number: int, answer: bytes | None) -> None:
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


class Answering(_Channel):
    """The connection on which one worker asks. Each question is answered in a thread of its own."""

    def __init__(
        self,
        is_closing: Callable[[], bool],
        connection: socket.socket,
        worker: int,
        answer: Callable[[bytes, int], bytes],
    ) -> None:
        self._is_closing = is_closing
        self._worker = worker
        self._answer = answer
        super().__init__(connection, self._take, lambda: None)

    def _take(self, number: int, question: bytes | None) -> None:
        if question is not None and not self._is_closing():
            spawn(self._reply, number, question)
        else:
            with suppress(BrokenPipeError):
                self.send(number, None)

    def take_leave(self) -> None:
        """Have the other worker end the connection as soon as it has its answers."""
        with suppress(BrokenPipeError):
            self.send(_LEAVE, None)

    def _reply(self, number: int, question: bytes) -> None:
        try:
            self.send(number, self._answer(question, self._worker))
        except BrokenPipeError:
            pass
        except Exception:  # noqa: BLE001 - the worker that asked has to learn of it
            _log.exception("a message from worker %d can't be answered", self._worker)
            self._end()


def spawn(run: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=run, args=arguments, daemon=True).start()


_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group
# How long a worker that ends waits until the others have their answers, and how often it checks.
_ENDS_WITHIN_S: Final = 20.0
_LOOK_S: Final = 0.01
# How long a worker is left alone after a failed try to connect to it.
_AGAIN_S: Final = 1.0
# How old the list of workers may be.
_WORKERS_EVERY_S: Final = 0.5
_CHALLENGE_BYTES: Final = 32
_PROOF_BYTES: Final = hashlib.sha256().digest_size


@dataclass(slots=True)
class _Peer:
    """What is known of another worker. ``failed``: the last try to connect to it failed."""

    link: Link | None = None
    connecting: bool = False
    failed: bool = False
    not_before: float = 0.0

    def answers(self, now: float) -> bool:
        """Whether the worker answers, as far as is known; one that wasn't tried yet counts too."""
        if self.link is not None and self.link.is_open:
            return self.link.takes_questions()
        return not self.failed or (now >= self.not_before and not self.connecting)


class Neighbours:
    """A worker's connections with its neighbours. Workers of one ``group`` talk to each other, and
    recognise each other by the ``secret``. ``others`` returns the process ids of those that run."""

    def __init__(
        self, group: str, secret: bytes, others: Callable[[], Collection[int]] = lambda: ()
    ) -> None:
        self.own = os.getpid()
        self._secret = secret
        self._there = others
        self._there_now: Collection[int] = ()
        self._workers_due = 0.0
        digest = hashlib.sha256(group.encode()).hexdigest()[:16]
        self._prefix = f"\0metadata-gateway-{os.getuid()}-{digest}-"
        self._lock = threading.Lock()
        self._peers: dict[int, _Peer] = {}
        # Held while a connection is taken, so that ``close`` knows all that were taken.
        self._taking = threading.Lock()
        self._answering: set[Answering] = set()
        self.closing = False
        self._listener: socket.socket | None = None

    def listen(self, answer: Callable[[bytes, int], bytes]) -> None:
        """Answer the questions of others; ``answer`` gets a question and its worker.

        Raises OSError if this machine has no such sockets.
        """
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self._prefix}{os.getpid()}")
        listener.listen()
        self._listener = listener
        spawn(self._accept, listener, answer)

    def others(self) -> list[int]:
        """The workers that answer, as far as is known."""
        now = time.monotonic()
        with self._lock:
            if now >= self._workers_due:
                self._there_now, self._workers_due = self._there(), now + _WORKERS_EVERY_S
                for gone in self._peers.keys() - set(self._there_now):
                    peer = self._peers[gone]
                    if not peer.connecting and (peer.link is None or not peer.link.is_open):
                        del self._peers[gone]
            peers = self._peers
            return [w for w in self._there_now if w not in peers or peers[w].answers(now)]

    def ask(self, worker: int, question: bytes, until: float) -> bytes | None:
        """The worker's answer; None if it isn't there, isn't connected yet, or takes no questions.

        Raises OSError if the question was sent, but the worker died or didn't answer by ``until``,
        in monotonic seconds.
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

    def _link(self, worker: int) -> Link | None:
        with self._lock:
            peer = self._peers.setdefault(worker, _Peer())
            link = peer.link
            if link is not None and link.is_open:
                return link if link.takes_questions() else None
            if not peer.connecting and time.monotonic() >= peer.not_before:
                peer.connecting = True
                spawn(self._connect, worker, peer)
        return None

    def _connect(self, worker: int, peer: _Peer) -> None:
        connection = self._connected(worker)
        with self._lock:
            peer.connecting, peer.failed = False, connection is None
            if connection is None:
                peer.not_before = time.monotonic() + _AGAIN_S
            else:
                peer.link = Link(connection)

    def _connected(self, worker: int) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(SILENT_S)
            connection.connect(f"{self._prefix}{worker}")
            if _process_of(connection) == worker and self._proves_itself(connection):
                connection.settimeout(None)
                return connection
        except OSError:
            pass
        connection.close()
        return None

    def _proves_itself(self, connection: socket.socket) -> bool:
        """Prove to the other end that this is a worker; return whether it has proved that too.

        Before that, the other end may not have accepted the connection at all. Raises OSError.
        """
        theirs, ours = _received(connection, _CHALLENGE_BYTES), os.urandom(_CHALLENGE_BYTES)
        connection.sendall(ours + self._proof(b"asks", theirs, ours))
        proof = _received(connection, _PROOF_BYTES)
        return hmac.compare_digest(proof, self._proof(b"answers", theirs, ours))

    def _accept(self, listener: socket.socket, answer: Callable[[bytes, int], bytes]) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            worker = _process_of(connection)
            if worker is None:
                connection.close()
            else:
                spawn(self._take, connection, worker, answer)

    def _take(
        self, connection: socket.socket, worker: int, answer: Callable[[bytes, int], bytes]
    ) -> None:
        """Take questions on ``connection``, if the other end proves that it is a worker."""
        try:
            connection.settimeout(SILENT_S)
            ours = os.urandom(_CHALLENGE_BYTES)
            connection.sendall(ours)
            theirs = _received(connection, _CHALLENGE_BYTES)
            proof = _received(connection, _PROOF_BYTES)
            if not hmac.compare_digest(proof, self._proof(b"asks", ours, theirs)):
                raise PermissionError
            with self._taking:
                if self.closing:
                    raise BrokenPipeError
                connection.sendall(self._proof(b"answers", ours, theirs))
                connection.settimeout(None)
                self._answering = {each for each in self._answering if each.is_open}
                self._answering.add(Answering(lambda: self.closing, connection, worker, answer))
        except OSError:
            connection.close()

    def _proof(self, who: bytes, *challenges: bytes) -> bytes:
        return hmac.digest(self._secret, b"".join((who, *challenges)), "sha256")


def _process_of(connection: socket.socket) -> int | None:
    """The id of the process at the other end; None if it is another user's."""
    size = _CREDENTIALS.size
    sent = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, _ = _CREDENTIALS.unpack(sent)
    return process if user == os.getuid() else None


def _received(connection: socket.socket, size: int) -> bytes:
    """The next ``size`` bytes. Raises OSError."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data
