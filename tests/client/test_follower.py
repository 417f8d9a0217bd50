"""A follower at revision v holds exactly the export at v, whatever happens in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from patching import ABSENT
from patching.client import Follower, Gateway, History, Unreachable
from patching.client.errors import FollowerStopped, RevisionTooOld, RevisionUnknown, WaitTimedOut
from tests.client.conftest import QUICK, Followed
from tests.client.fake_gateway import EPOCH, FakeGateway, Refused
from tests.commandline.canned import Asked, Canned, Reply
from tests.patience import WAIT_S

Eventually = Callable[..., Any]


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def test_a_follower_starts_from_the_export_and_applies_later_commits(gateway: Followed) -> None:
    gateway.put(a={"n": 1}, b=[1, 2])
    follower = gateway.follow()
    assert dict(follower.current().documents) == {"a": {"n": 1}, "b": [1, 2]}
    gateway.put(a={"n": 2}, c="new")
    gateway.commit({"b": ABSENT})
    gateway.commit({})  # a touch
    follower.wait_for(4, WAIT_S)
    snapshot = follower.current()
    assert (snapshot.revision, snapshot.time) == (4, at(4))
    assert snapshot.documents == gateway.documents(4)
    assert snapshot.documents == {"a": {"n": 2}, "c": "new"}


def test_a_copy_of_several_pages_is_of_one_revision(gateway: Followed) -> None:
    gateway.page_documents = 1
    gateway.put(a=1, b=1, c=1)

    def write_beside(_: str, __: str) -> None:
        gateway.before = lambda *_: None
        gateway.put(a=2, b=2, c=2)

    calls = iter((lambda *_: None, write_beside))
    gateway.before = lambda *given: next(calls)(*given)
    follower = gateway.follow()
    follower.wait_for(2, WAIT_S)
    assert follower.current().documents == {"a": 2, "b": 2, "c": 2}
    assert sum("initial" in each for each in gateway.requests) == 3


def test_a_copy_overtaken_by_compaction_is_started_again(gateway: Followed) -> None:
    gateway.page_documents = 1
    gateway.put(a=1, b=1)

    def compact(_: str, __: str) -> None:
        gateway.before = lambda *_: None
        gateway.put(b=2)
        gateway.compact(2)

    calls = iter((lambda *_: None, compact))
    gateway.before = lambda *given: next(calls)(*given)
    follower = gateway.follow()
    assert follower.current().documents == {"a": 1, "b": 2}
    assert follower.position == 2


def test_a_catalog_that_does_not_exist_yet_is_empty_at_revision_0(gateway: Followed) -> None:
    follower = gateway.follow()
    assert (follower.position, dict(follower.current().documents)) == (0, {})
    assert follower.current().time is None
    gateway.put(a=1)
    follower.wait_for(1, WAIT_S)
    assert follower.current().documents == {"a": 1}


def test_settings_are_not_among_the_documents(gateway: Followed) -> None:
    gateway.commit({None: {"require_precondition": True}, "a": 1})
    follower = gateway.follow()
    assert follower.current().settings == {"require_precondition": True}
    gateway.commit({None: {"require_precondition": False}})
    gateway.commit({None: ABSENT})
    follower.wait_for(3, WAIT_S)
    assert dict(follower.current().documents) == {"a": 1}
    assert follower.at_revision(2).settings == {"require_precondition": False}
    assert follower.current().settings is None


def test_a_copy_of_a_prefix_has_the_current_settings(gateway: Followed) -> None:
    """A listener for these documents doesn't get changes of the settings."""
    gateway.commit({None: {"require_precondition": True}, "a": 1})
    follower, heard = gateway.follow(prefix="a"), []
    listening = follower.subscribe(heard.append)
    revision = gateway.commit({None: {"require_precondition": False}})
    follower.wait_for(revision, WAIT_S)
    assert follower.current().settings == {"require_precondition": False}
    assert follower.at_revision(1).settings == {"require_precondition": True}
    gateway.put(a=2)
    gateway.eventually(lambda: listening.position == 3)
    assert [commit.revision for commit in heard] == [3]


