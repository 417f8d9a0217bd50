"""The relay of a process delivers for the subscriptions that it has claimed.

Worked example. Subscription s of catalog c is at 31. Worker w claims it: the claim is a lease in
the database, which w renews as long as it lives. Its runner watches c from 31 on, takes 32 and 33,
and sends them; the receiver answers 204, and w writes 33 into s, if it still has the claim. If w
dies after the answer and before that, another worker claims s when the lease is over, finds 31 and
sends 32 and 33 again: at least once, and in order. If w only slept, it notices that it has lost its
claim before it sends more, and its progress is refused.

A receiver that doesn't answer holds up only its own runner: what was read for it is dropped, and
read again at the next try; the pauses between tries grow. Meanwhile, a pin keeps the history for
it, for ``hold_s``. If history was compacted in spite of that, the receiver gets an event that says
so (410), and then the state.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from gateway.cpu import yield_if_over
from gateway.errors import Contradiction, GatewayError, RevisionCompacted, RevisionNotFound, to_log
from gateway.feed.channel import EncodedCommit, Selection, WatchEnded
from gateway.feed.from_state import FeedsFromState, MadeBy
from gateway.feed.hub import OWN
from gateway.feed.watcher import WatchService
from gateway.limits import RelayLimits
from gateway.memory import Memory, OwnAccount, account, work_for
from gateway.meters import NO_METERS, Meters, RelayReadings
from gateway.model import DocumentRecord
from gateway.relay.managing import PIN_S, held_revision, pin_of
from gateway.relay.posting import Deliverer, Outrun, Undelivered, signed
from gateway.runtime import Runtime
from gateway.store.contract import (
    PROGRESS,
    BeingRestored,
    ForeignRecord,
    Store,
    StoreUnreachable,
    SubscriptionRecord,
)

_log = logging.getLogger(__name__)

# From this many failures in a row on, only one event at a time is tried.
OPEN_FAILURES: Final = 5
# The pause after the first failure, which doubles each time, and the longest.
_PAUSE_S: Final = 1.0
_PAUSE_S_MAX: Final = 600.0
# How often a worker without a subscription looks for one.
_QUIET_POLL_S: Final = 5.0
# How long a runner waits at a time, and how long after an error of the gateway.
_IDLE_S: Final = 1.0
_RETRY_S: Final = 1.0
# How often progress is written that passed only unwanted commits.
_NOTED_S: Final = 5.0


class Envelopes(Protocol):
    """Encodes events and messages for receivers; see ``gateway.http.wire.cloud_events``."""

    def commit(self, catalog: str, item: EncodedCommit) -> bytes: ...

    def document(self, catalog: str, record: DocumentRecord, revision: int) -> bytes: ...

    def synced(self, catalog: str, revision: int, made: MadeBy | None) -> bytes: ...

    def compacted(self, catalog: str, code: str, detail: str, position: str) -> bytes: ...

    def position(self, revision: int, key: str) -> str:
        """The position after this document in the list of a revision's documents."""

    def key_of(self, position: str) -> tuple[int, str]:
        """The revision and the key of such a position."""

    def synced_at(self, revision: int) -> str:
        """The position of the event ``synced``, which no other event has."""

    def compacted_at(self, position: str) -> str:
        """The position of the event ``compacted``, which no other event has."""

    def event_id(self, catalog: str, position: str) -> str: ...

    def message(self, form: str, events: Sequence[bytes]) -> tuple[bytes, str]: ...


@dataclass(frozen=True, slots=True)
class RelayParts:
    """The parts of the gateway that the relay and its runners use."""

    store: Store
    runtime: Runtime
    limits: RelayLimits
    memory: Memory
    feed: WatchService
    from_state: FeedsFromState
    envelopes: Envelopes
    deliverer: Deliverer
    meters: Meters = NO_METERS


