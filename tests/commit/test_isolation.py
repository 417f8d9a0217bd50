"""Rule: one catalog's trouble is its own. Fifty healthy catalogs are written and read beside a sick
one, in each way that a catalog can be sick: no healthy request fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

import pytest

from gateway.commit.loop import Round
from gateway.commit.queue import Queue
from gateway.decide.edits import KeyEdit, Put
from gateway.decide.recording import CERTAINLY_STORABLE_BYTES
from gateway.decide.request import Applied, Outcome, Unchanged
from gateway.errors import CommitError, StoreUnavailable
from gateway.feed.channel import Selection
from gateway.limits import ServiceLimits
from gateway.meters import Meters
from gateway.model import Idempotency
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.state import sharing
from gateway.state.cache import Cache
from gateway.state.write_out import WriteOut
from gateway.store.contract import (
    ForeignRecord,
    Rejected,
    Store,
    StoreUnreachable,
    WriteRejected,
)
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS, WAIT_S
from tests.without_http import applied, commit_each, put, refused, replace, wait_until

HEALTHY = [f"healthy-{number:02}" for number in range(50)]
SICK = "sick"
READS = ("heads", "tails", "documents", "replies", "commits", "last_written")
WRITES = ("move_heads", "write_documents", "write_commits", "write_verdicts")


def named(asked: Any) -> set[str]:
    """The catalogs that a call of the store is for."""
    names = list(asked) if isinstance(asked, Collection) else []
    return {each if isinstance(each, str) else each.catalog for each in names}


class SickStore:
    """The calls named in ``sick`` are made as it says where the sick catalog is among others."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.sick: dict[str, Callable[[Callable[..., Any], Any], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*given: Any, **more: Any) -> Any:
            way = self.sick.get(name)
            if way is None or not given or SICK not in named(given[0]):
                return method(*given, **more)
            return way(method, given[0])

        return call


def fail(error: Exception) -> Callable[..., Any]:
    def way(_method: object, _asked: object) -> Any:
        raise error

    return way


def done_but(error: Exception) -> Callable[..., Any]:
    """The others may be done, but that is unknown: one of several shards is unreachable."""

    def way(method: Callable[..., Any], moves: Any) -> Any:
        method([move for move in moves if move.catalog != SICK])
        raise error

    return way


def of_its_own(result: Any) -> Callable[..., Any]:
    """The database answers for each catalog; for the sick one with ``result``, or, if None, not at
    all."""

    def way(method: Callable[..., Any], moves: Any) -> Mapping[str, Any]:
        told = method([move for move in moves if move.catalog != SICK])
        return {**told, SICK: result} if result is not None else told

    return way


def hang(_method: object, _asked: object) -> Any:
    time.sleep(0.3)
    raise StoreUnreachable("no answer in time")


def take_long(method: Callable[..., Any], asked: Any) -> Any:
    time.sleep(1.2 * sharing._SLOW_S)
    return method(asked)


AWAY = StoreUnreachable("no primary of a shard")
WAYS: dict[str, dict[str, Callable[..., Any]]] = {
    "head unreadable": {name: fail(KeyError("head")) for name in ("heads", "tails")},
    "shard away": {n: fail(AWAY) for n in (*READS, *WRITES)} | {"move_heads": done_but(AWAY)},
    "documents unreadable": {"documents": fail(KeyError("state"))},
    "move broken off": {"move_heads": done_but(AWAY)},
    "move in doubt": {"move_heads": of_its_own(None)},
    "move refused": {"move_heads": of_its_own(Rejected("a foreign index"))},
    "defect in the move": {"move_heads": fail(ZeroDivisionError())},
    "documents refused": {"write_documents": fail(WriteRejected("a foreign index"))},
    "log refused": {"write_commits": fail(WriteRejected("a foreign index"))},
    "write-out unreachable": {"write_documents": fail(AWAY)},
    "hangs": dict.fromkeys((*READS, *WRITES), hang),
    "slow": dict.fromkeys(("heads", "tails", "move_heads"), take_long),
}


@pytest.fixture
def store() -> SickStore:
    return SickStore(MemoryStore())


def gateway(store: SickStore) -> GatewayService:
    return GatewayService(cast(Store, store), ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))


