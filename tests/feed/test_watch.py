"""Watchers get every commit above where they stand, once and in order, whatever else happens.

One thread and a clock that only waiting moves: whoever waits lets the hub's background run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

from gateway.errors import RevisionCompacted, RevisionNotFound, StoreUnavailable, TooManyWatchers
from gateway.feed.channel import Selection, WatchEnded
from gateway.feed.hub import Hub, SignalListener
from gateway.feed.watcher import Watcher, watch
from gateway.limits import ServiceLimits, WatchLimits
from gateway.model import Change, Commit, Head
from gateway.state.cache import Cache
from gateway.state.heads import Observer, Settler
from gateway.store.contract import Move, Unreachable
from gateway.store.memory import MemoryStore

EVERYTHING = Selection()
_STEP_S = 0.01


class Flag:
    def __init__(self, runtime: SteppedRuntime) -> None:
        self._runtime = runtime
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        deadline = self._runtime.now + timeout
        while not self._is_set and self._runtime.now < deadline:
            self._runtime.background()
            if not self._is_set:
                self._runtime.now = min(deadline, self._runtime.now + _STEP_S)
        return self._is_set


class SteppedRuntime:
    """``background`` is what runs while somebody waits. Threads are counted, not run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.background: Callable[[], None] = lambda: None
        self.spawned: list[str] = []
        self._ids = iter(range(1, 1_000_000))

    def monotonic(self) -> float:
        return self.now

    def now_us(self) -> int:
        return int(self.now * 1e6)

    def new_id(self) -> str:
        return f"{next(self._ids):032x}"

    def jitter(self) -> float:
        return 0.5

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def event(self) -> Flag:
        return Flag(self)

    def lock(self) -> AbstractContextManager[object]:
        return threading.Lock()  # taken twice by the one thread there is, it would hang

    def spawn(self, run: Callable[[], None], name: str) -> None:  # noqa: ARG002
        self.spawned.append(name)