class Relay:
    """Claims subscriptions, with a runner for each. Thread-safe. Call ``start`` once; ``stop`` ends
    all deliveries."""

    def __init__(self, parts: RelayParts) -> None:
        self._parts = parts
        self._records = parts.store.subscriptions()
        self.holder = parts.runtime.new_id()
        self._runners: dict[tuple[str, str], Runner] = {}
        self._wake = parts.runtime.event()
        self._is_stopping = False
        self._held_until = 0.0
        self._pinned_at = 0.0
        self._waiting = 0
        self._heads: dict[str, int] = {}

    def start(self) -> None:
        if self._parts.limits.worker_max:
            self._parts.runtime.spawn(self._run, "relay")

    def stop(self) -> None:
        self._is_stopping = True
        for runner in tuple(self._runners.values()):
            runner.stop()
        self._wake.set()

    def wake(self) -> None:
        """Look for changed subscriptions at once."""
        self._wake.set()

    def holds_on(self, seconds: float) -> bool:
        """Whether its claims last for at least ``seconds`` more, by this process's clock."""
        return self._parts.runtime.monotonic() + seconds < self._held_until

    def readings(self) -> RelayReadings:
        records = [runner.record for runner in tuple(self._runners.values())]
        lags = [
            max(0, self._heads.get(each.catalog, 0) - (held_revision(each.position) or 0))
            for each in records
            if not each.paused
        ]
        failing = sum(each.failures >= OPEN_FAILURES for each in records)
        return RelayReadings(len(records), self._waiting, failing, max(lags, default=0))

    def _run(self) -> None:
        runtime = self._parts.runtime
        runtime.sleep(self._parts.limits.poll_s * runtime.jitter())
        while not self._is_stopping:
            try:
                self.step()
            except StoreUnreachable as error:
                _log.info("subscriptions can't be read: %s", error)
            limits = self._parts.limits
            poll_s = limits.poll_s if self._runners else _QUIET_POLL_S
            self._wake.wait(min(poll_s, limits.claim_s / 6))
            self._wake.clear()
        for runner in tuple(self._runners.values()):
            with suppress(StoreUnreachable):
                self._records.end_claim(*runner.name, self.holder)

    def step(self) -> None:
        """Renew the claims, claim free subscriptions, and stop the runners of those that are
        lost."""
        limits, now = self._parts.limits, self._parts.runtime.monotonic()
        if self._runners:
            self._records.renew_claims(self.holder, limits.claim_s)
        held, free = self._records.claimable(self.holder, limits.worker_max)
        records = {(each.catalog, each.name): each for each in held}
        # These runners stop even if the subscription is claimed again below: another worker may
        # have come further meanwhile.
        for named in self._runners.keys() - records.keys():
            self._runners.pop(named).stop()
        self._held_until = now + limits.claim_s  # for the claims that were renewed
        waiting = [*free]
        while waiting and len(records) < limits.worker_max and not self._is_stopping:
            catalog, name = waiting.pop(0)
            claimed = self._records.claim_subscription(catalog, name, self.holder, limits.claim_s)
            if claimed is not None:
                records[catalog, name] = claimed
        self._waiting = len(waiting)
        for named, record in records.items():
            runner = self._runners.get(named)
            if runner is None:
                runner = self._runners[named] = Runner(self._parts, self, record)
                self._parts.runtime.spawn(runner.run, f"relay {named}")
            runner.update(record)
        self._read_catalogs(now)

    def _read_catalogs(self, now: float) -> None:
        records = [runner.record for runner in self._runners.values()]
        if now - self._pinned_at >= PIN_S / 5:
            self._pinned_at = now
            self._pin(records)
        self._heads = self._revisions({each.catalog for each in records})

    def _pin(self, records: Sequence[SubscriptionRecord]) -> None:
        now_us = self._parts.runtime.now_us()
        for record in records:
            failing_s = (now_us - record.failing_since_us) / 1_000_000
            is_over = bool(record.failing_since_us) and failing_s > self._parts.limits.hold_s
            if not is_over:
                _hold_history(self._parts.store, record, now_us)

    def _revisions(self, catalogs: Collection[str]) -> dict[str, int]:
        """The revisions of these catalogs, without those whose head can't be read, or that are
        being restored."""
        if not catalogs:
            return {}
        try:
            heads = self._parts.store.heads(catalogs)
        except (ForeignRecord, BeingRestored):
            if len(catalogs) == 1:
                return {}
            return {c: at for each in catalogs for c, at in self._revisions([each]).items()}
        return {catalog: head.revision for catalog, head in heads.items()}