def written(ours: GatewayService, value: int, wait_s: float = 0.5) -> dict[str, Outcome]:
    """All catalogs are written at once."""
    names = [*HEALTHY[:25], SICK, *HEALTHY[25:]]
    requests = [
        ours.request(n, (KeyEdit("k", put(value)),), wait_s=wait_s if n == SICK else None)
        for n in names
    ]
    told = commit_each(ours, requests)
    return {name: each.outcome for name, each in zip(names, told, strict=True)}


def readings(ours: GatewayService) -> dict[str, Any]:
    """All catalogs are read at once."""
    found: dict[str, Any] = {}
    names = [*HEALTHY, SICK]
    barrier = threading.Barrier(len(names))

    def read(name: str) -> None:
        barrier.wait(WAIT_S)
        try:
            reading = ours.read(name, "k")
            found[name] = reading.document and reading.document.content
        except Exception as error:  # noqa: BLE001 - told to whoever looks
            found[name] = error

    threads = [threading.Thread(target=read, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    return found


def require_healthy(ours: GatewayService, store: SickStore) -> Outcome:
    """Returns the last outcome in the failing catalog."""
    for value in range(1, 5):
        told = written(ours, value)
        last = told.pop(SICK)
        assert [n for n, each in told.items() if not isinstance(each, Applied)] == []
        found = readings(ours)
        found.pop(SICK)
        assert [n for n, each in found.items() if each != value] == []
    wait_until(lambda: all(store.inner.last_written({name: [5]}) for name in HEALTHY))
    return last


@pytest.mark.parametrize("way", WAYS)
def test_a_failing_catalog_fails_no_request_of_a_healthy_one(
    store: SickStore, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_SLOW_S", 0.2)
    ours = gateway(store)
    written(ours, 0)
    store.sick = WAYS[way]
    require_healthy(ours, store)
    store.sick = {}
    wait_until(lambda: isinstance(written(ours, 9)[SICK], Applied | Unchanged))
    assert readings(ours)[SICK] == 9


def test_a_write_refused_by_the_database_is_reported_as_not_applied(store: SickStore) -> None:
    """And is refused long before its deadline."""
    ours = gateway(store)
    written(ours, 0)
    store.sick = WAYS["move refused"]
    told = written(ours, 1, wait_s=WAIT_S)
    assert "a foreign index" in refused(told.pop(SICK), StoreUnavailable).detail
    assert all(isinstance(each, Applied) for each in told.values())
    assert readings(ours)[SICK] == 0


def test_of_a_refused_batch_only_the_request_at_fault_is_refused() -> None:
    store = MemoryStore(head_bytes_max=10_000)
    ours = GatewayService(store, ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
    sizes = [10, 20_000, 10, 4_000, 4_000, 4_000, 10]
    requests = [
        ours.request("c", (KeyEdit(f"k{number}", put("x" * size)),))
        for number, size in enumerate(sizes)
    ]
    told = [each.outcome for each in commit_each(ours, requests)]
    refused(told.pop(1), StoreUnavailable)
    assert [applied(each).commit.revision for each in told] == [1, 2, 3, 4, 5, 6]


def failing_on(broken: str, error: Exception) -> Callable[..., Any]:
    """Fails if it is called for the broken record of the sick catalog."""

    def way(method: Callable[..., Any], asked: Any) -> Any:
        if any(broken in (each if isinstance(each, tuple) else (each,)) for each in asked[SICK]):
            raise error
        return method(asked)

    return way


UNREADABLE = ForeignRecord(SICK, None, "a record of 'broken' can't be read: it has no 'state'")


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ("documents", KeyError("state")),
        ("documents", MemoryError()),
        ("replies", UNREADABLE),
        ("replies", MemoryError()),
    ],
)
def test_only_requests_that_need_an_unreadable_record_are_refused(
    store: SickStore, record: str, error: Exception
) -> None:
    ours = gateway(store)
    written(ours, 0)
    store.sick = {record: failing_on("broken", error)}
    keys = ["k", *(f"k{n}" for n in range(20)), "broken", *(f"l{n}" for n in range(20))]
    requests = [
        ours.request(SICK, (KeyEdit(k, put(1)),), idempotency=Idempotency("ann", k, "print"))
        for k in keys
    ]
    told = dict(zip(keys, (each.outcome for each in commit_each(ours, requests)), strict=True))
    assert refused(told.pop("broken"), CommitError).retryable
    assert [key for key, each in told.items() if not isinstance(each, Applied)] == []
    assert isinstance(written(ours, 2, wait_s=WAIT_S)[SICK], Applied)


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError()])
def test_a_request_that_cannot_be_decided_is_refused_alone(
    store: SickStore, error: Exception
) -> None:
    def stored_bytes(content: Any) -> int:
        if content == "broken":
            raise error
        return 1

    store.inner.stored_bytes = stored_bytes  # type: ignore[method-assign]
    ours = gateway(store)
    names = [*"abcdefgh", "broken", *"ijk"]
    requests = [
        ours.request("c", (KeyEdit(name, Put(name, CERTAINLY_STORABLE_BYTES + 1)),))
        for name in names
    ]
    requests += [ours.request(each, (KeyEdit("k", put(1)),)) for each in HEALTHY]
    names += HEALTHY
    told = dict(zip(names, (each.outcome for each in commit_each(ours, requests)), strict=True))
    assert refused(told.pop("broken"), CommitError).retryable
    assert [name for name, each in told.items() if not isinstance(each, Applied)] == []


