#!/usr/bin/env python3
"""Whether recorded histories are linearizable. Needs Python 3.11 or later, and nothing else.

    python check_history.py FILE ... [--steps-max N]

A file is newline-delimited JSON, as docs/histories.md describes it. For each catalog of a file the
calls are put into one order: each at a moment between its invocation and its answer, each answer
true of the state that the calls before it leave. A call without an answer took effect once, at any
later moment, or never. The search is that of Wing and Gong, with Lowe's memory of what was tried.

Exit status: 0, every history is linearizable; 1, one isn't; 2, a file can't be read; 3, the search
was given up after N steps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

FOREVER = float("inf")
STEPS_MAX = 5_000_000


class Malformed(Exception):
    """The file isn't a history."""


class Misfit(Exception):
    """A patch doesn't fit a document."""


class Impossible(Exception):
    """A call can't come next; `str()` says why: most are raised and never shown."""

    def __str__(self) -> str:
        said, *values = self.args
        return str(said).format(*map(_brief, values))


class GivenUp(Exception):
    """The search took too many steps."""


# --- documents and patches (RFC 6902) -----------------------------------------------------------


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def patched(document: Any, operations: Sequence[dict[str, Any]]) -> Any:
    """The document after all operations; the one that was passed stays as it is. Raises Misfit."""
    for each in operations:
        try:
            document = _operated(document, each)
        except (KeyError, TypeError, ValueError) as error:
            raise Misfit(f"malformed operation {each}") from error
    return document


def _operated(document: Any, operation: dict[str, Any]) -> Any:
    op, path = operation["op"], _tokens(operation["path"])
    if op == "test":
        if digest(_at(document, path)) != digest(operation["value"]):
            raise Misfit(f"the test of {operation['path']} is false")
        return document
    if op == "remove":
        return _removed(document, path)
    if op == "replace":
        _at(document, path)
        return _put(document, path, operation["value"], is_new=False)
    if op == "add":
        return _put(document, path, operation["value"], is_new=True)
    if op not in ("move", "copy"):
        raise Misfit(f"unknown operation {op}")
    source = _tokens(operation["from"])
    value = _at(document, source)
    if op == "move":
        if path[: len(source)] == source and path != source:
            raise Misfit("moved into itself")
        document = _removed(document, source)
    return _put(document, path, value, is_new=True)


def _tokens(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise Misfit(f"{pointer} is no pointer")
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]


def _at(value: Any, path: Sequence[str]) -> Any:
    for token in path:
        value = value[_place(value, token)]
    return value


def _place(value: Any, token: str, *, end: int = 0) -> Any:
    """The key or index that a token names; `end`: how far behind the last item it may lie."""
    if isinstance(value, dict):
        if token not in value and not end:
            raise Misfit(f"there is no {token}")
        return token
    if isinstance(value, list):
        if token == "-" and end:
            return len(value)
        is_index = token.isdecimal() and token.isascii() and (token == "0" or token[0] != "0")
        if is_index and int(token) < len(value) + end:
            return int(token)
    raise Misfit(f"there is no {token}")


def _within(document: Any, path: Sequence[str], change: Callable[[Any, str], Any]) -> Any:
    """A copy whose container of the last token is what `change` makes of it."""
    if len(path) == 1:
        return change(document, path[0])
    place = _place(document, path[0])
    copy = document.copy()
    copy[place] = _within(document[place], path[1:], change)
    return copy


def _put(document: Any, path: Sequence[str], value: Any, *, is_new: bool) -> Any:
    def put(container: Any, token: str) -> Any:
        place = _place(container, token, end=int(is_new))
        copy = container.copy()
        if is_new and isinstance(copy, list):
            copy.insert(place, value)
        else:
            copy[place] = value
        return copy

    return value if not path else _within(document, path, put)


def _removed(document: Any, path: Sequence[str]) -> Any:
    def remove(container: Any, token: str) -> Any:
        place = _place(container, token)
        copy = container.copy()
        del copy[place]
        return copy

    if not path:
        raise Misfit("a document can't be removed by a patch")
    return _within(document, path, remove)


