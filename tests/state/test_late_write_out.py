"""A writer that slept between moving a head and writing out must bring nothing back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pymongo import MongoClient

from gateway.decide.edits import Delete, KeyEdit
from gateway.decide.request import Unknown
from gateway.model import CommitRecord, Head
from gateway.runtime import Moment, elapsed_s, moment
from gateway.service import GatewayService
from gateway.state import write_out
from gateway.store.contract import Store, StoreUnreachable
from tests.memory_store import MemoryStore
from tests.patience import WAIT_S
from tests.retention.history_checks import (
    compaction_of,
    findings,
    settler_of,
    wait_until_written,
)
from tests.retention.test_compaction import nothing
from tests.state.sleeping import (
    DAY_S,
    GRACE_S,
    LATE_S,
    MEANWHILE,
    PARTS,
    Noted,
    Part,
    Sleeper,
    SleeperAmidParts,
    World,
    gateway_on,
    sent_by,
    write_both,
    write_tail,
)
from tests.without_http import SetClock, WatchedStore, add, applied, content_of, once, put

KEYS = ("k", "other", "z")


@pytest.fixture
def world(store: Store, request: pytest.FixtureRequest) -> Iterator[World]:
    if isinstance(store, MemoryStore):
        yield World(store)
        return
    uri, database = request.getfixturevalue("mongodb_uri"), request.getfixturevalue("database_name")
    with MongoClient[dict[str, Any]](uri) as client:
        heads = client[database]["catalogs"]

        def set_back(seconds: float) -> None:
            """The database's clock can't be moved; when floors were raised can."""
            raised = {"$subtract": ["$$this.at", int(1000 * seconds)]}
            raises = {
                "input": {"$ifNull": ["$raises", []]},
                "in": {"floor": "$$this.floor", "at": raised},
            }
            heads.update_one({"_id": "c"}, [{"$set": {"raises": {"$map": raises}}}])

        yield World(store, set_back)


Case = tuple[tuple[str, str], float]
# A sleep between a look and the call that follows it must end before history is swept. Before a
# look, it may be of any length.
WRITING = [
    *((("after", "move_heads"), s) for s in (0.9 * GRACE_S, GRACE_S + 1, 2 * DAY_S)),
    (("before", "write_documents"), 0.9 * GRACE_S),
    *((("after", "write_documents"), s) for s in (0.9 * GRACE_S, GRACE_S + 1, 2 * DAY_S)),
    (("before", "write_commits"), 0.9 * GRACE_S),
    *((("after", "write_commits"), s) for s in (0.9 * GRACE_S, GRACE_S + 1, 2 * DAY_S)),
]
TAKING_OVER = [
    *((("after", "tails"), s) for s in (0.9 * GRACE_S, GRACE_S + 1, 2 * DAY_S)),
    *((("before", "documents"), s) for s in (0.9 * GRACE_S, GRACE_S + 1, 2 * DAY_S)),
    *((("after", "documents"), s) for s in (0.9 * GRACE_S, GRACE_S + 1, 2 * DAY_S)),
    *WRITING[3:],
]


# What a store does differs by whether history is swept and tombstones are purged meanwhile: of the
# sleeps beyond the grace, the one of two days has both. The store in memory has had all of these.
AT_MONGODB = pytest.mark.parametrize(
    "store", [pytest.param("mongodb", marks=pytest.mark.mongod)], indirect=True
)


def without_the_middle_sleep(cases: list[Case]) -> list[Case]:
    return [(where, sleep_s) for where, sleep_s in cases if sleep_s != GRACE_S + 1]


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize(("where", "sleep_s"), WRITING)
def test_a_writer_that_slept_restores_no_old_state(
    where: tuple[str, str], meanwhile: str, sleep_s: float
) -> None:
    write_and_sleep(World(MemoryStore()), where, meanwhile, sleep_s)


@AT_MONGODB
@pytest.mark.parametrize(("where", "sleep_s"), without_the_middle_sleep(WRITING))
def test_a_writer_that_slept_restores_no_old_state_in_either_store(
    world: World, where: tuple[str, str], sleep_s: float
) -> None:
    write_and_sleep(world, where, "deleted", sleep_s)


def write_and_sleep(world: World, where: tuple[str, str], meanwhile: str, sleep_s: float) -> None:
    watched, ours = world.watched()
    sleeper = Sleeper(world, meanwhile, sleep_s)
    when, call = where
    getattr(watched, when)[call] = once(sleeper.sleep)
    applied(write_both(ours))
    assert sleeper.awake.wait(WAIT_S)
    wait_until_written(ours)
    sleeper.check()


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize(("where", "sleep_s"), TAKING_OVER)
def test_a_worker_that_takes_over_a_tail_and_sleeps_restores_no_old_state(
    where: tuple[str, str], meanwhile: str, sleep_s: float
) -> None:
    take_over_and_sleep(World(MemoryStore()), where, meanwhile, sleep_s)


@AT_MONGODB
@pytest.mark.parametrize(("where", "sleep_s"), without_the_middle_sleep(TAKING_OVER))
def test_a_worker_that_takes_over_a_tail_and_sleeps_restores_no_old_state_in_either_store(
    world: World, where: tuple[str, str], sleep_s: float
) -> None:
    take_over_and_sleep(world, where, "deleted", sleep_s)


def take_over_and_sleep(
    world: World, where: tuple[str, str], meanwhile: str, sleep_s: float
) -> None:
    sleeper = Sleeper(world, meanwhile, sleep_s)
    with stopped_writer(world, write_both):
        take_over(world, where, sleeper, Noted())
    sleeper.check()


@contextmanager
def stopped_writer(world: World, write: Callable[[GatewayService], object]) -> Iterator[None]:
    """The tail's own writer is stopped meanwhile, and continues afterwards."""
    stopped, theirs = world.watched()
    reached, go_on = threading.Event(), threading.Event()

    def stop() -> None:
        reached.set()
        go_on.wait(WAIT_S)
        raise StoreUnreachable("its connection is dead")

    stopped.before["write_documents"] = once(stop)
    write(theirs)
    assert reached.wait(WAIT_S)
    yield
    go_on.set()
    wait_until_written(theirs)