def test_an_error_common_to_all_requests_is_not_searched_for_in_each(store: SickStore) -> None:
    asked: list[object] = []

    def unreadable(_: Callable[..., Any], names: Any) -> Any:
        asked.append(names)
        raise UNREADABLE

    ours = gateway(store)
    written(ours, 0)
    store.sick = {"replies": unreadable}
    requests = [
        ours.request(SICK, (KeyEdit(k, put(1)),), idempotency=Idempotency("ann", k, "print"))
        for k in map(str, range(300))
    ]
    for told in commit_each(ours, requests):
        assert refused(told.outcome, CommitError).retryable
    assert len(asked) < 100
    store.sick = {}
    assert isinstance(written(ours, 2, wait_s=WAIT_S)[SICK], Applied)


def test_a_round_that_fails_to_begin_blocks_no_later_round(
    store: SickStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, failed = Round.__init__, []

    def without_memory(*given: Any) -> None:
        if not failed:
            failed.append(given)
            raise MemoryError
        begin(*given)

    monkeypatch.setattr(Round, "__init__", without_memory)
    ours = gateway(store)
    for value in range(2):
        applied(ours.write("c", "k", put(value)).outcome)
    assert failed


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError()])
def test_a_failed_background_thread_is_restarted(error: Exception) -> None:
    begun, done = [], threading.Event()

    def run() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise error
        done.set()

    ThreadRuntime().spawn(run, "a test")
    assert done.wait(WAIT_S)


def test_a_move_without_memory_is_sent_again(store: SickStore) -> None:
    """Whether it was sent before isn't known."""
    ours = gateway(store)
    applied(ours.write(SICK, "k", put(0)).outcome)
    store.sick = {"move_heads": once_failing(MemoryError())}
    assert applied(ours.write(SICK, "k", put(1)).outcome).commit.revision == 2


def once_failing(error: Exception) -> Callable[..., Any]:
    """The first call takes effect, but its answer is lost."""
    left = [error]

    def way(method: Callable[..., Any], asked: Any) -> Any:
        told = method(asked)
        if left:
            raise left.pop()
        return told

    return way


