#!/usr/bin/env python3
"""What a history says of lists, for Elle and for Porcupine. Needs nothing but Python.

    python convert_history.py FILE ...    # writes FILE.elle.edn and FILE.porcupine.txt

Of the calls of docs/histories.md those are taken that only append to lists (`add` at `…/-`, `get`
beside it) or read documents as they are; of the lists those that nothing else writes, but for the
empty one in the beginning. All tries of a write under one idempotency key are one operation.

For Elle: a Jepsen history of the model `list-append`, in EDN, one operation a line. For Porcupine:
the log that its own tests read (`parseKvLog`), where an item is appended to a string; what one call
does to several lists is an operation of each list, by a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]
# A catalog, a document's key, and the pointer of a list in it.
Place = tuple[str, str, str]


@dataclass
class Mop:
    """One step of an operation: an item that is appended, or what was read (None: nothing)."""

    place: Place
    item: str | None = None
    items: list[str] | None = None


@dataclass
class Operation:
    """``kind`` as in Jepsen: ok, fail, info. Times are numbers of events."""

    process: int
    begun: int
    mops: list[Mop]
    ended: int = 0
    kind: str = "info"


@dataclass
class Lists:
    """The operations of a history, in the order of their beginnings, and its faults."""

    operations: list[Operation] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)  # of events, in nanoseconds


def lists_of(events: Sequence[Event]) -> Lists:
    calls = {e["call"]: e for e in events if e["type"] == "invoke"}
    answers = {e["call"]: e for e in events if e["type"] in ("ok", "fail", "info")}
    numbers = {id(event): number for number, event in enumerate(events)}
    places = _places(calls.values())
    found = Lists(times=[event["time"] for event in events])
    found.faults = [(numbers[id(e)], e["fault"]) for e in events if e["type"] == "fault"]
    under_way: dict[str, Operation] = {}
    for number, call in calls.items():
        answer = answers.get(number, {"type": "info"})
        mops = list(_mops(call, answer, places))
        if not mops or (call["f"] == "read" and answer["type"] != "ok"):
            continue
        operation = Operation(call["process"], numbers[id(call)], mops)
        key = call.get("idempotency_key")
        if key is not None:
            operation = under_way.setdefault(f"{call.get('catalog')} {key}", operation)
        if operation.kind == "ok":
            continue  # sent again though it was answered
        if operation.begun == numbers[id(call)]:
            found.operations.append(operation)
        _end(operation, mops, answer, numbers.get(id(answer), len(events)))
    _part_processes(found.operations)
    return found


def _end(operation: Operation, mops: list[Mop], answer: Event, ended: int) -> None:
    """If one try failed, the outcome of the tries before it stays unknown."""
    kind = answer["type"]
    if answer.get("outcome") == "refused":
        kind = "fail"
    if kind == "fail" and operation.ended and operation.kind == "info":
        kind = "info"
    operation.kind, operation.ended, operation.mops = kind, ended, mops


def _part_processes(operations: Iterable[Operation]) -> None:
    """A process whose operation has an unknown end does nothing more: the next one is another."""
    ended: dict[int, int] = {}
    for operation in operations:
        process = operation.process
        operation.process += 1000 * ended.get(process, 0)
        ended[process] = ended.get(process, 0) + (operation.kind == "info")


def _appended(action: Event) -> str | None:
    """The pointer of the list that an action appends to, if that is all that it does."""
    patch = action.get("patch", ())
    if action["action"] != "patch" or len(patch) != 1 or patch[0]["op"] != "add":
        return None
    list_, _, last = patch[0]["path"].rpartition("/")
    return list_ if last == "-" else None


def _places(calls: Iterable[Event]) -> set[Place]:
    appended: set[Place] = set()
    others: list[tuple[str, Event]] = []
    for call in calls:
        for action in call.get("then", ()):
            list_ = None if call.get("if") else _appended(action)
            if list_ is not None:
                appended.add((call.get("catalog", ""), action["key"], list_))
            elif action["action"] != "get":
                others.append((call.get("catalog", ""), action))
    return {p for p in appended if not any(_disturbs(action, p, c) for c, action in others)}


def _disturbs(action: Event, place: Place, catalog: str) -> bool:
    if (catalog, action["key"]) != place[:2]:
        return False
    if action["action"] == "put":
        return _list_at(action["value"], place[2]) != []
    if action["action"] != "patch":
        return True
    touched = [each[m] for each in action["patch"] for m in ("path", "from") if m in each]
    both = [(f"{one}/", f"{place[2]}/") for one in touched]
    return any(one.startswith(two) or two.startswith(one) for one, two in both)


def _list_at(value: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        if not isinstance(value, dict):
            return None
        value = value.get(token.replace("~1", "/").replace("~0", "~"))
    return value


def _mops(call: Event, answer: Event, places: set[Place]) -> Iterator[Mop]:
    """None where it does anything else. Reads come last: they show what the call leaves."""
    catalog, actions = call.get("catalog", ""), call.get("then", ())
    for action in actions:
        list_ = _appended(action)
        if action["action"] == "get":
            continue
        if list_ is None or call.get("if") or (catalog, action["key"], list_) not in places:
            return
        item = json.dumps(action["patch"][0]["value"], sort_keys=True)
        yield Mop((catalog, action["key"], list_), item)
    read = [each["key"] for each in actions if each["action"] == "get"]
    if call["f"] == "read" and "at" not in call:
        read = call["keys"]
    told = answer.get("documents", {})
    for key in read:
        for place in sorted(places):
            if place[:2] == (catalog, key) and "value" in (told.get(key) or {}):
                items = _list_at(told[key]["value"], place[2])
                yield Mop(place, None, [json.dumps(each, sort_keys=True) for each in items or ()])


class _Numbers:
    """A number for each item of a list: short, and unlike all others of the list."""

    def __init__(self) -> None:
        self._numbers: dict[Place, dict[str, int]] = {}

    def of(self, place: Place, item: str) -> int:
        known = self._numbers.setdefault(place, {})
        return known.setdefault(item, len(known) + 1)


def _name(place: Place) -> str:
    return json.dumps(" ".join(part for part in place if part))


def _events(lists: Lists) -> Iterator[tuple[int, bool, Operation]]:
    """Beginnings and ends in their order; what is unknown ends behind everything."""
    both = [(each.begun, False, each) for each in lists.operations]
    both += [(each.ended, True, each) for each in lists.operations]
    return iter(sorted(both, key=lambda each: each[0]))


def elle(lists: Lists) -> Iterator[str]:
    """The lines of a Jepsen history in EDN, for the model list-append."""
    numbers, nanoseconds = _Numbers(), [*lists.times, lists.times[-1]]

    def value(operation: Operation, *, is_told: bool) -> str:
        steps = []
        for mop in operation.mops:
            if mop.item is not None:
                steps.append(f"[:append {_name(mop.place)} {numbers.of(mop.place, mop.item)}]")
            elif is_told:
                items = " ".join(str(numbers.of(mop.place, each)) for each in mop.items or ())
                steps.append(f"[:r {_name(mop.place)} [{items}]]")
            else:
                steps.append(f"[:r {_name(mop.place)} nil]")
        return f"[{' '.join(steps)}]"

    told: list[tuple[int, str, str, str, str]] = [
        (when, "info", ":nemesis", json.dumps(what), ":fault") for when, what in lists.faults
    ]
    for when, is_end, each in _events(lists):
        kind = each.kind if is_end else "invoke"
        told.append((when, kind, str(each.process), value(each, is_told=kind == "ok"), ":txn"))
    for index, (when, kind, process, of, f) in enumerate(sorted(told, key=lambda each: each[0])):
        yield (
            f"{{:index {index}, :time {nanoseconds[when]}, :type :{kind}, "
            f":process {process}, :f {f}, :value {of}}}"
        )


def porcupine(lists: Lists) -> Iterator[str]:
    """The lines of a log of gets and appends; what has failed isn't there, what is unknown has no
    end."""
    numbers = _Numbers()
    for _, is_end, operation in _events(lists):
        if operation.kind == "fail" or (is_end and operation.kind == "info"):
            continue
        for step, mop in enumerate(operation.mops):
            f, value = "get", "nil"
            if mop.item is not None:
                f, value = "append", f'"{numbers.of(mop.place, mop.item)} "'
            elif operation.kind != "ok":
                continue
            elif is_end:
                items = "".join(f"{numbers.of(mop.place, each)} " for each in mop.items or ())
                value = f'"{items}"'
            yield (
                f"{{:process {100 * operation.process + step}, "
                f":type :{'ok' if is_end else 'invoke'}, "
                f":f :{f}, :key {_name(mop.place)}, :value {value}}}"
            )


def write_forms(path: Path) -> Iterator[Path]:
    """Beside the history at ``path``; the paths of what was written."""
    with path.open(encoding="utf-8") as file:
        lists = lists_of([json.loads(line) for line in file])
    for suffix, form in ((".elle.edn", elle), (".porcupine.txt", porcupine)):
        written = path.with_suffix(suffix)
        written.write_text("".join(f"{line}\n" for line in form(lists)), encoding="utf-8")
        yield written


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for form in write_forms(Path(name)):
            print(form)
