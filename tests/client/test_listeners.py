"""A listener gets every commit in order, each once; its failure is its own (I8)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from patching.client import Commit, Gone, History, Reload
from patching.client.errors import (
    CommitsMissed,
    ListenerStopped,
    ListenerTooSlow,
    RevisionTooOld,
)
from tests.client.conftest import Followed
from tests.client.fake_gateway import Refused
from tests.patience import WAIT_S

Eventually = Callable[..., Any]


def append_to(told: list[int]) -> Callable[[Commit], None]:
    return lambda commit: told.append(commit.revision)


def test_a_listener_gets_every_commit_in_order_once_the_copy_has_it(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow()
    told: list[tuple[int, bool]] = []

    def listen(commit: Commit) -> None:
        told.append((commit.revision, follower.position >= commit.revision))

    subscription = follower.subscribe(listen)
    for n in range(2, 12):
        gateway.put(a=n)
    gateway.commit({})
    gateway.eventually(lambda: subscription.position == 12)
    assert told == [(n, True) for n in range(2, 13)]
    assert not subscription.stopped


def test_a_listener_that_raises_stops_only_itself_and_can_resume(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow()
    told: list[int] = []
    others: list[int] = []

    def fail_at_3(commit: Commit) -> None:
        if commit.revision == 3:
            raise LookupError("3")
        told.append(commit.revision)

    failing = follower.subscribe(fail_at_3)
    follower.subscribe(append_to(others))
    for n in (2, 3, 4):
        gateway.put(a=n)
    gateway.eventually(lambda: failing.stopped)
    assert isinstance(failing.error, LookupError)
    assert failing.position == 2
    gateway.eventually(lambda: others == [2, 3, 4])
    resumed = follower.subscribe(append_to(told), after=failing.position)
    gateway.put(a=5)
    gateway.eventually(lambda: resumed.position == 5)
    assert told == [2, 3, 4, 5]


def test_a_listener_resumes_from_the_gateway_before_the_start_of_the_copy(
    gateway: Followed,
) -> None:
    for n in range(1, 251):
        gateway.put(a=n)
    follower = gateway.follow(history=History(commits=2))
    for n in range(251, 260):
        gateway.put(a=n)
    follower.wait_for(259, WAIT_S)
    told: list[int] = []
    subscription = follower.subscribe(append_to(told), after=0)
    gateway.put(a=260)
    gateway.eventually(lambda: subscription.position == 260)
    assert told == list(range(1, 261))
    assert sum("commits" in each for each in gateway.requests) == 3


def test_an_unreachable_gateway_delays_a_resumption(gateway: Followed) -> None:
    gateway.put(a=1)
    gateway.put(a=2)
    follower = gateway.follow()
    refusals = iter([True, True])

    def refuse(_: str, route: str) -> None:
        if route == "commits" and next(refusals, False):
            raise Refused(503, "store_unavailable")

    gateway.before = refuse
    told: list[int] = []
    subscription = follower.subscribe(append_to(told), after=0)
    gateway.eventually(lambda: subscription.position == 2)
    assert told == [1, 2]


def test_a_slow_listener_blocks_no_other_and_is_stopped(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow(listener_queue_max=3)
    release = threading.Event()
    told: list[int] = []

    def dawdle(commit: Commit) -> None:
        release.wait(WAIT_S)
        told.append(commit.revision)

    slow = follower.subscribe(dawdle)
    quick: list[int] = []
    follower.subscribe(append_to(quick))
    for n in range(2, 8):
        gateway.put(a=n)
        gateway.eventually(lambda n=n: quick == list(range(2, n + 1)))
    gateway.eventually(lambda: slow.stopped)
    assert isinstance(slow.error, ListenerTooSlow)
    release.set()
    assert slow.wait(WAIT_S)
    assert (told, slow.position) == ([2], 2)
    follower.subscribe(append_to(told), after=slow.position)
    gateway.eventually(lambda: told == list(range(2, 8)))


def lose_commits(gateway: Followed) -> None:
    gateway.stop()
    gateway.eventually(lambda: gateway.followers[0].last_error)
    for n in (2, 3, 4):
        gateway.put(a=n)
    gateway.compact(3)
    gateway.start()


def test_missed_commits_are_delivered_as_a_reload(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow()
    events: list[int | Reload] = []
    subscription = follower.subscribe(
        lambda commit: events.append(commit.revision), on_reload=events.append
    )
    lose_commits(gateway)
    gateway.eventually(lambda: subscription.position == 4)
    gateway.put(a=5)
    gateway.eventually(lambda: subscription.position == 5)
    reload, commit = events
    assert isinstance(reload, Reload)
    assert (reload.missed_after, reload.snapshot.revision) == (1, 4)
    assert reload.snapshot.documents == follower.at_revision(4).documents == {"a": 4}
    assert commit == 5
    with pytest.raises(RevisionTooOld):
        follower.at_revision(1)


def test_missed_commits_stop_a_listener_without_on_reload(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow()
    subscription = follower.subscribe(lambda _: None)
    lose_commits(gateway)
    gateway.eventually(lambda: subscription.stopped)
    assert isinstance(subscription.error, CommitsMissed)
    assert (subscription.error.position, subscription.position) == (1, 1)


def test_a_reload_that_misses_no_commit_is_not_delivered(gateway: Followed) -> None:
    """The copy was loaded again, but the gateway still has every commit."""
    gateway.put(a=1)
    follower = gateway.follow()
    told: list[int] = []
    follower.subscribe(append_to(told))
    gateway.hidden = {2}
    with gateway.changed:
        gateway.put(a=2)
        gateway.put(a=3)
    follower.wait_for(3, WAIT_S)
    gateway.put(a=4)
    gateway.eventually(lambda: len(told) == 3)
    assert told == [2, 3, 4]


def test_a_catalog_that_was_set_back_causes_a_reload(gateway: Followed) -> None:
    for n in (1, 2, 3):
        gateway.put(a=n)
    follower = gateway.follow(poll_s=1)
    events: list[int | Reload] = []
    follower.subscribe(lambda commit: events.append(commit.revision), on_reload=events.append)
    gateway.set_back(1)
    gateway.eventually(lambda: events)
    gateway.put(a="other")
    gateway.eventually(lambda: len(events) == 2)
    reload, commit = events
    assert isinstance(reload, Reload)
    assert (reload.missed_after, reload.snapshot.revision, commit) == (3, 1, 2)


@pytest.mark.parametrize("told", [0, 1], ids=["since it was loaded", "since it was told"])
def test_a_catalog_that_was_set_back_and_has_grown_since_causes_a_reload(
    gateway: Followed, told: int
) -> None:
    """The revisions continue as if nothing had happened."""
    for n in (1, 2, 3):
        gateway.put(a=n)
    follower = gateway.follow(poll_s=1)
    events: list[int | Reload] = []
    follower.subscribe(lambda commit: events.append(commit.revision), on_reload=events.append)
    if told:
        gateway.put(b="lost")
        gateway.eventually(lambda: events == [4])
    with gateway.changed:
        gateway.set_back(1)
        for n in range(9):
            gateway.put(a=f"other {n}")
    gateway.eventually(lambda: len(events) > told)
    reload = events[told]
    assert isinstance(reload, Reload)
    assert (reload.missed_after, reload.snapshot.revision) == (3 + told, 10)
    assert reload.snapshot.documents == {"a": "other 8"}
    gateway.put(a="more")
    gateway.eventually(lambda: len(events) == told + 2)
    assert events[-1] == 11


@pytest.mark.parametrize("told", [0, 1], ids=["since it was loaded", "since a bookmark"])
def test_a_catalog_that_was_set_back_is_a_reload_for_a_copy_of_a_prefix_too(
    gateway: Followed, told: int
) -> None:
    """The next commit that it gets needn't follow the last one."""
    for n in (1, 2, 3):
        gateway.put(a=n)
    follower = gateway.follow(prefix="a", poll_s=1)
    events: list[int | Reload] = []
    follower.subscribe(lambda commit: events.append(commit.revision), on_reload=events.append)
    if told:
        gateway.put(b="lost")
        follower.wait_for(4, WAIT_S)
    with gateway.changed:
        gateway.set_back(1)
        for n in range(9):
            gateway.put(b=f"other {n}")
        gateway.put(ab="more")
    gateway.eventually(lambda: events)
    reload = events[0]
    assert isinstance(reload, Reload)
    assert (reload.missed_after, reload.snapshot.revision) == (3 + told, 11)
    assert reload.snapshot.documents == {"a": 1, "ab": "more"}


