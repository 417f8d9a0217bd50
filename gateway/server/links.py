"""Messages over one connection of two workers: questions one way, answers the other, in any order.

What is to be sent while a send is under way goes with the next one.
"""

from __future__ import annotations

import itertools
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

_log = logging.getLogger(__name__)

# The length of a message; the number of its question; whether there is an answer.
_HEAD: Final = struct.Struct("!Iq?")
_RECEIVE_BYTES: Final = 1 << 18
# A worker with questions that says nothing for so long is asked nothing more.
SILENT_S: Final = 1.0
_LEAVE: Final = -1  # in the place of a question's number


class _Channel:
    """One connection. ``received`` is called with each message, and the number of its question;
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
        spawn(self._receive)
        spawn(self._send)

    def send(self, number: int, message: bytes | None) -> None:
        """Raises BrokenPipeError where the connection has ended; then nothing is sent."""
        body = message or b""
        with self._lock:
            if not self.is_open:
                raise BrokenPipeError
            self._outbox += (_HEAD.pack(len(body), number, message is not None), body)
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
                size, number, is_there = _HEAD.unpack_from(buffer, at)
                end = at + _HEAD.size + size
                if len(buffer) < end:
                    break
                self._received(number, buffer[at + _HEAD.size : end] if is_there else None)
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
    answer: bytes | None = None
    lost: bool = False


class Link(_Channel):
    """Questions to one worker."""

    def __init__(self, connection: socket.socket) -> None:
        self._numbers = itertools.count()
        self._questions: dict[int, _Question] = {}
        self._heard = 0.0
        self._leaving = False
        super().__init__(connection, self._answered, self._abandon)

    def takes_questions(self) -> bool:
        """Whether it doesn't take its leave, nor owes answers and has given none for a while."""
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
    """Answers to one worker, each question in a thread of its own."""

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
        """Have the other end the connection as soon as it has its answers."""
        with suppress(BrokenPipeError):
            self.send(_LEAVE, None)

    def _reply(self, number: int, question: bytes) -> None:
        try:
            self.send(number, self._answer(question, self._worker))
        except BrokenPipeError:
            pass
        except Exception:  # noqa: BLE001 - whoever asked has to be told
            _log.exception("a question of worker %d can't be answered", self._worker)
            self._end()


def spawn(run: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=run, args=arguments, daemon=True).start()
