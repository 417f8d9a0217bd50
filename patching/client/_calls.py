"""One call of the client: a request, sent again if that is safe, until its deadline.

::

    send ──► answer ─────────────────────────────► returned
     ▲         refused for good ─────────────────► raised
     │         refused for the moment ─► pause ─┐
     │         lost (unknown), repeatable ──────┤
     └──────────────────────────────────────────┘  until retries_max or the deadline; then the last
                                                   error is raised, unless `outcomes` has the answer
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from patching.client._retry import Retry, Tries, may_pass
from patching.client._steps import Listing, Pause, Query, SendOnce, Steps
from patching.client._wire import HttpAnswer, segment
from patching.client.errors import Problem, RequestError
from patching.client.terms import (
    CheckedTerms,
    Tokens,
    WriteTerms,
    condition_headers,
    condition_members,
    encoded,
    new_idempotency_key,
)

_T = TypeVar("_T")

# How much longer a write's answer is awaited than the gateway tries: breaking it off leaves its
# outcome unknown.
_ANSWER_GRACE_S: Final = 0.5
_OUTCOME_TIMEOUT_S: Final = 5.0
_FORGET: Final = 0.9  # see `CallPolicy._usual_s`
# Refusals of the request itself, whatever the state.
_ABOUT_THE_REQUEST: Final = (400, 405, 414, 415)
# Refusals that are decided once under an idempotency key. A 403 may be about the token.
_DECIDED: Final = (404, 409, 412, 413, 422, 428)
# Codes among these that may not be decided under the key: an earlier send may yet be applied.
_UNDECIDED: Final = ("too_much_work", "application_conflict", "over_limit", "route_not_found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request and what may be done with it.

    ``reads``: it changes nothing. ``repeatable``: it may be sent again even if nobody knows what
    became of it. ``outcome_path``: where to ask for that. ``prefer``: preferences besides ``wait``,
    which is sent if ``waits``: ``wait_s``, or less if the deadline is nearer. ``once``: what the
    gateway decides about it holds for every time that it is sent. ``brief``: it is about one
    document, so its answer comes soon: see ``Retry.answer_s``. ``line``: the same as a line of a
    bulk request, which may be sent instead; None if there is none.
    """

    method: str
    path: str
    query: Query = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    reads: bool = False
    repeatable: bool = False
    outcome_path: str | None = None
    prefer: tuple[str, ...] = ()
    waits: bool = False
    wait_s: int | None = None
    once: bool = False
    brief: bool = False
    line: bytes | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """What a write does to a document, as a bulk line says it. ``members``: those of its verb, as
    JSON without the braces."""

    catalog: str
    key: str
    op: str
    members: bytes = b""


