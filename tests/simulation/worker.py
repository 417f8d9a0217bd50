"""A simulated worker: a process with a gateway, and what its HTTP layer would do with a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from msgspec.structs import replace

from gateway.decide.request import Refused, Request, WriteOutcome
from gateway.errors import CommitError
from gateway.feed.from_state import FromState
from gateway.model import DocumentRecord
from gateway.read.listing import as_is
from gateway.service import GatewayService

from .asks import Ask, Undone
from .recorder import Call, Listed, Recording, told
from .scheduler import Process, Scheduler
from .sim_requests import PRINCIPAL, request_of, reverting
from .sim_runtime import SimEvent

# More than a task that is to serve a request may fall behind (see ``sim_runtime``).
_NEGLECTED_S = 0.06


class Worker:
    """Calls are served by tasks of ``process``: killed and suspended with it."""

    def __init__(
        self, process: Process, gateway: GatewayService, scheduler: Scheduler, recording: Recording
    ) -> None:
        self.process = process
        self._gateway = gateway
        self.feed = gateway.feed(told)
        self._scheduler = scheduler
        self._recording = recording
        self.falls_behind = False
        self._due_since: dict[str, float] = {}

    def begin_from_state(
        self, catalog: str, prefix: str, position: tuple[int, str] | None
    ) -> FromState[DocumentRecord]:
        return self._gateway.feeds_from_state.begin(
            self.feed,
            catalog,
            lambda document, _: document,
            owner=PRINCIPAL,
            prefix=prefix,
            position=position,
        )

    def call(self, ask: Ask, done: SimEvent) -> Call:
        """Begin to serve a call; ``done`` is set when it is answered, or the worker is dead."""
        (call,) = self._begin([ask], done, self._serve)
        return call

    def _serve(self, calls: Sequence[Call]) -> None:
        serve_call(self._gateway, calls[0], self._scheduler.sleep)

    def call_bulk(self, asks: Sequence[Ask], done: SimEvent) -> list[Call]:
        """The same for many writes that come at once, each for itself."""
        calls = self._begin(asks, done, lambda calls: serve_bulk(self._gateway, calls))
        number = self._recording.tick()
        for place, call in enumerate(calls):
            call.bulk = number, place
        return calls

    def _begin(
        self, asks: Sequence[Ask], done: SimEvent, serve: Callable[[list[Call]], None]
    ) -> list[Call]:
        called, called_s = self._recording.tick(), self._scheduler.now
        calls = [Call(ask, self.process.name, called, called_s) for ask in asks]
        self._recording.calls += calls
        stood_still_s = self._stood_still_s()

        def run() -> None:
            error = None
            try:
                serve(calls)
            except CommitError as raised:
                error = raised
            answered = self._recording.tick()
            for call in calls:
                call.error = error
                call.answered, call.answered_s = answered, self._scheduler.now
                call.suspended_s = self._stood_still_s() - stood_still_s
            done.set()

        self.process.on_death.append(done.set)
        self._scheduler.spawn(self.process, run, f"{self.process.name}/{asks[0].label}")
        return calls

    def neglected(self, now: float) -> list[str]:
        """The catalogs whose requests have been due for a while, though a leader is idle."""
        queue = self._gateway._loop._queue
        if not queue._lanes and not self._due_since:
            return []
        due = [
            catalog
            for catalog, lane in queue._lanes.items()
            if (queue._apart if catalog in queue.suspects else queue._schedule).idle
            if lane.waiting and not lane.busy and lane.not_before < now
            if self._gateway._write_out.may_move(catalog, queue._is_large(catalog, lane, now))
        ]
        if not due and not self._due_since:
            return []
        self._due_since = {catalog: self._due_since.get(catalog, now) for catalog in due}
        patience_s = _NEGLECTED_S if self.falls_behind else 0.0
        woke_s = self.process.resumes_at
        return [c for c, since in self._due_since.items() if now - max(since, woke_s) > patience_s]

    def _stood_still_s(self) -> float:
        ahead_s = max(0.0, self.process.resumes_at - self._scheduler.now)
        return self.process.suspended_s - ahead_s


def serve_call(gateway: GatewayService, call: Call, sleep: Callable[[float], None]) -> None:
    """Raises CommitError."""
    ask, revision = call.ask, call.ask.revision
    match ask.kind:
        case "write" | "delete-catalog":
            serve_write(gateway, call)
        case "read":
            call.reading = gateway.read(ask.catalog, ask.key)
        case "read-at":
            call.reading = gateway.read_at_revision(ask.catalog, ask.key, revision or 0)
        case "read-then":
            call.at = gateway.revision_at(ask.catalog, ask.time_us)
            call.reading = gateway.read_at_revision(ask.catalog, ask.key, call.at.revision)
        case "page":
            call.page = gateway.commits(ask.catalog, after=revision or 0, limit=3, key=None)
        case "reply":
            call.reply = gateway.reply(ask.catalog, PRINCIPAL, ask.idempotency_key or "")
        case "list":
            page = gateway.listing.page(
                ask.catalog, as_is, prefix="", after=ask.after, limit=ask.limit, revision=revision
            )
            documents = {document.key: document for document in page.documents}
            call.listed = Listed(page.revision, documents, page.next_after)
        case "several":
            call.listed = Listed(
                *gateway.listing.several(ask.catalog, ask.keys, as_is, revision=revision)
            )
        case "export":
            serve_export(gateway, call, sleep)
        case "revision-at":
            call.at = gateway.revision_at(ask.catalog, ask.time_us)
        case "pin":
            call.pin = gateway.retention.pin(
                ask.catalog, revision, ask.seconds, PRINCIPAL, ask.label
            )
        case "renew":
            call.pin = gateway.retention.renew(ask.catalog, ask.pin, ask.seconds, PRINCIPAL)
        case "unpin":
            gateway.retention.unpin(ask.catalog, ask.pin, PRINCIPAL)
        case "compact":
            call.compacted = gateway.retention.compact(ask.catalog, revision or 0)


def serve_export(gateway: GatewayService, call: Call, sleep: Callable[[float], None]) -> None:
    export = gateway.listing.export(
        call.ask.catalog, as_is, owner=PRINCIPAL, revision=call.ask.revision
    )
    documents: dict[str, DocumentRecord | None] = {}
    call.listed = Listed(export.revision, documents, whole=False)
    for document in chain.from_iterable(export.pages):
        sleep(call.ask.pause_s)
        documents[document.key] = document
    call.listed = Listed(export.revision, documents)


def serve_write(gateway: GatewayService, call: Call) -> None:
    if call.ask.undone is not None:
        serve_revert(gateway, call, call.ask.undone)
        return
    request = request_of(gateway, call.ask)
    if call.ask.sets_up:
        written = serve_settings(gateway, call, request)
    elif not call.ask.deletes_catalog:
        written = gateway.commit(request)
    else:
        try:
            written = gateway.catalogs.delete(request)
        except CommitError as error:
            written = WriteOutcome(Refused(error), request.commit_id, 1)
    call.outcome, call.commit_id = written.outcome, written.commit_id


def serve_settings(gateway: GatewayService, call: Call, request: Request) -> WriteOutcome:
    """Where documents break the lists that they declare, nothing is decided."""
    try:
        return gateway.catalogs.set_up(request)
    except CommitError as error:
        if error.retryable:
            raise
        call.unread = error
        return WriteOutcome(Refused(error), request.commit_id, 1)


def serve_revert(gateway: GatewayService, call: Call, undone: Undone) -> None:
    """Where it can't be told what to undo, its key decides that."""
    ask = call.ask
    try:
        request = request_of(gateway, ask, reverting(gateway, ask, undone))
    except CommitError as error:
        if error.retryable:
            raise
        call.unread = error
        call.outcome = Refused(error)
        if ask.idempotency_key is None:
            return
        request = replace(request_of(gateway, ask, []), refusal=error)
    written = gateway.commit(request)
    call.outcome, call.commit_id = written.outcome, written.commit_id


def serve_bulk(gateway: GatewayService, calls: Sequence[Call]) -> None:
    """In two windows where there are some, the second while the first is under way."""
    requests = [request_of(gateway, call.ask) for call in calls]
    series = gateway.series(requests[0].by.name)
    half = len(requests) // 2 if len(requests) > 3 else 0
    written: list[WriteOutcome] = []
    for window in (requests[:half], requests[half:]):
        if not series.put(window):
            written += series.take()
            series.put(window)
    while len(written) < len(calls):
        written += series.take()
    for call, each in zip(calls, written, strict=True):
        call.outcome, call.commit_id = each.outcome, each.commit_id
