"""Simulated clients: they call one worker after the other, learn, give up and try again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gateway.decide.request import Applied, Refused, Unchanged, Unknown
from gateway.model import DocumentRecord

from .asks import Action, Ask, Name, digest
from .model_edits import GONE
from .recorder import Call, Listed
from .scheduler import Process, Scheduler
from .sim_runtime import SimEvent
from .worker import Worker
from .workload import Wishes

_PATIENCE_S = (1.0, 30.0, 60.0)
_ONCE_MORE = 0.2
_TRIES = 3
_BULK = 0.05  # how many of the calls are of many writes at once


class Client:
    """``pick`` gives a worker for each call; ``name`` is in the labels of what it asks for."""

    def __init__(
        self,
        process: Process,
        scheduler: Scheduler,
        rng: random.Random,
        wishes: Wishes,
        pick: Callable[[], Worker],
    ) -> None:
        self._process = process
        self._scheduler = scheduler
        self._rng = rng
        self._wishes = wishes
        self._pick = pick

    def run(self, calls: int, think_s: float) -> None:
        for _ in range(calls):
            if think_s:
                self._scheduler.sleep(think_s * 2 * self._rng.random())
            if self._rng.random() < _BULK:
                self._call_bulk(self._wishes.several())
                continue
            ask = self._wishes.next()
            if ask.writes and ask.idempotency_key is not None and self._rng.random() < 0.3:
                self._race(ask)
            self._insist(ask)

    def _insist(self, ask: Ask) -> None:
        """Call until there is an answer, where the idempotency key makes that safe."""
        for number in range(_TRIES):
            tried = ask if number == 0 else replace(ask, label=f"{ask.label}-try{number}")
            call = self._call(tried)
            if not (ask.writes and ask.idempotency_key is not None):
                return
            if not _is_open(call):
                break
        if self._rng.random() < _ONCE_MORE:
            # As a task does that runs again: after whatever was written meanwhile.
            again = replace(ask, label=f"{ask.label}-again")
            later_s = 0.5 * self._rng.random()
            self._scheduler.spawn(self._process, lambda: self._after(later_s, again), again.label)

    def _after(self, seconds: float, ask: Ask) -> None:
        self._scheduler.sleep(seconds)
        self._call(ask)

    def _race(self, ask: Ask) -> None:
        """The same key through another worker, at times with another request."""
        rival = replace(ask, label=f"{ask.label}-rival")
        if self._rng.random() < 0.3:
            value = {"log": [], "n": 9} if ask.key else {}
            rival = replace(rival, kind="write", actions=(Action("put", ask.key, value),))
            rival = replace(rival, fingerprint=digest(rival))
        self._scheduler.spawn(self._process, lambda: self._insist(rival), rival.label)

    def _call(self, ask: Ask) -> Call:
        done = SimEvent(self._scheduler)
        call = self._pick().call(ask, done)
        done.wait(self._rng.choice(_PATIENCE_S))
        self._learn(call)
        return call

    def _call_bulk(self, asks: Sequence[Ask]) -> None:
        done = SimEvent(self._scheduler)
        calls = self._pick().call_bulk(asks, done)
        done.wait(self._rng.choice(_PATIENCE_S))
        for call in calls:
            self._learn(call)
            if call.ask.idempotency_key is not None and _is_open(call):
                self._insist(replace(call.ask, label=f"{call.ask.label}-again"))

    def _learn(self, call: Call) -> None:
        ask, outcome = call.ask, call.outcome
        if isinstance(outcome, Applied):
            self._wishes.remember(ask.catalog, outcome.commit.time_us)
            for key, document in outcome.documents.items():
                self._see(ask.catalog, Name(key), document, outcome.commit.revision)
        elif isinstance(outcome, Unchanged) and not outcome.would_change:
            for key, document in outcome.documents.items():
                self._see(ask.catalog, Name(key), document, outcome.catalog_revision)
        elif call.reading is not None and ask.kind == "read":
            revision = call.reading.catalog_revision
            self._see(ask.catalog, ask.key, call.reading.document, revision)
        elif call.pin is not None:
            self._wishes.pinned(ask.catalog, call.pin.id, call.pin.revision)
        elif call.listed is not None:
            self._learn_many(ask, call.listed)

    def _learn_many(self, ask: Ask, listed: Listed) -> None:
        if listed.next_after is not None:
            self._wishes.left_over(ask, listed.revision, listed.next_after)
        if ask.revision is None:
            for key, document in listed.documents.items():
                self._see(ask.catalog, Name(key), document, listed.revision)

    def _see(
        self, catalog: Name, key: Name, document: DocumentRecord | None, revision: int
    ) -> None:
        content: Any = GONE
        token = None
        if document is not None and document.exists:
            content, token = document.content, document.token
        self._wishes.seen(catalog, key, token, content, revision)


def _is_open(call: Call) -> bool:
    """Whether it isn't known what became of a write, or nothing did for now."""
    if isinstance(call.outcome, Refused):
        return call.outcome.error.retryable
    return isinstance(call.outcome, Unknown) or call.outcome is None
