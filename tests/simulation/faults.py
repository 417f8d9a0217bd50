"""A store as one worker sees it: slow, at times out of reach, with answers and writes that stray.

The contract (``gateway.store.contract``) promises little, and all of what it leaves open happens
here: a call over many catalogs or documents sees and changes each at a moment of its own; a
write whose call failed may have been done, in part or whole, or is done later; and between any
two steps the worker may die or stand still for a long time.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from gateway.model import (
    BareDocument,
    Claim,
    CommitRecord,
    Digested,
    DocumentRecord,
    Head,
    HeadMove,
    PinRecord,
    Reply,
    Retention,
    Verdict,
    bare,
)
from gateway.store.contract import (
    NEVER_US,
    CommitSignals,
    MoveResult,
    Rejected,
    Scanned,
    StoreUnreachable,
    SubscriptionStore,
    Swept,
    Unsent,
    UploadStore,
)
from patching import Json
from tests.memory_store import digested, document_bytes

from .recorder import RecordingStore
from .scheduler import Process, Scheduler
from .sim_signals import SimSignals

_T = TypeVar("_T")
_A = TypeVar("_A")
_K = TypeVar("_K")


@dataclass
class Faults:
    """Probabilities per call, changed while a simulation runs: at its end nothing fails."""

    before: float = 0.0  # a call fails, and nothing was done
    after: float = 0.0  # done, but the answer is lost
    part: float = 0.0  # a write is done in part, then the call fails
    late: float = 0.0  # a write is done after its call failed
    doubt: float = 0.0  # of one move of several it isn't known whether it was made
    reject: float = 0.0  # a move is refused for what it is
    crash: float = 0.0
    suspend: float = 0.0
    doze: float = 0.0  # suspended when it has moved a head
    suspended_s: float = 1.0
    latency_s: float = 0.001
    slow: float = 0.02  # calls that take much longer


class Network:
    """Which writes are still under way to the store, and whether it can be reached at all."""

    def __init__(
        self, scheduler: Scheduler, rng: random.Random, faults: Faults, *, strays: bool = True
    ) -> None:
        """``strays``: whether what was left of a broken write may still be done later."""
        self.faults = faults
        self.strays = strays
        self.down_until = 0.0
        self.under_way = 0
        self._scheduler = scheduler
        self._rng = rng
        self._wire = Process("wire")

    def stop(self) -> None:
        """From now on nothing fails or is slow; what is under way still arrives."""
        faults = self.faults
        faults.before = faults.after = faults.part = faults.late = 0.0
        faults.doubt = faults.reject = 0.0
        faults.crash = faults.suspend = faults.doze = faults.slow = 0.0
        faults.latency_s = min(faults.latency_s, 0.001)
        self.down_until = 0.0

    def later(self, steps: Sequence[Callable[[], object]]) -> None:
        """Do the steps of a write some time after its call failed."""
        delay_s = self._rng.choice((0.0, 0.002, 0.05, 1.0, 20.0)) * self._rng.random()

        def arrive() -> None:
            self._scheduler.sleep(delay_s)
            for step in steps:
                step()
                self._scheduler.give_way()
            self.under_way -= 1

        self.under_way += 1
        self._scheduler.spawn(self._wire, arrive, "late write")


class FaultyStore:
    """See ``gateway.store.contract.Store``."""

    def __init__(
        self,
        inner: RecordingStore,
        network: Network,
        scheduler: Scheduler,
        process: Process,
        rng: random.Random,
    ) -> None:
        self._inner = inner
        self._network = network
        self._scheduler = scheduler
        self._process = process
        self._rng = rng
        inner.measure_leases_by(lambda: scheduler.now)

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        return _merged(self._read([_bound(self._inner.heads, [c]) for c in sorted(catalogs)]))

    def tails(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        return _merged(self._read([_bound(self._inner.tails, [c]) for c in sorted(catalogs)]))

    def last_written(self, revisions: Mapping[str, Collection[int]]) -> Mapping[str, int]:
        asked = [_bound(self._inner.last_written, {c: r}) for c, r in sorted(revisions.items())]
        return _merged(self._read(asked))

    def end_tails(self, reached: Mapping[str, tuple[int, int]]) -> None:
        self._write([_bound(self._inner.end_tails, {c: r}) for c, r in sorted(reached.items())])

    def write_verdicts(self, verdicts: Sequence[Verdict], kept_s: int) -> None:
        self._write([partial(self._inner.write_verdicts, [each], kept_s) for each in verdicts])

    def open_tails(
        self, before_us: int, limit: int, skip: int = 0, *, after_us: int = NEVER_US
    ) -> Sequence[Head]:
        read = partial(self._inner.open_tails, before_us, limit, skip, after_us=after_us)
        return self._read([read])[0]

    def uncommitted(self, before_us: int, limit: int) -> Sequence[Head]:
        return self._read([lambda: self._inner.uncommitted(before_us, limit)])[0]

    def drop_uncommitted(self, heads: Sequence[Head]) -> None:
        self._write([_bound(self._inner.drop_uncommitted, [head]) for head in heads])

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[CommitRecord]]:
        return _merged(
            self._read([_bound(self._inner.commits, {c: span}) for c, span in spans.items()])
        )

    def count_commits(self, catalog: str, after: int, through: int) -> int:
        return self._read([lambda: self._inner.count_commits(catalog, after, through)])[0]

    def commit_id(self, catalog: str, revision: int) -> str | None:
        return self._read([lambda: self._inner.commit_id(catalog, revision)])[0]

    def documents(
        self, keys: Mapping[str, Collection[str]], content_bytes_max: int | None = None
    ) -> Mapping[tuple[str, str], DocumentRecord]:
        names = [(catalog, key) for catalog, wanted in keys.items() for key in sorted(wanted)]
        self._rng.shuffle(names)
        read = partial(self._inner.documents, content_bytes_max=content_bytes_max)
        return _merged(self._read([_bound(read, {c: [k]}) for c, k in names]))

    def bare_documents(
        self, keys: Collection[tuple[str, str]]
    ) -> tuple[Mapping[tuple[str, str], BareDocument], Collection[tuple[str, str]]]:
        looks = [_bound(self._inner.bare_documents, [k]) for k in sorted(keys)]
        return _merged([found for found, _ in self._read(looks)]), ()

    def replies(
        self, keys: Mapping[str, Collection[tuple[str, str]]]
    ) -> Mapping[tuple[str, str, str], Reply]:
        names = [(catalog, name) for catalog, wanted in keys.items() for name in sorted(wanted)]
        return _merged(self._read([_bound(self._inner.replies, {c: [n]}) for c, n in names]))

    def claim(self, catalogs: Collection[str], claim: Claim) -> None:
        def stand(catalog: str) -> None:
            self._inner.claim([catalog], claim)

        self._write([_bound(stand, catalog) for catalog in sorted(catalogs)])

    def drop_claims(self, catalogs: Collection[str], by: str) -> None:
        def leave(catalog: str) -> None:
            self._inner.drop_claims([catalog], by)

        self._write([_bound(leave, catalog) for catalog in sorted(catalogs)])

    def move_heads(self, moves: Sequence[HeadMove]) -> Mapping[str, MoveResult]:
        steps = [_bound(self._move, move) for move in moves]
        moved: Mapping[str, MoveResult] = _merged(self._write(steps))
        if self._happens(self._network.faults.doze):
            self._suspend()
        return moved

    def _move(self, move: HeadMove) -> Mapping[str, MoveResult]:
        """Of each move by itself the answer may be lost, or come before it is made, if it is; or it
        is refused."""
        faults = self._network.faults
        if self._happens(faults.reject):
            return {move.catalog: Rejected("simulated: a foreign index")}
        if self._happens(faults.doubt):
            make = partial(self._inner.move_heads, [move])
            match self._rng.randrange(3):
                case 0:
                    make()
                case 1 if self._network.strays:
                    self._network.later([make])
            return {}
        return self._inner.move_heads([move])

    def write_documents(self, documents: Mapping[str, Sequence[DocumentRecord]]) -> None:
        steps = [
            _bound(self._inner.write_documents, {catalog: [document]})
            for catalog, changed in documents.items()
            for document in changed
        ]
        self._rng.shuffle(steps)
        self._write(steps)

    def write_commits(self, commits: Sequence[CommitRecord]) -> None:
        self._write([_bound(self._inner.write_commits, [commit]) for commit in commits])

    def changes_of(self, catalog: str, key: str, through: int) -> Sequence[CommitRecord]:
        return self._read([lambda: self._inner.changes_of(catalog, key, through)])[0]

    def commit_at(self, catalog: str, time_us: int) -> CommitRecord | None:
        return self._read([lambda: self._inner.commit_at(catalog, time_us)])[0]

    def list_commits(
        self,
        catalog: str,
        after: int,
        through: int,
        limit: int,
        key: str | None,
        bytes_max: int,
        *,
        author: str | None = None,
        newest_first: bool = False,
    ) -> Sequence[CommitRecord]:
        which = partial(self._inner.list_commits, catalog, after, through, limit, key, bytes_max)
        return self._read([lambda: which(author=author, newest_first=newest_first)])[0]

    def list_heads(self, after: str, prefix: str, limit: int) -> Sequence[Head]:
        return self._read([lambda: self._inner.list_heads(after, prefix, limit)])[0]

    def scan_documents(
        self, catalog: str, after: str, prefix: str, limit: int, bytes_max: int
    ) -> Sequence[DocumentRecord]:
        def scan() -> list[DocumentRecord]:
            """One after the other, while others write."""
            found: list[DocumentRecord] = []
            last, left_bytes = after, bytes_max
            while len(found) < limit and left_bytes > 0:
                page = self._inner.scan_documents(catalog, last, prefix, 1, left_bytes)
                if not page:
                    break
                found.extend(page)
                last, left_bytes = page[0].key, left_bytes - document_bytes(page[0])
                if self._rng.random() < 0.5:
                    self._scheduler.give_way()
            return found

        return self._read([scan])[0]

    def list_range(
        self, catalog: str, prefix: str, newer_than: int, limit: int
    ) -> Scanned[BareDocument]:
        """One document at a time, as a cursor comes by it."""

        def scan() -> list[BareDocument]:
            found: list[BareDocument] = []
            last = ""
            while len(found) < limit:
                page = self._inner.scan_documents(catalog, last, prefix, 1, sys.maxsize)
                if not page:
                    break
                last = page[0].key
                if page[0].exists or page[0].revision > newer_than:
                    found.append(bare(page[0]))
                if self._rng.random() < 0.5:
                    self._scheduler.give_way()
            return found

        found = self._read([scan])[0]
        return Scanned(found, is_whole=len(found) < limit)

    def range_changed(self, catalog: str, prefix: str, after: int, through: int) -> int | None:
        return self._read([lambda: self._inner.range_changed(catalog, prefix, after, through)])[0]

    def scan_digests(
        self,
        catalog: str,
        after: str,
        prefix: str,
        limit: int,
        *,
        above: int = 0,
        parts: bool = False,
    ) -> Scanned[Digested]:
        scanned = self.scan_documents(
            catalog, after, prefix, sys.maxsize if above else limit, sys.maxsize
        )
        newer = [each for each in scanned if each.revision > above]
        found = [digested(each, parts=parts) for each in newer[:limit]]
        return Scanned(found, is_whole=len(found) < limit)

    def digests_of(
        self, catalog: str, keys: Collection[str], *, parts: bool = False
    ) -> Scanned[Digested]:
        return self._read([lambda: self._inner.digests_of(catalog, keys, parts=parts)])[0]

    def scan_keys(self, catalog: str, after: str, prefix: str, limit: int) -> Sequence[str]:
        return self._read([lambda: self._inner.scan_keys(catalog, after, prefix, limit)])[0]

    def commit_signals(self) -> CommitSignals:
        opened = self._read([self._inner.commit_signals])[0]
        return SimSignals(opened, self._scheduler, self._read, self._is_down)

    def retention(self, catalog: str) -> Retention | None:
        return self._read([lambda: self._inner.retention(catalog)])[0]

    def set_pin(self, catalog: str, pin: PinRecord, held: PinRecord | None = None) -> bool:
        return self._update(lambda: self._inner.set_pin(catalog, pin, held))

    def drop_pin(self, catalog: str, pin_id: str) -> bool:
        return self._update(lambda: self._inner.drop_pin(catalog, pin_id))

    def raise_floor(self, catalog: str, floor: int, now_us: int, at: int | None = None) -> bool:
        return self._update(lambda: self._inner.raise_floor(catalog, floor, now_us, at))

    def end_sweep(self, catalog: str, floor: int) -> None:
        self._update(lambda: self._inner.end_sweep(catalog, floor))

    def commits_of_keys(
        self, catalog: str, keys: Collection[str], through: int
    ) -> Sequence[CommitRecord]:
        return self._read([lambda: self._inner.commits_of_keys(catalog, keys, through)])[0]

    def sweep(self, catalog: str, swept: Sequence[Swept]) -> None:
        def sweep(each: Swept) -> None:
            self._inner.sweep(catalog, [each])

        self._write([_bound(sweep, each) for each in swept])

    def drop_replies(self, catalog: str, through: int, before_us: int) -> int:
        return self._update(lambda: self._inner.drop_replies(catalog, through, before_us))

    def purge_tombstones(self, catalog: str, through: int, before_us: int, limit: int) -> int:
        def purge(limit: int) -> int:
            return self._inner.purge_tombstones(catalog, through, before_us, limit)

        halves = (limit // 2, limit - limit // 2)
        return sum(self._write([_bound(purge, half) for half in halves]))

    def take_lease(self, name: str, holder: str, duration_s: float) -> bool:
        return self._update(lambda: self._inner.take_lease(name, holder, duration_s))

    def _update(self, call: Callable[[], _T]) -> _T:
        return self._write([call])[0]

    def uploads(self) -> UploadStore:
        return self._inner.uploads()

    def subscriptions(self) -> SubscriptionStore:
        return self._inner.subscriptions()

    def stored_bytes(self, content: Json) -> int:
        return self._inner.stored_bytes(content)

    def await_reachable(self, patience_s: float) -> None:
        if self._is_down():
            self._scheduler.sleep(min(patience_s, self._network.down_until - self._scheduler.now))
            if self._is_down():
                raise Unsent("simulated: the store is down")

    def ping(self) -> None:
        self._read([self._inner.ping])

    def _read(self, steps: Sequence[Callable[[], _T]]) -> list[_T]:
        self._travel()
        if self._happens(self._network.faults.before):
            raise StoreUnreachable("simulated: no way to the store")
        found = self._do(steps)
        self._travel()
        if self._happens(self._network.faults.after):
            raise StoreUnreachable("simulated: the answer was lost")
        return found

    def _write(self, steps: Sequence[Callable[[], _T]]) -> list[_T]:
        faults = self._network.faults
        self._travel(sleeps=self._network.strays)
        if self._happens(faults.before):
            lost = Unsent if self._rng.random() < 0.5 else StoreUnreachable
            raise lost("simulated: no way to the store")
        if self._happens(faults.late):
            self._network.later(steps)
            self._travel()
            raise StoreUnreachable("simulated: no answer, the write is still under way")
        if self._happens(faults.part):
            count = self._rng.randrange(len(steps) + 1)
            self._send(steps[:count])
            if self._network.strays and self._rng.random() < 0.5:
                self._network.later(steps[count:])
            raise StoreUnreachable("simulated: broken off in the middle")
        done = self._send(steps)
        self._travel()
        if self._happens(faults.after):
            raise StoreUnreachable("simulated: the answer was lost")
        return done

    def _send(self, steps: Sequence[Callable[[], _T]]) -> list[_T]:
        """Without ``strays`` what was sent arrives soon, whatever becomes of the worker."""
        with nullcontext() if self._network.strays else self._scheduler.sending():
            return self._do(steps)

    def _do(self, steps: Sequence[Callable[[], _T]]) -> list[_T]:
        done: list[_T] = []
        for step in steps:
            if done and self._rng.random() < 0.5:
                self._scheduler.give_way()
            done.append(step())
        return done

    def _travel(self, *, sleeps: bool = True) -> None:
        """The way to the store or back; it may never end, or with ``sleeps`` take long."""
        if self._scheduler.closed:  # a generator's clean-up
            raise StoreUnreachable("simulated: the history is over")
        faults = self._network.faults
        if faults.crash and self._happens(faults.crash):
            self._scheduler.kill(self._process)
        if faults.suspend and sleeps and self._happens(faults.suspend):
            self._suspend()
        draw = self._rng.random
        seconds = faults.latency_s * draw()
        if faults.slow > 0 and draw() < faults.slow:
            seconds *= 50
        if draw() < 0.2:
            seconds = 0.0
        self._scheduler.sleep(seconds)
        if self._is_down():
            self._scheduler.sleep(0.5)
            raise StoreUnreachable("simulated: the store is down")

    def _suspend(self) -> None:
        seconds = self._network.faults.suspended_s * 2 * self._rng.random()
        self._scheduler.suspend(self._process, seconds)

    def _is_down(self) -> bool:
        return self._scheduler.now < self._network.down_until

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability


def _bound(call: Callable[[_A], _T], argument: _A) -> Callable[[], _T]:
    return lambda: call(argument)


def _merged(answers: Sequence[Mapping[_K, _T]]) -> dict[_K, _T]:
    merged: dict[_K, _T] = {}
    for answer in answers:
        merged.update(answer)
    return merged
