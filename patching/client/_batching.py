"""Concurrent writes of one process, sent as the lines of one bulk request.

::

    thread 1  patch  ──┐                       ┌──►  its answer
    thread 2  put    ──┼──►  POST /v1/bulk  ───┼──►  its refusal
    thread 3  delete ──┘                       └──►  its answer

The first thread leads: it waits a moment for others, sends the lines of all, and hands out the
answers. A write that meets no other is sent by itself. Each call decides on its own what is sent
again, and until when: see `CallPolicy`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from patching.client._blocking import Alone
from patching.client._forks import PerProcess
from patching.client.bulk_writer import exchange
from patching.client.errors import RequestError, Unreachable, problem_of
from patching.client.results import expecting
from patching.client.transport import HttpAnswer, Transport

_LINES_MAX: Final = 256
_WHILE_ANSWERED: Final = 9  # more times `wait_s`, while another batch is being answered
_LINE_BYTES_MAX: Final = 64 * 1024  # a longer line gains nothing from sharing a request


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """``answer`` becomes the line's answer or error; or None if it wasn't sent, and won't be."""

    text: bytes
    answer: Future[HttpAnswer | None] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Batch:
    """Lines that are sent together; ``is_closed``: it waits for no more of them."""

    lines: list[_Line] = field(default_factory=list)
    is_closed: bool = False


