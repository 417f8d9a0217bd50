"""One call of the client: a request, sent again where that is safe, until its deadline.

::

    send ──► answer ─────────────────────────────► returned
     ▲         refused for good ─────────────────► raised
     │         refused for the moment ─► pause ─┐
     │         lost (unknown), repeatable ──────┤
     └──────────────────────────────────────────┘  until retries_max or the deadline; then the last
                                                   error is raised, or what `outcomes` knows is told
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import urllib3

from patching.client._retry import Retry, may_pass
from patching.client.errors import Problem, RequestError
from patching.client.terms import (
    CheckedTerms,
    Tokens,
    WriteTerms,
    condition_headers,
    new_idempotency_key,
)
from patching.client.transport import HttpAnswer, Query, Transport, segment

# A write that is sent is waited for so much longer: breaking it off leaves its outcome unknown.
_ANSWER_GRACE_S: Final = 2.0
_OUTCOME_TIMEOUT_S: Final = 5.0
# Refusals of the request itself, in any state of the gateway.
_ABOUT_THE_REQUEST: Final = (400, 405, 414, 415)
# Refusals that an idempotency key stands for. Of 403, it may be the token that was refused.
_DECIDED: Final = (404, 409, 412, 413, 422, 428)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request and what may be done with it.

    ``reads``: it changes nothing. ``repeatable``: it may be sent again also where nobody knows what
    became of it. ``outcome_path``: where to ask that. ``prefer``: preferences beside ``wait``,
    which is sent if ``waits``: ``wait_s``, or less where the deadline is nearer.
    ``once``: what the gateway decides of it is decided for all times that it is sent.
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


class CallSender:
    """Thread-safe. ``timeout_s`` is the deadline of a call that brings none."""

    def __init__(self, transport: Transport, retry: Retry, timeout_s: float) -> None:
        self.transport = transport
        self.retry = retry
        self.timeout_s = timeout_s

    def get(
        self,
        path: str,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> HttpAnswer:
        """Read. RequestError."""
        call = Call(
            method="GET", path=path, query=query, headers=headers or {}, reads=True, repeatable=True
        )
        return self.send(call, timeout_s)

    def open(self, path: str, query: Query = ()) -> urllib3.BaseHTTPResponse:
        """Read what is streamed; returns when the head of the answer is there. RequestError."""
        tries = self.retry.tries(self.timeout_s)
        return tries.ask(lambda: self.transport.open("GET", path, query=query))

    def send(self, call: Call, timeout_s: float | None = None) -> HttpAnswer:
        """The answer. Raises RequestError: the refusal, or the last of several failures.

        Nothing is sent after the deadline; a write that was sent before is waited for 2 s longer.
        """
        tries = self.retry.tries(self.timeout_s if timeout_s is None else timeout_s)
        is_unknown = False
        while True:
            try:
                return self._send_once(call, tries.left_s)
            except RequestError as error:
                lost = error.applied != "no" and not call.reads
                is_unknown = is_unknown or lost
                passes = may_pass(error)
                if tries.again(error, passes and (call.repeatable or not lost)):
                    continue
                error.sends = tries.failures
                answer = self._first_answer(call) if is_unknown and passes else None
                if answer is not None:
                    return answer
                _settle(error, call, is_unknown)
                raise

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
    ) -> HttpAnswer:
        """Write ``rest`` of the catalog, under the caller's idempotency key or one that is made.
        ``once``: whether the key stands for a refusal, too. ``query``: parameters beside the
        terms'. ValueError for what can't be asked;
        RequestError."""
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
            prefer=(*terms.prefer, *(("rebase",) if rebase else ())),
            waits=True,
            wait_s=terms.wait_s,
            once=once and key is not None,
        )
        return self.send(call, terms.timeout_s)

    def _send_once(self, call: Call, left_s: float) -> HttpAnswer:
        left_s = max(left_s, 0.1)
        headers = dict(call.headers)
        prefer = list(call.prefer)
        if call.waits:
            wait_s = max(1, math.floor(left_s))
            prefer.append(f"wait={wait_s if call.wait_s is None else min(wait_s, call.wait_s)}")
        if prefer:
            headers["Prefer"] = ", ".join(prefer)
        return self.transport.request(
            call.method,
            call.path,
            query=call.query,
            body=call.body,
            headers=headers,
            read_timeout_s=left_s if call.reads else left_s + _ANSWER_GRACE_S,
        )

    def _first_answer(self, call: Call) -> HttpAnswer | None:
        """The answer that got lost, where there is a commit under the call's idempotency key.

        Then sending it once more tells it, and can't do anything else.
        """
        if call.outcome_path is None:
            return None
        with suppress(RequestError):
            self.transport.request("GET", call.outcome_path, read_timeout_s=_OUTCOME_TIMEOUT_S)
            return self._send_once(call, _OUTCOME_TIMEOUT_S)
        return None


def _settle(error: RequestError, call: Call, is_unknown: bool) -> None:
    """Make ``error`` say what is known of all the times that the request was sent.

    One that got lost may still be under way: it isn't bound by a later one's refusal, unless their
    idempotency key is, or any such request would be refused.
    """
    if call.reads:
        error.applied = "no"
    elif is_unknown and not (
        isinstance(error, Problem)
        and (error.status in _ABOUT_THE_REQUEST or (call.once and error.status in _DECIDED))
    ):
        error.applied = "unknown"
