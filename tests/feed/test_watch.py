"""Watchers get every commit above where they stand, once and in order, whatever else happens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.feed.channel import Burst, EncodedCommit, Selection
from gateway.model import SETTINGS_KEY, CommitRecord, Head, Keys
from gateway.store.contract import ForeignRecord, StoreUnreachable
from tests.counted import Counted
from tests.feed.feed_world import EVERYTHING, STEP_S, World, remaining_revisions, revisions, world

__all__ = ["world"]


class TestDelivery:
    def test_commits_are_delivered_once_in_order_and_encoded_once_for_all(
        self, world: World
    ) -> None:
        watchers = [world.watch() for _ in range(5)]
        for expected in (1, 2, 3):
            world.commit("k")
            assert [revisions(each) for each in watchers] == [[expected]] * 5
        assert world.encoded == [1, 2, 3]

    def test_many_signals_cause_one_read(self, world: World) -> None:
        watcher = world.watch()
        assert revisions(watcher, 2.0) == []
        world.commits(8)
        world.store.read = 0
        assert revisions(watcher) == list(range(1, 9))
        assert world.store.read == 2  # the commits, and the heads for their floor

    def test_a_single_commit_is_delivered_at_once(self, world: World) -> None:
        watcher = world.watch()
        assert revisions(watcher, 3.0) == []
        world.commit("k")
        told, took_s = world.told(watcher)
        assert (told, took_s <= STEP_S) == ([1], True)

    def test_existing_commits_are_taken_without_the_hub(self, world: World) -> None:
        world.commits(3)
        world.runtime.background = lambda: None
        assert revisions(world.watch(after=1), 0.0) == [2, 3]

    def test_a_watcher_that_returns_continues_at_its_position(self, world: World) -> None:
        world.commits(30)
        told = []
        for _ in range(6):
            with world.watch(after=len(told)) as watcher:
                taken = watcher.take(1.0, limit=7, patient=True)
            told += [each.revision for each in taken.commits]
            assert taken.revision == (told[-1] if told else 0)
        assert told == list(range(1, 31))

    def test_a_watcher_behind_the_ring_reads_the_log(self, world: World) -> None:
        slow, quick = world.watch(), world.watch()
        told = []
        for _ in range(4):
            world.commits(8)
            told += revisions(quick)
        assert told == remaining_revisions(slow) == list(range(1, 33))

    def test_commits_made_while_the_channel_begins_are_not_missed(self, world: World) -> None:
        """Their signals come before anybody listens for the catalog."""
        world.commits(3)
        begun = world.hub.join

        def join(head: Any, catalog: str, after: int) -> Any:
            world.commit("k")
            return begun(head, catalog, after)

        world.hub.join = join  # type: ignore[method-assign]
        watcher = world.watch(after=3)
        told, took_s = world.told(watcher)
        assert (told, took_s < 0.1) == ([4], True)

    def test_a_catalog_may_be_watched_before_it_exists(self, world: World) -> None:
        watcher = world.watch(of="new")
        world.commit("k", of="new")
        assert revisions(watcher) == [1]


class TestSignalsAreHints:
    """Signals are hints; positions are what is right."""

    def test_a_lost_signal_delays_a_commit_by_a_second(self, world: World) -> None:
        watcher = world.watch()
        assert revisions(watcher, 3.0) == []
        world.commit("k", signal=False)
        told, took_s = world.told(watcher)
        assert (told, took_s <= 1.1) == ([1], True)

    @pytest.mark.parametrize("hint", [1, 5, 10**9])
    def test_a_wrong_signal_delivers_nothing(self, world: World, hint: int) -> None:
        watcher = world.watch()
        world.commits(5)
        assert revisions(watcher) == [1, 2, 3, 4, 5]
        world.hub.hear({"c": hint, "other": 7})
        assert revisions(watcher, 3.0) == []

    def test_a_batch_whose_writer_died_is_delivered_and_written_out(self, world: World) -> None:
        watcher = world.watch()
        world.commit("k")
        assert revisions(watcher) == [1]
        world.move("k")
        told, took_s = world.told(watcher)
        assert (told, took_s < 2.0) == ([2], True)
        assert world.store.commits({"c": (1, 2)})["c"]
        assert world.store.documents({"c": ["k"]})["c", "k"].content == 2

    def test_a_new_watch_delivers_a_batch_that_is_not_written_out(self, world: World) -> None:
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
        assert remaining_revisions(watcher) == [2, 3, 4]

    def test_a_defect_silences_no_watcher_permanently(
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


class TestTroubleOfOneCatalog:
    """One catalog's trouble is no other's."""

    @pytest.mark.parametrize("names", ["abc", "cba"])
    @pytest.mark.parametrize(
        "trouble", [StoreUnreachable("an index refuses it"), ZeroDivisionError("edited by hand")]
    )
    def test_a_batch_that_cannot_be_written_out_silences_only_its_own_feed(
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
                assert (told, took_s <= 2 * STEP_S) == ([revision], True)
        world.move("k", of="a")  # and its writer died
        assert revisions(watchers["a"]) == [12]
        world.store.write_documents = written  # type: ignore[method-assign]
        assert revisions(watchers["b"]) == [2]

    def test_an_unreadable_log_silences_only_its_own_feed(self, world: World) -> None:
        watchers = {name: world.watch(of=name) for name in "abc"}
        read = world.store.commits

        def fail(spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[CommitRecord]]:
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

    def test_an_unreadable_head_silences_only_its_own_feed(self, world: World) -> None:
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

    def test_a_heavy_log_delays_no_other_feed(self, world: World) -> None:
        """A read of many logs may come back with that of the heaviest alone."""
        watchers = {name: world.watch(of=name) for name in "ab"}
        read, written = world.store.commits, world.store.write_documents
        wrote: list[object] = []

        def heavy(spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[CommitRecord]]:
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
        assert remaining_revisions(watchers["a"]) == list(range(1, 51))
        assert wrote == []


class TestGaps:
    def test_a_watcher_that_reaches_a_gap_in_the_log_gets_an_error(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Somebody has edited the log by hand. The gap is logged once. When it is filled, watchers
        get its commits. Watchers beyond it aren't affected."""
        watcher, other = world.watch(of="a"), world.watch(of="b")
        first = world.move("k", of="a")
        world.commit("k", of="a")
        world.store._heads["a"] = replace(world.store._heads["a"], written=2, tail=())
        world.store.read = 0
        with pytest.raises(ForeignRecord, match="'a': the log has no commit 1"):
            revisions(watcher, 20.0)
        beyond = world.watch(after=2, of="a")
        world.commit("k", of="a")
        assert revisions(beyond, 5.0) == [3]
        with pytest.raises(ForeignRecord):  # and who comes later
            revisions(world.watch(after=0, of="a"), 20.0)
        assert world.store.read < 200
        told = [each for each in caplog.records if "has a gap" in each.message]
        assert len(told) == 1
        world.commit("k", of="b")
        assert revisions(other) == [1]
        world.store.write_commits([first])
        assert revisions(world.watch(after=0, of="a"), 5.0) == [1, 2, 3]

    def test_a_watcher_that_reaches_an_unreadable_commit_gets_an_error(self, world: World) -> None:
        watchers = {name: world.watch(of=name) for name in "ab"}
        read = world.store.commits

        def fail(spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[CommitRecord]]:
            if spans.get("b", (1, 1))[0] < 1:
                raise ForeignRecord("b", None, "commit 1 can't be read")
            return read(spans)

        world.store.commits = fail  # type: ignore[method-assign]
        for name in "ab":
            world.commit("k", of=name)
        assert revisions(watchers["a"]) == [1]
        with pytest.raises(ForeignRecord, match="'b': commit 1 can't be read"):
            revisions(watchers["b"], 5.0)
        beyond = world.watch(after=1, of="b")
        world.commit("k", of="b")
        assert revisions(beyond, 5.0) == [2]

    @pytest.mark.parametrize("gone", [{1}, {2, 3}, {4}, {1, 2, 3, 4}], ids=str)
    @pytest.mark.parametrize("selection", [EVERYTHING, Selection(prefix="k")], ids=str)
    def test_a_watch_from_before_a_gap_does_not_skip_it(
        self, world: World, gone: set[int], selection: Selection
    ) -> None:
        world.commits(4)
        world.background()
        world.store._heads["c"] = replace(world.store._heads["c"], written=4, tail=())
        for revision in gone:
            del world.store._commits["c"][revision]
        watcher = world.watch(after=0, selection=selection)
        with pytest.raises(ForeignRecord, match=f"no commit {min(gone)}"):
            remaining_revisions(watcher)
        assert watcher.position < min(gone)