def test_a_listener_that_catches_up_gets_no_commit_of_another_history(
    gateway: Followed,
) -> None:
    for n in (1, 2, 3):
        gateway.put(a=n)
    follower = gateway.follow(poll_s=1, history=History(commits=0))
    asked, goes_on = threading.Event(), threading.Event()

    def hold(_: str, route: str) -> None:
        if route == "commits":
            asked.set()
            goes_on.wait(WAIT_S)

    gateway.before = hold
    events: list[int | Reload] = []
    follower.subscribe(
        lambda commit: events.append(commit.revision), after=2, on_reload=events.append
    )
    assert asked.wait(WAIT_S)
    gateway.set_back(1)
    gateway.eventually(lambda: follower.position == 1)
    for n in (2, 3, 4):
        gateway.put(a=f"other {n}")
    follower.wait_for(4, WAIT_S)
    goes_on.set()
    gateway.eventually(lambda: events)
    (reload,) = events
    assert isinstance(reload, Reload)
    assert (reload.missed_after, reload.snapshot.revision) == (2, 4)


def test_a_listener_with_a_prefix_gets_its_commits_and_advances_past_the_others(
    gateway: Followed,
) -> None:
    gateway.put(a=1)
    gateway.put(b=1)
    gateway.commit({"a": 2, "b": 2})
    gateway.put(b=3)
    follower = gateway.follow(prefix="a", poll_s=1)
    told: list[int] = []
    subscription = follower.subscribe(append_to(told), after=0)
    gateway.eventually(lambda: subscription.position == 4)
    gateway.put(b=4)
    gateway.put(a=3)
    gateway.put(b=5)
    gateway.eventually(lambda: subscription.position == 7)
    assert told == [1, 3, 6]


