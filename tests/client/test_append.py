"""Validate on the local copy, commit by compare-and-set on its revision, re-validate (I1 to I3)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from patching.client import Appended, AppendFailed, Conflict, NotAuthorized, Snapshot, append
from patching.client._append import ReadSet
from patching.client.errors import FollowerStopped
from tests.client.conftest import Followed
from tests.client.fake_gateway import Refused
from tests.patience import WAIT_S

Actions = list[dict[str, Any]]


def count_up(now: Snapshot) -> Actions:
    return [{"action": "put", "key": "n", "value": now.documents.get("n", 0) + 1}]  # type: ignore[operator]


def test_an_append_commits_what_was_decided_on_the_copy(gateway: Followed) -> None:
    follower = gateway.follow()
    assert append(follower, count_up) == Appended(1, True, "id-1", 1)
    follower.wait_for(1, WAIT_S)
    assert append(follower, count_up).revision == 2
    assert gateway.documents() == {"n": 2}


def test_eight_concurrent_appends_lose_nothing(gateway: Followed) -> None:
    follower = gateway.follow()
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(append, follower, count_up) for _ in range(40)]
        revisions = sorted(each.result().revision for each in done)
    assert revisions == list(range(1, 41))
    assert gateway.documents() == {"n": 40}


@pytest.mark.parametrize("nothing", [None, []])
def test_appending_nothing_returns_the_latest_revision(
    gateway: Followed, nothing: Actions | None
) -> None:
    gateway.put(n=1)
    follower = gateway.follow()
    assert append(follower, lambda _: nothing) == Appended(1, False, None, 0)


def test_a_decision_to_append_nothing_is_final_only_on_the_latest_state(gateway: Followed) -> None:
    """The copy is behind. There is nothing to do on its state, but there is on the latest one."""
    gateway.put(n=0)
    follower = gateway.follow()
    seen: list[int] = []

    def build(now: Snapshot) -> Actions | None:
        seen.append(now.revision)
        if len(seen) == 1:
            gateway.put(n=7)
            return None
        return count_up(now)

    assert append(follower, build).revision == 3
    assert (seen, gateway.documents()) == ([1, 2], {"n": 8})


def test_a_refusal_is_final_only_on_the_latest_state(gateway: Followed) -> None:
    gateway.put(n=0)
    follower = gateway.follow()
    calls: list[int] = []

    def build(now: Snapshot) -> Actions:
        calls.append(now.revision)
        if len(calls) == 1:
            gateway.put(n=7)
        if now.documents["n"] == 0 or len(calls) > 5:
            raise ValueError("there is no column n")
        return count_up(now)

    assert append(follower, build).revision == 3
    calls[:] = [0] * 5
    with pytest.raises(ValueError, match="no column"):
        append(follower, build)
    assert gateway.head == 3


def test_an_append_whose_answer_was_lost_is_sent_again(gateway: Followed) -> None:
    follower = gateway.follow()
    losses = iter([True, True])

    def lose() -> None:
        if next(losses, False):
            raise ConnectionResetError

    gateway.before_answer = lose
    assert append(follower, count_up) == Appended(1, True, "id-1", 3)
    assert gateway.documents() == {"n": 1}


def test_an_append_that_runs_out_of_time_says_what_happened(gateway: Followed) -> None:
    gateway.put(n=1)
    follower = gateway.follow()

    def hold_up(method: str, _: str) -> None:
        if method == "POST":
            gateway.put(n=5)

    gateway.before = hold_up
    with pytest.raises(AppendFailed) as failed:
        append(follower, count_up, timeout_s=0.3)
    assert failed.value.attempts >= 1
    assert failed.value.last_head > 1
    assert failed.value.applied == "no"
    assert failed.value.__cause__ is not None


def test_an_append_that_runs_out_of_time_may_have_an_unknown_outcome(gateway: Followed) -> None:
    follower = gateway.follow()

    def lose() -> None:
        raise ConnectionResetError

    gateway.before_answer = lose
    with pytest.raises(AppendFailed) as failed:
        append(follower, count_up, timeout_s=0.3)
    assert failed.value.applied == "unknown"


@pytest.mark.parametrize("then", [(503, "store_unavailable", True), (403, "forbidden", False)])
def test_what_comes_after_a_lost_answer_does_not_say_that_nothing_was_applied(
    gateway: Followed, then: tuple[int, str, bool]
) -> None:
    follower = gateway.follow()
    status, code, retryable = then

    def lose() -> None:
        gateway.before = refuse
        raise ConnectionResetError

    def refuse(method: str, _: str) -> None:
        if method == "POST":
            raise Refused(status, code, retryable=retryable)

    gateway.before_answer = lose
    with pytest.raises((AppendFailed, NotAuthorized)) as failed:
        append(follower, count_up, timeout_s=0.3)
    assert failed.value.applied == "unknown"
    assert gateway.documents() == {"n": 1}


def test_other_refusals_are_raised_unchanged(gateway: Followed) -> None:
    follower = gateway.follow()

    def refuse(method: str, _: str) -> None:
        if method == "POST":
            raise Refused(409, "path_missing", retryable=False)

    gateway.before = refuse
    with pytest.raises(Conflict) as refused:
        append(follower, count_up)
    assert (refused.value.code, refused.value.applied) == ("path_missing", "no")


def test_a_stopped_follower_appends_no_more_after_a_lost_race(gateway: Followed) -> None:
    follower = gateway.follow()

    def stop_and_lose(now: Snapshot) -> Actions:
        follower.stop()
        gateway.put(n=1)
        return count_up(now)

    with pytest.raises(FollowerStopped):
        append(follower, stop_and_lose)
    assert gateway.head == 1


def under_own(name: str) -> Any:
    """Looks at its own range alone."""
    return lambda now: [
        {"action": "put", "key": f"{name}/{len(now.under(f'{name}/'))}", "value": name}
    ]


@pytest.mark.parametrize(
    ("look", "conflicts"),
    [
        (lambda now: now.documents.get("mine"), False),
        (lambda now: now.documents.get("theirs"), True),
        (lambda now: now.documents["theirs"], True),
        (lambda now: "theirs" in now.documents, True),
        (lambda now: "nobody" in now.documents, False),
        (lambda now: "new" in now.documents, True),
        (lambda now: now.under("m"), False),
        (lambda now: now.under("t"), True),
        (lambda now: list(now.documents), True),
        (lambda now: len(now.documents), True),
        (lambda now: now.documents.items(), False),  # as long as nobody goes over them
        (lambda now: list(now.documents.items()), True),
        (lambda now: now.revision, True),
        (lambda now: now.settings, True),
        (lambda now: now.time, True),
        (lambda now: None, False),  # noqa: ARG005
    ],
)
def test_an_append_conflicts_only_with_what_it_read(
    gateway: Followed, look: Any, conflicts: bool
) -> None:
    gateway.put(mine=1, theirs=1)
    follower = gateway.follow()
    calls: list[int] = []

    def build(now: Snapshot) -> Actions:
        calls.append(1)
        look(now)
        if len(calls) == 1:
            gateway.put(theirs=2, new=1)
        return [{"action": "put", "key": "mine", "value": len(calls)}]

    done = append(follower, build)
    assert (done.attempts, len(calls)) == ((2, 2) if conflicts else (1, 1))
    assert gateway.documents() == {"mine": len(calls), "theirs": 2, "new": 1}


def test_writers_that_read_only_their_own_keys_never_conflict(gateway: Followed) -> None:
    follower = gateway.follow()
    names = [f"writer-{n}" for n in range(8)]

    def write(name: str) -> int:
        return sum(append(follower, under_own(name)).attempts for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(write, names)) == [5] * 8
    assert set(gateway.documents()) == {f"{name}/{n}" for name in names for n in range(5)}


def test_a_refusal_is_final_if_nothing_it_read_has_changed(gateway: Followed) -> None:
    gateway.put(n=0, other=0)
    follower = gateway.follow()
    calls: list[int] = []

    def build(now: Snapshot) -> Actions:
        calls.append(1)
        gateway.put(other=len(calls))
        if now.documents["n"] == 0:
            raise ValueError("n is 0")
        return count_up(now)

    with pytest.raises(ValueError, match="n is 0"):
        append(follower, build)
    assert len(calls) == 1


def test_many_reads_count_as_one_of_the_whole_copy(gateway: Followed) -> None:
    gateway.put(n=0)
    snapshot = gateway.follow().current()
    reads = ReadSet(snapshot, "")
    for n in range(1001):
        reads.key(f"{n}", exists=False)
    assert reads.compares == [{"prefix": "", "unchanged_since": 1}]
    reads = ReadSet(snapshot, "a/")
    reads.key("a/1", exists=True)
    reads.key("a/b/1", exists=True)
    reads.range("a/b/")
    reads.key("a/new", exists=False)
    assert reads.compares == [
        {"prefix": "a/b/", "unchanged_since": 1},
        {"prefix": "a/new", "unchanged_since": 1},
        {"key": "a/1", "unchanged_since": 1},
    ]
    reads.key("elsewhere", exists=False)  # the copy doesn't know whether it is there
    assert reads.compares == [{"resource_version": 1}]


def test_two_appends_that_create_the_same_document_conflict(gateway: Followed) -> None:
    follower = gateway.follow()
    first: list[int] = []

    def build(now: Snapshot) -> Actions:
        if not first:
            first.append(1)
            gateway.put(n=1)
        return count_up(now)

    assert append(follower, build).changed
    assert gateway.documents() == {"n": 2}
