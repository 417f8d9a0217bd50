"""Ranges as a decision sees them: behind the head, within a batch, after compaction."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from msgspec import structs

from gateway import memory
from gateway.commit import inputs
from gateway.decide.compares import Compare, IsUnchanged
from gateway.decide.decide import decide
from gateway.decide.edits import Delete, Edit, KeyEdit, Touch
from gateway.decide.ranges import (
    KnownChange,
    RangeAbsent,
    RangeChange,
    RangeCount,
    RangeDeletion,
    RangeUnchanged,
)
from gateway.decide.request import Applied, Outcome, Request, Unchanged
from gateway.errors import ConditionFailed, DeadlineExceeded, RevisionCompacted
from gateway.limits import ServiceLimits
from gateway.model import SETTINGS_KEY, ChangeRecord, Head
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.state import cache as cached
from gateway.state.cache import Cache
from gateway.state.heads import HeadReader
from gateway.store.contract import ForeignRecord, Store, StoreUnreachable
from tests.counted import Counted
from tests.memory_store import MemoryStore
from tests.retention.history_checks import compaction_of, wait_until_written
from tests.store.contract_suite import commit
from tests.without_http import RULES, WatchedStore, applied, ask, once, put, refused

TOUCH = (KeyEdit(SETTINGS_KEY, Touch()),)


class _World:
    """A catalog whose writer a test steps: ``stored`` has it write out, or not yet."""

    def __init__(self) -> None:
        self.store = WatchedStore(cast(Store, MemoryStore()))
        self.gateway = GatewayService(cast(Store, self.store), ThreadRuntime(), ServiceLimits())

    def write(self, key: str, edit: Edit | None = None) -> int:
        done = self.gateway.write("c", key, edit or put({"n": 1}))
        return applied(done.outcome).commit.revision

    def ask(self, *compare: Compare, edits: tuple[KeyEdit, ...] = TOUCH, **terms: Any) -> Outcome:
        request = self.gateway.request("c", edits, compare=compare, **terms)
        return self.gateway.commit(request).outcome

    def holds(self, *compare: Compare) -> bool:
        """Whether they are all true, by a dry run."""
        outcome = self.ask(*compare, dry_run=True)
        if isinstance(outcome, Unchanged):
            return True
        refused(outcome, ConditionFailed)
        return False


@pytest.fixture
def world() -> _World:
    return _World()


@pytest.fixture(params=["tail", "stored"])
def where(request: pytest.FixtureRequest, world: _World) -> str:
    """Whether what was committed is in the head's tail alone, or written out."""
    if request.param == "tail":
        for name in ("write_documents", "write_commits"):
            world.store.before[name] = _stuck
    return str(request.param)


def _stuck() -> None:
    raise StoreUnreachable("written out later")


def settle(world: _World, where: str) -> None:
    if where == "stored":
        wait_until_written(world.gateway)


def test_a_range_is_unchanged_since_its_last_change(world: _World, where: str) -> None:
    first = world.write("a/1")
    second = world.write("a/2")
    other = world.write("b/1")
    settle(world, where)
    fresh = GatewayService(cast(Store, world.store), ThreadRuntime(), ServiceLimits())
    for gateway in (world.gateway, fresh):
        world.gateway = gateway
        assert world.holds(RangeUnchanged("a/", second))
        assert not world.holds(RangeUnchanged("a/", first))
        assert world.holds(RangeUnchanged("a/1", first), RangeUnchanged("c/", 0))
        assert not world.holds(RangeUnchanged("", second))
        assert world.holds(RangeUnchanged("", other))
        assert not world.holds(RangeUnchanged("", other + 1)), "nobody can have seen that"


def test_a_deletion_changes_a_range_and_settings_and_touches_do_not(
    world: _World, where: str
) -> None:
    last = [world.write("a/1"), world.write("a/2")][-1]
    applied(world.gateway.write("c", SETTINGS_KEY, put({"require_precondition": False})).outcome)
    applied(world.ask())
    settle(world, where)
    assert world.holds(RangeUnchanged("", last), RangeUnchanged("a/", last))
    world.write("a/1", Delete())
    settle(world, where)
    assert not world.holds(RangeUnchanged("a/", last))