class CallPolicy:
    """What both clients do with a call, as plans: what is sent, when it is sent again, and what is
    known in the end. ``timeout_s`` is the deadline of calls that have none. ``batches``: writes
    that come with their edit may be sent as lines of a bulk request."""

    def __init__(self, retry: Retry, timeout_s: float, *, batches: bool = False) -> None:
        self.retry = retry
        self.timeout_s = timeout_s
        self._batches = batches
        # How long answers to reads (True) and writes of one document have taken lately: after a
        # slow one it falls with each faster one.
        self._usual_s = {True: 0.0, False: 0.0}

    @property
    def unbounded_retry(self) -> Retry:
        """The retries of what has a bound of its own."""
        return Retry(retries_max=None, on_retry=self.retry.on_retry)

    def run(self, plan: Steps[_T]) -> Any:
        """The result of ``plan``, once it is carried out."""
        raise NotImplementedError

    def each(self, plan: Listing[_T]) -> Any:
        """The items of ``plan``, as it is carried out."""
        raise NotImplementedError

    def get(
        self,
        path: str,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        *,
        brief: bool = False,
    ) -> Steps[HttpAnswer]:
        """Read. Raises RequestError."""
        call = Call(
            method="GET",
            path=path,
            query=query,
            headers=headers or {},
            reads=True,
            repeatable=True,
            brief=brief,
        )
        return self.send(call, timeout_s)

    def open(self, path: str, query: Query = ()) -> Steps[Any]:
        """Read a stream; returns when the head of the answer is there. Raises RequestError."""
        tries = self.retry.tries(self.timeout_s)
        while True:
            try:
                return (yield SendOnce("GET", path, query, takes="stream"))
            except RequestError as error:
                pause_s = tries.pause_after(error)
                error.sends = tries.failures
                if pause_s is None:
                    raise
                yield Pause(pause_s)

    def send(self, call: Call, timeout_s: float | None = None) -> Steps[HttpAnswer]:
        """The answer. Raises RequestError: the refusal, or the last of several failures.

        Nothing is sent, and no answer awaited, after the deadline.
        """
        tries = self.retry.tries(self.timeout_s if timeout_s is None else timeout_s)
        is_unknown = False
        while True:
            try:
                if not (call.brief and call.repeatable):
                    answered: HttpAnswer = yield self._exchange(call, tries.left_s)
                    return answered
                begun = self.retry.clock()
                answer_s = tries.answer_s(self._usual_s[call.reads])
                answered = yield self._exchange(call, tries.left_s, answer_s)
                took_s = self.retry.clock() - begun
                self._usual_s[call.reads] = max(took_s, _FORGET * self._usual_s[call.reads])
                return answered
            except RequestError as error:
                lost = error.applied != "no" and not call.reads
                is_unknown = is_unknown or lost
                passes = may_pass(error)
                pause_s = tries.pause_after(error, passes and (call.repeatable or not lost))
                if pause_s is None:
                    error.sends = tries.failures
                    if is_unknown and passes:
                        first = yield from self._first_answer(call, tries)
                        if first is not None:
                            return first
                    _settle(error, call, is_unknown)
                    raise
                yield Pause(pause_s)

    def write(
        self,
        method: str,
        catalog_path: str,
        rest: str,
        given: WriteTerms,
        *,
        body: bytes | None = None,
        media_type: str = "application/json",
        if_match: Tokens | None = None,
        if_absent: bool = False,
        rebase: bool = False,
        once: bool = True,
        query: Query = (),
        brief: bool = False,
        edit: Edit | None = None,
    ) -> Steps[HttpAnswer]:
        """Write ``rest`` of the catalog. ``once``: whether a refusal, too, is decided once under
        the key, the caller's or one made here. ``query``: parameters besides the terms'. ``brief``:
        as in `Call`. Raises ValueError for what can't be asked; RequestError, which has the key."""
        terms = CheckedTerms(**given)
        headers = {**terms.headers, **condition_headers(if_match, if_absent)}
        if body is not None:
            headers["Content-Type"] = media_type
        key = terms.idempotency_key
        if key is None and self.retry.make_keys and not terms.dry_run:
            key = new_idempotency_key()
        if key is not None:
            headers["Idempotency-Key"] = key
        call = Call(
            method=method,
            path=catalog_path + rest,
            query=[*terms.query, *query],
            body=body,
            headers=headers,
            reads=terms.dry_run,
            repeatable=key is not None or terms.dry_run,
            outcome_path=None if key is None else f"{catalog_path}/outcomes/{segment(key)}",
            prefer=(*terms.prefer, "rebase") if rebase else terms.prefer,
            waits=True,
            wait_s=terms.wait_s,
            once=once and key is not None,
            brief=brief,
            line=self._line(edit, terms, key, if_match, if_absent, rebase),
        )
        try:
            return (yield from self.send(call, terms.timeout_s))
        except RequestError as error:
            error.idempotency_key = key
            raise

    def _line(
        self,
        edit: Edit | None,
        terms: CheckedTerms,
        idempotency_key: str | None,
        if_match: Tokens | None,
        if_absent: bool,
        rebase: bool,
    ) -> bytes | None:
        """The write as a line of a bulk request; None if it can't be one."""
        if edit is None or not self._batches or terms.dry_run:
            return None
        members: dict[str, Any] = {"catalog": edit.catalog, "key": edit.key, "op": edit.op}
        members |= {**terms.members, **condition_members(if_match, if_absent)}
        if idempotency_key is not None:
            members["idempotency_key"] = idempotency_key
        if rebase:
            members["rebase"] = True
        text = encoded(members)
        return text[:-1] + b"," + edit.members + b"}" if edit.members else text

    def _exchange(self, call: Call, left_s: float, answer_s: float = math.inf) -> SendOnce:
        headers = dict(call.headers)
        prefer = list(call.prefer)
        if call.waits:
            answer_s = max(answer_s, call.wait_s or 0) + _ANSWER_GRACE_S
        timeout_s = max(min(left_s, answer_s), 0.1)
        if call.waits:
            wait_s = max(1, math.floor(timeout_s - _ANSWER_GRACE_S))
            prefer.append(f"wait={wait_s if call.wait_s is None else min(wait_s, call.wait_s)}")
        if prefer:
            headers["Prefer"] = ", ".join(prefer)
        return SendOnce(
            call.method,
            call.path,
            query=call.query,
            body=call.body,
            headers=headers,
            timeout_s=timeout_s,
            line=call.line,
            # The line itself says that it is a rebase.
            shared=", ".join(each for each in prefer if each != "rebase"),
        )

    def _first_answer(self, call: Call, tries: Tries) -> Steps[HttpAnswer | None]:
        """The answer that got lost, if one was decided under the call's idempotency key; else None.

        Sending the call again then returns it, and can't do anything else.
        """
        if call.outcome_path is None or tries.left_s <= 0:
            return None
        with suppress(RequestError):
            left_s = min(tries.left_s, _OUTCOME_TIMEOUT_S)
            yield SendOnce("GET", call.outcome_path, timeout_s=left_s)
            if tries.left_s > 0:
                left_s = min(tries.left_s, _OUTCOME_TIMEOUT_S)
                first: HttpAnswer = yield self._exchange(call, left_s)
                return first
        return None


def _settle(error: RequestError, call: Call, is_unknown: bool) -> None:
    """Make ``error`` say what is known about all the times that the request was sent.

    One whose answer got lost may still be under way: a later one's refusal isn't its own, unless it
    is decided under their idempotency key, or any such request would be refused.
    """
    if call.reads:
        error.applied = "no"
    elif is_unknown and not holds_for_all(error, once=call.once):
        error.applied = "unknown"


def holds_for_all(error: RequestError, *, once: bool) -> bool:
    """Whether the refusal holds for every time that the request was sent, even if an answer got
    lost. ``once``: the gateway decides it once under its idempotency key."""
    if not isinstance(error, Problem):
        return False
    is_decided = error.status in _DECIDED and error.code not in _UNDECIDED
    return error.status in _ABOUT_THE_REQUEST or (once and is_decided)