# --- calls --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Call:
    """`kind` is that of its answer: "ok", "fail" (certainly nothing was applied) or "info" (nobody
    knows). `time` and `end` are places in the order of events."""

    line: int
    time: float
    asked: dict[str, Any]
    kind: str = "info"
    end: float = FOREVER
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        return bool(self.asked["f"] == "write")

    @property
    def key(self) -> str | None:
        key: str | None = self.asked.get("idempotency_key")
        return key

    @property
    def outcome(self) -> str | None:
        outcome: str | None = self.answer.get("outcome")
        return outcome

    def __str__(self) -> str:
        asked = {k: v for k, v in self.asked.items() if k not in ("f", "type", "time", "catalog")}
        return f"line {self.line}: {self.asked['f']} {_brief(asked)}"


def _wish(asked: dict[str, Any]) -> list[Any]:
    return [asked.get("if", []), asked["then"]]


def _brief(value: Any, length: int = 300) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= length else f"{text[:length]}…"


def _number(text: str) -> float | int:
    """1.0 is 1."""
    number = float(text)
    return int(number) if number.is_integer() else number


def read_history(lines: Iterable[str]) -> dict[str, list[Call]]:
    """By catalog, in the order of invocation. Raises Malformed."""
    calls: dict[str, list[Call]] = {}
    open_calls: dict[Any, Call] = {}
    answered: dict[Any, Call] = {}
    busy: set[Any] = set()
    keys: dict[Any, str] = {}
    before = -FOREVER
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line, parse_float=_number)
            kind, moment = event["type"], event["time"]
            if moment < before:
                raise Malformed(f"line {number}: an event before the one above it")
            before = moment
            if kind == "invoke":
                call = Call(number, number, event)
                if event["call"] in open_calls or event["call"] in answered:
                    raise Malformed(f"line {number}: call {event['call']} is there twice")
                if event["process"] in busy:
                    raise Malformed(f"line {number}: process {event['process']} has a call already")
                busy.add(event["process"])
                if event["f"] not in _STEPS:
                    raise Malformed(f"line {number}: {event['f']} is no kind of call")
                if call.key is not None:
                    key, asked = (event.get("catalog"), call.key), digest(_wish(event))
                    if keys.setdefault(key, asked) != asked:
                        raise Malformed(f"line {number}: another write under the key {call.key}")
                open_calls[event["call"]] = call
                calls.setdefault(event.get("catalog", ""), []).append(call)
            elif kind in ("ok", "fail", "info"):
                call = open_calls.pop(event["call"])
                busy.discard(call.asked["process"])
                for told in event.get("documents", {}).values():
                    if told is not None and "value" in told:
                        told["digest"] = digest(told["value"])
                end = FOREVER if kind == "info" else number
                answered[event["call"]] = replace(call, kind=kind, end=end, answer=event)
            elif kind not in ("begin", "fault"):
                raise Malformed(f"line {number}: {kind} is no type of event")
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed(f"line {number}: {error!r}") from error
    return {
        catalog: [answered.get(each.asked["call"], each) for each in made]
        for catalog, made in calls.items()
    }


# --- what a catalog does ------------------------------------------------------------------------


@dataclass(frozen=True)
class Doc:
    """`token`: None until somebody was told of it."""

    value: Any
    digest: str
    token: str | None = None


Docs = dict[str, Doc]


@dataclass(frozen=True)
class Commit:
    """What one write left."""

    revision: int
    message: str | None
    docs: Docs
    before: Commit | None


@dataclass(frozen=True)
class State:
    """`decided`: by idempotency key, what it stands for: an outcome, and its revision or reason."""

    last: Commit
    decided: dict[str, tuple[str, Any]] = field(default_factory=dict)

    @property
    def docs(self) -> Docs:
        return self.last.docs

    @property
    def revision(self) -> int:
        return self.last.revision

    def at(self, revision: int | None) -> Commit:
        """The newest one for None. Raises Impossible where it isn't made yet."""
        commit: Commit | None = self.last
        if revision is None:
            return self.last
        while commit is not None and commit.revision > revision:
            commit = commit.before
        if commit is None or commit.revision != revision:
            raise Impossible("revision {} isn't there, the newest is {}", revision, self.revision)
        return commit


EMPTY = State(Commit(0, None, {}, None))