def test_stopping_waits_for_the_listener_and_delivers_nothing_more(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow()
    told: list[int] = []

    def stop_itself(commit: Commit) -> None:
        told.append(commit.revision)
        subscription.stop()

    subscription = follower.subscribe(stop_itself)
    other = follower.subscribe(lambda _: None)
    gateway.put(a=2)
    assert subscription.wait(WAIT_S)
    gateway.put(a=3)
    gateway.eventually(lambda: other.position == 3)
    follower.stop()
    assert (told, subscription.error, other.error) == ([2], None, None)
    assert other.stopped


def test_a_listener_ahead_of_the_copy_waits_for_its_next_commit(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow()
    told: list[int] = []
    subscription = follower.subscribe(append_to(told), after=3)
    for n in (2, 3, 4, 5):
        gateway.put(a=n)
    gateway.eventually(lambda: subscription.position == 5)
    assert told == [4, 5]


@pytest.mark.parametrize("kept", [0, 3, 1000])
def test_a_listener_added_during_many_commits_misses_and_repeats_none(
    gateway: Followed, kept: int
) -> None:
    gateway.put(a=0)
    follower = gateway.follow(history=History(commits=kept))
    writer = threading.Thread(target=lambda: [gateway.put(a=n) for n in range(1, 400)])
    writer.start()
    heard: list[list[int]] = []
    after: list[int] = []
    for _ in range(20):
        position = follower.position
        heard.append([])
        after.append(max(0, position - 5))
        follower.subscribe(append_to(heard[-1]), after=after[-1])
    writer.join()
    for told, start in zip(heard, after, strict=True):
        gateway.eventually(lambda told=told: told and told[-1] == 400)
        assert told == list(range(start + 1, 401))


def test_a_listener_stopped_by_compaction_names_it_as_the_reason(gateway: Followed) -> None:
    for n in (1, 2, 3):
        gateway.put(a=n)
    gateway.compact(2)
    follower = gateway.follow()
    subscription = follower.subscribe(lambda _: None, after=1)
    gateway.eventually(lambda: subscription.stopped)
    assert "compacted" in str(subscription.error)
    with pytest.raises(Gone):
        follower.routes.commits(1)


class FailingToken:
    """A function for a token that counts its calls, and raises in so many of them, from `fail`
    on."""

    def __init__(self) -> None:
        self.left = 0

    def fail(self, times: int = 3) -> None:
        self.left = times

    def __call__(self) -> str:
        if self.left:
            self.left -= 1
            raise OSError("the file of the token is being replaced")
        return "t"


def test_a_token_missing_for_a_moment_does_not_stop_a_follower(gateway: Followed) -> None:
    token = FailingToken()
    gateway.put(a=1)
    follower = gateway.follow(token=token, poll_s=1)
    token.fail()
    gateway.put(a=2)
    gateway.eventually(lambda: token.left == 0)
    follower.wait_for(2, WAIT_S)
    assert follower.current().documents == {"a": 2}


def test_a_token_missing_for_a_moment_does_not_stop_a_listener_that_catches_up(
    gateway: Followed,
) -> None:
    token = FailingToken()
    gateway.put(a=1)
    follower = gateway.follow(token=token, poll_s=60, history=History(commits=0))
    gateway.put(a=2)
    gateway.put(a=3)
    follower.wait_for(3, WAIT_S)
    told: list[int] = []
    token.fail()
    subscription = follower.subscribe(append_to(told), after=1)
    gateway.eventually(lambda: told == [2, 3])
    assert not subscription.stopped
    assert token.left == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_ends_its_thread_has_stopped(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow()

    def leave(_: Commit) -> None:
        raise SystemExit

    listening = follower.subscribe(leave)
    gateway.put(a=2)
    assert listening.wait(WAIT_S)
    assert listening.stopped
    assert isinstance(listening.error, ListenerStopped)
