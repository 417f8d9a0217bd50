"""The gateway without HTTP: the only interface through which ``gateway.http`` uses lower layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar, Unpack

from gateway.catalogs import CatalogWide
from gateway.commit.claims import ClaimKeeper
from gateway.commit.handover import HandOver, Peers
from gateway.commit.loop import CommitLoop, RoundParts
from gateway.commit.queue import Queue, Turns
from gateway.commit.series import Series
from gateway.decide.edits import Edit, KeyEdit
from gateway.decide.request import (
    EncodeRefusal,
    Request,
    RequestTerms,
    Rules,
    WriteOutcome,
    code_and_detail,
)
from gateway.decide.settings import CompiledSettings
from gateway.feed.channel import Encode
from gateway.feed.from_state import FeedsFromState
from gateway.feed.watcher import WatchService
from gateway.limits import MIB, ServiceLimits
from gateway.memory import Memory
from gateway.meters import NO_METERS, FeedReadings, Meters, Readings, RelayReadings
from gateway.model import CommitRecord, Reply
from gateway.read.current import CurrentDocuments, DocumentReading
from gateway.read.differences import DifferenceReads
from gateway.read.digests import DigestListing
from gateway.read.history import EVERY, EncodeCommits, Filter, HistoryPage, HistoryReads, RevisionAt
from gateway.read.listing import Listing
from gateway.read.losses import LossReads
from gateway.read.partitions import PartitionPlanner
from gateway.read.reverts import RevertReads
from gateway.read.visibility import AclLookup
from gateway.relay.addresses import Resolve
from gateway.relay.managing import SubscriptionService
from gateway.relay.posting import Deliverer
from gateway.relay.relay import Envelopes, Relay, RelayParts
from gateway.retention.history_retention import HistoryRetention
from gateway.runtime import Runtime
from gateway.state.cache import Cache
from gateway.state.heads import HeadReader, Settler
from gateway.state.janitor import Janitor
from gateway.state.write_out import WriteOut
from gateway.store.contract import Store
from gateway.store.unreachable import as_unavailable
from gateway.uploads import UploadService

_Item = TypeVar("_Item")

_PATIENCE_S = 1.0  # how long ``check_ready`` waits for a primary
# Down to this many bytes the cache is shrunk if requests need its memory: some hundred thousand
# objects.
_CACHE_KEPT_BYTES = 16 * MIB


class GatewayService:
    """One process's gateway. Thread-safe; starts its own background threads when first used.

    * ``listing`` reads several documents at one revision, ``digests`` only their digests.
    * ``feeds_from_state`` are feeds that begin with all documents.
    * ``partitions`` finds where to divide the keys of a catalog.
    * ``differences`` compares two revisions; ``reverts`` reads what reverts need.
    * ``catalogs`` handles catalogs as a whole; ``acls`` knows what a principal may see.
    * ``uploads`` replaces documents in two phases.
    * ``subscriptions`` manages what ``relay`` delivers to.
    * ``memory`` is the memory that all requests share.
    * ``retention`` pins and compacts history; its ``compactor`` compacts in the background, once it
      is started.
    """

    _relay: Relay | None = None

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        limits: ServiceLimits,
        turns: Turns | None = None,
        meters: Meters = NO_METERS,
        encode_refusal: EncodeRefusal = code_and_detail,
        neighbours: Peers | None = None,
    ) -> None:
        """``turns`` are those that the workers of this machine take, if they can; with
        ``neighbours``, they hand writes over to each other. ``meters`` report the work.
        ``encode_refusal``: see ``Rules``.
        """
        self.limits = limits
        self.memory = Memory(runtime, limits.memory, self._shrink_cache)
        self._store = store
        self._runtime = runtime
        self._meters = meters
        self._feeds: dict[Encode, WatchService] = {}
        self._cache = Cache(runtime, limits, meters)
        self._hand_over = HandOver(runtime, neighbours)
        self._write_out = write_out = WriteOut(store, self._cache, runtime, limits, meters)
        hand_over = self._hand_over.start
        self._queue = Queue(runtime, limits, turns, write_out.may_move, write_out.hurry, hand_over)
        write_out.when_written(self._queue.recheck)
        heads = HeadReader(store, self._cache, limits)
        settler = Settler(store, self._cache, heads, runtime, limits, write_out.hurry)
        self._settler = settler
        late_s = limits.retention.late_s
        self._documents = CurrentDocuments(store, self._cache, heads, settler, runtime, late_s)
        self.acls = AclLookup(store, heads, settler, runtime, meters)
        self._cache.when_back(self.acls.forget)
        self._history = history = HistoryReads(store, heads, settler, runtime, limits)
        kept = replace(limits.retention, idempotency_s=limits.replies_kept_s)
        settings = CompiledSettings(runtime.lock())
        self.retention = HistoryRetention(store, settler, runtime, kept, settings.of, meters)
        self.listing = Listing(store, settler, runtime, limits, self.retention.refuse_more_pins)
        self.feeds_from_state = FeedsFromState(self.listing, self._history)
        self.digests = DigestListing(store, self.listing)
        self.partitions = PartitionPlanner(store, self.listing)
        self.differences = DifferenceReads(store, self.listing, limits)
        self.reverts = RevertReads(store, self._history, self.differences)
        self.janitor = Janitor(store, settler, runtime, limits.replies_kept_s)
        rules = Rules(limits, store.stored_bytes, settings.of, encode_refusal)
        self._loop = self._loop_by(heads, rules)
        self.commit_for = self._loop.commit_for  # for requests that other workers hand over
        self.subscriptions = SubscriptionService(store, settler, runtime, limits.relay)
        self.uploads = UploadService(store.uploads(), self, runtime, limits)
        self.catalogs = CatalogWide(settler, self.listing, history, self.commit, runtime, limits)

    def _loop_by(self, heads: HeadReader, rules: Rules) -> CommitLoop:
        parts = RoundParts(
            self._store,
            self._runtime,
            self._cache,
            heads,
            self._write_out,
            self._queue,
            ClaimKeeper(self._store, self._runtime, self.limits),
            rules,
            self._meters,
            self.memory,
        )
        return CommitLoop(parts, self._hand_over, self.limits.leaders)

    def request(
        self,
        catalog: str,
        edits: Sequence[KeyEdit],
        *,
        wait_s: float | None = None,
        **terms: Unpack[RequestTerms],
    ) -> Request:
        """A request to be committed, with an id and a deadline.

        ``wait_s`` can only shorten the time that the commit loop may take.
        """
        longest_s = self.limits.deadline_ms / 1000
        budget_s = longest_s if wait_s is None else min(wait_s, longest_s)
        deadline = self._runtime.monotonic() + budget_s
        return Request(catalog, tuple(edits), self._runtime.new_id(), deadline, **terms)

    def commit(self, request: Request) -> WriteOutcome:
        """Commit the request, or return why it wasn't committed. Raises QueueFull."""
        outcome, attempts = self._loop.commit(request)
        return WriteOutcome(outcome, request.commit_id, attempts)

    def series(self, principal: str) -> Series:
        """A series for independent requests that the principal sends together."""
        return self._loop.series(principal)

    def write(
        self,
        catalog: str,
        key: str,
        edit: Edit,
        *,
        wait_s: float | None = None,
        **terms: Unpack[RequestTerms],
    ) -> WriteOutcome:
        """``commit`` of one edit of one document."""
        return self.commit(self.request(catalog, (KeyEdit(key, edit),), wait_s=wait_s, **terms))

    def read(self, catalog: str, key: str) -> DocumentReading:
        """The document as it is at a moment within this call. Raises StoreUnavailable."""
        return _as_unavailable(lambda: self._documents.read(catalog, key))

    def read_at_revision(self, catalog: str, key: str, revision: int) -> DocumentReading:
        """The live document at ``revision``; errors: ``HistoryReads.document_at_revision``."""
        return _as_unavailable(
            lambda: DocumentReading(
                self._history.document_at_revision(catalog, key, revision), revision
            )
        )

    @property
    def losses(self) -> LossReads:
        """Reads what was taken over from managers."""
        return LossReads(self._history, self._documents)

    def revision_at(self, catalog: str, time_us: int) -> RevisionAt:
        """The catalog's revision at that time; for errors see ``HistoryReads.revision_at``."""
        return _as_unavailable(lambda: self._history.revision_at(catalog, time_us))

    def commits(
        self, catalog: str, *, after: int, limit: int, key: str | None, only: Filter = EVERY
    ) -> HistoryPage[CommitRecord]:
        """A page of the history; for errors see ``HistoryReads.encoded_commits``."""
        return _as_unavailable(
            lambda: self._history.commits(catalog, after=after, limit=limit, key=key, only=only)
        )

    def encoded_commits(
        self,
        catalog: str,
        encode: EncodeCommits[_Item],
        *,
        after: int,
        limit: int,
        key: str | None,
        only: Filter = EVERY,
    ) -> HistoryPage[_Item]:
        """``commits`` as ``encode`` turns them into answers; none is kept once that is done."""
        return _as_unavailable(
            lambda: self._history.encoded_commits(
                catalog, encode, after=after, limit=limit, key=key, only=only
            )
        )

    def encoded_commit(self, catalog: str, revision: int, encode: EncodeCommits[_Item]) -> _Item:
        """The commit at ``revision`` as ``encode`` turns it into an answer; for errors see
        ``HistoryReads.encoded_commit``."""
        return _as_unavailable(lambda: self._history.encoded_commit(catalog, revision, encode))

    def reply(self, catalog: str, principal: str, idempotency_key: str) -> Reply | None:
        """What an idempotency key decided; None proves that it has decided nothing so far."""
        return _as_unavailable(lambda: self._history.reply(catalog, principal, idempotency_key))

    def _shrink_cache(self) -> None:
        while not self._cache.shrink(_CACHE_KEPT_BYTES):
            self.memory.turn()

    def feed(self, encode: Encode) -> WatchService:
        """The feed of all catalogs; ``encode`` turns a commit into what its watchers get."""
        feed = self._feeds.get(encode)
        if feed is None:
            feed = self._feeds[encode] = WatchService(
                self._store, self._settler, self._runtime, self.limits.watch, encode, self._meters
            )
        return feed

    def relay(self, encode: Encode, envelopes: Envelopes, resolve: Resolve | None = None) -> Relay:
        """The relay, which delivers to subscriptions once it is started. ``encode``: see ``feed``.
        ``resolve`` resolves the names of hosts; None: as this machine does."""
        relay = self.limits.relay
        self._relay = Relay(
            RelayParts(
                self._store,
                self._runtime,
                relay,
                self.memory,
                self.feed(encode),
                self.feeds_from_state,
                envelopes,
                Deliverer(self._runtime, relay.networks, relay.deadline_s, resolve),
                self._meters,
            )
        )
        self.subscriptions.when_changed = self._relay.wake
        return self._relay

    def readings(self) -> Readings:
        """The current readings of this process, for the metrics; no I/O."""
        requests, size = self._queue.load()
        feeds = [feed.readings() for feed in self._feeds.values()]
        watchers = sum(each.watchers for each in feeds)
        lag = max((each.lag_commits for each in feeds), default=0)
        feed = FeedReadings(watchers, lag)
        relay = RelayReadings() if self._relay is None else self._relay.readings()
        memory = self.memory.readings()
        return Readings(requests, size, self._cache.readings(), feed, memory, relay)

    def check_ready(self) -> None:
        """Raise StoreUnavailable unless the database answers; after a second without a primary."""
        with as_unavailable():
            self._store.await_reachable(_PATIENCE_S)
            self._store.ping()


def _as_unavailable(call: Callable[[], _Item]) -> _Item:
    with as_unavailable():
        return call()