def _hold_history(store: Store, record: SubscriptionRecord, now_us: int) -> None:
    """Pin the history that is still to be delivered. If the catalog can't be pinned, because
    somebody has edited its record, that is only logged. Raises StoreUnreachable if the database
    doesn't answer."""
    pin = pin_of(record, now_us)
    if pin is None:
        return
    try:
        store.set_pin(record.catalog, pin)
    except StoreUnreachable as error:
        store.ping()
        about = {"catalog": record.catalog}
        _log.warning("%s can't be pinned: %s", _described(record), error, extra=about)


def _described(record: SubscriptionRecord) -> str:
    return f"subscription {record.name!r} of catalog {record.catalog!r}"


class Runner:
    """One subscription's deliveries, in a thread of its own."""

    def __init__(self, parts: RelayParts, relay: Relay, record: SubscriptionRecord) -> None:
        self.name = record.catalog, record.name
        self.record = record
        self._parts = parts
        self._relay = relay
        self._records = parts.store.subscriptions()
        self._wake = parts.runtime.event()
        self._is_stopped = False
        self._saved_at = 0.0

    @property
    def described(self) -> str:
        return _described(self.record)

    def stop(self) -> None:
        self._is_stopped = True
        self._wake.set()

    def update(self, record: SubscriptionRecord) -> None:
        """Take over the record that was read, if somebody has changed the subscription."""
        if record.number != self.record.number:
            self.record = record
            self._wake.set()

    def run(self) -> None:
        account = self._parts.memory.own_account()
        work_for(account)
        while not self._is_stopped:
            pause_s = _RETRY_S
            try:
                pause_s = self._step(account)
            except Exception:  # noqa: BLE001 - one subscription's trouble is no other's
                _log.exception("%s can't be served", self.described)
            finally:
                account.close()
            if not self._is_stopped and pause_s:
                self._wake.wait(pause_s)
            self._wake.clear()

    def _step(self, account: OwnAccount) -> float:
        """Deliver what there is; return the seconds until the next step."""
        record = self.record
        now_us = self._parts.runtime.now_us()
        left_s = (record.next_try_us - now_us) / 1_000_000
        if record.error is not None and record.error.get("time_us", 0) > now_us:
            left_s = 0.0  # another gateway's clock is ahead, or this one's was set back
        if record.paused or left_s > 0:
            return min(left_s, _IDLE_S) if left_s > 0 else _IDLE_S
        try:
            try:
                if not record.position.isdigit():
                    self._deliver_state(account)
                self._deliver_commits(account)
            except Undelivered as error:
                self._failed(record, error)
            except Contradiction as error:
                said, traced = to_log(error)
                _log.error("%s can't be served%s", self.described, said, exc_info=traced)
                self._failed(record, Undelivered("internal_error", error.public_detail))
            except (RevisionCompacted, RevisionNotFound) as error:
                self._begin_anew(record, error)
        except (GatewayError, WatchEnded, StoreUnreachable) as error:
            _log.info("%s waits: %s", self.described, error)
            return _RETRY_S
        except Outrun:
            return _IDLE_S
        return 0.0

    def _deliver_commits(self, account: OwnAccount) -> None:
        """Deliver commits until the runner is stopped, the subscription changed, or its claim
        lost."""
        record = self.record
        with self._parts.feed.watch(
            record.catalog,
            after=int(record.position),
            selection=Selection(prefix=record.prefix),
            holder=OWN,
        ) as watcher:
            while True:
                self._require_own(record)
                taken = watcher.take(_IDLE_S, limit=self._most(), patient=True)
                for some in self._in_batches(taken.commits):
                    events = self._events(record.catalog, some)
                    self._send(record, events, str(some[0].revision))
                    record = self._moved(record, str(some[-1].revision), len(some))
                if taken.revision > int(record.position) and self._is_due(taken.commits):
                    record = self._moved(record, str(taken.revision), 0)
                account.close()

    def _events(self, catalog: str, commits: Sequence[EncodedCommit]) -> Iterator[bytes]:
        for each in commits:
            yield_if_over()
            yield self._parts.envelopes.commit(catalog, each)

    def _is_due(self, commits: Sequence[EncodedCommit]) -> bool:
        """Whether to write the progress past commits that weren't wanted."""
        since_s = self._parts.runtime.monotonic() - self._saved_at
        return not commits and since_s > _NOTED_S

    def _most(self) -> int:
        return 1 if self.record.failures >= OPEN_FAILURES else self._parts.limits.events_max

    def _in_batches(self, commits: Sequence[EncodedCommit]) -> list[list[EncodedCommit]]:
        """The commits in batches of one delivery each; a list, as they are in memory anyway."""
        most = 1 if self.record.format == "cloudevents" else self._most()
        batches: list[list[EncodedCommit]] = []
        size = 0
        for each in commits:
            size += len(each.encoded)
            is_full = bool(batches) and len(batches[-1]) >= most
            if not batches or is_full or size > self._parts.limits.events_bytes_max:
                batches.append([])
                size = len(each.encoded)
            batches[-1].append(each)
        return batches

    def _deliver_state(self, account: OwnAccount) -> None:
        """Deliver the documents of the state, then the event ``synced``."""
        record, envelopes = self.record, self._parts.envelopes
        position = envelopes.key_of(record.position) if record.position else None
        most = 1 if record.format == "cloudevents" else self._most()
        begun = self._parts.from_state.begin(
            self._parts.feed,
            record.catalog,
            lambda document, at: (
                document.key,
                envelopes.document(record.catalog, document, at),
            ),
            owner="",
            prefix=record.prefix,
            position=position,
            holder=OWN,
            page_documents=self._parts.limits.events_max,
        )
        with begun.watcher:
            revision = begun.revision
            unsent = [] if begun.settings is None else [begun.settings]
            for page in begun.export.pages if begun.export else ((),):
                unsent += page
                while unsent:
                    some, unsent = self._fitting(unsent, most)
                    first, last = (envelopes.position(revision, some[i][0]) for i in (0, -1))
                    events = [event for _, event in some]
                    self._send(record, events, first)
                    record = self._moved(record, last, len(some))
                    if begun.export is not None:
                        begun.export.renew()
                account.close()
            event = envelopes.synced(record.catalog, revision, begun.made)
            self._send(record, [event], envelopes.synced_at(revision))
            self._moved(record, str(revision), 1)
            if begun.export is not None:
                begun.export.close()

    def _fitting(
        self, unsent: list[tuple[str, bytes]], most: int
    ) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
        size, count = 0, 0
        for _, event in unsent[:most]:
            size += len(event)
            if count and size > self._parts.limits.events_bytes_max:
                break
            count += 1
        return unsent[:count], unsent[count:]

    def _begin_anew(
        self, begun: SubscriptionRecord, error: RevisionCompacted | RevisionNotFound
    ) -> None:
        """Send an event that says that commits are missing, and begin again with the state. Raises
        ``error`` if delivery begins with the state anyway, Outrun and StoreUnreachable."""
        record = self._since(begun)
        if not record.position:
            raise error
        _log.warning("%s starts over from the state: %s", self.described, error)
        event = self._parts.envelopes.compacted(
            record.catalog, error.code, error.detail, record.position
        )
        try:
            self._send(record, [event], self._parts.envelopes.compacted_at(record.position))
        except Undelivered as failure:
            self._failed(record, failure)
        else:
            self._moved(record, "", 1)

    def _send(self, record: SubscriptionRecord, events: Iterable[bytes], first: str) -> None:
        """Send one delivery of ``events``. ``first`` is the position of the first one. Raises
        Undelivered, and Outrun if this runner may not send it any more.

        It yields between its steps: a hundred runners may have got the same large commit.
        """
        self._require_own(record)
        envelopes, now_us = self._parts.envelopes, self._parts.runtime.now_us()
        made = [*events]
        yield_if_over()
        body, media_type = envelopes.message(record.format, made)
        account().take(2 * len(body))  # body and events, until the account is closed
        name = envelopes.event_id(record.catalog, first)
        if len(made) > 1:
            name = f"{name}+{len(made)}"
        secrets = [secret for secret, until in record.secrets if not until or until > now_us]
        headers = {
            "Content-Type": media_type,
            "User-Agent": "metadata-gateway",
            **signed(secrets, name, now_us // 1_000_000, body),
        }
        self._parts.deliverer.post(record.to, body, headers, lambda: self._is_own(record))

    def _require_own(self, record: SubscriptionRecord) -> None:
        if not self._is_own(record):
            raise Outrun

    def _is_own(self, record: SubscriptionRecord) -> bool:
        """Whether this runner may deliver for ``record`` for as long as a delivery may take."""
        is_changed = self.record.number != record.number
        deadline_s = self._parts.deliverer.deadline_s
        return not self._is_stopped and not is_changed and self._relay.holds_on(deadline_s)

    def _since(self, begun: SubscriptionRecord) -> SubscriptionRecord:
        """The record, with the progress since ``begun``. Raises Outrun if somebody has changed the
        subscription: then the failure says nothing about the present one."""
        if self.record.number != begun.number:
            raise Outrun
        return self.record

    def _moved(self, record: SubscriptionRecord, position: str, events: int) -> SubscriptionRecord:
        """Write the new position; return the record. Raises Outrun and StoreUnreachable."""
        now_us = self._parts.runtime.now_us()
        if events:
            self._parts.meters.relayed("delivered", events)
        moved = replace(
            record,
            position=position,
            failures=0,
            failing_since_us=0,
            error=None,
            next_try_us=0,
            delivered=record.delivered + events,
            delivered_us=now_us if events else record.delivered_us,
        )
        self._save(moved)
        return moved

    def _failed(self, begun: SubscriptionRecord, error: Undelivered) -> None:
        """Write the failure, and when to try again. Raises Outrun and StoreUnreachable."""
        record, runtime = self._since(begun), self._parts.runtime
        now_us, failures = runtime.now_us(), record.failures + 1
        self._parts.meters.relayed("failed", 1)
        pause_s = min(_PAUSE_S * 2 ** min(failures - 1, 20), _PAUSE_S_MAX)
        pause_s = max(pause_s * (0.5 + runtime.jitter()), error.retry_after_s)
        if failures in (1, OPEN_FAILURES):
            _log.warning("%s: %s (%s)", self.described, error.detail, error.code)
        failed = replace(
            record,
            failures=failures,
            failing_since_us=record.failing_since_us or now_us,
            error={"code": error.code, "detail": error.detail, "time_us": now_us},
            next_try_us=now_us + round(pause_s * 1_000_000),
        )
        if failures == 1:  # there may be no pin yet
            _hold_history(self._parts.store, record, now_us)
        if error.is_gone:
            self._pause(failed)
        else:
            self._save(failed)

    def _pause(self, record: SubscriptionRecord) -> None:
        """Pause the subscription, until somebody resumes it: the receiver wants no more."""
        self._require_own(record)
        paused = replace(record, paused=True, number=record.number + 1)
        if not self._records.change_subscription(paused, record.number, PROGRESS):
            raise Outrun
        self.record = paused

    def _save(self, record: SubscriptionRecord) -> None:
        if not self._records.save_progress(record, self._relay.holder):
            raise Outrun
        self._saved_at = self._parts.runtime.monotonic()
        if self.record.number == record.number:
            self.record = record