def step(state: State, call: Call) -> State:
    """The state after the call, if it can come next. Raises Impossible."""
    return _STEPS[call.asked["f"]](state, call)


def _require_revision(state: State, answer: dict[str, Any]) -> None:
    told = answer.get("revision")
    if told is not None and told != state.revision:
        raise Impossible("it got revision {}, but the revision is {}", told, state.revision)


def _read(state: State, call: Call) -> State:
    answer, at = call.answer, call.asked.get("at")
    if "newest" in answer:
        if answer["newest"] != state.revision or state.revision >= at:
            raise Impossible(
                "the answer says that {} is above the newest revision, {}", at, answer["newest"]
            )
        return state
    if at is None:
        _require_revision(state, answer)
    docs = state.at(at).docs
    told = answer["documents"]
    for key in call.asked["keys"]:
        _require_read(key, docs.get(key), told.get(key))
    return _learnt(state, told) if at is None else state


def _list(state: State, call: Call) -> State:
    """Keys are listed in the order of their code points."""
    asked, answer, at = call.asked, call.answer, call.asked.get("at")
    if at is None:
        _require_revision(state, answer)
    docs, told, end = state.at(at).docs, answer["documents"], answer.get("next")
    after = asked.get("after") or ""
    wanted = {key for key in docs if key > after and (end is None or key <= end)}
    if wanted != told.keys():
        raise Impossible("it lists {}, but there are {}", sorted(told), sorted(wanted))
    for key in wanted:
        _require_read(key, docs[key], told[key])
    return _learnt(state, told) if at is None else state


def _log(state: State, call: Call) -> State:
    asked, answer = call.asked, call.answer
    _require_revision(state, answer)
    told = [(each["revision"], each["message"]) for each in answer["commits"]]
    there: list[tuple[int, str | None]] = []
    commit: Commit | None = state.last
    while commit is not None and commit.revision > asked["after"]:
        there.append((commit.revision, commit.message))
        commit = commit.before
    there = there[::-1][: asked.get("limit") or len(there)]
    if told != there:
        raise Impossible("it lists the commits {}, but there are {}", told, there)
    return state


def _require_read(key: str, doc: Doc | None, told: dict[str, Any] | None) -> None:
    if doc is None or told is None:
        if doc is not None or told is not None:
            there = None if doc is None else doc.value
            raise Impossible("it got {} for {}, which is {}", told, key, there)
        return
    if "value" in told and told["digest"] != doc.digest:
        raise Impossible("it got {} for {}, which is {}", told["value"], key, doc.value)
    token = told.get("token")
    if token is not None and doc.token is not None and token != doc.token:
        raise Impossible("it got the token {} for {}, which has {}", token, key, doc.token)


def _learnt(state: State, told: dict[str, Any]) -> State:
    """With the version tokens that nobody was told of before."""
    docs = {
        key: replace(doc, token=told[key]["token"])
        for key, doc in state.docs.items()
        if doc.token is None and (told.get(key) or {}).get("token") is not None
    }
    return state if not docs else replace(state, last=replace(state.last, docs=state.docs | docs))


def _write(state: State, call: Call) -> State:
    key = call.key
    if key is not None and key in state.decided:
        return _replay(state, call, state.decided[key])
    if call.answer.get("replayed"):
        raise Impossible("it got the answer of an earlier try, but there is none")
    told, revision = call.answer.get("revision"), state.revision
    if told is not None and told != revision + (call.outcome == "applied"):
        raise Impossible(
            "it got {} at {}, but the revision before it is {}", call.outcome, told, revision
        )
    outcome, docs, reason = judged(state.docs, call.asked)
    if call.outcome is not None and call.outcome != outcome:
        raise Impossible("it got {}, but would be {} ({})", call.outcome, outcome, reason)
    if call.kind == "fail" and outcome == "applied":
        raise Impossible("it certainly wasn't applied")
    after = state
    if outcome == "applied":
        after = _committed(state, call, docs)
    elif outcome == "refused":
        _require_refusal(state, call, reason)
    for each, got in call.answer.get("documents", {}).items():
        _require_read(each, after.docs.get(each), got)
    if key is None:
        return after
    stands = reason if outcome == "refused" else after.revision
    return replace(after, decided=state.decided | {key: (outcome, stands)})


