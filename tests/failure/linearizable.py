"""Whether a history of real calls is one that the gateway may give; pure.

Nobody saw when a commit became true, but the gateway numbers all states and says at which one it
answered. So the order is known, and each commit has bounds: it was made after its request was sent
and after every call that was answered from a state before it had begun; and before its own answer,
and before the answer of every call that has seen it. What is answered without a number has to be
true of a state that there may have been during the call.

The kinds of violations:

    log            revisions without gaps, each by one request, made of the state before it; the
                   simulation's ``Ledger`` replays them with its model, which tells kinds of its own
    lost           what was acknowledged is in the log, at the revision and as the commit told
    applied-anyway what was refused, changed nothing, or certainly was not applied isn't there
    denied         a write that was acknowledged is told the same when it is sent again
    order          the bounds of all commits fit: the order of the log agrees with real time
    read           what is read is what its revision had, all documents of it that were asked for
    untrue         a refusal, or "nothing to do", was true of a state during the call
    feed           a follower is told every commit once, in order, as the log has it
    unexpected     an answer that no request may get
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import msgspec

from gateway.http.wire.query import timestamp_us
from gateway.model import ChangeRecord, CommitRecord, Idempotency
from tests.failure.calls import Call, Outcome
from tests.simulation.asks import Ask
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.model import Doc, judge, live
from tests.simulation.recorder import Made

NEVER = float("inf")


@dataclass(frozen=True)
class Following:
    """What a follower got: the commits, and when each arrived."""

    commits: Sequence[Any]
    times: Sequence[float]


@dataclass(frozen=True)
class History:
    """What happened to one catalog. ``log`` is all of its commits, as a gateway tells them."""

    calls: Sequence[Call]
    log: Sequence[Any]
    followings: Sequence[Following] = ()


def check(history: History) -> list[Violation]:
    return list(_violations(history))


def _violations(history: History) -> Iterator[Violation]:
    # The first try of a write stands for all: that is when it was first sent.
    first = {call.ask.label: call for call in reversed(history.calls) if call.ask.writes}
    asks = {label: call.ask for label, call in first.items()}
    ledger = Ledger("", [_made(each, asks) for each in history.log], (), 0)
    yield from ledger.build(first)
    for made in ledger.log[: ledger.last]:
        used = made.commit.idempotency and made.commit.idempotency.key
        if used != asks[made.commit.message or ""].idempotency_key:
            yield Violation("log", f"{made.commit.revision} was made under the key {used}")
    if ledger.last < len(ledger.log):
        return
    for number, following in enumerate(history.followings):
        yield from _check_feed(history.log, number, following)
    bounds = _Bounds(ledger, history)
    yield from bounds.violations()
    tried: dict[str, list[Call]] = {}
    for call in history.calls:
        if call.ask.writes:
            tried.setdefault(call.ask.label, []).append(call)
        for violation in _check_call(ledger, bounds, call):
            said = f"{call.client} of {call.gateway}, {call.ask.label}: {violation.detail}"
            yield Violation(violation.kind, said)
    for label, tries in tried.items():
        yield from _check_tries(label, tries)
        kinds = {each.outcome.kind for each in tries}
        decided = tries[0].ask.idempotency_key is not None and kinds & _DECIDED
        if label in ledger.by_label and (kinds <= _NOT_DONE or decided):
            yield Violation("applied-anyway", f"{label}: {[each.outcome.kind for each in tries]}")


def _check_tries(label: str, tries: Sequence[Call]) -> Iterator[Violation]:
    told = min((each.returned for each in tries if each.outcome.kind == "applied"), default=NEVER)
    for each in tries:
        if each.invoked > told and each.outcome.kind in _DECIDED:
            yield Violation("denied", f"{label} was done, and is {each.outcome.kind}")


_DECIDED = {"refused", "unchanged"}  # for good, under an idempotency key
_NOT_DONE = {*_DECIDED, "not-applied"}


def _made(told: Mapping[str, Any], asks: Mapping[str, Ask]) -> Made:
    """A commit as the ledger takes it."""
    changes = [_change(each) for each in told["changes"]]
    ask, key = asks.get(told["message"] or ""), told["idempotency_key"]
    commit = CommitRecord(
        "",
        told["revision"],
        timestamp_us(told["time"]),
        told["commit_id"],
        told["author"],
        told["message"],
        None if key is None else Idempotency("", key, ask.fingerprint if ask else ""),
        told["attempts"],
        tuple(ChangeRecord(each[0], each[1], each[2]) for each in changes),
        succeeded=told["succeeded"],
        rebased_from=told["rebased_from"],
        deletes_catalog=told["deletes_catalog"],
    )
    return Made(0, told["revision"] - 1, commit, msgspec.json.encode(changes))


def _change(told: Mapping[str, Any]) -> list[Any]:
    """Key, action, create revision, patch, whole value (a list of one, or none), attributes, and
    owners and what changed in them: none, as nobody applies here."""
    patch, value = told["patch"], []
    if told["action"] == "put":
        patch, value = None, [patch[0]["value"]]
    elif told["action"] == "delete":
        patch = None
    named = (told["key"], told["action"], told["create_revision"])
    return [*named, patch, value, told["attributes"], None, None]


def _check_feed(log: Sequence[Any], number: int, following: Following) -> Iterator[Violation]:
    if list(following.commits) != list(log):
        told = [each["revision"] for each in following.commits]
        pairs = enumerate(zip(following.commits, log, strict=False))
        first = next((place for place, (one, other) in pairs if one != other), len(told))
        near = told[max(0, first - 2) : first + 3]
        yield Violation("feed", f"follower {number}: {len(told)} of {len(log)}, {near} at {first}")


# A time, and what happened then.
_Moment = tuple[float, str]


class _Bounds:
    """``earliest[r]`` and ``latest[r]``: when revision r was made at the earliest, and at the
    latest; both ascend. Revision 0 was always there."""

    def __init__(self, ledger: Ledger, history: History) -> None:
        count = ledger.last + 1
        after: list[_Moment] = [(-NEVER, "")] * count
        before: list[_Moment] = [(NEVER, "")] * count
        self._tried = _first_sent(history.calls)
        # By a try that may have been applied.
        self._first = _first_sent(c for c in history.calls if c.outcome.kind != "not-applied")
        for label, made in ledger.by_label.items():
            after[made.commit.revision] = self._first.get(label, -NEVER), f"{label} was sent"
        for call in history.calls:
            seen = call.outcome.revision
            if call.outcome.kind not in _SEEING or not 0 <= seen < count:
                continue
            told = f"{call.ask.label} was told of {seen} by {call.gateway}"
            before[seen] = min(before[seen], (call.returned, told))
            if _sees_the_present(call) and seen + 1 < count:
                begun = f"{call.ask.label} was sent to {call.gateway}, and told that {seen} is all"
                after[seen + 1] = max(after[seen + 1], (self.invoked(call), begun))
        for number, following in enumerate(history.followings):
            for commit, time in zip(following.commits, following.times, strict=True):
                if commit["revision"] < count:
                    told = f"follower {number} was told of {commit['revision']}"
                    before[commit["revision"]] = min(before[commit["revision"]], (time, told))
        self._after = list(accumulate(after, max))
        self._before = list(accumulate(reversed(before), min))[::-1]
        self.earliest = [time for time, _ in self._after]
        self.latest = [-NEVER, *(time for time, _ in self._before[1:])]

    def invoked(self, call: Call) -> float:
        """From when on what it was told may have become true.

        A write that is sent again may be told what became of it the first time. A refusal, or
        "nothing to do", says that it is of an earlier try; and that may be one that was told only
        that nothing was applied, as it didn't learn whether its key stood for that by then.
        """
        if not call.ask.writes:
            return call.invoked
        if call.outcome.kind in _DECIDED:
            return self._tried[call.ask.label] if call.outcome.replayed else call.invoked
        return self._first.get(call.ask.label, call.invoked)

    def violations(self) -> Iterator[Violation]:
        for (earliest, begun), (latest, told) in zip(
            self._after[1:], self._before[1:], strict=True
        ):
            if earliest > latest:
                yield Violation("order", f"{told}; {earliest - latest:.3f} s later {begun}")
                return

    def current(self, call: Call) -> range:
        """The revisions at which the catalog may have been at some moment during the call."""
        first = bisect_left(self.latest, self.invoked(call)) - 1
        return range(first, max(first + 1, bisect_right(self.earliest, call.returned)))


_SEEING = ("applied", "unchanged", "above", "commits", "read")


def _first_sent(calls: Iterable[Call]) -> dict[str, float]:
    """By the label of a write, when the first of these tries was sent."""
    first: dict[str, float] = {}
    for call in calls:
        if call.ask.writes:
            label = call.ask.label
            first[label] = min(first.get(label, NEVER), call.invoked)
    return first


def _sees_the_present(call: Call) -> bool:
    """Whether the outcome's revision is one that was the newest during the call."""
    if call.outcome.kind != "read":
        return call.outcome.kind != "applied"
    return call.ask.kind != "read-at" and (call.ask.kind != "list" or call.ask.revision is None)