def test_a_prefix_excludes_other_documents_of_the_same_commit(gateway: Followed) -> None:
    gateway.put(aa=1, b=1)
    follower = gateway.follow(prefix="a", poll_s=1)
    gateway.commit({"aa": 2, "b": 2, "ab": 1})
    gateway.put(b=3)  # of which it learns by a bookmark
    follower.wait_for(3, WAIT_S)
    assert follower.current().documents == gateway.documents(3, "a") == {"aa": 2, "ab": 1}
    assert follower.at_revision(2).documents == {"aa": 2, "ab": 1}


def test_lookups_by_revision_and_by_time(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow(now=lambda: at(100))
    for n in range(2, 6):
        gateway.put(a=n, **{f"k{n}": n})
    follower.wait_for(5, WAIT_S)
    for n in range(1, 6):
        assert follower.at_revision(n).documents == gateway.documents(n)
        assert follower.at_time(at(n)).revision == n
        assert follower.at_time(at(n + 0.9)).revision == n
    assert follower.at_time(at(100)).revision == 5
    with pytest.raises(RevisionTooOld) as old:
        follower.at_time(at(0.9))
    assert (old.value.earliest, old.value.latest) == (1, 5)
    with pytest.raises(RevisionTooOld):
        follower.at_revision(0)
    with pytest.raises(RevisionUnknown) as unknown:
        follower.at_revision(6)
    assert (unknown.value.earliest, unknown.value.latest) == (1, 5)
    with pytest.raises(RevisionUnknown):
        follower.at_time(at(100.1))
    with pytest.raises(ValueError, match="offset"):
        follower.at_time(datetime(2026, 11, 21))


def test_times_since_the_gateway_was_lost_are_unknown(gateway: Followed) -> None:
    clock = [at(10)]
    gateway.put(a=1)
    follower = gateway.follow(now=lambda: clock[0])
    assert follower.at_time(at(9)).revision == 1
    gateway.stop()
    gateway.eventually(lambda: follower.last_error is not None)
    clock[0] = at(20)
    assert follower.at_time(at(9)).revision == 1
    with pytest.raises(RevisionUnknown):
        follower.at_time(at(15))


def test_times_since_it_was_stopped_are_unknown(gateway: Followed) -> None:
    """A stopped follower gets no more commits, so it can't know later times."""
    clock = [at(10)]
    gateway.put(a=1)
    follower = gateway.follow(now=lambda: clock[0])
    follower.stop()
    clock[0] = at(20)
    assert follower.at_time(at(9)).revision == 1
    with pytest.raises(RevisionUnknown):
        follower.at_time(at(15))


def test_history_is_bounded_by_commits(gateway: Followed) -> None:
    gateway.put(a=0)
    follower = gateway.follow(history=History(commits=2))
    for n in range(1, 7):
        gateway.commit({"a": n, "gone": n if n < 4 else ABSENT})
    follower.wait_for(7, WAIT_S)
    assert [follower.at_revision(n).documents["a"] for n in (5, 6, 7)] == [4, 5, 6]
    assert "gone" not in follower.at_revision(5).documents
    with pytest.raises(RevisionTooOld):
        follower.at_revision(4)
    assert follower.at_time(at(5)).revision == 5
    with pytest.raises(RevisionTooOld):
        follower.at_time(at(4.9))


def test_history_is_bounded_by_age(gateway: Followed) -> None:
    clock = [at(5)]
    gateway.put(a=1)
    follower = gateway.follow(history=History(seconds=2.5), now=lambda: clock[0])
    for n in (2, 3, 4, 5):
        gateway.put(a=n)
    follower.wait_for(5, WAIT_S)
    # What was current 2.5 seconds ago was made 3 seconds ago.
    assert follower.at_time(at(2.5)).documents["a"] == 2
    with pytest.raises(RevisionTooOld):
        follower.at_revision(1)


def test_a_snapshot_outlives_pruning_reload_and_stop(gateway: Followed) -> None:
    gateway.put(a=1, b=1)
    follower = gateway.follow(history=History(commits=1))
    held = follower.current()
    for n in (2, 3, 4):
        gateway.put(a=n)
    gateway.commit({"b": ABSENT})
    follower.wait_for(5, WAIT_S)
    assert dict(held.documents) == {"a": 1, "b": 1}
    gateway.hidden = {6}
    gateway.put(a=6)
    gateway.put(a=7)
    follower.wait_for(7, WAIT_S)
    follower.stop()
    assert dict(held.documents) == {"a": 1, "b": 1}
    assert follower.current().documents == {"a": 7}


def test_a_follower_resumes_after_a_restart_of_the_gateway(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow()
    gateway.stop()
    gateway.eventually(lambda: follower.last_error is not None)
    gateway.put(a=2)
    gateway.start()
    follower.wait_for(2, WAIT_S)
    gateway.eventually(lambda: follower.last_error is None)
    assert sum("initial" in each for each in gateway.requests) == 1


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_follower_waits_until_a_refusal_passes(gateway: Followed, status: int) -> None:
    gateway.put(a=1)
    refusals = iter([True, True, True])

    def refuse(_: str, route: str) -> None:
        if route == "changes" and next(refusals, False):
            raise Refused(status, "whatever")

    follower = gateway.follow()
    gateway.before = refuse
    gateway.put(a=2)
    gateway.eventually(lambda: follower.last_error is not None)
    gateway.put(a=3)
    follower.wait_for(3, WAIT_S)
    assert not next(refusals, False)
    assert sum("initial" in each for each in gateway.requests) == 1


def test_a_request_that_the_gateway_does_not_understand_stops_the_follower(
    gateway: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a gateway older than the client: retrying would be useless, and hide the error."""
    gateway.put(a=1)

    def refuse(_: str, route: str) -> None:
        if route == "changes":
            raise Refused(400, "invalid_parameter")

    follower = gateway.follow(prefix="a")
    gateway.before = refuse
    gateway.put(a=2)
    with pytest.raises(FollowerStopped) as stopped:
        follower.wait_for(3, WAIT_S)
    assert "invalid_parameter" in str(follower.last_error)
    assert stopped.value.__cause__ is follower.last_error
    assert "catalog 'c' can't be followed" in caplog.text


def test_after_a_gap_in_the_feed_the_copy_is_read_again(gateway: Followed) -> None:
    gateway.put(a=1, b=1)
    follower = gateway.follow()
    gateway.hidden = {2}
    with gateway.changed:
        gateway.put(a=2)
        gateway.put(b=2)
    follower.wait_for(3, WAIT_S)
    assert follower.current().documents == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    "wrong",
    [
        {"patch": [{"op": "remove", "path": "/nowhere"}]},
        {"patch": [{"op": "add", "path": "", "value": 3}], "base_revision": 2},
        {"patch": [], "action": "attributes", "base_revision": 2},
    ],
)
def test_after_a_change_that_does_not_fit_the_copy_is_read_again(
    gateway: Followed, wrong: dict[str, Any]
) -> None:
    """Its listeners miss nothing: earlier changes may have been hidden by an acl until now."""
    gateway.put(a=1, b=1)
    follower = gateway.follow()
    told: list[int] = []
    follower.subscribe(lambda commit: told.append(commit.revision))
    with gateway.changed:
        good = [{"op": "add", "path": "", "value": 2}]
        gateway.append(
            [
                {"key": "b", "action": "patch", "create_revision": 1, "patch": good},
                {"key": "a", "action": "patch", "create_revision": 1} | wrong,
            ]
        )
        gateway.states.append({"a": 7, "b": 2})
        gateway.changed.notify_all()
    follower.wait_for(2, WAIT_S)
    assert follower.current().documents == {"a": 7, "b": 2}
    gateway.eventually(lambda: told == [2])


def test_loads_of_the_copy_keep_their_distance(
    gateway: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acl that admits a reader to many documents, one by one, has it loaded for each of them."""
    monkeypatch.setattr("patching.client._follower._RELOAD_S", 3600.0)
    gateway.put(a=1)
    follower = gateway.follow()
    waits: list[float] = []
    monkeypatch.setattr(follower._stopping, "wait", waits.append)
    for revision in (2, 3):
        with gateway.changed:
            hidden = {"action": "attributes", "patch": [], "base_revision": revision}
            gateway.append([{"key": "a", "create_revision": 1} | hidden])
            gateway.states.append({"a": revision})
            gateway.changed.notify_all()
        follower.wait_for(revision, WAIT_S)
    assert follower.current().documents == {"a": 3}
    assert max(waits) > 3000


def test_repeated_commits_change_nothing(gateway: Followed) -> None:
    gateway.put(a=[])
    follower = gateway.follow()
    told: list[int] = []
    follower.subscribe(lambda commit: told.append(commit.revision))
    gateway.put(a=[1])
    follower.wait_for(2, WAIT_S)
    follower._apply(follower._routes.changes(1, timeout_s=0))
    gateway.put(a=[1, 2])
    follower.wait_for(3, WAIT_S)
    assert follower.current().documents == {"a": [1, 2]}
    assert gateway.eventually(lambda: len(told) == 2 and told) == [2, 3]


def test_waiting_ends_at_its_timeout_and_with_the_follower(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow()
    follower.wait_for(1, 0)
    with pytest.raises(WaitTimedOut) as late:
        follower.wait_for(2, 0.01)
    assert (late.value.revision, late.value.position) == (2, 1)
    stopper = threading.Timer(0.05, follower.stop)
    stopper.start()
    with pytest.raises(FollowerStopped):
        follower.wait_for(2, WAIT_S)
    stopper.join()


def test_stop_ends_a_long_poll(gateway: Followed) -> None:
    gateway.put(a=1)
    follower = gateway.follow(poll_s=60)
    gateway.eventually(lambda: any("changes" in each for each in gateway.requests))
    thread = follower._thread
    begun = time.monotonic()
    follower.stop(timeout_s=WAIT_S)
    assert not thread.is_alive()
    assert time.monotonic() - begun < 60
    assert follower.current().documents == {"a": 1}


def test_start_fails_without_a_gateway_and_can_be_tried_again(gateway: FakeGateway) -> None:
    gateway.put(a=1)
    gateway.stop()
    follower = Follower(gateway.url, "c", retry=QUICK)
    with pytest.raises(FollowerStopped):
        follower.current()
    with pytest.raises(Unreachable):
        follower.start()
    gateway.start()
    with follower:
        assert follower.current().documents == {"a": 1}


def test_a_gateway_that_is_closed_ends_its_feeds_and_stops_its_followers(gateway: Followed) -> None:
    gateway.put(a=1)
    client = Gateway(gateway.url, retry=QUICK)
    feed, follower = client.catalog("c").changes(after=1), client.follower("c")
    ended: list[Unreachable] = []

    def follow() -> None:
        with pytest.raises(Unreachable) as closed:
            next(feed)
        ended.append(closed.value)

    thread = threading.Thread(target=follow)
    thread.start()
    with follower:
        gateway.eventually(lambda: sum("changes" in each for each in gateway.requests) >= 3)
        client.close()
        thread.join(WAIT_S)
        assert [each.retryable for each in ended] == [False]
        with pytest.raises(FollowerStopped):
            follower.wait_for(9, WAIT_S)
        assert follower.current().documents == {"a": 1}
    with pytest.raises(Unreachable, match="the client was closed"):
        next(client.catalog("c").changes(after=1))


def test_closing_a_gateway_stops_renewing_its_pins() -> None:
    def reply(_: Asked) -> Reply:
        return 200, {
            "pin": "p",
            "revision": 1,
            "expires": "2026-11-21T10:00:00Z",
            "owner": "ann",
            "note": "",
        }

    with Canned(reply) as answering:
        client = Gateway(answering.url, retry=QUICK)
        with client.catalog("c").pin(1, 1):
            (renewing,) = [each for each in threading.enumerate() if each.name == "pin"]
            client.close()
            renewing.join(WAIT_S)
            assert not renewing.is_alive()