def test_live_documents_are_counted(world: _World, where: str) -> None:
    for number in range(5):
        world.write(f"a/{number}")
    world.write("a/1", Delete())
    world.write("b")
    settle(world, where)
    fresh = GatewayService(cast(Store, world.store), ThreadRuntime(), ServiceLimits())
    for gateway in (world.gateway, fresh):
        world.gateway = gateway
        true = [("less", 5), ("equal", 4), ("greater", 3), ("greater", 0)]
        false = [("less", 4), ("less", 1), ("equal", 3), ("equal", 5), ("greater", 4)]
        assert [world.holds(RangeCount("a/", cast(Any, r), n)) for r, n in true] == [True] * 4
        assert [world.holds(RangeCount("a/", cast(Any, r), n)) for r, n in false] == [False] * 5
        assert world.holds(RangeAbsent("a/1"), RangeCount("", "equal", 5))
        assert not world.holds(RangeAbsent("a/"))


def test_later_requests_of_a_batch_see_the_changes_of_earlier_ones(world: _World) -> None:
    """Commits above the view count, made in one batch or not, exactly like those below."""
    world.write("a/1")
    world.write("b/1")
    wait_until_written(world.gateway)
    base = 2

    def request(key: str, edit: Edit, *compare: Compare) -> Request:
        return ask(edit, key, compare=compare)

    requests = [
        request("a/2", put(1), RangeUnchanged("a/", base), RangeCount("a/", "equal", 1)),
        request("a/3", put(1), RangeUnchanged("a/", base)),
        request("b/1", Delete(), RangeUnchanged("b/", base)),
        request("b/2", put(1), RangeAbsent("b/"), RangeCount("a/", "equal", 2)),
        request("b/3", put(1), RangeCount("b/", "less", 1)),
    ]
    outcomes = _decided(world.store, requests)
    assert [type(each).__name__ for each in outcomes] == [
        "Applied", "Refused", "Applied", "Applied", "Refused",
    ]  # fmt: skip
    conflict = refused(outcomes[1], ConditionFailed).conflict
    assert (conflict.prefix, conflict.compares[0].changed_at) == ("a/", base + 1)


def test_a_batch_may_reach_the_revision_that_a_later_request_asks_about(world: _World) -> None:
    """Simulation seed 9001538: the round failed."""
    world.write("a/1")
    compare = (RangeUnchanged("a/", 2),)
    requests = [
        ask(put(1), "a/2"),
        ask(put(1), "a/3", compare=compare),
        ask(put(1), "a/4", compare=compare),
    ]
    outcomes = _decided(world.store, requests)
    assert [type(each).__name__ for each in outcomes] == ["Applied", "Applied", "Refused"]


def _decided(store: Any, requests: Sequence[Request]) -> Sequence[Outcome]:
    limits = ServiceLimits()
    cache = Cache(ThreadRuntime(), limits)
    HeadReader(store, cache, limits).observe(["c"])
    view = inputs.read_views(store, cache, {"c": requests}, memory.account())["c"]
    return decide(view, requests, [1] * len(requests), now_us=1 << 60, rules=RULES).outcomes


def test_a_count_lists_no_more_documents_than_it_needs(world: _World) -> None:
    """Also where others of the batch may take away some of what is listed."""
    for number in range(60):
        world.write(f"a/{number:02}")
    wait_until_written(world.gateway)
    listed: list[int] = []
    listing = world.store._store.list_range

    def noted(*given: Any) -> Any:
        listed.append(given[-1])
        return listing(*given)

    cast(Any, world.store._store).list_range = noted
    gone = [ask(Delete(), f"a/{number:02}") for number in range(3)]
    full = [ask(put(1), "b", compare=(RangeCount("a/", "less", number),)) for number in (1, 20)]
    outcomes = _decided(world.store, [*gone, *full])
    assert [type(each).__name__ for each in outcomes] == ["Applied"] * 3 + ["Refused"] * 2
    assert len(listed) == 1
    assert 20 + 1 + 3 <= listed[0] < 60, "and as many as the tail may take away"
    told = refused(outcomes[-1], ConditionFailed).conflict.compares[0].reason
    assert told.startswith("there are at least ")
    assert told.endswith(", not fewer than 20")