def _check_call(ledger: Ledger, bounds: _Bounds, call: Call) -> Iterator[Violation]:
    outcome, ask = call.outcome, call.ask
    if outcome.kind == "unexpected":
        yield Violation("unexpected", outcome.detail)
    elif outcome.replayed and ask.idempotency_key is None:
        yield Violation("unexpected", "a replay without a key")
    elif outcome.revision > ledger.last:
        yield Violation("lost", f"told of {outcome.revision}, the log ends at {ledger.last}")
    elif outcome.kind == "applied":
        yield from _check_applied(ledger, call)
    elif outcome.kind == "unchanged":
        verdict = judge(ask, _unused(ledger, call, outcome.revision))
        if verdict.kind != "unchanged":
            yield Violation("untrue", f"at {outcome.revision} there was something to do")
    elif outcome.kind == "refused":
        current = bounds.current(call)
        if not any(_is_refused(ledger, call, revision) for revision in current):
            yield Violation("untrue", f"{outcome.code} {outcome.current} at none of {current}")
    elif outcome.kind == "commits":
        expected = [made.commit.id for made in ledger.log[ask.revision or 0 : outcome.revision]]
        if [each["commit_id"] for each in outcome.commits] != expected[: ask.limit]:
            yield Violation("read", f"the commits after {ask.revision} are others")
    elif outcome.kind in ("read", "absent", "above"):
        yield from _check_read(ledger, bounds, call)


