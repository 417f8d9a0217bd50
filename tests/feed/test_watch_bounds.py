"""Where a watch may begin and how many there may be; what begins, ends and outlives a channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.errors import RevisionCompacted, RevisionNotFound, StoreUnavailable, TooManyWatchers
from gateway.feed.channel import WatchEnded
from gateway.feed.hub import SignalListener
from gateway.limits import WatchLimits
from gateway.store.contract import StoreUnreachable
from tests.feed.feed_world import SteppedRuntime, World, remaining_revisions, revisions, world
from tests.memory_store import MemoryStore

__all__ = ["world"]


class TestBounds:
    def test_a_watch_may_begin_from_the_floor_to_the_head(self, world: World) -> None:
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

    def test_a_watcher_overtaken_by_compaction_gets_revision_compacted(self, world: World) -> None:
        slow = world.watch()
        quick = world.watch()
        for _ in range(2):
            world.commits(15)
            assert remaining_revisions(quick)
        assert world.store.raise_floor("c", 30, 0)
        with pytest.raises(RevisionCompacted):
            slow.take(1.0, patient=False)

    @pytest.mark.parametrize("reads_the_log", [True, False])
    def test_commits_that_a_sweep_may_have_reduced_are_not_delivered(
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

    def test_a_watcher_that_falls_too_far_behind_is_ended(self, world: World) -> None:
        slow, quick = world.watch(), world.watch()
        for _ in range(6):
            world.commits(10)
            assert len(remaining_revisions(quick)) == 10
        with pytest.raises(WatchEnded) as ended:
            slow.take(1.0, patient=False)
        assert ended.value.code == "watcher_too_slow"
        world.commit("k")
        assert revisions(quick) == [61]

    def test_a_watcher_may_begin_far_back(self, world: World) -> None:
        world.commits(200)
        assert remaining_revisions(world.watch()) == list(range(1, 201))

    def test_the_number_of_watchers_of_a_process_is_bounded(self, world: World) -> None:
        watchers = [world.watch() for _ in range(100)]
        with pytest.raises(TooManyWatchers):
            world.watch()
        watchers[0].close()
        watchers[0].close()
        world.watch()
        with pytest.raises(TooManyWatchers):
            world.watch()

    def test_a_watch_that_cannot_begin_takes_no_slot(self, world: World) -> None:
        for _ in range(150):
            with pytest.raises(RevisionNotFound):
                world.watch(after=1)
        world.store.fails = True
        for _ in range(150):
            with pytest.raises(StoreUnavailable):
                world.watch()
        world.store.fails = False
        assert len([world.watch() for _ in range(100)]) == 100

    def test_rings_share_a_memory_bound_without_losing_commits(self) -> None:
        world = World(WatchLimits(rings_bytes_max=4))
        watcher, other = world.watch(), world.watch()
        world.commits(5)
        assert revisions(other) == [1, 2, 3, 4, 5]
        assert revisions(other, 2.0) == []
        assert all(not channel.ring for channel in world.hub._channels.values())
        world.commits(3)
        assert remaining_revisions(watcher) == list(range(1, 9))
        world.close()

    def test_the_more_watchers_wait_the_less_often_a_busy_catalog_is_read(
        self, world: World
    ) -> None:
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


class TestBackground:
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

    def test_two_overlapping_runs_append_nothing_twice(self, world: World) -> None:
        """The first run has found no watcher left, and is still reading when a watcher comes and
        another run begins."""
        watcher = world.watch()
        assert revisions(watcher, 2.0) == []
        world.commits(5)
        nested = [world.hub.step, lambda: world.commits(2), world.hub.step]

        def meanwhile() -> None:
            world.store.reading = lambda: None
            for step in nested:
                step()

        world.store.reading = meanwhile
        assert remaining_revisions(watcher) == [1, 2, 3, 4, 5, 6, 7]
        assert [told.revision for told in watcher._on.ring] == [1, 2, 3, 4, 5, 6, 7]
        assert remaining_revisions(world.watch()) == [1, 2, 3, 4, 5, 6, 7]

    def test_a_late_run_does_not_append_to_a_newer_channel(self, world: World) -> None:
        """Its commits don't belong to the channel that began meanwhile."""
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
        assert remaining_revisions(fresh) == [7]
        assert [told.revision for told in fresh._on.ring] == [7]

    def test_stopping_ends_waiting_and_new_watchers(self, world: World) -> None:
        watcher = world.watch()
        world.runtime.background = world.hub.stop
        with pytest.raises(WatchEnded) as ended:
            watcher.take(1000.0, patient=True)
        assert (ended.value.code, world.runtime.now < 1) == ("shutting_down", True)
        with pytest.raises(WatchEnded):
            world.watch().take(0.0, patient=True)


class TestSignals:
    class Script:
        """Signals that return the given hints, and then break off."""

        def __init__(self, told: list[Mapping[str, int]], end: Exception) -> None:
            self._told = told
            self._end = end
            self.closed = False

        def next(self, timeout_s: float) -> Mapping[str, int]:  # noqa: ARG002
            if not self._told:
                raise self._end
            return self._told.pop(0)

        def close(self) -> None:
            self.closed = True

    @pytest.mark.parametrize("end", [StoreUnreachable("broke off"), KeyError("a defect")])
    def test_signals_are_reopened_and_every_catalog_is_checked_then(self, end: Exception) -> None:
        opened = [self.Script([{"a": 1}, {}], end), None, self.Script([{"b": 2}], end)]
        scripts = [each for each in opened if each is not None]
        heard: list[Mapping[str, int]] = []
        runtime = SteppedRuntime()

        class Scripted(MemoryStore):
            def commit_signals(self) -> Any:
                found = opened.pop(0)
                if found is None:
                    raise StoreUnreachable("not yet")
                return found

        listener = SignalListener(Scripted(), runtime, heard.append, lambda: bool(opened))
        listener.run()
        assert heard == [{}, {"a": 1}, {}]
        assert scripts[0].closed
        assert runtime.now > 0, "it must not try again without a pause"
        assert all(each.closed for each in scripts)