def _replay(state: State, call: Call, stands: tuple[str, Any]) -> State:
    """A key decides once."""
    outcome, about = stands
    told = call.answer.get("revision")
    if outcome == "refused":
        told = _REASONS.get(call.answer.get("code", ""))
    if call.outcome not in (None, outcome) or (None not in (told, about) and told != about):
        raise Impossible("it got {} {}, but its key decided {}", call.outcome, told, stands)
    return state


# By the code of a refusal, what has to be false; any refusal will do for others.
_REASONS = {
    "precondition_failed": "condition",
    "compare_failed": "condition",
    "test_failed": "patch",
    "path_missing": "patch",
    "document_not_found": "missing",
}


def _require_refusal(state: State, call: Call, reason: str) -> None:
    expected = _REASONS.get(call.answer.get("code", ""), reason)
    if expected != reason:
        raise Impossible("it got {}, but its {} is what is false", call.answer["code"], reason)
    for key, token in call.answer.get("current", {}).items():
        _require_read(key, state.docs.get(key), None if token is None else {"token": token})


def judged(docs: Docs, asked: dict[str, Any]) -> tuple[str, Docs, str]:
    """The outcome, the documents after it, and why it is one."""
    failed = [each for each in asked.get("if", ()) if not _holds(each, docs)]
    after = dict(docs)
    try:
        for action in asked["then"]:
            _act(action, after)
    except Misfit as error:
        return ("refused", docs, "condition") if failed else ("refused", docs, str(error.args[0]))
    is_same = after.keys() == docs.keys() and all(doc is docs[key] for key, doc in after.items())
    if failed:
        # What was done already may say so, where its own success alone makes it false.
        own = {each["key"] for each in asked["then"] if each["action"] != "get"}
        if is_same and all("tokens" not in each and each["key"] in own for each in failed):
            return "unchanged", docs, "it was done before"
        return "refused", docs, "condition"
    return ("unchanged", docs, "same") if is_same else ("applied", after, "different")


def _holds(condition: dict[str, Any], docs: Docs) -> bool:
    doc = docs.get(condition["key"])
    if condition.get("absent"):
        return doc is None
    if doc is None:
        return False
    if "tokens" in condition:
        return "*" in condition["tokens"] or doc.token in condition["tokens"]
    return digest(condition["equals"]) == doc.digest


def _act(action: dict[str, Any], docs: Docs) -> None:
    """Raises Misfit with the kind of reason."""
    deed, key = action["action"], action["key"]
    if deed == "get":
        return
    if deed == "put":
        docs[key] = _made(action["value"], docs.get(key))
        return
    if key not in docs:
        raise Misfit("missing")
    if deed == "delete":
        del docs[key]
        return
    if deed != "patch":
        raise Malformed(f"{deed} is no action")
    try:
        docs[key] = _made(patched(docs[key].value, action["patch"]), docs[key])
    except Misfit:
        raise Misfit("patch") from None


def _made(value: Any, before: Doc | None) -> Doc:
    made = Doc(value, digest(value))
    return before if before is not None and before.digest == made.digest else made


def _committed(state: State, call: Call, docs: Docs) -> State:
    message = call.asked.get("message")
    made = replace(state, last=Commit(state.revision + 1, message, docs, state.last))
    return _learnt(made, call.answer.get("documents", {}))


_STEPS: dict[str, Callable[[State, Call], State]] = {
    "read": _read,
    "list": _list,
    "log": _log,
    "write": _write,
}