class Store(MemoryStore):
    """``fails``: while it is true, nothing can be reached. ``reading`` is called between reads."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.read = 0
        self.reading: Callable[[], None] = lambda: None

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        self._reach()
        return super().heads(catalogs)

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[Commit]]:
        self._reach()
        found = super().commits(spans)
        self.reading()
        return found

    def list_commits(self, *asked: Any, **named: Any) -> Sequence[Commit]:
        self._reach()
        found = super().list_commits(*asked, **named)
        self.reading()
        return found

    def _reach(self) -> None:
        self.read += 1
        if self.fails:
            raise Unreachable("as told")


class World:
    def __init__(self, bounds: WatchLimits) -> None:
        self.store = Store()
        self.runtime = SteppedRuntime()
        self.encoded: list[int] = []
        limits = ServiceLimits(cache_bytes_max=1 << 20)
        observer = Observer(self.store, Cache(self.runtime, limits), limits)
        self.settler = Settler(self.store, observer, self.runtime, limits)
        self.hub = Hub(self.store, self.settler, self.runtime, bounds, self._encode)
        self.runtime.background = self.hub.step
        self._watching = ExitStack()

    def _encode(self, commit: Commit) -> bytes:
        self.encoded.append(commit.revision)
        return b"%d;" % commit.revision

    def watch(self, after: int = 0, selection: Selection = EVERYTHING, of: str = "c") -> Watcher:
        watcher = watch(self.hub, of, after=after, selection=selection)
        return self._watching.enter_context(watcher)

    def move(self, *keys: str, of: str = "c") -> Commit:
        """A commit on ``keys`` that is in the head alone: its writer has died."""
        base = self.store.heads([of]).get(of) or Head(of)
        revision = base.revision + 1
        changes = tuple(Change(key, "put", revision, value=revision) for key in keys)
        commit = Commit(of, revision, revision, self.runtime.new_id(), "a", None, None, 1, changes)
        head = Head(of, revision, revision, base.revision, base.floor, batch=(commit,))
        self.store.move_heads([Move(head)])
        return commit

    def commit(self, *keys: str, of: str = "c", signal: bool = True) -> int:
        commit = self.move(*keys, of=of)
        self.store.write_commits([commit])
        if signal:
            self.hub.hear({of: commit.revision})
        return commit.revision

    def commits(self, count: int, *keys: str) -> None:
        for _ in range(count):
            self.commit(*(keys or ("k",)))

    def told(self, watcher: Watcher, timeout_s: float = 5.0) -> tuple[list[int], float]:
        """What it is told, and how long that took by the clock that waiting moves."""
        begun = self.runtime.now
        return revisions(watcher, timeout_s), self.runtime.now - begun

    def take(self, watcher: Watcher, timeout_s: float, *, patient: bool = False) -> Any:
        """The same of a look that tells nothing: how far it has come."""
        begun = self.runtime.now
        taken = watcher.take(timeout_s, patient=patient)
        assert taken.told == []
        return taken.revision, self.runtime.now - begun

    def close(self) -> None:
        self._watching.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World(
        WatchLimits(watchers_max=100, lag_max=50, ring_commits_max=10, bookmark_commits=20)
    )
    yield made
    made.close()


def revisions(watcher: Watcher, timeout_s: float = 5.0) -> list[int]:
    return [told.revision for told in watcher.take(timeout_s, patient=True).told]


def all_there_is(watcher: Watcher) -> list[int]:
    found: list[int] = []
    while more := revisions(watcher, 0.5):
        found += more
    return found


class TestTelling:
    def test_commits_are_told_once_in_order_and_encoded_once_for_all(self, world: World) -> None:
        watchers = [world.watch() for _ in range(5)]
        for expected in (1, 2, 3):
            world.commit("k")
            assert [revisions(each) for each in watchers] == [[expected]] * 5
        assert world.encoded == [1, 2, 3]

    def test_many_signals_are_one_read(self, world: World) -> None:
        watcher = world.watch()
        assert revisions(watcher, 2.0) == []
        world.commits(8)
        world.store.read = 0
        assert revisions(watcher) == list(range(1, 9))
        assert world.store.read == 2  # the commits, and the heads for their floor

    def test_a_lone_commit_is_told_at_once(self, world: World) -> None:
        watcher = world.watch()
        assert revisions(watcher, 3.0) == []
        world.commit("k")
        told, took_s = world.told(watcher)
        assert (told, took_s <= _STEP_S) == ([1], True)

    def test_what_is_there_is_taken_without_the_hub(self, world: World) -> None:
        world.commits(3)
        world.runtime.background = lambda: None
        assert revisions(world.watch(after=1), 0.0) == [2, 3]

    def test_a_watcher_that_comes_back_goes_on(self, world: World) -> None:
        world.commits(30)
        told = []
        for _ in range(6):
            with world.watch(after=len(told)) as watcher:
                taken = watcher.take(1.0, limit=7, patient=True)
            told += [each.revision for each in taken.told]
            assert taken.revision == (told[-1] if told else 0)
        assert told == list(range(1, 31))

    def test_a_watcher_behind_the_ring_reads_the_log(self, world: World) -> None:
        slow, quick = world.watch(), world.watch()
        told = []
        for _ in range(4):
            world.commits(8)
            told += revisions(quick)
        assert told == all_there_is(slow) == list(range(1, 33))

    def test_commits_made_while_the_channel_begins_are_not_missed(self, world: World) -> None:
        """Their signals come before anybody listens for the catalog."""
        world.commits(3)
        begun = world.hub.join

        def join(standing: Any, catalog: str, after: int) -> Any:
            world.commit("k")
            return begun(standing, catalog, after)

        world.hub.join = join  # type: ignore[method-assign]
        watcher = world.watch(after=3)
        told, took_s = world.told(watcher)
        assert (told, took_s < 0.1) == ([4], True)

    def test_a_catalog_may_be_watched_before_it_is_made(self, world: World) -> None:
        watcher = world.watch(of="new")
        world.commit("k", of="new")
        assert revisions(watcher) == [1]


class TestHints:
    """Signals are hints; positions are what is right."""

    def test_a_lost_signal_costs_a_second(self, world: World) -> None:
        watcher = world.watch()
        assert revisions(watcher, 3.0) == []
        world.commit("k", signal=False)
        told, took_s = world.told(watcher)
        assert (told, took_s <= 1.1) == ([1], True)

    @pytest.mark.parametrize("hint", [1, 5, 10**9])
    def test_a_wrong_signal_tells_nothing(self, world: World, hint: int) -> None:
        watcher = world.watch()
        world.commits(5)
        assert revisions(watcher) == [1, 2, 3, 4, 5]
        world.hub.hear({"c": hint, "other": 7})
        assert revisions(watcher, 3.0) == []

    def test_a_batch_whose_writer_died_is_told_and_written_out(self, world: World) -> None:
        watcher = world.watch()
        world.commit("k")
        assert revisions(watcher) == [1]
        world.move("k")
        told, took_s = world.told(watcher)
        assert (told, took_s < 2.0) == ([2], True)
        assert world.store.commits({"c": (1, 2)})["c"]
        assert world.store.documents({"c": ["k"]})["c", "k"].content == 2

    def test_a_watch_that_begins_at_such_a_batch_tells_it(self, world: World) -> None:
        world.move("k")
        assert revisions(world.watch()) == [1]

    def test_an_outage_loses_nothing_and_repeats_nothing(self, world: World) -> None:
        watcher = world.watch()
        world.commit("k")
        assert revisions(watcher) == [1]
        world.commit("k")
        world.store.fails = True
        assert revisions(watcher, 5.0) == []
        world.store.fails = False
        world.commits(2)
        assert all_there_is(watcher) == [2, 3, 4]

    def test_a_defect_silences_nobody_for_good(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        watcher = world.watch()
        world.commit("k")

        def break_once() -> None:
            world.store.reading = lambda: None
            raise ZeroDivisionError

        world.store.reading = break_once
        assert revisions(watcher) == [1]
        assert "ZeroDivisionError" in caplog.text


class TestTroubleOfOne:
    """One catalog's trouble is no other's."""

    @pytest.mark.parametrize("names", ["abc", "cba"])
    @pytest.mark.parametrize(
        "trouble", [Unreachable("an index refuses it"), ZeroDivisionError("edited by hand")]
    )
    def test_a_batch_that_cannot_be_written_out_silences_its_own_feed_alone(
        self, world: World, trouble: Exception, names: str
    ) -> None:
        watchers = {name: world.watch(of=name) for name in names}
        for name in names:
            world.commit("k", of=name)
        assert [revisions(each) for each in watchers.values()] == [[1]] * 3
        written = world.store.write_documents

        def refuse(documents: Mapping[str, Any]) -> None:
            if "b" in documents:
                raise trouble
            written(documents)

        world.store.write_documents = refuse  # type: ignore[method-assign]
        world.move("k", of="b")
        assert revisions(watchers["b"], 5.0) == []
        for revision in range(2, 12):
            for name in ("a", "c"):
                world.commit("k", of=name)
            for name in ("a", "c"):
                told, took_s = world.told(watchers[name])
                assert (told, took_s <= 2 * _STEP_S) == ([revision], True)
        world.move("k", of="a")  # and its writer died
        assert revisions(watchers["a"]) == [12]
        world.store.write_documents = written  # type: ignore[method-assign]
        assert revisions(watchers["b"]) == [2]

    def test_a_log_that_cannot_be_read_silences_its_own_feed_alone(self, world: World) -> None:
        watchers = {name: world.watch(of=name) for name in "abc"}
        read = world.store.commits

        def fail(spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[Commit]]:
            if "b" in spans:
                raise ValueError("edited by hand")
            return read(spans)

        world.store.commits = fail  # type: ignore[method-assign]
        for revision in range(1, 4):
            for name in "abc":
                world.commit("k", of=name)
            for name in "ac":
                assert revisions(watchers[name]) == [revision]
        assert revisions(watchers["b"], 3.0) == []
        world.store.commits = read  # type: ignore[method-assign]
        assert revisions(watchers["b"]) == [1, 2, 3]

    def test_a_head_that_cannot_be_read_keeps_no_other_feed_from_its_log(
        self, world: World
    ) -> None:
        watchers = {name: world.watch(of=name) for name in "ab"}
        heads = world.store.heads

        def fail(catalogs: Collection[str]) -> Mapping[str, Head]:
            if "b" in catalogs:
                raise KeyError("revision")
            return heads(catalogs)

        for _ in range(3):
            world.commit("k", of="b")
        world.store.heads = fail  # type: ignore[method-assign]
        for revision in range(1, 6):
            world.commit("k", of="a", signal=revision % 2 == 0)
            assert revisions(watchers["a"]) == [revision]
            assert revisions(watchers["a"], 2.0) == []
        world.store.heads = heads  # type: ignore[method-assign]
        assert revisions(watchers["b"]) == [1, 2, 3]

    def test_a_heavy_log_holds_up_no_other_feed(self, world: World) -> None:
        """A read of many logs may come back with that of the heaviest alone."""
        watchers = {name: world.watch(of=name) for name in "ab"}
        read, written = world.store.commits, world.store.write_documents
        wrote: list[object] = []

        def heavy(spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[Commit]]:
            first = min(spans)
            found = read({first: spans[first]})
            return {first: found[first][:1] if first == "a" else found[first]}

        world.store.commits = heavy  # type: ignore[method-assign]
        world.store.write_documents = lambda documents: (  # type: ignore[method-assign]
            wrote.append(documents),
            written(documents),
        )[1]
        for _ in range(50):
            world.commit("k", of="a")
        world.commit("k", of="b")
        world.hub.step()
        assert [told.revision for told in watchers["b"]._on.ring] == [1]
        assert all_there_is(watchers["a"]) == list(range(1, 51))
        assert wrote == []


class TestSelections:
    def test_only_commits_that_touch_what_is_wanted_are_told_and_those_whole(
        self, world: World
    ) -> None:
        selections = [Selection(frozenset("ab")), Selection(prefix="dir/"), EVERYTHING]
        selections.append(Selection(frozenset("a"), "dir/"))
        watchers = [world.watch(selection=each) for each in selections]
        for keys in (("a",), ("dir/x", "b"), ("c",), (), ("dir",)):
            world.commit(*keys)
        told = [all_there_is(each) for each in watchers]
        assert told == [[1, 2], [2], [1, 2, 3, 4, 5], [1, 2]]

    @pytest.mark.parametrize("selection", [Selection(frozenset("a")), Selection(prefix="a")])
    def test_the_log_is_filtered_like_the_ring(self, world: World, selection: Selection) -> None:
        for number in range(30):
            world.commit("a" if number % 10 == 0 else "b")
        watcher = world.watch(selection=selection)
        assert all_there_is(watcher) == [1, 11, 21]
        assert watcher.position == 30

    def test_an_idle_feed_learns_how_far_it_has_come(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        world.commits(5, "b")
        assert world.take(watcher, 3.0)[0] == 5

    def test_a_busy_feed_of_others_commits_comes_back_for_a_bookmark(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        assert revisions(watcher, 0.1) == []
        for _ in range(5):
            world.commits(5, "b")
            world.hub.step()
            world.runtime.now += 1
        revision, took_s = world.take(watcher, 1000.0)
        assert (revision, took_s < 1.0) == (25, True)

    def test_the_wait_of_a_patient_one_is_not_cut_short(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        world.commits(25, "b")
        revision, took_s = world.take(watcher, 10.0, patient=True)
        assert (revision, took_s >= 10.0) == (25, True)

    def test_a_bookmark_is_due_also_to_one_that_waits(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        world.runtime.background = lambda: (world.hub.step(), world.commit("b"))[0]
        revision, took_s = world.take(watcher, 1000.0)
        assert (20 <= revision < 25, took_s < 1.0) == (True, True)

    def test_one_that_waits_for_long_needs_no_log(self, world: World) -> None:
        """More commits pass it by than the ring holds."""
        watcher = world.watch(selection=Selection(prefix="a"))

        def others_then_mine() -> None:
            world.commit("a" if len(world.encoded) > 30 else "b")
            world.hub.step()

        world.runtime.background = others_then_mine
        (told,) = revisions(watcher, 10.0)
        assert told > 30
        assert world.encoded == list(range(1, len(world.encoded) + 1)), "encoded again"

    def test_those_who_want_nothing_of_it_are_not_woken(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        woken: list[int] = []
        watcher.wake = lambda: woken.append(1)  # type: ignore[method-assign]
        world.runtime.background = lambda: (world.hub.step(), world.commit("b"))[0]
        assert revisions(watcher, 0.1) == []
        assert (woken, watcher.position > 5) == ([], True)


class TestBounds:
    def test_where_a_watch_may_begin(self, world: World) -> None:
        world.commits(9)
        assert world.store.raise_floor("c", 5, 0)
        with pytest.raises(RevisionCompacted) as compacted:
            world.watch(after=4)
        assert compacted.value.floor == 5
        assert revisions(world.watch(after=5)) == [6, 7, 8, 9]
        with pytest.raises(RevisionNotFound):
            world.watch(after=10)
        assert revisions(world.watch(after=9), 0.0) == []
        with pytest.raises(RevisionNotFound):
            world.watch(after=1, of="never written")

    def test_a_watcher_that_compaction_passes_is_told_so(self, world: World) -> None:
        slow = world.watch()
        quick = world.watch()
        for _ in range(2):
            world.commits(15)
            assert all_there_is(quick)
        assert world.store.raise_floor("c", 30, 0)
        with pytest.raises(RevisionCompacted):
            slow.take(1.0, patient=False)

    @pytest.mark.parametrize("reads_the_log", [True, False])
    def test_what_a_sweep_may_have_cut_down_is_not_told(
        self, world: World, reads_the_log: bool
    ) -> None:
        """The floor is raised, and history swept, while commits are being read."""

        def compact() -> None:
            world.store.reading = lambda: None
            assert world.store.raise_floor("c", 3, 0)

        if reads_the_log:
            world.commits(3)
            watcher = world.watch()
        else:
            watcher = world.watch()
            assert revisions(watcher, 1.0) == []
            world.commits(3)
        world.store.reading = compact
        with pytest.raises(RevisionCompacted):
            watcher.take(1.0, patient=False)
        assert revisions(world.watch(after=3), 1.0) == []
        world.commit("k")
        assert revisions(world.watch(after=3)) == [4]

    def test_a_watcher_that_falls_back_too_far_is_ended(self, world: World) -> None:
        slow, quick = world.watch(), world.watch()
        for _ in range(6):
            world.commits(10)
            assert len(all_there_is(quick)) == 10
        with pytest.raises(WatchEnded) as ended:
            slow.take(1.0, patient=False)
        assert ended.value.code == "watcher_too_slow"
        world.commit("k")
        assert revisions(quick) == [61]

    def test_a_watcher_may_begin_far_back(self, world: World) -> None:
        world.commits(200)
        assert all_there_is(world.watch()) == list(range(1, 201))

    def test_a_process_takes_so_many_and_no_more(self, world: World) -> None:
        watchers = [world.watch() for _ in range(100)]
        with pytest.raises(TooManyWatchers):
            world.watch()
        watchers[0].close()
        watchers[0].close()
        world.watch()
        with pytest.raises(TooManyWatchers):
            world.watch()

    def test_a_watch_that_cannot_begin_takes_no_place(self, world: World) -> None:
        for _ in range(150):
            with pytest.raises(RevisionNotFound):
                world.watch(after=1)
        world.store.fails = True
        for _ in range(150):
            with pytest.raises(StoreUnavailable):
                world.watch()
        world.store.fails = False
        assert len([world.watch() for _ in range(100)]) == 100

    def test_rings_are_bounded_together_and_nothing_is_lost_by_it(self) -> None:
        world = World(WatchLimits(rings_bytes_max=4))
        watcher, other = world.watch(), world.watch()
        world.commits(5)
        assert revisions(other) == [1, 2, 3, 4, 5]
        assert revisions(other, 2.0) == []
        assert all(not channel.ring for channel in world.hub._channels.values())
        world.commits(3)
        assert all_there_is(watcher) == list(range(1, 9))
        world.close()

    def test_a_busy_catalog_is_read_less_often_the_more_wait_for_it(self, world: World) -> None:
        watchers = [world.watch() for _ in range(100)]
        channel = watchers[0]._on

        def reads(waiting: int) -> int:
            """In a second, with a commit each millisecond."""
            read = 0
            for _ in range(1000):
                world.commit("k")
                channel.waiting.update(dict.fromkeys(watchers[:waiting]))
                before = channel.position
                world.hub.step()
                read += channel.position > before
                world.runtime.now += 0.001
            return read

        assert 490 <= reads(1) <= 510
        assert reads(100) == 5


class TestLife:
    def test_the_background_runs_while_there_are_watchers_and_a_little_longer(
        self, world: World
    ) -> None:
        assert world.runtime.spawned == []
        with world.watch():
            assert world.runtime.spawned == ["watch", "watch-signals"]
            world.watch(of="d").close()
        for _ in range(20):
            world.runtime.now += 1
            world.hub.step()
        world.store.read = 0
        world.runtime.now += 1
        world.hub.step()
        assert world.store.read == 0
        with world.watch() as watcher:
            assert len(world.runtime.spawned) == 4
            world.commit("k")
            assert revisions(watcher) == [1]

    def test_two_runs_that_meet_append_nothing_twice(self, world: World) -> None:
        """One has found nobody left, and still reads when somebody comes and another begins."""
        watcher = world.watch()
        assert revisions(watcher, 2.0) == []
        world.commits(5)
        nested = [world.hub.step, lambda: world.commits(2), world.hub.step]

        def meanwhile() -> None:
            world.store.reading = lambda: None
            for step in nested:
                step()

        world.store.reading = meanwhile
        assert all_there_is(watcher) == [1, 2, 3, 4, 5, 6, 7]
        assert [told.revision for told in watcher._on.ring] == [1, 2, 3, 4, 5, 6, 7]
        assert all_there_is(world.watch()) == [1, 2, 3, 4, 5, 6, 7]

    def test_a_run_that_comes_too_late_finds_its_channel_gone(self, world: World) -> None:
        """What it has read is of no use to the channel that began meanwhile."""
        watcher = world.watch()
        world.commits(5)

        def meanwhile() -> None:
            world.store.reading = lambda: None
            watcher.close()
            world.runtime.now += 60
            world.hub.step()  # gives the channel up
            world.commit("k")
            world.watch(after=6)

        world.store.reading = meanwhile
        world.hub.step()
        fresh = world.watch(after=6)
        world.commit("k")
        assert all_there_is(fresh) == [7]
        assert [told.revision for told in fresh._on.ring] == [7]

    def test_stopping_ends_those_who_wait_and_those_who_come(self, world: World) -> None:
        watcher = world.watch()
        world.runtime.background = world.hub.stop
        with pytest.raises(WatchEnded) as ended:
            watcher.take(1000.0, patient=True)
        assert (ended.value.code, world.runtime.now < 1) == ("shutting_down", True)
        with pytest.raises(WatchEnded):
            world.watch().take(0.0, patient=True)


class TestSignals:
    class Script:
        """Signals that tell what they are given, and then break off."""

        def __init__(self, told: list[Mapping[str, int]]) -> None:
            self._told = told
            self.closed = False

        def next(self, timeout_s: float) -> Mapping[str, int]:  # noqa: ARG002
            if not self._told:
                raise Unreachable("broke off")
            return self._told.pop(0)

        def close(self) -> None:
            self.closed = True

    def test_they_are_opened_again_and_everything_is_looked_at_then(self) -> None:
        opened = [self.Script([{"a": 1}, {}]), None, self.Script([{"b": 2}])]
        scripts = [each for each in opened if each is not None]
        heard: list[Mapping[str, int]] = []
        runtime = SteppedRuntime()

        class Scripted(MemoryStore):
            def commit_signals(self) -> Any:
                found = opened.pop(0)
                if found is None:
                    raise Unreachable("not yet")
                return found

        listener = SignalListener(Scripted(), runtime, heard.append, lambda: bool(opened))
        listener.run()
        assert heard == [{}, {"a": 1}, {}]
        assert scripts[0].closed
        assert runtime.now > 0, "it must not try again without a pause"
        assert all(each.closed for each in scripts)
