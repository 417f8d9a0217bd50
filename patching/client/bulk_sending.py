"""Lines under way, until each has its answer: which are sent again, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .backoff import Backoff
from .errors import RequestError
from .problems import Problem, problem_of

_BYTES_MAX: Final = 8 * 1024 * 1024
_UNAUTHENTICATED: Final = 401


@dataclass(frozen=True, slots=True)
class BulkLine:
    """One write as ``/v1/bulk`` takes it: ``text`` is JSON in one line, without its end.

    ``keyed``: the text has an idempotency key. ``subject`` comes back with the answer.
    """

    text: bytes
    keyed: bool
    subject: Any = None


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """What became of a line. ``content`` is the answering line, None where there is none.

    ``sends``: how often it was sent. ``error``: why it is refused, or undecided. ``decided`` False:
    the gateway wasn't reached, refused the request as a whole, or refused the line for the moment,
    for longer than one was willing to try; the line was not applied where ``applied`` is ``"no"``.
    """

    line: BulkLine
    sends: int
    content: Mapping[str, Any] | None
    error: RequestError | None = None
    decided: bool = True
    applied: str = "no"

    @property
    def changed(self) -> bool:
        return self.content is not None and self.content.get("changed") is True

    @property
    def replayed(self) -> bool:
        """Applied by a request before: it was sent twice, and has the first answer."""
        return self.content is not None and self.content.get("replayed") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkTerms:
    """``lines_max`` and ``bytes_max`` are of one request; it has fewer lines while the gateway is
    busy. ``retry_timeout_s`` and ``retries_max`` are of one line, from its first failure.

    ``resend_unknown``: lines without a key, too, are sent again when nobody knows what became of
    them.
    """

    lines_max: int = 1000
    bytes_max: int = _BYTES_MAX
    retry_timeout_s: float = 120.0
    retries_max: int | None = None
    resend_unknown: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep


class Sending:
    """The lines of one window, until each has its answer. ``waiting``: the places of those that
    have none, ascending. ``failed``: why the last exchange left some without."""

    def __init__(self, lines: Sequence[BulkLine], terms: BulkTerms) -> None:
        self._lines = lines
        self._terms = terms
        self._answers: dict[int, BulkAnswer] = {}
        self._sends = [0] * len(lines)
        self._since: dict[int, float] = {}
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
        """How many of ``places`` were decided by what came of sending them."""
        now = self._terms.clock()
        self.failed = []
        for place in places:
            self._sends[place] += 1
        for place, content in zip(places, contents, strict=False):
            self._decide(place, content, now)
        for place in places[len(contents) :]:
            assert broken is not None
            self._fail(place, broken, now)
        self.waiting = [place for place in self.waiting if place not in self._answers]
        return sum(place in self._answers for place in places)

    def left_s(self, places: Sequence[int]) -> float | None:
        """For how long the ones that failed may still be tried; None where that is over."""
        left_s = self._terms.retry_timeout_s
        retries_max = self._terms.retries_max
        for place in places:
            if place in self._answers:
                continue
            spent = self._terms.clock() - self._since[place]
            left_s = min(left_s, self._terms.retry_timeout_s - spent)
            if retries_max is not None and self._sends[place] > retries_max:
                return None
            if place in self._unknown and not self._may_repeat(place):
                return None
        if left_s <= 0 or not all(_is_passing(error) for error in self.failed):
            return None
        return left_s

    def give_up(self, error: RequestError) -> None:
        """All that wait are undecided, those that were not sent among them."""
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

    def _decide(self, place: int, content: Mapping[str, Any], now: float) -> None:
        error: Problem | None = None
        if "problem" in content:
            error = problem_of(content["status"], content["problem"])
            # One without a valid token says nothing of the line, nor will it of the next ones.
            if error.retryable or error.applied != "no" or error.status == _UNAUTHENTICATED:
                self._fail(place, error, now)
                return
        self._answers[place] = BulkAnswer(
            self._lines[place],
            self._sends[place],
            content,
            error,
            applied="yes" if error is None else "no",
        )

    def _fail(self, place: int, error: RequestError, now: float) -> None:
        self._since.setdefault(place, now)
        self._errors[place] = error
        if error.applied != "no":
            self._unknown.add(place)
        if not self.failed or self.failed[-1] is not error:
            self.failed.append(error)

    def _may_repeat(self, place: int) -> bool:
        return self._lines[place].keyed or self._terms.resend_unknown


def _is_passing(error: RequestError) -> bool:
    """Whether to try again: it may go another way, or its outcome can be found out by that."""
    return error.retryable or (isinstance(error, Problem) and error.code == "outcome_unknown")
