"""Many independent writes over `/v1/bulk`: sent in requests of many lines, answered in order.

Only what was refused for the moment, or broke off, is sent again::

    lines 1 2 3 4 5 -->  applied, 429, applied, refused, (broken off)
    lines   2     5 -->  applied,                         applied, replayed from the first time

A line without an idempotency key is sent again only if it certainly wasn't applied, or if the
caller would rather have it applied twice than not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any, Final

import msgspec

from patching import ABSENT
from patching.client._blocking import Alone
from patching.client._calls import holds_for_all
from patching.client._retry import Retry, may_pass, warn_renamed
from patching.client._steps import Pause, Pieces, SendOnce, Steps
from patching.client.errors import Problem, RequestError, UnexpectedAnswer, Unreachable, problem_of
from patching.client.terms import encoded, new_idempotency_key
from patching.client.transport import Transport

_PATH: Final = "/v1/bulk"
_HEADERS: Final = {"Content-Type": "application/x-ndjson", "Accept": "application/x-ndjson"}
# The fewest lines that a busy gateway reduces a request to.
_LINES_MIN: Final = 16
# The codes with which the gateway answers, instead of a line, a body that broke off.
_OF_THE_BODY: Final = ("malformed_request", "request_timeout")
# Likewise, if too many lines in a row were refused: it hasn't tried this one and those after it.
_ENDED: Final = "too_many_refused"
_BUSY: Final = (429, 503)
_BYTES_MAX: Final = 8 * 1024 * 1024
_UNAUTHENTICATED: Final = 401
_RETRY: Final = Retry(retries_max=None)


class BulkWriter:
    """Sends lines in bulk requests. Not thread-safe; the caller closes ``transport``."""

    def __init__(self, transport: Transport, terms: BulkTerms | None = None) -> None:
        self._windows = LineWindows(terms or BulkTerms())
        self._by = Alone(transport, self._windows.terms.retry.sleep)

    def write(self, lines: Iterable[BulkLine]) -> Iterator[BulkAnswer]:
        """The answers, in the order of ``lines``, which are taken as they are needed: those of a
        request have all been answered before the next line is taken.

        If an answer isn't ``decided``, nothing after its request is sent, and the answers end.
        """
        for line in lines:
            if (window := self._windows.take(line)) is not None:
                answers = self._by.run(self._windows.answers(window))
                yield from answers
                if not is_decided(answers):
                    return
        if window := self._windows.rest():
            yield from self._by.run(self._windows.answers(window))


class LineWindows:
    """Divides lines into requests, and gets their answers. Requests have fewer lines while the
    gateway is busy."""

    def __init__(self, terms: BulkTerms) -> None:
        self.terms = terms
        self._lines_now = terms.lines_max
        self._window: list[BulkLine] = []
        self._size_bytes = 0

    def take(self, line: BulkLine) -> list[BulkLine] | None:
        """The lines before ``line``, or up to it, once a request can't have more; else None."""
        full: list[BulkLine] | None = None
        if self._window and self._size_bytes + len(line.text) > self.terms.bytes_max:
            full = self.rest()
        self._window.append(line)
        self._size_bytes += len(line.text) + 1
        if full is None and len(self._window) >= self.terms.lines_max:
            full = self.rest()
        return full

    def rest(self) -> list[BulkLine]:
        """The lines that were taken and not yet returned."""
        window, self._window, self._size_bytes = self._window, [], 0
        return window

    def answers(self, lines: Sequence[BulkLine]) -> Steps[list[BulkAnswer]]:
        """The answers to a window's lines, in its order."""
        sending = Sending(lines, self.terms)
        failures = 0
        while sending.waiting:
            places = sending.waiting[: self._lines_now]
            contents, broken = yield from exchange([lines[place].text for place in places])
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
            retry = self.terms.retry
            pause_s = min(left_s, retry.pause_s(failures, error))
            retry.announce(failures, pause_s, error)
            yield Pause(pause_s)
        return sending.answers()

    def _speed_up(self) -> None:
        more = max(1, self.terms.lines_max // 10)
        self._lines_now = min(self.terms.lines_max, self._lines_now + more)


def is_decided(answers: Iterable[BulkAnswer]) -> bool:
    """Whether all are decided, so that the next window may be sent."""
    return all(answer.decided for answer in answers)


def exchange(
    lines: Sequence[bytes],
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float | None = None,
) -> Steps[tuple[list[Mapping[str, Any]], RequestError | None]]:
    """Send ``lines`` once. Returns the answers to the first of them, and why there aren't more."""
    body = b"".join(line + b"\n" for line in lines)
    sent = {**_HEADERS, **(headers or {})}
    contents: list[Mapping[str, Any]] = []
    try:
        answer: Pieces = yield SendOnce(
            "POST", _PATH, body=body, headers=sent, timeout_s=timeout_s, takes="lines"
        )
    except RequestError as error:
        return contents, error
    broken: RequestError | None = None
    if answer.broken is not None:
        broken = Unreachable(f"the answers broke off: {answer.broken}", applied="unknown")
    try:
        for raw in _whole_lines(answer.pieces):
            contents.append(_content(raw, len(contents)))
    except UnexpectedAnswer as error:
        broken = error
    last = contents[-1].get("problem", {}).get("code") if contents else None
    if last in _OF_THE_BODY:
        contents.pop()  # it is about the body, which broke off on its way
    elif last == _ENDED:
        contents.pop()
        broken = Unreachable("the gateway ended the request early", applied="no")
    if len(contents) < len(lines) and broken is None:
        broken = Unreachable("the answers ended early", applied="unknown")
    return contents[: len(lines)], broken


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that have a line end. What comes without one was broken off."""
    begun = b""
    for piece in pieces:
        *lines, begun = (begun + piece).split(b"\n")
        yield from (line for line in lines if line)


def _content(raw: bytes, place: int) -> Mapping[str, Any]:
    """The answer to the line at ``place``; UnexpectedAnswer if ``raw`` isn't that."""
    try:
        content = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError):
        content = {}
    problem = content.get("problem", ABSENT)
    answers = isinstance(problem, dict) if problem is not ABSENT else "changed" in content
    if content.get("index") == place and isinstance(content.get("status"), int) and answers:
        return content
    shown = raw[:200].decode(errors="replace")
    raise UnexpectedAnswer(
        f"this is not an answer to line {place}: {shown!r}", status=200, applied="unknown"
    )