class TestSelections:
    def test_a_selection_delivers_whole_commits_that_touch_it(self, world: World) -> None:
        selections = [Selection(frozenset("ab")), Selection(prefix="dir/"), EVERYTHING]
        selections.append(Selection(frozenset("a"), "dir/"))
        watchers = [world.watch(selection=each) for each in selections]
        for keys in (("a",), ("dir/x", "b"), ("c",), (), ("dir",)):
            world.commit(*keys)
        told = [remaining_revisions(each) for each in watchers]
        assert told == [[1, 2], [2], [1, 2, 3, 4, 5], [1, 2]]

    def test_what_a_selection_wants_is_found_without_going_through_all_keys(self) -> None:
        """A worker stood still for seconds: each of its watchers went through each key of a large
        commit, or through each manager's keys."""

        class Looked(list[str]):
            count = 0

            def __getitem__(self, at: Any) -> Any:
                self.count += 1
                return super().__getitem__(at)

            __iter__: Any = None

        found = [f"{first}/{number:04}" for first in "ac" for number in range(2_000)]
        keys = Keys(frozenset(found), Looked(found))
        commit = EncodedCommit(1, keys, b"", made_by={"m": keys, "n": Keys.of(["x"])})
        for prefix in ("", "a", "a/", "b", "c/1999", "c/2", "d"):
            wants = not prefix or any(key.startswith(prefix) for key in found)
            assert Selection(prefix=prefix).wants(commit) is wants, prefix
            for managers, has in (("m", True), ("mn", True), ("n", False), ("o", False)):
                selection = Selection(prefix=prefix, managers=frozenset(managers))
                of_n = "n" in managers and not prefix
                assert selection.wants(commit) is ((has and wants) or of_n), selection
        gone = commit.without(found)
        assert not Selection(prefix="a").wants(gone)
        assert not Selection(managers=frozenset("m")).wants(gone)
        assert Selection(managers=frozenset("n")).wants(gone)
        assert isinstance(keys.ascending, Looked)
        assert keys.ascending.count < len(found)

    def test_a_selection_of_many_commits_goes_through_none_of_them(self) -> None:
        """A worker stood still: each of its feeds of one author went through each new commit."""
        none: frozenset[str] = frozenset()
        some = (none, frozenset("a"), frozenset("b"), frozenset("ab"), frozenset("x"))
        commits = Counted(
            EncodedCommit(
                1, Keys.of(keys), b"", author=author, made_by=dict.fromkeys(by, Keys.of(keys[:1]))
            )
            for keys in ((), ("a",), ("b", "a/1"), (SETTINGS_KEY, "c"))
            for author in "abc"
            for by in ("", "a", "bc")
        )
        bursts = [Counted(each) for each in (*combinations(commits, 2), commits[:9], commits)]
        for burst in bursts:
            merged = Burst(burst)
            seen = burst.seen
            for keys, authors, managers in product(some, some, some):
                for prefix, settings in product(("", "a/"), (False, True)):
                    selection = Selection(keys, prefix, authors, managers, settings)
                    wants = any(selection.wants(each) for each in tuple.__iter__(burst))
                    assert selection.wants_some(merged) is wants, (selection, burst)
            assert burst.seen == seen <= 2 * len(burst)

    @pytest.mark.parametrize("selection", [Selection(frozenset("a")), Selection(prefix="a")])
    def test_the_log_is_filtered_like_the_ring(self, world: World, selection: Selection) -> None:
        for number in range(30):
            world.commit("a" if number % 10 == 0 else "b")
        watcher = world.watch(selection=selection)
        assert remaining_revisions(watcher) == [1, 11, 21]
        assert watcher.position == 30

    def test_an_idle_feed_advances_its_position(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        world.commits(5, "b")
        assert world.take(watcher, 3.0)[0] == 5

    def test_a_feed_busy_with_other_keys_returns_for_a_bookmark(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        assert revisions(watcher, 0.1) == []
        for _ in range(5):
            world.commits(5, "b")
            world.hub.step()
            world.runtime.now += 1
        revision, took_s = world.take(watcher, 1000.0)
        assert (revision, took_s < 1.0) == (25, True)

    def test_a_patient_watcher_waits_its_full_time(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        world.commits(25, "b")
        revision, took_s = world.take(watcher, 10.0, patient=True)
        assert (revision, took_s >= 10.0) == (25, True)

    def test_a_waiting_watcher_gets_a_bookmark_too(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        world.runtime.background = lambda: (world.hub.step(), world.commit("b"))[0]
        revision, took_s = world.take(watcher, 1000.0)
        assert (20 <= revision < 25, took_s < 1.0) == (True, True)

    def test_a_watcher_with_few_matches_in_a_long_log_returns_its_position(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where half of what its request may compute is used, also a patient one."""
        world.commits(30, "b")
        monkeypatch.setattr("gateway.cpu.is_half_used", lambda: True)
        reached = 0
        for _ in range(3):
            watcher = world.watch(after=reached, selection=Selection(prefix="a"))
            taken = watcher.take(10.0, limit=10, patient=True)
            assert (taken.commits, taken.revision) == ([], reached + 10)
            reached = taken.revision
        assert world.runtime.now == 0.0  # it waits for nothing

    def test_a_watcher_that_waits_long_needs_no_log(self, world: World) -> None:
        """More commits pass it by than the ring holds."""
        watcher = world.watch(selection=Selection(prefix="a"))

        def others_then_mine() -> None:
            world.commit("a" if len(world.encoded) > 30 else "b")
            world.hub.step()

        world.runtime.background = others_then_mine
        (told,) = revisions(watcher, 10.0)
        assert told > 30
        assert world.encoded == list(range(1, len(world.encoded) + 1)), "encoded again"

    def test_watchers_are_not_woken_by_commits_outside_their_selection(self, world: World) -> None:
        watcher = world.watch(selection=Selection(prefix="a"))
        woken: list[int] = []
        watcher.wake = lambda: woken.append(1)  # type: ignore[method-assign]
        world.runtime.background = lambda: (world.hub.step(), world.commit("b"))[0]
        assert revisions(watcher, 0.1) == []
        assert (woken, watcher.position > 5) == ([], True)