def test_a_large_tail_is_not_gone_through_for_each_key_or_range() -> None:
    """A round held its worker up for as long as the keys of the tail, squared."""
    changes = Counted(ChangeRecord(f"a/{n:03}", "put", 1, value=1) for n in range(300))
    store, limits = MemoryStore(), ServiceLimits()
    store._heads["c"] = Head("c", 1, tail=(commit(1, changes=changes),))
    cache = Cache(ThreadRuntime(), limits)
    HeadReader(cast(Store, store), cache, limits).observe(["c"])
    looks = [RangeUnchanged(f"b{number}", 0) for number in range(30)]
    counts = [RangeCount(f"a/{number:02}", "less", 5) for number in range(30)]
    requests = [ask(put(1), "b", compare=(*looks, *counts)), ask(RangeDeletion("a/"), "")]
    changes.seen = 0
    view = inputs.read_views(cast(Store, store), cache, {"c": requests}, memory.account())["c"]
    assert changes.seen < 10 * len(changes)
    assert len(view.ranges.listed["a/00"].documents) == 10


def test_a_document_newer_than_the_head_forces_a_new_read(world: _World) -> None:
    """Even if it is a tombstone. Nothing may be decided on such a listing."""
    world.write("a/1")
    wait_until_written(world.gateway)
    limits = ServiceLimits()
    cache = Cache(ThreadRuntime(), limits)
    HeadReader(cast(Store, world.store), cache, limits).observe(["c"])
    other = GatewayService(cast(Store, world.store), ThreadRuntime(), limits)

    def delete() -> None:
        applied(other.write("c", "a/1", Delete()).outcome)
        wait_until_written(other)

    world.store.before["list_range"] = once(delete)
    requests = [ask(put(1), "b", compare=(RangeAbsent("a/"),))]
    assert (
        inputs.read_views(cast(Store, world.store), cache, {"c": requests}, memory.account()) == {}
    )


def test_a_constant_writer_needs_no_read_of_the_log(world: _World) -> None:
    world.write("a/1")
    assert world.holds(RangeUnchanged("a/", 1))  # from here on this process takes note
    for number in range(50):
        revision = world.write(f"b/{number}")
        world.store.calls.clear()
        assert world.holds(RangeUnchanged("a/", revision - 1))
        assert not world.holds(RangeUnchanged("b/", revision - 1))
        assert "range_changed" not in world.store.calls


def test_the_number_of_remembered_changes_is_bounded(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached, "_RECENT_COMMITS_MAX", 3)
    first = world.write("a/1")
    assert world.holds(RangeUnchanged("a/", first))
    for number in range(10):
        world.write(f"b/{number}")
    wait_until_written(world.gateway)
    world.store.calls.clear()
    assert world.holds(RangeUnchanged("a/", first))
    assert "range_changed" in world.store.calls


