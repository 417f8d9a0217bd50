"""An older database is restored under a feed. Nobody gets the lost commits any more, and whoever
has them learns that the catalog has another history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.errors import RevisionNotFound
from gateway.feed.channel import Selection
from gateway.feed.watcher import Watcher
from gateway.limits import WatchLimits
from tests.feed.feed_world import EVERYTHING, World, remaining_revisions, revisions, world
from tests.memory_store import backup

__all__ = ["world"]

# How many commits others make before the feed looks again: of five, two were there at the backup.
OTHERS = pytest.mark.parametrize("others", [0, 2, 3, 9], ids=["behind", "less", "level", "ahead"])
SELECTIONS = pytest.mark.parametrize(
    "selection", [EVERYTHING, Selection(prefix="k"), Selection(prefix="other")], ids=str
)


def put_back(world: World, others: int) -> None:
    """At 5, to 2."""
    world.commits(2)
    to_backup = backup(world.store)
    world.commits(3)
    world.background()
    to_backup()
    for _ in range(others):
        world.commit("k", signal=False)


def come_to_five(world: World, watcher: Watcher) -> Callable[[int], None]:
    """The watcher is at 5. The result sets the catalog back to 2 and lets others write."""
    world.commits(2)
    to_backup = backup(world.store)
    world.commits(3)
    remaining_revisions(watcher)
    assert watcher.position == 5

    def put_back(others: int) -> None:
        to_backup()
        for _ in range(others):
            world.commit("k", signal=False)

    return put_back


@OTHERS
@SELECTIONS
def test_a_waiting_watcher_gets_revision_not_found(
    world: World, others: int, selection: Selection
) -> None:
    watcher = world.watch(selection=selection)
    come_to_five(world, watcher)(others)
    with pytest.raises(RevisionNotFound):
        revisions(watcher, 5.0)


@SELECTIONS
def test_a_watcher_of_a_catalog_that_no_longer_exists_gets_revision_not_found(
    world: World, selection: Selection
) -> None:
    """The backup is older than its first commit. A watcher for the first commit keeps waiting."""
    to_backup = backup(world.store)
    watcher, early = world.watch(selection=selection), world.watch(of="to-come")
    world.commits(2)
    remaining_revisions(watcher)
    assert watcher.position == 2
    to_backup()
    with pytest.raises(RevisionNotFound):
        revisions(watcher, 5.0)
    assert revisions(early, 5.0) == []


@OTHERS
def test_lost_commits_are_delivered_to_nobody(world: World, others: int) -> None:
    """Even if some still follow the catalog and haven't noticed the restore."""
    world.watch()
    put_back(world, others)
    there = 2 + others
    world.runtime.now += 2.0  # the heads are read
    world.background()
    watcher = world.watch(after=min(there, 2))
    ids = {told.commit_id for told in watcher.take(5.0, patient=True).commits}
    assert ids == {each.id for each in world.store.commits({"c": (2, there)})["c"]}


def test_a_watcher_far_behind_gets_revision_not_found_from_the_log(world: World) -> None:
    world.commits(3)
    to_backup = backup(world.store)
    world.commits(40)
    watcher = world.watch()
    assert [each.revision for each in watcher.take(1.0, limit=5, patient=True).commits] == [
        *range(1, 6)
    ]
    to_backup()
    for _ in range(60):
        world.commit("k", signal=False)
    with pytest.raises(RevisionNotFound):
        watcher.take(1.0, limit=5, patient=True)


def test_a_commit_without_a_parent_may_follow_any(world: World) -> None:
    """As those do that earlier versions recorded."""
    watcher = world.watch()
    world.commits(2)
    assert revisions(watcher) == [1, 2]
    world.commit("k", parent="")
    assert revisions(watcher) == [3]
    world.commit("k")
    assert revisions(watcher) == [4]


_ANY_SELECTION = pytest.mark.parametrize(
    "selection",
    [
        EVERYTHING,
        *(Selection(prefix=prefix) for prefix in ("k", "other")),
        *(Selection(frozenset([key])) for key in ("k", "other")),
    ],
    ids=str,
)


@OTHERS
@_ANY_SELECTION
def test_a_resumed_feed_that_names_a_lost_commit_gets_revision_not_found(
    world: World, others: int, selection: Selection
) -> None:
    """The gateway that delivered the commit is gone, too."""
    with world.watch(selection=selection) as watcher:
        to_earlier = come_to_five(world, watcher)
        taken = watcher.take(0.0, patient=True)
        assert (taken.revision, taken.last) == (5, world.store.commit_id("c", 5))
    to_earlier(others)
    elsewhere = World(WatchLimits(), world.store)
    with pytest.raises(RevisionNotFound):
        elsewhere.watch(5, selection, last=taken.last).take(5.0, patient=True)


@_ANY_SELECTION
def test_a_lost_commit_is_noticed_even_if_the_next_commit_has_no_parent(
    world: World, selection: Selection
) -> None:
    world.commits(2)
    world.commit("k", parent="")
    with pytest.raises(RevisionNotFound):
        world.watch(2, selection, last="f" * 32).take(0.0, patient=True)


@_ANY_SELECTION
def test_a_feed_resumed_in_the_same_history_continues(world: World, selection: Selection) -> None:
    world.commits(9)
    for at in range(10):
        last = world.store.commit_id("c", at) or ""
        taken = world.watch(at, selection, last=last).take(0.0, patient=True)
        assert (taken.revision, taken.last) == (9, world.store.commit_id("c", 9))