def bulk_lines(
    lines: Iterable[BulkLine | Mapping[str, Any]], *, make_keys: bool
) -> Iterator[BulkLine]:
    """Each line as it is, or made of a mapping, which becomes its subject. With ``make_keys``,
    mappings without an idempotency key get one, except for dry runs, which change nothing."""
    for line in lines:
        if isinstance(line, BulkLine):
            yield line
            continue
        members = dict(line)
        if make_keys and "idempotency_key" not in members and not members.get("dry_run"):
            members["idempotency_key"] = new_idempotency_key()
        keyed = "idempotency_key" in members or bool(members.get("dry_run"))
        yield BulkLine(encoded(members), keyed=keyed, subject=line)


@dataclass(frozen=True, slots=True)
class BulkLine:
    """One write as ``/v1/bulk`` takes it: ``text`` is JSON in one line, without the line end.

    ``keyed``: the text has an idempotency key. ``subject`` comes back with the answer.
    """

    text: bytes
    keyed: bool
    subject: Any = None


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """The outcome of a line. ``content`` is the gateway's answer to it, None if there is none.

    ``sends`` counts how often it was sent. ``error``: why it is refused, or undecided. It isn't
    ``decided`` if the gateway was out of reach or refused the whole request, or if it still refused
    the line for now when the time for retries ended. ``applied`` is "yes", "no" (certainly not) or
    "unknown".
    """

    line: BulkLine
    sends: int
    content: Mapping[str, Any] | None
    error: RequestError | None = None
    decided: bool = True
    applied: str = "no"

    @property
    def changed(self) -> bool:
        """Whether the write changes anything."""
        return self.content is not None and self.content.get("changed") is True

    @property
    def replayed(self) -> bool:
        """An earlier try was applied; this is its answer, again."""
        return self.content is not None and self.content.get("replayed") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkTerms:
    """``lines_max`` and ``bytes_max`` bound one request; it has fewer lines while the gateway is
    busy. Lines are sent again as ``retry`` says, whose ``retries_max`` is for each line, until none
    has been decided for ``retry_timeout_s``. ``backoff`` and ``retries_max``, which set its pauses
    and bound, are deprecated.

    ``resend_unknown``: lines without a key, too, are sent again if their outcome is unknown.
    """

    lines_max: int = 1000
    bytes_max: int = _BYTES_MAX
    retry_timeout_s: float = 120.0
    retry: Retry = _RETRY
    resend_unknown: bool = False
    backoff: InitVar[Retry | None] = None
    retries_max: InitVar[int | None] = None

    def __post_init__(self, backoff: Retry | None, retries_max: int | None) -> None:
        retry = self.retry
        if backoff is not None:
            warn_renamed("backoff", "retry", stacklevel=4)
            retry = replace(backoff, retries_max=retry.retries_max)
        if retries_max is not None:
            warn_renamed("retries_max", "retry=Retry(retries_max=…)", stacklevel=4)
            retry = replace(retry, retries_max=retries_max)
        object.__setattr__(self, "retry", retry)