def _check_applied(ledger: Ledger, call: Call) -> Iterator[Violation]:
    outcome, made = call.outcome, ledger.by_label.get(call.ask.label)
    if made is None:
        yield Violation("lost", f"was acknowledged at {outcome.revision}")
        return
    told = made.commit.revision, made.commit.id
    if told != (outcome.revision, outcome.commit_id):
        yield Violation("lost", f"was acknowledged at {outcome.revision}, and is {told}")
    state = ledger.state(made.commit.revision)
    doc = state.live(call.ask.key)
    if outcome.token is not None and (doc is None or doc.token != outcome.token):
        yield Violation("lost", f"{outcome.token} was told of {doc}")
    for key, told in outcome.documents.items():
        doc = state.live(key)
        if told != (doc and (doc.token, doc.content)):
            yield Violation("read", f"{told} was told of {key}, which was {doc}")


def _unused(ledger: Ledger, call: Call, revision: int) -> Any:
    """The state at ``revision``, before the call's own idempotency key was used."""
    key = call.ask.idempotency_key
    state = ledger.state(revision)
    return state if key is None else replace(state, fingerprints={})


def _is_refused(ledger: Ledger, call: Call, revision: int) -> bool:
    state = _unused(ledger, call, revision)
    verdict = judge(call.ask, state)
    return (verdict.kind, verdict.code) == ("refused", call.outcome.code) and all(
        _token(state.live(key)) == token for key, token in call.outcome.current.items()
    )


def _token(doc: Doc | None) -> str | None:
    return None if doc is None else doc.token


def _check_read(ledger: Ledger, bounds: _Bounds, call: Call) -> Iterator[Violation]:
    ask, outcome = call.ask, call.outcome
    asked = None if ask.kind == "read" else ask.revision
    if outcome.kind == "above":
        if asked is None or outcome.revision >= asked:
            yield Violation("read", f"{asked} was there at {outcome.revision}")
    elif outcome.kind == "absent":
        there = bounds.current(call) if asked is None else range(asked, asked + 1)
        if all(live(ledger.states[revision].get(ask.key)) for revision in there):
            yield Violation("read", f"it was there at all of {there}")
    elif asked is not None and outcome.revision != asked:
        yield Violation("read", f"{outcome.revision} was told for {asked}")
    else:
        yield from _check_documents(ask, outcome, ledger.states[outcome.revision])


def _check_documents(ask: Ask, outcome: Outcome, state: Mapping[str, Doc]) -> Iterator[Violation]:
    there = {key: doc for key, doc in state.items() if live(doc) is not None}
    if ask.kind in ("read", "read-at"):
        wanted = [key for key in there if key == ask.key]
    elif ask.kind == "several":
        wanted = [key for key in there if key in ask.keys]
    else:  # a page may be shorter than was asked for, but says so
        end = outcome.next
        wanted = [key for key in there if key > ask.after and (end is None or key <= end)]
        if len(wanted) > ask.limit or (end is not None and not wanted):
            yield Violation("read", f"{len(wanted)} documents on a page of {ask.limit}")
    told = {key: (there[key].token, there[key].content) for key in wanted}
    found = {key: each for key, each in outcome.documents.items() if each is not None}
    if found != told:
        yield Violation("read", f"{outcome.revision} has {told}, not {found}")