@pytest.mark.parametrize("where", ["cache.replace", "write_out.add"])
def test_a_commit_is_reported_even_if_memory_runs_out_afterwards(
    store: SickStore, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = gateway(store)
    applied(ours.write(SICK, "k", put(0)).outcome)
    kind, name = {"cache.replace": (Cache, "replace"), "write_out.add": (WriteOut, "add")}[where]

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(kind, name, fail)
        assert applied(ours.write(SICK, "k", put(1)).outcome).commit.revision == 2
    assert applied(ours.write(SICK, "k", put(2)).outcome).commit.revision == 3
    assert ours.read(SICK, "k").document.content == 2  # type: ignore[union-attr]
    wait_until(lambda: bool(store.inner.last_written({SICK: [3]})))


def test_an_unreadable_document_fails_no_reader_of_other_documents() -> None:
    """Nor does a look that many readers share."""
    reached, go_on = threading.Event(), threading.Event()

    def look_at(names: Collection[str]) -> dict[str, str]:
        if "first" in names:
            reached.set()
            go_on.wait(WAIT_S)
        if "broken" in names:
            raise UNREADABLE
        return {name: name for name in names}

    reads = sharing.SharedReads(look_at, ThreadRuntime(), catalog_of=lambda _: SICK)
    found: dict[str, object] = {}

    def look(name: str) -> None:
        try:
            found[name] = reads.read([name])
        except ForeignRecord as error:
            found[name] = error

    names = ["first", "a", "broken", "b"]
    threads = [threading.Thread(target=look, args=(name,)) for name in names]
    threads[0].start()
    assert reached.wait(WAIT_S)
    for thread in threads[1:]:
        thread.start()
    gathering = reads._together
    wait_until(lambda: sum(len(group.names) for group in gathering._gathering) == 3)
    go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert found.pop("broken") is UNREADABLE
    assert found == {name: {name: name} for name in ("first", "a", "b")}


def test_a_document_edited_by_hand_blocks_no_other_catalog(store: SickStore) -> None:
    """Its tail, which a worker that died has left, can't be replayed on it."""
    theirs = gateway(store)
    written(theirs, 0)
    wait_until(lambda: bool(store.inner.last_written({SICK: [1]})))
    store.sick = {"write_documents": fail(AWAY)}
    applied(theirs.write(SICK, "k", replace("", {"n": 1})).outcome)
    store.sick = {}
    store.inner._documents.pop((SICK, "k"), None)
    store.inner._commits[SICK].clear()
    require_healthy(gateway(store), store)


def test_a_gap_in_the_log_of_one_catalog_delays_no_other_feed(store: SickStore) -> None:
    ours = gateway(store)
    feed = ours.feed(lambda commit: b"%d" % commit.revision)
    watched = partial(feed.watch, after=0, selection=Selection())
    written(ours, 0)
    with watched(SICK), watched(HEALTHY[0]) as healthy:
        store.inner._commits[SICK].clear()
        require_healthy(ours, store)
        told: list[int] = []
        while len(told) < 5:
            told += [each.revision for each in healthy.take(WAIT_S, patient=True).commits]
        assert told == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("where", ["told", "metered"])
def test_writers_survive_a_defect(store: SickStore, where: str) -> None:
    """Each of them meets it several times; every lane comes back."""

    class Failing(Meters):
        left = 8

        def written_out(self, moves: Sequence[float]) -> None:  # noqa: ARG002
            if where == "metered" and Failing.left:
                Failing.left -= 1
                raise ZeroDivisionError

    limits = ServiceLimits(deadline_ms=WAIT_MS)
    ours = GatewayService(cast(Store, store), ThreadRuntime(), limits, meters=Failing())
    if where == "told":
        tell, left = ours._write_out._written, [ZeroDivisionError] * 8

        def defect(catalog: str) -> None:
            if left:
                raise left.pop()
            tell(catalog)

        ours._write_out._written = defect
    for number in range(40):
        applied(ours.write("c", "k", put(number)).outcome)
    wait_until(lambda: bool(store.inner.last_written({"c": [40]})))


def test_a_recovered_suspect_shares_calls_again(
    store: SickStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_HELD_S", 0.1)
    ours = gateway(store)
    written(ours, 0)
    store.sick = WAYS["shard away"]
    assert not isinstance(written(ours, 1)[SICK], Applied)
    assert SICK in ours._queue.suspects
    store.sick = {}
    number = iter(range(2, 10_000))
    wait_until(lambda: bool(written(ours, next(number))) and SICK not in ours._queue.suspects)


def test_a_failed_leader_or_writer_is_restarted(
    store: SickStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    one_at_a_time = threading.Lock()
    for kind, name in ((Queue, "take"), (WriteOut, "_take")):
        done = getattr(kind, name)

        def fail(*given: Any, done: Any = done, name: str = name) -> Any:
            with one_at_a_time:
                if fails := failed.count(name) < 20:  # more than there are threads
                    failed.append(name)
            if fails:
                raise ZeroDivisionError
            return done(*given)

        monkeypatch.setattr(kind, name, fail)
    ours = gateway(store)
    for value in range(3):
        applied(ours.write("c", "k", put(value)).outcome)
    wait_until(lambda: bool(store.inner.last_written({"c": [3]})))
    assert failed.count("take") == failed.count("_take") == 20