# --- the search ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A beginning of an order: all known calls before `base`, those behind it whose bits are set in
    `beyond`, and of the unknown ones those in `used`. `chain` numbers the orders of commits."""

    base: int
    beyond: int
    used: int
    state: State
    chain: int = 0

    @property
    def placed(self) -> int:
        return self.base + self.beyond.bit_count()


class Search:
    """For an order of the calls of one catalog. `steps` counts what was tried."""

    def __init__(self, calls: Sequence[Call], steps_max: int = STEPS_MAX) -> None:
        self.known = sorted((c for c in calls if c.kind == "ok"), key=lambda call: call.time)
        self.unknown = [c for c in calls if c.writes and c.kind != "ok" and _may_matter(c)]
        self.steps = 0
        self.furthest = Node(0, 0, 0, EMPTY)
        self._steps_max = steps_max
        self._answers: dict[str, set[str | None]] = {}
        self._owners: dict[int, set[Any]] = {}
        for call in self.known:
            self._note(call)
        self._looks_back = any("at" in c.asked or c.asked["f"] == "log" for c in self.known)
        self._chains: dict[tuple[int, int], int] = {}

    def _note(self, call: Call) -> None:
        """Which revision belongs to which write, by anybody's account, and what keys stand for."""
        if call.outcome == "applied" and "revision" in call.answer:
            self._owners.setdefault(call.answer["revision"], set()).update(_names(call))
        for told in call.answer.get("commits", ()):
            if told["message"] is not None:
                self._owners.setdefault(told["revision"], set()).add(("message", told["message"]))
        if call.key is not None:
            self._answers.setdefault(call.key, set()).add(call.outcome)

    def order_exists(self) -> bool:
        """Raises GivenUp. What has a place for most known calls, and for fewest unknown ones, is
        continued first: an unknown one that took effect is seen soon as a rule."""
        tried: set[Any] = set()
        heap = [(0, 0, 0, self.furthest)]
        count = 0
        while heap:
            *_, node = heappop(heap)
            node = self._with_all_that_change_nothing(node)
            if node.placed > self.furthest.placed:
                self.furthest = node
            if node.base == len(self.known):
                return True
            identity = _identity(node)
            if identity in tried:
                continue
            tried.add(identity)
            for after in self._next(node):
                count += 1
                heappush(heap, (-after.placed, after.used.bit_count(), count, after))
        return False

    def candidates(self, node: Node) -> tuple[list[int], float]:
        """The known calls that may come next, and the first answer among them: what was invoked
        later has to come later."""
        found, limit = [], FOREVER
        for number in range(node.base, len(self.known)):
            call = self.known[number]
            if call.time > limit:
                break
            if not node.beyond >> (number - node.base) & 1:
                found.append(number)
                limit = min(limit, call.end)
        return found, limit

    def _with_all_that_change_nothing(self, node: Node) -> Node:
        """What is true now and changes nothing can as well come now as later."""
        is_done = False
        while not is_done:
            is_done = True
            for number in self.candidates(node)[0]:
                if self._after(node, self.known[number]) is node.state:
                    node, is_done = self._placed(node, number, node.state), False
        return node

    def _after(self, node: Node, call: Call) -> State | None:
        self.steps += 1
        if self.steps > self._steps_max:
            raise GivenUp
        try:
            return step(node.state, call)
        except Impossible:
            return None

    def _next(self, node: Node) -> Iterator[Node]:
        numbers, limit = self.candidates(node)
        if any(self._is_late(node.state, self.known[number]) for number in numbers):
            return
        numbers.sort(key=lambda number: self.known[number].end)
        for number in numbers:
            after = self._after(node, self.known[number])
            if after is not None:
                yield self._placed(node, number, after)
        yield from self._unknown_next(node, limit)

    def _is_late(self, state: State, call: Call) -> bool:
        """Whether its revision has passed."""
        told = call.answer.get("revision")
        if told is None or "at" in call.asked or call.key in state.decided:
            return False
        return bool(told < state.revision + (call.outcome == "applied"))

    def _unknown_next(self, node: Node, limit: float) -> Iterator[Node]:
        tried: set[Any] = set()  # of several tries of one write the first will do
        for number, call in enumerate(self.unknown):
            if call.time > limit:
                return
            is_first = call.key is None or (call.key, call.kind) not in tried
            if node.used >> number & 1 or call.key in node.state.decided or not is_first:
                continue
            tried.add((call.key, call.kind))
            after = self._after(node, call)
            if after is not None and after is not node.state and self._may_be(call, after):
                chain = self._chain(node, call, after)
                yield replace(node, used=node.used | 1 << number, state=after, chain=chain)

    def _may_be(self, call: Call, after: State) -> bool:
        """Whether the outcome of an unknown call can matter, and is against nothing that is known:
        another's revision, or what its key is known to stand for."""
        outcome = "applied" if call.key is None else after.decided[call.key][0]
        answers = self._answers.get(call.key, {"applied"}) if call.key else {"applied"}
        owners = self._owners.get(after.revision) if outcome == "applied" else None
        return outcome in answers and (owners is None or not owners.isdisjoint(_names(call)))

    def _placed(self, node: Node, number: int, state: State) -> Node:
        base, beyond = node.base, node.beyond | 1 << (number - node.base)
        while beyond & 1:
            base, beyond = base + 1, beyond >> 1
        return Node(base, beyond, node.used, state, self._chain(node, self.known[number], state))

    def _chain(self, node: Node, call: Call, after: State) -> int:
        if not self._looks_back or after.revision == node.state.revision:
            return node.chain
        return self._chains.setdefault((node.chain, call.line), len(self._chains) + 1)