class Sending:
    """The lines of one window, until each has its answer. ``waiting``: the places of those without
    one, ascending. ``failed``: why the last exchange left some without one."""

    def __init__(self, lines: Sequence[BulkLine], terms: BulkTerms) -> None:
        self._lines = lines
        self._terms = terms
        self._answers: dict[int, BulkAnswer] = {}
        self._sends = [0] * len(lines)
        self._since: float | None = None  # when the last one was decided, or the first one failed
        self._errors: dict[int, RequestError] = {}
        self._unknown: set[int] = set()
        self.waiting = list(range(len(lines)))
        self.failed: list[RequestError] = []

    def take(
        self,
        places: Sequence[int],
        contents: Sequence[Mapping[str, Any]],
        broken: RequestError | None,
    ) -> int:
        """Takes the answers to the lines at ``places``; returns how many of them are decided."""
        self.failed = []
        for place in places:
            self._sends[place] += 1
        for place, content in zip(places, contents, strict=False):
            self._decide(place, content)
        for place in places[len(contents) :]:
            assert broken is not None
            self._fail(place, broken)
        self.waiting = [place for place in self.waiting if place not in self._answers]
        decided = sum(place in self._answers for place in places)
        if decided or self._since is None:
            self._since = self._terms.retry.clock()
        return decided

    def left_s(self, places: Sequence[int]) -> float | None:
        """For how many seconds those that failed may still be sent again; None if not at all."""
        assert self._since is not None
        left_s = self._terms.retry_timeout_s - (self._terms.retry.clock() - self._since)
        retries_max = self._terms.retry.retries_max
        for place in places:
            if place in self._answers:
                continue
            if retries_max is not None and self._sends[place] > retries_max:
                return None
            repeats = self._lines[place].keyed or self._terms.resend_unknown
            if place in self._unknown and not repeats:
                return None
        if left_s <= 0 or not all(map(may_pass, self.failed)):
            return None
        return left_s

    def give_up(self, error: RequestError) -> None:
        """All that wait are undecided, even those that were not sent."""
        for place in self.waiting:
            unknown = place in self._unknown
            self._answers[place] = BulkAnswer(
                self._lines[place],
                self._sends[place],
                None,
                self._errors.get(place, error),
                decided=False,
                applied="unknown" if unknown else "no",
            )
        self.waiting = []

    def answers(self) -> list[BulkAnswer]:
        return [self._answers[place] for place in range(len(self._lines))]

    def _decide(self, place: int, content: Mapping[str, Any]) -> None:
        error: Problem | None = None
        if "problem" in content:
            error = problem_of(content["status"], content["problem"])
            # Without a valid token, the gateway hasn't decided this line, nor will it later ones.
            if error.retryable or error.applied != "no" or error.status == _UNAUTHENTICATED:
                self._fail(place, error)
                return
        line, applied = self._lines[place], "yes" if error is None else "no"
        if error and place in self._unknown and not holds_for_all(error, once=line.keyed):
            error.applied = applied = "unknown"
        self._answers[place] = BulkAnswer(line, self._sends[place], content, error, applied=applied)

    def _fail(self, place: int, error: RequestError) -> None:
        self._errors[place] = error
        if error.applied != "no":
            self._unknown.add(place)
        if not self.failed or self.failed[-1] is not error:
            self.failed.append(error)