def take_over(
    world: World, where: tuple[str, str], sleeper: Sleeper | SleeperAmidParts, meters: Noted
) -> None:
    watched = WatchedStore(world.store)
    when, call = where
    # The tails that a settler reads first say only that there is something to take over.
    action = once(sleeper.sleep)
    getattr(watched, when)[call] = at_the_second(action) if call == "tails" else action
    settler_of(cast(Store, watched), world.clock, meters).settle("c")
    assert sleeper.awake.is_set(), "nobody slept"


CARRYING = [*WRITING[:3], *TAKING_OVER[3:]]


def meanwhiles(case: int) -> list[tuple[Part, str]]:
    """For each part something else that others do; in seven cases everything. What they deleted is
    written out in each case."""
    names = list(MEANWHILE)
    mixed = [(part, names[(case + number) % len(names)]) for number, part in enumerate(PARTS[:-1])]
    # "changed" amid the third is what MongoDB has, too.
    return [*mixed, (PARTS[2], "changed"), (PARTS[-1], "deleted")]


@pytest.mark.parametrize("case", range(len(TAKING_OVER)))
def test_others_may_write_out_a_part_of_a_tail_that_is_taken_over(case: int) -> None:
    """Its first commits, and documents of the next ones."""
    where, sleep_s = TAKING_OVER[case]
    for part, meanwhile in meanwhiles(case):
        take_over_amid_parts(World(MemoryStore()), where, meanwhile, part, sleep_s)


@AT_MONGODB
@pytest.mark.parametrize(("where", "sleep_s"), without_the_middle_sleep(TAKING_OVER))
def test_others_may_write_out_a_part_of_a_tail_that_is_taken_over_in_either_store(
    world: World, where: tuple[str, str], sleep_s: float
) -> None:
    take_over_amid_parts(world, where, "changed", PARTS[2], sleep_s)


def take_over_amid_parts(
    world: World, where: tuple[str, str], meanwhile: str, part: Part, sleep_s: float
) -> None:
    sleeper, noted = SleeperAmidParts(world, meanwhile, part, sleep_s), Noted()
    with stopped_writer(world, write_tail):
        take_over(world, where, sleeper, noted)
        sleeper.check_log()
    sleeper.check()
    assert noted.refused == noted.went_back == 0, "it was left to the second guard"


