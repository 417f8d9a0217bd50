"""Rule: the checker of real histories turns down what no gateway may do, and nothing else.

A small right history, and what is wrong with it when it is changed in one place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.failure.calls import Call, Outcome
from tests.failure.linearizable import Following, History, check
from tests.simulation.asks import Action, Ask, Name, write

CATALOG, ONE, TWO = map(Name, ("catalog", "one", "two"))


KEYED = ("both",)  # of those that made a commit


def commit(revision: int, label: str, *changes: tuple[str, str, int, Any]) -> dict[str, Any]:
    """As the log and the feed tell it. A change: key, action, create revision, patch."""
    return {
        "revision": revision,
        "time": f"2026-11-22T10:00:0{revision}.000000Z",
        "commit_id": f"{revision}" * 32,
        "author": "anonymous",
        "message": label,
        "idempotency_key": f"key-{label}" if label in KEYED else None,
        "attempts": 1,
        "succeeded": True,
        "rebased_from": None,
        "deletes_catalog": False,
        "changes": [
            {"key": str(key), "action": action, "create_revision": made, "patch": patch}
            | {"attributes": {} if made == revision or action == "put" else None}
            for key, action, made, patch in changes
        ],
    }


def whole(value: Any) -> list[dict[str, Any]]:
    return [{"op": "add", "path": "", "value": value}]


def setting(value: int) -> list[dict[str, Any]]:
    return [{"op": "replace", "path": "/n", "value": value}]


def token(revision: int) -> str:
    return f"{revision:x}-{str(revision) * 8}"


LOG = [
    commit(1, "first", (ONE, "put", 1, whole({"n": 1}))),
    commit(2, "second", (TWO, "put", 2, whole({"n": 2}))),
    commit(3, "both", (ONE, "patch", 1, setting(3)), (TWO, "patch", 2, setting(3))),
    commit(4, "last", (ONE, "patch", 1, setting(4))),
]
PUTS = {
    "first": write("first", CATALOG, Action("put", ONE, {"n": 1})),
    "second": write("second", CATALOG, Action("put", TWO, {"n": 2})),
}
BOTH = write(
    "both",
    CATALOG,
    Action("patch", ONE, setting(3)),
    Action("patch", TWO, setting(3)),
    idempotency_key="key-both",
    fingerprint="both",
)
LAST = write("last", CATALOG, Action("patch", ONE, setting(4)), if_match=(token(3),))
STALE = write("stale", CATALOG, Action("patch", ONE, setting(9)), if_match=(token(1),))
UNTOLD = replace(STALE, label="untold", idempotency_key="key-untold", fingerprint="untold")
SAME = write("same", CATALOG, Action("patch", TWO, setting(3)))
AT_THREE = {ONE: (token(3), {"n": 3}), TWO: (token(3), {"n": 3})}


def call(ask: Ask, begun: float, kind: Any, revision: int = 0, **told: Any) -> Call:
    """From ``begun`` on, for nine seconds."""
    if kind == "applied":
        told |= {"commit_id": f"{revision}" * 32}
    return Call("client", "gateway", ask, begun, begun + 9, Outcome(kind, revision, **told))


def reading(kind: Any, **asked: Any) -> Ask:
    return Ask(kind, CATALOG, ONE, kind, **asked)


# Sent again after "last", and told what its key stands for since before it.
REPLAYED = {"code": "precondition_failed", "current": {ONE: token(3)}, "replayed": True}
UNTOLD_TRIES = (
    call(UNTOLD, 70, "not-applied"),
    call(UNTOLD, 150, "refused", **REPLAYED),
)
SAME_UNTOLD = replace(SAME, label="same untold", idempotency_key="k", fingerprint="same untold")
SAME_TRIES = (
    call(SAME_UNTOLD, 70, "not-applied"),
    call(SAME_UNTOLD, 150, "unchanged", 3, replayed=True),
)
OLD, NEW = {ONE: (token(1), {"n": 1})}, {ONE: (token(3), {"n": 3}), TWO: (token(3), {"n": 3})}
PAGE, REST = ({key: NEW[key]} for key in (ONE, TWO))
CALLS = {
    "first": call(PUTS["first"], 0, "applied", 1, token=token(1)),
    "second": call(PUTS["second"], 10, "applied", 2, token=token(2)),
    "read": call(reading("read"), 20, "read", 2, documents=OLD),
    "unknown": call(BOTH, 30, "unknown"),
    "again": call(BOTH, 40, "applied", 3, replayed=True, documents=AT_THREE),
    "stale": call(STALE, 50, "refused", code="precondition_failed", current={ONE: token(3)}),
    "same": call(SAME, 60, "unchanged", 3),
    "page": call(
        reading("list", limit=1, revision=None), 70, "read", 3, documents=PAGE, next="one"
    ),
    "last": call(LAST, 80, "unknown"),
    "rest": call(reading("list", limit=1, revision=3, after="one"), 90, "read", 3, documents=REST),
    "past": call(reading("read-at", revision=2), 100, "read", 2, documents=OLD),
    "history": call(
        reading("page", revision=2, limit=2), 110, "commits", 4, commits=tuple(LOG[2:])
    ),
    "absent": call(Ask("read", CATALOG, Name("gone"), "gone"), 120, "absent"),
    "above": call(reading("read-at", revision=5), 130, "above", 4),
    "failed": call(reading("read"), 140, "failed"),
}
RIGHT = History(list(CALLS.values()), LOG, [Following(LOG, [5.0, 15.0, 35.0, 95.0])])


def with_outcome(name: str, **changed: Any) -> History:
    """The right history, but for one answer."""
    return of(name, outcome=replace(CALLS[name].outcome, **changed))


def of(name: str, **changed: Any) -> History:
    calls = CALLS | {name: replace(CALLS[name], **changed)}
    return replace(RIGHT, calls=list(calls.values()))


def logged(*log: Any) -> History:
    """With this log, which followers get too."""
    times = [5.0, 15.0, 35.0, 95.0, 96.0][: len(log)]
    return replace(RIGHT, log=log, followings=[Following(log, times)])


def with_more(*calls: Call) -> History:
    return replace(RIGHT, calls=[*RIGHT.calls, *calls])


def not_replayed(tries: tuple[Call, Call]) -> History:
    """The answer to the second one doesn't say that it is the first one's."""
    first, second = tries
    return with_more(first, replace(second, outcome=replace(second.outcome, replayed=False)))


def followed(commits: list[Any], *times: float) -> History:
    return replace(RIGHT, followings=[Following(commits, times)])


def at(revision: int, made: dict[str, Any]) -> dict[str, Any]:
    """The commit with another number."""
    changes = [
        each | {"create_revision": revision if each["create_revision"] == made["revision"] else 1}
        for each in made["changes"]
    ]
    time = f"2026-11-22T10:00:0{revision}.000000Z"
    return made | {"revision": revision, "time": time, "changes": changes}


FIRST, SECOND, THIRD, FOURTH = LOG
OTHER = commit(4, "last", (ONE, "patch", 1, setting(5)))
WRONG: dict[str, tuple[str, History]] = {
    "an acknowledged write is gone": ("lost", logged(FIRST, at(2, THIRD), at(3, FOURTH))),
    "the last acknowledged write is gone": (
        "lost",
        replace(with_outcome("last", kind="applied", revision=4), log=LOG[:3], followings=[]),
    ),
    "a revision is missing": ("log", logged(FIRST, SECOND, FOURTH)),
    "two writes are swapped": ("lost", logged(at(1, SECOND), at(2, FIRST), THIRD, FOURTH)),
    "a later write is before an earlier one": (
        "order",
        of("second", invoked=-20.0, returned=-11.0),
    ),
    "a write is there twice": ("twice", logged(*LOG, at(5, FOURTH) | {"commit_id": "5" * 32})),
    "a write does something else": ("untrue-commit", logged(*LOG[:3], OTHER)),
    "a write has lost its key": (
        "log",
        logged(*LOG[:2], THIRD | {"idempotency_key": None}, FOURTH),
    ),
    "a write by nobody": ("log", logged(*LOG[:3], FOURTH | {"message": "nobody's"})),
    "time goes back": ("time", logged(*LOG[:3], FOURTH | {"time": THIRD["time"]})),
    "a replay tells another commit": (
        "lost",
        with_outcome("again", revision=2, commit_id="2" * 32),
    ),
    "a transaction was told what it didn't leave": ("read", with_outcome("again", documents=OLD)),
    "a replay is told as a conflict": (
        "denied",
        with_more(call(BOTH, 150, "refused", code="precondition_failed")),
    ),
    "a replay is told as nothing to do": (
        "denied",
        with_more(call(BOTH, 150, "unchanged", 4)),
    ),
    "a refused write is there": (
        "applied-anyway",
        with_outcome("last", kind="refused", code="precondition_failed"),
    ),
    "a write that was not applied is there": (
        "applied-anyway",
        with_outcome("last", kind="not-applied"),
    ),
    "a write that changed nothing is there": (
        "applied-anyway",
        with_outcome("last", kind="unchanged", revision=3),
    ),
    "a refusal is untrue": ("untrue", of("stale", ask=replace(STALE, if_match=(token(3),)))),
    "a refusal was true before": ("untrue", with_outcome("stale", current={ONE: token(1)})),
    "a refusal is that of an earlier try": ("untrue", not_replayed(UNTOLD_TRIES)),
    "a refusal is replayed of no try": ("untrue", with_more(UNTOLD_TRIES[1])),
    "a refusal is replayed without a key": ("unexpected", with_outcome("stale", replayed=True)),
    "nothing to do is that of an earlier try": ("order", not_replayed(SAME_TRIES)),
    "there was something to do": ("untrue", of("same", ask=replace(SAME, actions=LAST.actions))),
    "nothing to do was true before": ("order", of("same", invoked=141.0, returned=150.0)),
    "a stale read": ("order", with_outcome("read", revision=1)),
    "a stale read at the other end": ("order", of("read", invoked=121.0, returned=130.0)),
    "a read of what was not asked for yet": (
        "order",
        with_outcome("read", revision=3, documents=PAGE),
    ),
    "a read of what no revision had": ("read", with_outcome("read", documents=PAGE)),
    "a read of a revision that never was": ("lost", with_outcome("read", revision=9)),
    "a page of two revisions": (
        "read",
        with_outcome("rest", documents={TWO: (token(2), {"n": 2})}),
    ),
    "a page of another revision": ("read", with_outcome("rest", revision=4)),
    "a page leaves a document out": ("read", with_outcome("page", documents={}, next=None)),
    "a page ends too early": ("read", with_outcome("page", next=None)),
    "the past is another": ("read", with_outcome("past", documents=PAGE)),
    "history leaves a commit out": ("read", with_outcome("history", commits=(FOURTH,))),
    "the newest revision is an old one": (
        "order",
        with_outcome("history", revision=3, commits=(THIRD,)),
    ),
    "what is there is absent": ("read", of("absent", ask=reading("read"))),
    "what is there is above": ("read", of("above", ask=reading("read-at", revision=4))),
    "a follower misses a commit": ("feed", followed(LOG[1:], 15.0, 35.0, 95.0)),
    "a follower misses the last one": ("feed", followed(LOG[:3], 5.0, 15.0, 35.0)),
    "a follower is told twice": ("feed", followed([*LOG, FOURTH], 5.0, 15.0, 35.0, 95.0, 96.0)),
    "a follower is told in another order": (
        "feed",
        followed([FIRST, THIRD, SECOND, FOURTH], 5.0, 35.0, 35.0, 95.0),
    ),
    "a follower is told something else": (
        "feed",
        followed([*LOG[:3], OTHER], 5.0, 15.0, 35.0, 95.0),
    ),
    "a follower is told too early": ("order", followed(LOG, 5.0, 15.0, 25.0, 95.0)),
    "an answer that nobody may get": ("unexpected", with_outcome("failed", kind="unexpected")),
}


def test_a_correct_history_is_accepted() -> None:
    assert check(RIGHT) == []
    for tries in (UNTOLD_TRIES, SAME_TRIES):
        assert check(with_more(*tries)) == []
    # What is unknown may have been done, or not.
    undone = [each for each in RIGHT.calls if each.outcome.revision < 4]
    assert check(History(undone, LOG[:3])) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_history_is_refused(name: str) -> None:
    kind, history = WRONG[name]
    assert kind in {violation.kind for violation in check(history)}, check(history)
