"""Rule: the checker for strangers turns down what isn't linearizable, and nothing else."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.histories.check_history import (
    EMPTY,
    Call,
    GivenUp,
    Impossible,
    Malformed,
    Misfit,
    check,
    patched,
    read_history,
    step,
)

Event = dict[str, Any]
CHECKER = Path(__file__).with_name("check_history.py")


def history(*events: Event) -> list[Call]:
    """Of one catalog; each event at a moment of its own."""
    numbered = ({"time": number, **event} for number, event in enumerate(events))
    (calls,) = read_history(json.dumps(each) for each in numbered).values()
    return calls


def invoke(call: int, f: str = "write", process: int | None = None, **asked: Any) -> Event:
    made = {"type": "invoke", "call": call, "process": call if process is None else process}
    return {**made, "f": f, **asked}


def ok(call: int, **told: Any) -> Event:
    return {"type": "ok", "call": call, **told}


def fail(call: int) -> Event:
    return {"type": "fail", "call": call}


def one_by_one(*calls: tuple[Event, Event]) -> list[Call]:
    return history(*itertools.chain.from_iterable(calls))


def putting(call: int, value: Any, **asked: Any) -> Event:
    then = [{"action": "put", "key": "k", "value": value}]
    return invoke(call, message=f"m{call}", then=then, **asked)


def appending(call: int, value: Any, **asked: Any) -> Event:
    patch = [{"op": "add", "path": "/-", "value": value}]
    then = [{"action": "patch", "key": "k", "patch": patch}]
    return invoke(call, message=f"m{call}", then=then, **asked)


def reading(call: int) -> Event:
    return invoke(call, "read", keys=["k"])


def applied(call: int, revision: int, token: str | None = None, **told: Any) -> Event:
    documents = {"documents": {"k": {"token": token}}} if token else {}
    return ok(call, outcome="applied", revision=revision, **documents, **told)


def read(call: int, value: Any, revision: int | None = None, token: str | None = None) -> Event:
    told = {"value": value} | ({"token": token} if token else {})
    return ok(call, documents={"k": told}, **({} if revision is None else {"revision": revision}))


BEGIN = (putting(1, []), applied(1, 1, "a"))
TWO_APPENDS = (
    *BEGIN,
    *(appending(2, "x"), appending(3, "y"), applied(3, 2), applied(2, 3)),
    *(reading(4), read(4, ["y", "x"], 3, "c")),
)
KEYED = {"idempotency_key": "key"}
RIGHT: dict[str, list[Call]] = {
    "one after the other": history(*BEGIN, reading(2), read(2, [], 1, "a")),
    "two at once, in either order": history(*TWO_APPENDS),
    "an old value while the write is under way": history(
        *(*BEGIN, appending(2, "x"), reading(3), read(3, []), applied(2, 2))
    ),
    "the new value while the write is under way": history(
        *(*BEGIN, appending(2, "x"), reading(3), read(3, ["x"]), applied(2, 2))
    ),
    "unknown, and done later": history(
        *(*BEGIN, appending(2, "x"), {"type": "info", "call": 2}),
        *(reading(3), read(3, []), reading(4), read(4, ["x"])),
    ),
    "unknown, and never done": history(*BEGIN, appending(2, "x"), reading(3), read(3, [], 1)),
    "sent again under its key": history(
        *(*BEGIN, appending(2, "x", **KEYED), appending(3, "x", **KEYED)),
        *(applied(3, 2), applied(2, 2), reading(4), read(4, ["x"], 2)),
    ),
    "refused in a try that nobody was told of": history(
        *(*BEGIN, putting(2, 2, **{"if": [{"key": "k", "absent": True}]}, **KEYED), fail(2)),
        *(invoke(3, then=[{"action": "delete", "key": "k"}]), applied(3, 2)),
        putting(4, 2, **{"if": [{"key": "k", "absent": True}]}, **KEYED),
        ok(4, outcome="refused", code="precondition_failed", replayed=True),
    ),
    "a condition that is false": history(
        *BEGIN,
        putting(2, 2, **{"if": [{"key": "k", "tokens": ["b"]}]}),
        ok(2, outcome="refused", code="precondition_failed", current={"k": "a"}),
    ),
    "nothing to do": history(*BEGIN, putting(2, []), ok(2, outcome="unchanged", revision=1)),
    "the past": history(
        *(*BEGIN, appending(2, "x"), applied(2, 2)),
        *(invoke(3, "read", keys=["k"], at=1), read(3, [], 1)),
        *(invoke(4, "read", keys=["k"], at=3), ok(4, newest=2)),
    ),
    "a log": history(
        *(*BEGIN, appending(2, "x"), appending(3, "y"), applied(3, 3)),
        invoke(4, "log", after=1, limit=9),
        ok(
            4,
            revision=3,
            commits=[{"revision": 2, "message": "m2"}, {"revision": 3, "message": "m3"}],
        ),
    ),
    "a listing": history(
        *(*BEGIN, invoke(2, "list", after="", limit=9)),
        ok(2, revision=1, documents={"k": {"value": [], "token": "a"}}, next=None),
    ),
}
WRONG: dict[str, list[Call]] = {
    "a lost update": history(*TWO_APPENDS[:-1], read(4, ["x"], 3, "c")),
    "a lost update, though nobody told revisions": history(
        *(putting(1, []), ok(1, outcome="applied"), appending(2, "x"), appending(3, "y")),
        *(ok(2, outcome="applied"), ok(3, outcome="applied"), reading(4), read(4, ["y"])),
    ),
    "a stale read": history(*TWO_APPENDS[:-1], read(4, [], 1, "a")),
    "a stale read, though nobody told revisions": history(*TWO_APPENDS[:-1], read(4, ["y"])),
    "a read that goes back": history(
        *(*BEGIN, appending(2, "x"), reading(3), read(3, ["x"]), reading(4), read(4, [])),
    ),
    "a doubled apply": history(
        *(*BEGIN, appending(2, "x", **KEYED), appending(3, "x", **KEYED)),
        *(applied(3, 2), applied(2, 3), reading(4), read(4, ["x", "x"], 3)),
    ),
    "a doubled apply of an unknown write": history(
        *(*BEGIN, appending(2, "x"), reading(3), read(3, ["x", "x"]))
    ),
    "a read from the future": history(
        *(*BEGIN, reading(2), read(2, ["x"]), appending(3, "x"), applied(3, 2))
    ),
    "what failed is there": history(*BEGIN, appending(2, "x"), fail(2), reading(3), read(3, ["x"])),
    "a revision twice": history(
        *(*BEGIN, appending(2, "x"), appending(3, "y"), applied(2, 2), applied(3, 2))
    ),
    "an untrue refusal": history(
        *BEGIN,
        putting(2, 2, **{"if": [{"key": "k", "tokens": ["a"]}]}),
        ok(2, outcome="refused", code="precondition_failed"),
    ),
    "a refusal that tells another token": history(
        *BEGIN,
        putting(2, 2, **{"if": [{"key": "k", "tokens": ["b"]}]}),
        ok(2, outcome="refused", code="precondition_failed", current={"k": "c"}),
    ),
    "a false condition was let through": history(
        *BEGIN, putting(2, 2, **{"if": [{"key": "k", "tokens": ["b"]}]}), applied(2, 2)
    ),
    "untrue that there is nothing to do": history(
        *(*BEGIN, putting(2, 2), ok(2, outcome="unchanged", revision=1))
    ),
    "a replay without a first try": history(
        *(*BEGIN, appending(2, "x", **KEYED), applied(2, 2, replayed=True))
    ),
    "a token that comes back": history(
        *(*BEGIN, putting(2, 2), applied(2, 2, "b"), reading(3), read(3, 2, 2, "b")),
        *(putting(4, []), applied(4, 3, "c"), reading(5), read(5, [], 3, "b")),
    ),
    "another past": history(
        *(*BEGIN, appending(2, "x"), applied(2, 2)),
        *(invoke(3, "read", keys=["k"], at=1), read(3, ["x"], 1)),
    ),
    "a log without a commit": history(
        *(*BEGIN, appending(2, "x"), applied(2, 2), invoke(3, "log", after=0, limit=9)),
        ok(3, revision=2, commits=[{"revision": 1, "message": "m1"}]),
    ),
    "a log with another order": history(
        *TWO_APPENDS,
        invoke(5, "log", after=1, limit=9),
        ok(
            5,
            revision=3,
            commits=[{"revision": 2, "message": "m2"}, {"revision": 3, "message": "m3"}],
        ),
    ),
    "a listing that leaves a document out": history(
        *(*BEGIN, invoke(2, "list", after="", limit=9), ok(2, documents={}, next=None))
    ),
    "half a transaction": history(
        invoke(1, then=[{"action": "put", "key": key, "value": 1} for key in "ab"]),
        invoke(2, "read", keys=["a", "b"]),
        ok(2, documents={"a": {"value": 1}, "b": None}),
        ok(1, outcome="applied"),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_linearizable_history_is_accepted(name: str) -> None:
    assert check(RIGHT[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_history_that_is_not_linearizable_is_refused(name: str) -> None:
    assert check(WRONG[name])


def drawn(luck: random.Random) -> list[Call]:
    """A handful of calls on one register that overlap as it comes, with answers as they come."""
    events: list[Event] = []
    under_way: list[Event] = []
    for number in range(luck.randint(3, 6)):
        value = luck.randint(0, 2)
        once = putting(number, 1, idempotency_key="key")
        asked = luck.choice((putting(number, value), putting(number, value), reading(number), once))
        if luck.random() < 0.2 and asked["f"] == "write" and asked is not once:
            asked["if"] = [{"key": "k", "equals": luck.randint(0, 2)}]
        events.append(asked)
        under_way.append(asked)
        while under_way and luck.random() < 0.5:
            events.append(_some_answer(under_way.pop(luck.randrange(len(under_way))), luck))
    events += [_some_answer(each, luck) for each in under_way if luck.random() < 0.7]
    return history(*events)


def _some_answer(asked: Event, luck: random.Random) -> Event:
    number = asked["call"]
    if asked["f"] == "read":
        told = luck.choice((None, {"value": 0}, {"value": 1}, {"value": 2}))
        return ok(number, documents={"k": told})
    if luck.random() < 0.2:
        return luck.choice((fail(number), {"type": "info", "call": number}))
    outcome = luck.choice(("applied", "applied", "unchanged", "refused"))
    revision = {"revision": luck.randint(1, 3)} if luck.random() < 0.3 else {}
    return ok(number, outcome=outcome, **({} if outcome == "refused" else revision))


def has_an_order(calls: Sequence[Call]) -> bool:
    """By trying all orders of all answered calls and any of the others, without any cleverness."""
    known = [each for each in calls if each.kind == "ok"]
    others = [each for each in calls if each.kind != "ok" and each.writes]
    chosen = itertools.chain.from_iterable(
        itertools.combinations(others, count) for count in range(len(others) + 1)
    )
    orders = itertools.chain.from_iterable(
        itertools.permutations([*known, *some]) for some in chosen
    )
    return any(_is_right(order) for order in orders)


def _is_right(order: Iterable[Call]) -> bool:
    state, latest = EMPTY, -1.0
    for call in order:
        latest = max(latest, call.time)
        if call.kind == "ok" and call.end < latest:
            return False  # one that began after its answer comes before it
        try:
            state = step(state, call)
        except Impossible:
            return False
    return True


def test_the_search_agrees_with_exhaustive_search() -> None:
    verdicts = []
    for seed in range(400):
        calls = drawn(random.Random(seed))
        verdicts.append(not check(calls))
        assert verdicts[-1] == has_an_order(calls), f"seed {seed}"
    assert min(verdicts.count(True), verdicts.count(False)) > 25, "nothing was tested"


def test_many_unknown_writes_are_handled() -> None:
    """Fifty writes got no answer; every other one was applied."""
    appends = [appending(number, number, process=number) for number in range(2, 52)]
    reads: list[Event] = []
    for number in range(2, 52, 2):
        reads += [reading(100 + number), read(100 + number, list(range(2, number + 1, 2)))]
    calls = history(*BEGIN, *appends, *reads)
    assert check(calls, steps_max=20_000) == []
    with pytest.raises(GivenUp):
        check(calls, steps_max=10)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2"),
        ('{"type": "ok", "time": 1, "call": 7}', "line 2"),
        ('{"type": "surprise", "time": 1}', "surprise is no type"),
        ('{"type": "invoke", "time": 1, "call": 2, "process": 2, "f": "x"}', "x is no kind"),
        ('{"type": "invoke", "time": 1, "call": 1, "process": 2, "f": "read"}', "there twice"),
        ('{"type": "invoke", "time": 1, "call": 2, "process": 1, "f": "read"}', "has a call"),
        ('{"type": "fault", "time": -1}', "before the one above"),
    ],
)
def test_a_malformed_history_is_refused_with_its_line(line: str, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        read_history([json.dumps({"time": 0, **reading(1)}), line])


def test_a_key_may_be_used_for_one_write_only() -> None:
    with pytest.raises(Malformed, match="another write under the key key"):
        history(*BEGIN, appending(2, "x", **KEYED), appending(3, "y", **KEYED))


@pytest.mark.parametrize(
    ("patch", "after"),
    [
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2], "b": {}}),
        ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9], "b": {}}),
        ([{"op": "add", "path": "/b/c~1d", "value": 9}], {"a": [1, 2], "b": {"c/d": 9}}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2], "b": {}}),
        ([{"op": "replace", "path": "/a/1", "value": 9}], {"a": [1, 9], "b": {}}),
        ([{"op": "move", "from": "/a/0", "path": "/b/x"}], {"a": [2], "b": {"x": 1}}),
        ([{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1, 2], "b": [1, 2]}),
        ([{"op": "test", "path": "/a/0", "value": 1}], {"a": [1, 2], "b": {}}),
        ([{"op": "replace", "path": "", "value": 9}], 9),
        ([{"op": "test", "path": "/a/0", "value": True}], None),
        ([{"op": "remove", "path": "/a/2"}], None),
        ([{"op": "replace", "path": "/b/x", "value": 1}], None),
        ([{"op": "add", "path": "/a/01", "value": 1}], None),
        ([{"op": "add", "path": "/x/y", "value": 1}], None),
        ([{"op": "move", "from": "/b", "path": "/b/x"}], None),
        ([{"op": "conjure", "path": "/b"}], None),
    ],
)
def test_patches_follow_rfc_6902(patch: list[Event], after: Any) -> None:
    before = {"a": [1, 2], "b": {}}
    if after is None:
        with pytest.raises(Misfit):
            patched(before, patch)
    else:
        assert patched(before, patch) == after
    assert before == {"a": [1, 2], "b": {}}


def checked(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """By a Python that has nothing of what is installed here, and no package of the project."""
    command = (sys.executable, "-I", "-S", str(CHECKER), str(path), *options)
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def written(path: Path, events: Iterable[Event]) -> Path:
    numbered = ({"time": number, **event} for number, event in enumerate(events))
    path.write_text("".join(f"{json.dumps(each)}\n" for each in numbered))
    return path


def test_the_command_prints_where_the_order_breaks(tmp_path: Path) -> None:
    path = written(tmp_path / "history.ndjson", [*TWO_APPENDS[:-1], read(4, ["y"])])
    ended = checked(path)
    assert ended.returncode == 1
    assert "NOT linearizable" in ended.stdout
    assert 'line 7: read {"call": 4' in ended.stdout
    assert 'it got ["y"] for "k", which is ["y", "x"]' in ended.stdout


def test_the_exit_status_of_the_command_shows_the_result(tmp_path: Path) -> None:
    path = written(tmp_path / "history.ndjson", TWO_APPENDS)
    assert checked(path).returncode == 0
    assert checked(path, "--steps-max=1").returncode == 3
    assert checked(tmp_path / "none.ndjson").returncode == 2
    assert checked(written(tmp_path / "bad.ndjson", [{"type": "bad"}])).returncode == 2