class TestReadAhead:
    """What has changed since long ago is found out by the thread that wants to know it, for leaders
    are everybody's."""

    @pytest.fixture
    def looks(self, world: _World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
        """Of each look into the log: whether it was the asking thread's, and since when.
        All that isn't of the last two commits is of long ago."""
        monkeypatch.setattr(inputs, "NEAR_COMMITS", 2)
        for number in range(1, 10):
            world.write("a/1" if number == 3 else "b/1", put({"n": number}))
        wait_until_written(world.gateway)
        world.store.end_tails({"c": (9, 0)})
        world.gateway = GatewayService(cast(Store, world.store), ThreadRuntime(), ServiceLimits())
        asking, asked = threading.current_thread(), list[tuple[bool, int]]()
        look = world.store.range_changed

        def noted(*about: Any) -> int | None:
            asked.append((threading.current_thread() is asking, about[2]))
            return cast(int | None, look(*about))

        monkeypatch.setattr(world.store, "range_changed", noted, raising=False)
        return asked

    def test_a_change_long_ago_is_looked_up_before_the_leader_takes_the_request(
        self, world: _World, looks: list[tuple[bool, int]]
    ) -> None:
        assert world.holds(RangeUnchanged("a/", 3), RangeUnchanged("c/", 0))
        assert looks == [(True, 3), (True, 0)]
        assert not world.holds(RangeUnchanged("a/", 2))
        lines = world.gateway.series("p")
        line = world.gateway.request("c", TOUCH, compare=(RangeUnchanged("b/", 5),))
        assert lines.put([line, line])
        for each in lines.take():
            refused(each.outcome, ConditionFailed)
        assert looks[2:] == [(True, 2), (True, 5)], "once for all lines"

    def test_a_recent_change_needs_no_time_to_look_up(
        self, world: _World, looks: list[tuple[bool, int]]
    ) -> None:
        request = world.gateway.request("c", TOUCH, compare=(RangeUnchanged("b/", 9),))
        late = structs.replace(request, deadline=ThreadRuntime().monotonic())
        ahead = inputs.ReadAhead(
            cast(Store, world.store), Cache(ThreadRuntime(), ServiceLimits()), ThreadRuntime()
        )
        assert ahead.fill(late) == late
        assert not looks

    @pytest.mark.parametrize("as_lines", [False, True])
    def test_a_request_without_time_for_its_lookup_times_out_before_the_leader(
        self, world: _World, looks: list[tuple[bool, int]], as_lines: bool
    ) -> None:
        """Other lines that came with it have their time."""
        compare = (RangeUnchanged("a/", 3),)
        late = world.gateway.request("c", TOUCH, compare=compare)
        late = structs.replace(late, deadline=ThreadRuntime().monotonic())
        if as_lines:
            lines = world.gateway.series("p")
            other = (KeyEdit("other", put(1)),)
            assert lines.put([late, world.gateway.request("c", other)])
            first, second = lines.take()
            assert isinstance(second.outcome, Applied)
        else:
            first = world.gateway.commit(late)
        refused(first.outcome, DeadlineExceeded)
        assert not looks

    @pytest.mark.parametrize("as_lines", [False, True])
    def test_a_request_that_times_out_during_its_lookup_is_not_looked_up_by_the_leader(
        self, world: _World, looks: list[tuple[bool, int]], as_lines: bool
    ) -> None:
        runtime = ThreadRuntime()
        compare = (RangeUnchanged("a/", 3), RangeUnchanged("c/", 0))
        request = world.gateway.request("c", TOUCH, compare=compare)
        request = structs.replace(request, deadline=runtime.monotonic() + 0.3)

        def until_late() -> None:
            runtime.sleep(max(0.0, request.deadline - runtime.monotonic()))

        world.store.before["range_changed"] = until_late
        if as_lines:
            lines = world.gateway.series("p")
            assert lines.put([request])
            (ended,) = lines.take()
        else:
            ended = world.gateway.commit(request)
        refused(ended.outcome, DeadlineExceeded)
        assert all(is_asking for is_asking, _ in looks)

    @pytest.mark.usefixtures("looks")
    def test_compaction_during_the_lookup_refuses_the_request(self, world: _World) -> None:
        compact = compaction_of(cast(Store, world.store)).compact
        world.store.before["range_changed"] = once(lambda: compact("c", 5, lambda: None))
        assert refused(world.ask(RangeUnchanged("c/", 0)), RevisionCompacted).floor == 5

    @pytest.mark.parametrize(
        "error", [ForeignRecord("c", None, "its head is gone"), StoreUnreachable("away")]
    )
    def test_if_the_lookup_fails_the_leader_repeats_it(
        self, world: _World, looks: list[tuple[bool, int]], error: Exception
    ) -> None:
        def fail() -> None:
            if threading.current_thread() is threading.main_thread():
                raise error

        world.store.before["heads"] = fail
        assert world.holds(RangeUnchanged("a/", 3))
        assert looks == [(False, 3)]

    def test_a_recent_change_is_looked_up_by_the_leader(
        self, world: _World, looks: list[tuple[bool, int]]
    ) -> None:
        assert world.holds(RangeUnchanged("b/", 9), RangeUnchanged("a/", 7))
        assert looks == [(False, 7)]

    @pytest.mark.parametrize("key", ["a/1", "d"])
    def test_a_change_after_the_lookup_is_seen(
        self, world: _World, looks: list[tuple[bool, int]], key: str
    ) -> None:
        other = GatewayService(cast(Store, world.store), ThreadRuntime(), ServiceLimits())
        before = world.gateway._loop._queue.put

        def put_later(pending: Any) -> None:
            applied(other.write("c", key, put({"late": 1})).outcome)
            wait_until_written(other)
            before(pending)

        world.gateway._loop._queue.put = put_later  # type: ignore[method-assign]
        assert world.holds(RangeUnchanged("a/", 3)) is (key == "d")
        assert looks[0] == (True, 3)

    @pytest.mark.usefixtures("looks")
    def test_compaction_before_the_lookup_refuses_the_request(self, world: _World) -> None:
        compaction_of(cast(Store, world.store)).compact("c", 5, lambda: None)
        assert refused(world.ask(RangeUnchanged("a/", 3)), RevisionCompacted).floor == 5
        assert world.holds(RangeUnchanged("a/", 5))

    @pytest.mark.usefixtures("looks")
    def test_compaction_after_the_lookup_does_not_matter(self, world: _World) -> None:
        before = world.gateway._loop._queue.put

        def put_later(pending: Any) -> None:
            compaction_of(cast(Store, world.store)).compact("c", 8, lambda: None)
            before(pending)

        world.gateway._loop._queue.put = put_later  # type: ignore[method-assign]
        assert world.holds(RangeUnchanged("a/", 3))

    @pytest.mark.usefixtures("looks")
    def test_a_lookup_in_another_history_is_ignored(self, world: _World) -> None:
        """As where the database is restored in between."""
        look = RangeUnchanged("a/", 2)
        request = world.gateway.request("c", TOUCH, compare=(look,))
        store, limits = cast(Store, world.store), ServiceLimits()
        cache = Cache(ThreadRuntime(), limits)
        HeadReader(store, cache, limits).observe(["c"])
        for through in (8, 9):
            ours = store.commits({"c": (through - 1, through)})["c"][0].id
            for last, at in ((ours, None), ("another", 3)):
                read_ahead = (KnownChange(look, RangeChange(None), through, through, last),)
                batch = {"c": [structs.replace(request, read_ahead=read_ahead)]}
                view = inputs.read_views(store, cache, batch, memory.account())["c"]
                assert view.ranges.changes["a/", 2].at == at


class TestCompacted:
    """Below the floor it is unknown what was unchanged: there is never a wrong answer."""

    @pytest.fixture
    def compacted(self, world: _World) -> _World:
        world.write("a/1")
        world.write("a/2")
        world.write("a/1", Delete())  # 3
        world.write("b/1")
        world.write("b/2")  # 5
        wait_until_written(world.gateway)
        compaction_of(cast(Store, world.store)).compact("c", 4, lambda: None)
        world.gateway = GatewayService(cast(Store, world.store), ThreadRuntime(), ServiceLimits())
        return world

    def test_a_purged_deletion_is_not_taken_for_no_change(self, compacted: _World) -> None:
        assert ("c", "a/1") not in cast(Any, compacted.store._store)._documents
        error = refused(compacted.ask(RangeUnchanged("a/", 2)), RevisionCompacted)
        assert error.floor == 4

    def test_a_change_above_the_floor_is_known_for_revisions_below_it_too(
        self, compacted: _World
    ) -> None:
        refused(compacted.ask(RangeUnchanged("b/", 2)), ConditionFailed)
        assert compacted.holds(RangeUnchanged("a/", 4))
        assert not compacted.holds(RangeUnchanged("b/", 4))

    def test_a_worker_that_has_seen_all_commits_ignores_the_floor(self, compacted: _World) -> None:
        assert compacted.holds(RangeUnchanged("a/", 5))
        revision = compacted.write("d")
        compaction_of(cast(Store, compacted.store)).compact("c", revision, lambda: None)
        assert compacted.holds(RangeUnchanged("a/", 5))


def test_a_document_is_unchanged_while_its_token_is_the_same(world: _World) -> None:
    first = world.write("a")
    world.write("b")
    assert world.holds(IsUnchanged("a", first))
    assert not world.holds(IsUnchanged("a", first - 1))
    assert not world.holds(IsUnchanged("never", first))
    world.write("a", put(2))
    assert not world.holds(IsUnchanged("a", first))
    world.write("a", Delete())
    assert not world.holds(IsUnchanged("a", 99))


def test_a_repeated_transaction_recognizes_its_own_documents(world: _World) -> None:
    edits = tuple(KeyEdit(f"a/{n}", put(n)) for n in range(3))
    applied(world.ask(RangeAbsent("a/"), edits=edits))
    assert isinstance(world.ask(RangeAbsent("a/"), edits=edits), Unchanged)
    world.write("a/another")
    refused(world.ask(RangeAbsent("a/"), edits=edits), ConditionFailed)


def test_a_batch_with_too_many_ranges_is_cut(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_RANGES_MAX", 3)
    world.write("a/1")
    wait_until_written(world.gateway)
    requests = [
        ask(put(n), f"b/{n}", compare=(RangeAbsent(f"x{n}"), RangeAbsent(f"y{n}")))
        for n in range(3)
    ]
    assert len(_decided(world.store, requests)) == 1
