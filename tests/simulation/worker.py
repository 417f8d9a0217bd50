"""A simulated worker: a process with a gateway, and what its HTTP layer would do with a call."""

from __future__ import annotations

import msgspec

import patching
from gateway.commits.conditions import ANY_TAG, Conditions
from gateway.commits.errors import CommitError
from gateway.commits.requests import ApplyPatch, Delete, Edit, Merge, Put
from gateway.commits.service import Gateway, Written
from gateway.model import Idempotency

from .asks import Ask
from .recorder import Call, Recording
from .scheduler import Process, Scheduler
from .sim_runtime import SimEvent

PRINCIPAL = "p"
# More than a task that is to serve a request may fall behind (see ``sim_runtime``).
_NEGLECTED_S = 0.06


class Worker:
    """Calls are served by tasks of ``process``: killed and suspended with it."""

    def __init__(
        self, process: Process, gateway: Gateway, scheduler: Scheduler, recording: Recording
    ) -> None:
        self.process = process
        self._gateway = gateway
        self._scheduler = scheduler
        self._recording = recording
        self.falls_behind = False
        self._due_since: dict[str, float] = {}

    def call(self, ask: Ask, done: SimEvent) -> Call:
        """Begin to serve a call; ``done`` is set when it is answered, or the worker is dead."""
        call = Call(ask, self.process.name, self._recording.tick(), self._scheduler.now)
        self._recording.calls.append(call)
        stood_still_s = self._stood_still_s()

        def serve() -> None:
            try:
                serve_call(self._gateway, call)
            except CommitError as error:
                call.error = error
            call.answered, call.answered_s = self._recording.tick(), self._scheduler.now
            call.suspended_s = self._stood_still_s() - stood_still_s
            done.set()

        self.process.on_death.append(done.set)
        self._scheduler.spawn(self.process, serve, f"{self.process.name}/{ask.label}")
        return call

    def neglected(self, now: float) -> list[str]:
        """The catalogs whose requests have been due for a while, though a leader is idle."""
        queue = self._gateway._loop._queue
        due = [
            catalog
            for catalog, lane in queue._lanes.items()
            if queue._idle and lane.waiting and not lane.busy and lane.not_before < now
        ]
        self._due_since = {catalog: self._due_since.get(catalog, now) for catalog in due}
        patience_s = _NEGLECTED_S if self.falls_behind else 0.0
        woke_s = self.process.resumes_at
        return [c for c, since in self._due_since.items() if now - max(since, woke_s) > patience_s]

    def _stood_still_s(self) -> float:
        ahead_s = max(0.0, self.process.resumes_at - self._scheduler.now)
        return self.process.suspended_s - ahead_s


def serve_call(gateway: Gateway, call: Call) -> None:
    """Raises CommitError."""
    ask = call.ask
    if ask.writes:
        written = _write(gateway, ask)
        call.outcome, call.commit_id = written.outcome, written.commit_id
    elif ask.kind == "read":
        call.reading = gateway.read(ask.catalog, ask.key)
    elif ask.kind == "read_at":
        call.reading = gateway.read_at_revision(ask.catalog, ask.key, ask.revision)
    elif ask.kind == "page":
        call.page = gateway.commits(ask.catalog, after=ask.revision, limit=3, key=None)
    else:
        call.reply = gateway.reply(ask.catalog, PRINCIPAL, ask.idempotency_key or "")


def _write(gateway: Gateway, ask: Ask) -> Written:
    conditions = Conditions(
        if_match=None if ask.if_match is None else frozenset(ask.if_match),
        if_none_match=ANY_TAG if ask.create_only else None,
    )
    idempotency = None
    if ask.idempotency_key is not None:
        idempotency = Idempotency(PRINCIPAL, ask.idempotency_key, ask.fingerprint)
    return gateway.write(
        ask.catalog,
        ask.key,
        _edit(ask),
        conditions=conditions,
        size_bytes=len(msgspec.json.encode(ask.value)),
        wait_s=ask.wait_s,
        author=ask.label,
        message=ask.label,
        idempotency=idempotency,
        dry_run=ask.dry_run,
    )


def _edit(ask: Ask) -> Edit:
    size_bytes = len(msgspec.json.encode(ask.value))
    if ask.kind == "put":
        return Put(ask.value, size_bytes)
    if ask.kind == "merge":
        return Merge(ask.value, size_bytes)
    if ask.kind == "delete":
        return Delete()
    return ApplyPatch(patching.parse(ask.value))
