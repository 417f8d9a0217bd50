"""Parts of listings, retention and transactions, each with a mistake in it; see ``breakages``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from gateway import catalogs
from gateway.commit import inputs, series
from gateway.decide import compares, performing
from gateway.decide.edits import Delete, KeyEdit, Touch
from gateway.decide.ranges import RangeState
from gateway.decide.request import Request, WriteOutcome
from gateway.errors import CatalogNotFound
from gateway.feed import channel as watch_channel
from gateway.feed import channel as watch_log
from gateway.feed import channel as watch_values
from gateway.feed import from_state as feed_from_state
from gateway.feed import hub as watch_hub
from gateway.model import DocumentRecord, PinRecord
from gateway.read import listing
from gateway.retention import compaction
from gateway.state import heads, write_out
from gateway.state import history_sweep as sweeper
from gateway.store.contract import Store, Swept
from tests.memory_store import MemoryRetention

_failed = compares.CompareChecker.failures


def compare_before_the_batch(self: Any, compared: Any, state: Any) -> list[Any]:
    view = state._view
    ranges = RangeState(view.ranges, view.documents, {})
    before: Any = SimpleNamespace(
        document=view.documents.get,
        revision=state.revision,
        spend=state.spend,
        changed_under=ranges.changed,
        count_under=ranges.count,
    )
    return _failed(self, compared, before)


_overlaid, _changed = inputs.overlaid, inputs.changed_since


def ranges_as_stored(stored: Any, changes: object) -> Any:  # noqa: ARG001
    return stored


def changed_though_compacted(*given: Any) -> Any:
    return _changed(*given)._replace(floor=0)


def nothing_of_the_batch(self: RangeState, ranges: Any, found: Any, documents: Any) -> None:  # noqa: ARG001
    self._ranges, self._found, self._documents = ranges, found, {}


def never_done(self: object, failed: object) -> None:  # noqa: ARG001
    return None


_perform = performing.RequestDrafts.perform


def touch_nothing(self: performing.RequestDrafts, each: Any) -> None:
    if not isinstance(each.edit, Touch):
        _perform(self, each)


def nothing_overlaps(*_: object) -> list[str]:
    return []


_states = write_out.states


def first_state_alone(*given: Any) -> list[DocumentRecord]:
    return _states(*given)[:1]


def settled_at_once(self: heads.Settler, catalog: str) -> heads.ObservedHead:
    return self._head_reader.observe([catalog])[catalog]


def finished_at_once(self: heads.Settler, *given: object) -> bool:  # noqa: ARG001
    return True


_compact = compaction.CatalogCompaction.compact


def compact_unsettled(
    self: compaction.CatalogCompaction, *given: Any
) -> compaction.CompactionResult:
    settle = self._settler.settle
    self._settler.settle = settled_at_once.__get__(self._settler)  # type: ignore[method-assign]
    try:
        return _compact(self, *given)
    finally:
        self._settler.settle = settle  # type: ignore[method-assign]


_put, _take = series.Series.put, series.Series.take


def put_backwards(self: series.Series, requests: Sequence[Request]) -> bool:
    return _put(self, requests[::-1])


def take_backwards(self: series.Series) -> list[WriteOutcome]:
    return _take(self)[::-1]


_deletion = catalogs.CatalogWide.deletion_of


def delete_what_was_listed(self: catalogs.CatalogWide, request: Request) -> Request:
    deletion = _deletion(self, request)
    page = self._listing.page(
        request.catalog, lambda each: each.key, prefix="", after="", limit=1_000, revision=None
    )
    listed = tuple(KeyEdit(key, Delete()) for key in page.documents)
    return replace(deletion, edits=(*deletion.edits[:2], *listed))


def tell_at_once(request: Request, error: CatalogNotFound) -> Request:  # noqa: ARG001
    raise error


def as_it_is_now(
    self: listing.Listing,  # noqa: ARG001
    catalog: str,  # noqa: ARG001
    key: str,  # noqa: ARG001
    record: DocumentRecord | None,
    revision: int,  # noqa: ARG001
) -> DocumentRecord | None:
    return record if record is not None and record.exists else None


def always_final(time_us: int, head: object) -> bool:  # noqa: ARG001
    return True


def whatever_the_floor(self: object, catalog: str, revision: int) -> None:  # noqa: ARG001
    return


def read_once(revision: int | None, read: Callable[[], Any]) -> Any:  # noqa: ARG001
    return read()


def nothing_pinned(pins: Sequence[PinRecord], now_us: int) -> int | None:  # noqa: ARG001
    return None


_raise_floor = MemoryRetention.raise_floor


def raise_floor_anyway(
    self: MemoryRetention, catalog: str, floor: int, now_us: int, at: int | None = None
) -> bool:
    self._pins.pop(catalog, None)
    return _raise_floor(self, catalog, floor, now_us, at)


def newest_first(self: sweeper.Sweeper, catalog: str, swept: Sequence[Swept], step: str) -> int:
    for each in reversed(swept):
        self.store.sweep(catalog, [each])
        self.step(step)
    return len(swept)


def never_late(store: Store, runtime: Any, tails: object, late_s: float) -> bool:  # noqa: ARG001
    return False


def give_up_alone(self: watch_hub.Hub, now: float) -> None:
    with self.lock:
        self._give_up(now)
        self._heads_due = now + 1.0
        self._is_running = bool(self._channels)


def covers_all(self: watch_channel.Channel, position: int) -> bool:  # noqa: ARG001
    return bool(self.ring)


def move_all_on(self: watch_channel.Channel, commits: object, bookmark_commits: int) -> list[Any]:  # noqa: ARG001
    for watcher in self.waiting:
        watcher.position, watcher.last = self.position, self.last
    return []


def page_of_what_is_left(
    self: watch_log.WatchLog,
    catalog: str,
    after: int,
    last: str,  # noqa: ARG001
    through: int,
    limit: int,
    selection: watch_values.Selection,
) -> tuple[list[watch_values.EncodedCommit], int, str]:
    listed = self._store.list_commits(catalog, after, through, limit, None, 1 << 20)
    told = [watch_values.encode_commit(commit, self._encode) for commit in listed]
    reached = listed[-1].revision if listed else through
    return [each for each in told if selection.wants(each)], reached, ""


_begin = feed_from_state.FeedsFromState.begin


def begin_at_the_present(
    self: feed_from_state.FeedsFromState, feed: Any, catalog: str, encode: Any, **asked: Any
) -> Any:
    return _begin(self, feed, catalog, encode, **asked | {"position": None})


def list_the_present(
    self: feed_from_state.FeedsFromState, catalog: str, encode: Any, revision: int, **asked: Any
) -> Any:
    try:
        return self._listing.export(
            catalog, lambda document: encode(document, revision), resumable=True, **asked
        )
    except CatalogNotFound:
        return None