def _may_matter(call: Call) -> bool:
    """What certainly wasn't applied can only have decided what its key stands for."""
    return call.kind == "info" or call.key is not None


def _names(call: Call) -> set[tuple[str, Any]]:
    """Of the write that it is a try of."""
    named = {"message": call.asked.get("message"), "key": call.key}
    names = {(of, name) for of, name in named.items() if name is not None}
    return names or {("call", call.asked["call"])}


def _identity(node: Node) -> Any:
    docs = sorted((key, doc.digest, doc.token or "") for key, doc in node.state.docs.items())
    decided = frozenset(node.state.decided.items())
    revision = node.state.revision
    return node.base, node.beyond, node.used, node.chain, revision, tuple(docs), decided


# --- the command --------------------------------------------------------------------------------


def explain(search: Search) -> Iterator[str]:
    """Why there is no order: how far the longest one gets, and why no call can follow it."""
    node = search.furthest
    yield (
        f"  {node.placed} of {len(search.known)} calls have a place, up to revision "
        f"{node.state.revision}. After them, one of these had to come:"
    )
    for number in search.candidates(node)[0]:
        call = search.known[number]
        try:
            step(node.state, call)
            why = "it can come next, but then another can't"
        except Impossible as impossible:
            why = str(impossible)
        yield f"    {call}\n      {why}"


def check(calls: Sequence[Call], steps_max: int = STEPS_MAX) -> list[str]:
    """Why the calls of one catalog aren't linearizable; nothing where they are. Raises GivenUp."""
    search = Search(calls, steps_max)
    reused = list(_tokens_of_two_values(search.known))
    if reused:
        return reused
    return [] if search.order_exists() else list(explain(search))


def _tokens_of_two_values(calls: Iterable[Call]) -> Iterator[str]:
    """A version token stands for one value of one document, for ever."""
    stands: dict[tuple[str, str], tuple[str, Call]] = {}
    for call in calls:
        for key, told in call.answer.get("documents", {}).items():
            if told is None or told.get("token") is None or "digest" not in told:
                continue
            value, first = stands.setdefault((key, told["token"]), (told["digest"], call))
            if value != told["digest"]:
                yield f"  the token {told['token']} of {key} has two values:"
                yield from (f"    {each}" for each in (first, call))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Whether recorded histories are linearizable.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--steps-max", type=int, default=STEPS_MAX, metavar="N")
    parsed = parser.parse_args(arguments)
    worst = 0
    for path in parsed.files:
        try:
            with open(path, encoding="utf-8") as file:
                history = read_history(file)
        except (OSError, Malformed) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        for catalog, calls in history.items():
            worst = max(worst, _report(path, catalog, calls, parsed.steps_max))
    return worst


def _report(path: str, catalog: str, calls: Sequence[Call], steps_max: int) -> int:
    begun = time.monotonic()
    try:
        wrong, status = check(calls, steps_max), 0
    except GivenUp:
        wrong, status = [], 3
    kinds = [call.kind for call in calls]
    said = "given up" if status else "NOT linearizable" if wrong else "linearizable"
    print(
        f"{path}: catalog {catalog!r}: {said}. {len(calls)} calls, {kinds.count('info')} of them "
        f"with an unknown outcome, {time.monotonic() - begun:.1f} s"
    )
    for line in wrong:
        print(line)
    return status or int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