@pytest.mark.parametrize("case", range(len(CARRYING)))
def test_others_may_write_out_a_part_of_a_tail_carried_in_the_head(case: int) -> None:
    """Half of the tail was another's, who is stopped: its documents must be read, ours needn't."""
    where, sleep_s = CARRYING[case]
    for part, meanwhile in meanwhiles(case):
        world, noted = World(MemoryStore()), Noted()
        sleeper = SleeperAmidParts(world, meanwhile, part, sleep_s)
        watched, ours = world.watched(noted)
        watched.after["move_heads"] = once(partial(sleep_at, watched, where, sleeper))
        with stopped_writer(world, lambda theirs: write_tail(theirs, 3, 4)):
            write_tail(ours, 5, 6)
            assert sleeper.awake.wait(WAIT_S), "nobody slept"
            wait_until_written(ours)
            sleeper.check_log()
        sleeper.check()
        assert noted.refused == noted.went_back == 0, "it was left to the second guard"


def sleep_at(watched: WatchedStore, where: tuple[str, str], sleeper: SleeperAmidParts) -> None:
    """Not before the head has been moved: deciding reads documents, too."""
    when, call = where
    if call == "move_heads":
        sleeper.sleep()
    else:
        getattr(watched, when)[call] = once(sleeper.sleep)


def at_the_second(action: Callable[[], None]) -> Callable[[], None]:
    calls: list[None] = []

    def count() -> None:
        calls.append(None)
        if len(calls) == 2:
            action()

    return count


@pytest.mark.parametrize(
    "where",
    [
        *(("before", "write_documents"), ("after", "write_documents")),
        *(("before", "write_commits"), ("after", "write_commits")),
    ],
)
@pytest.mark.parametrize(
    ("overtaken", "first_s", "then_s"),
    [
        (True, 0.9 * LATE_S, LATE_S),  # no look: both sleeps end within the grace
        (True, 1.1 * LATE_S, 2 * DAY_S),  # the look finds that nothing is left to do
        (False, 1.1 * LATE_S, 0.9 * GRACE_S),  # nobody is found: the grace period starts again
    ],
)
def test_a_writer_that_slept_twice_restores_no_old_state(
    world: World, where: tuple[str, str], overtaken: bool, first_s: float, then_s: float
) -> None:
    watched, ours = world.watched()
    sleeper = Sleeper(world, "deleted", then_s)

    def stall() -> None:
        if overtaken:
            sleeper.nap(first_s)
        else:
            world.pass_time(first_s)
        when, call = where
        getattr(watched, when)[call] = once(sleeper.sleep)

    watched.after["move_heads"] = once(stall)
    applied(write_both(ours))
    assert sleeper.awake.wait(WAIT_S)
    wait_until_written(ours)
    sleeper.check()


@pytest.mark.parametrize("slept_s", [1.1 * LATE_S, 2 * DAY_S])
def test_a_late_writer_checks_the_head_before_it_sends_commits(
    world: World, slept_s: float
) -> None:
    """Meanwhile, readers don't see what was deleted; and if the writer dies, it leaves nothing
    behind."""
    watched, ours = world.watched()
    commits = sent_by(watched, "write_commits")
    sleeper = Sleeper(world, "deleted", slept_s)
    watched.after["write_documents"] = once(sleeper.sleep)
    applied(ours.write("c", "k", put(1)).outcome)
    assert sleeper.awake.wait(WAIT_S)
    wait_until_written(ours)
    assert commits == []
    sleeper.check()


def test_commits_written_out_by_others_are_not_written_again(world: World) -> None:
    watched, ours = world.watched()
    documents, commits = sent_by(watched, "write_documents"), sent_by(watched, "write_commits")
    sleeper = Sleeper(world, "deleted", 1.1 * LATE_S)
    watched.after["move_heads"] = once(sleeper.sleep)
    applied(write_both(ours))
    assert sleeper.awake.wait(WAIT_S)
    wait_until_written(ours)
    assert documents == commits == []
    sleeper.check()


