"""Many independent writes over `/v1/bulk`: sent in requests of many lines, answered in order.

What is refused for the moment is sent again, and no more than that::

    lines 1 2 3 4 5 -->  applied, 429, applied, refused, (broken off)
    lines   2     5 -->  applied,                         applied, replayed from the first time

A line without an idempotency key is sent again only where it is certain that it was not applied, or
where the caller prefers that it is applied twice to that it isn't at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from urllib3.exceptions import HTTPError

from patching import ABSENT

from .bulk_sending import BulkAnswer, BulkLine, BulkTerms, Sending
from .errors import RequestError, UnexpectedAnswer, Unreachable, in_words
from .problems import Problem
from .transport import Transport

__all__ = ["BulkAnswer", "BulkLine", "BulkTerms", "BulkWriter"]

_PATH: Final = "/v1/bulk"
_HEADERS: Final = {"Content-Type": "application/x-ndjson", "Accept": "application/x-ndjson"}
# Below this, a request has little left to be made smaller by.
_LINES_MIN: Final = 16
# What the gateway says of a body that broke off, in the place of a line.
_OF_THE_BODY: Final = ("malformed_request", "request_timeout")
# Likewise, where too many were refused in a row: this line and those behind it weren't looked at.
_ENDED: Final = "too_many_refused"
_BUSY: Final = (429, 503)


class BulkWriter:
    """Not thread-safe; ``transport`` stays the caller's to close."""

    def __init__(self, transport: Transport, terms: BulkTerms | None = None) -> None:
        self._transport = transport
        self._terms = terms or BulkTerms()
        self._lines_now = self._terms.lines_max

    def write(self, lines: Iterable[BulkLine]) -> Iterator[BulkAnswer]:
        """The answers, in the order of ``lines``, which are taken as they are needed: those of a
        request have all been answered before the next line is taken.

        Where the first answer that isn't ``decided`` comes, nothing after its request is sent, and
        the answers end.
        """
        for window in _windows(lines, self._terms):
            answers = self._window(window)
            yield from answers
            if not all(answer.decided for answer in answers):
                return

    def _window(self, lines: Sequence[BulkLine]) -> list[BulkAnswer]:
        sending = Sending(lines, self._terms)
        failures = 0
        while sending.waiting:
            places = sending.waiting[: self._lines_now]
            contents, broken = self._exchange([lines[place] for place in places])
            decided = sending.take(places, contents, broken)
            if not sending.failed:
                self._speed_up()
                failures = 0
                continue
            failures = 1 if decided else failures + 1
            error = sending.failed[-1]
            if any(isinstance(each, Problem) and each.status in _BUSY for each in sending.failed):
                self._lines_now = min(self._lines_now, max(_LINES_MIN, self._lines_now // 2))
            left_s = sending.left_s(places)
            if left_s is None:
                sending.give_up(error)
                break
            self._terms.sleep(min(left_s, self._terms.backoff.pause_s(failures, error)))
        return sending.answers()

    def _speed_up(self) -> None:
        more = max(1, self._terms.lines_max // 10)
        self._lines_now = min(self._terms.lines_max, self._lines_now + more)

    def _exchange(
        self, lines: Sequence[BulkLine]
    ) -> tuple[list[Mapping[str, Any]], RequestError | None]:
        """Send once. The answers to the first of ``lines``, and why there aren't more."""
        body = b"".join(line.text + b"\n" for line in lines)
        contents: list[Mapping[str, Any]] = []
        try:
            response = self._transport.open("POST", _PATH, body=body, headers=_HEADERS)
        except RequestError as error:
            return contents, error
        broken: RequestError | None = None
        try:
            for raw in _whole_lines(response):
                contents.append(_content(raw, len(contents)))
        except (HTTPError, OSError) as error:
            broken = Unreachable(f"the answers broke off: {in_words(error)}", applied="unknown")
        except UnexpectedAnswer as error:
            broken = error
        finally:
            response.close()
        last = contents[-1].get("problem", {}).get("code") if contents else None
        if last in _OF_THE_BODY:
            contents.pop()  # it speaks of the body, which got lost on its way
        elif last == _ENDED:
            contents.pop()
            broken = Unreachable("the gateway ended the request early", applied="no")
        if len(contents) < len(lines) and broken is None:
            broken = Unreachable("the answers ended early", applied="unknown")
        return contents[: len(lines)], broken


def _windows(lines: Iterable[BulkLine], terms: BulkTerms) -> Iterator[list[BulkLine]]:
    window: list[BulkLine] = []
    size_bytes = 0
    for line in lines:
        if window and size_bytes + len(line.text) > terms.bytes_max:
            yield window
            window, size_bytes = [], 0
        window.append(line)
        size_bytes += len(line.text) + 1
        if len(window) >= terms.lines_max:
            yield window
            window, size_bytes = [], 0
    if window:
        yield window


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that have their ends. What comes without one was broken off."""
    begun = b""
    for piece in pieces:
        *lines, begun = (begun + piece).split(b"\n")
        yield from (line for line in lines if line)


def _content(raw: bytes, place: int) -> Mapping[str, Any]:
    """The line that answers the line at ``place``."""
    try:
        content = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError):
        content = {}
    problem = content.get("problem", ABSENT)
    answers = isinstance(problem, dict) if problem is not ABSENT else "changed" in content
    if content.get("index") == place and isinstance(content.get("status"), int) and answers:
        return content
    shown = raw[:200].decode(errors="replace")
    raise UnexpectedAnswer(f"no answer to line {place}: {shown!r}", status=200, applied="unknown")