class Batcher(PerProcess):
    """Sends writes together. Thread-safe; the caller closes ``transport``.

    ``wait_s``: for how many seconds a write waits for others, if any are under way; up to ten times
    as long while another batch is being answered; no longer once ``lines_max`` have come."""

    def __init__(self, transport: Transport, wait_s: float, lines_max: int = _LINES_MAX) -> None:
        self._transport = transport
        self._wait_s = wait_s
        self._lines_max = lines_max
        self._is_closed = False
        super().__init__()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._under_way: list[int] = []  # the thread of each write
        self._batches_sent = 0  # that aren't answered yet
        self._collecting: dict[str, _Batch] = {}

    def send(
        self, text: bytes, prefer: str, timeout_s: float, alone: Callable[[float], HttpAnswer]
    ) -> HttpAnswer:
        """Returns the answer to the line ``text``, as the write's own route gives it, within
        ``timeout_s`` seconds. If no other write is under way, the line is too long, or the batcher
        is closed, ``alone`` sends the write by itself, in the seconds that are left.

        Lines share a request if they have the same preferences, the text of the header ``prefer``.
        Raises RequestError: the line's own refusal, or the failure of the whole request, as an
        instance for each line.
        """
        with self._counted() as has_company:
            if not has_company or len(text) > _LINE_BYTES_MAX:
                return alone(timeout_s)
            until = time.monotonic() + timeout_s
            line = _Line(text)
            batch = self._join(line, prefer)
            if batch.lines[0] is line:
                self._lead(batch, prefer, until)
            return _answer_by(line, until) or alone(_left_s(until))

    def close(self) -> None:
        """Send what is waiting, and return when every write under way is answered; but at once if
        this thread is amid a write (in a signal handler), for which others may wait. Later writes
        are sent by themselves."""
        with self._changed:
            self._is_closed = True
            for batch in self._collecting.values():
                batch.is_closed = True
            self._changed.notify_all()
            if threading.get_ident() not in self._under_way:
                self._changed.wait_for(lambda: not self._under_way)

    @contextmanager
    def _counted(self) -> Iterator[bool]:
        """Whether other writes are under way while this one is."""
        under_way, thread = self._under_way, threading.get_ident()
        with self._changed:
            has_company = bool(under_way) and not self._is_closed
            under_way.append(thread)
        try:
            yield has_company
        finally:
            with self._changed:
                under_way.remove(thread)
                if self._is_closed:
                    self._changed.notify_all()

    @contextmanager
    def _counted_batch(self) -> Iterator[None]:
        with self._changed:
            self._batches_sent += 1
        try:
            yield
        finally:
            with self._changed:
                self._batches_sent -= 1
                self._changed.notify_all()

    def _join(self, line: _Line, prefer: str) -> _Batch:
        with self._changed:
            batch = self._collecting.setdefault(prefer, _Batch())
            batch.lines.append(line)
            if len(batch.lines) >= self._lines_max or self._is_closed:
                del self._collecting[prefer]
                batch.is_closed = True
                self._changed.notify_all()
            return batch

    def _lead(self, batch: _Batch, prefer: str, until: float) -> None:
        """Sends the batch. Every line has its answer when this returns, or raises."""
        lines: Sequence[_Line] = ()
        is_sent = False
        try:
            try:
                self._wait_for_others(batch, until)
            finally:
                lines = self._taken(batch, prefer)
            if len(lines) > 1:
                is_sent = True
                with self._counted_batch():
                    self._send(lines, prefer, _left_s(until))
        except Exception:  # noqa: BLE001 - nothing was sent: each call meets the error by itself
            is_sent = False
        finally:
            lost = Unreachable("the thread that sent it was interrupted", applied="unknown")
            for line in lines:
                if not line.answer.done():
                    if is_sent:
                        line.answer.set_exception(_own(lost))
                    else:
                        line.answer.set_result(None)

    def _wait_for_others(self, batch: _Batch, until: float) -> None:
        with self._changed:
            wait_s = min(self._wait_s, _left_s(until))
            if not self._changed.wait_for(lambda: batch.is_closed, wait_s):
                # The threads that are being answered will write again.
                wait_s = min(_WHILE_ANSWERED * self._wait_s, _left_s(until))
                self._changed.wait_for(lambda: batch.is_closed or not self._batches_sent, wait_s)

    def _taken(self, batch: _Batch, prefer: str) -> Sequence[_Line]:
        """The lines that still wait for their answers. No others can join them any more."""
        with self._changed:
            if self._collecting.get(prefer) is batch:
                del self._collecting[prefer]
        return [each for each in batch.lines if each.answer.set_running_or_notify_cancel()]

    def _send(self, lines: Sequence[_Line], prefer: str, timeout_s: float) -> None:
        headers = {"Prefer": prefer} if prefer else {}
        texts = [line.text for line in lines]
        plan = exchange(texts, headers, timeout_s=timeout_s)
        contents: Sequence[Mapping[str, Any]] = ()
        broken: RequestError | None = None
        try:
            contents, broken = Alone(self._transport, time.sleep).run(plan)
        except MemoryError as error:  # it may have been sent
            broken = Unreachable(repr(error), applied="unknown")
        for line, content in zip(lines, contents, strict=False):
            try:
                line.answer.set_result(_answer(content))
            except RequestError as error:
                line.answer.set_exception(error)
        if broken is not None:
            for line in lines[len(contents) :]:
                line.answer.set_exception(_own(broken))


def _left_s(until: float) -> float:
    return max(until - time.monotonic(), 0.1)


def _answer_by(line: _Line, until: float) -> HttpAnswer | None:
    try:
        return line.answer.result(max(until - time.monotonic(), 0))
    except TimeoutError:
        if line.answer.cancel():
            raise Unreachable("it was not sent in time", applied="no") from None
        if line.answer.done():
            return line.answer.result()
        raise Unreachable("no answer came in time", applied="unknown") from None


def _own(error: RequestError) -> RequestError:
    """A copy of ``error``, for another call to raise."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    return own


def _answer(content: Mapping[str, Any]) -> HttpAnswer:
    """A line's answer as the write's own route gives it. Raises its refusal."""
    if "problem" in content:
        raise problem_of(content["status"], content["problem"])
    with expecting("answer to a line"):
        headers = {
            "Catalog-Revision": str(content["catalog_revision"]),
            "Attempts": str(content["attempts"]),
        }
        if content["commit_id"] is not None:
            headers["Commit-Id"] = content["commit_id"]
    if content.get("replayed"):
        headers["Idempotency-Replayed"] = "true"
    return HttpAnswer(content["status"], headers, msgspec.json.encode(content))