def test_nothing_is_sent_before_an_overdue_check_of_the_head(world: World) -> None:
    """It is waited for until the store can be reached again, however long that takes."""
    watched, ours = world.watched()
    documents, commits = sent_by(watched, "write_documents"), sent_by(watched, "write_commits")
    sleeper = Sleeper(world, "deleted", 2 * DAY_S)
    looks: list[None] = []

    def away() -> None:
        looks.append(None)
        if len(looks) < 4:
            raise StoreUnreachable("it is away")

    def overtaken() -> None:
        sleeper.sleep()
        watched.before["tails"] = away

    watched.after["move_heads"] = once(overtaken)
    applied(write_both(ours))
    assert sleeper.awake.wait(WAIT_S)
    wait_until_written(ours)
    assert len(looks) >= 4
    assert documents == commits == []
    sleeper.check()


def test_a_write_out_continues_if_the_check_finds_nothing_wrong(world: World) -> None:
    """Two days asleep, and nobody was there meanwhile."""
    watched, ours = world.watched()
    watched.after["move_heads"] = once(lambda: world.pass_time(2 * DAY_S))
    applied(write_both(ours))
    wait_until_written(ours)
    assert [c.revision for c in world.store.commits({"c": (0, 9)})["c"]] == [1, 2, 3]
    assert findings(world.store, "c") == []


def test_elapsed_time_is_the_longer_of_both_clocks() -> None:
    clock = SetClock()
    since = moment(clock)
    assert elapsed_s(since, moment(clock)) < 60
    asleep = Moment(since.monotonic, since.wall_us - 3_600_000_000)
    assert elapsed_s(asleep, moment(clock)) >= 3600
    set_back = Moment(since.monotonic - 3600, since.wall_us + 3_600_000_000)
    assert elapsed_s(set_back, moment(clock)) >= 3600


def test_the_author_of_a_compacted_revision_is_unknown(store: Store) -> None:
    """The move broke off, and when it can be looked up its commit may have been swept."""
    gateway_on(store).write("c", "k", put(0))
    watched = WatchedStore(store)
    ours = gateway_on(watched, deadline_ms=3_000)  # it is looked up until then

    def meanwhile() -> None:
        other = gateway_on(store)
        for number in range(3):
            other.write("c", "k", put(number + 1))
        wait_until_written(other)
        compaction_of(store).compact("c", 4, nothing)
        raise StoreUnreachable("the answer is lost")

    watched.after["move_heads"] = once(meanwhile)
    written = ours.write("c", "k", put(9))
    assert written.outcome == Unknown(written.commit_id)


def test_a_cache_below_the_floor_starts_again(store: Store) -> None:
    """It holds a document that was deleted since, and one that was made again."""
    ours, other = gateway_on(store), gateway_on(store)
    for key in KEYS:
        ours.write("c", key, put({"n": 0}))
        ours.read("c", key)
    other.write("c", "k", Delete())
    edits = [KeyEdit("other", put({"n": 1})), KeyEdit("z", Delete())]
    other.commit(other.request("c", edits))
    other.write("c", "z", put({"n": 2}))
    wait_until_written(other)
    wait_until_written(ours)
    compaction_of(store).compact("c", 5, nothing)
    compaction_of(store).compact("c", 6, nothing)
    assert ours.read("c", "k").document is None
    added = add("/m", 1)
    for key, expected in (("other", {"n": 1, "m": 1}), ("z", {"n": 2, "m": 1})):
        ours.write("c", key, added)
        assert content_of(ours, key) == expected
    assert findings(store, "c") == []


def test_a_writer_that_slept_during_its_check_checks_again() -> None:
    """Simulation seed 10003163: the head was read, its answer lay there until history was swept."""
    clock = SetClock()
    mine = cast(CommitRecord, SimpleNamespace(revision=3, id="3"))
    heads = [Head("c", 3, tail=(mine,)), Head("c", 3, written=3, floor=3, tail=())]

    class Answers:
        def tails(self, _: object) -> dict[str, Head]:
            clock.passed_s += 2 * DAY_S if len(heads) == 2 else 0
            return {"c": heads.pop(0)}

    late = write_out.Tail(moment(clock), 0, [mine])
    clock.passed_s += 2 * LATE_S
    write_out.refresh(cast(Store, Answers()), clock, {"c": late}, LATE_S)
    assert (late.commits, heads) == ([], [])
