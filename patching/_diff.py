"""The patch that leads from one document to another. The items that two arrays have in common, in
order, are found as in Myers, An O(ND) Difference Algorithm, 1986."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from patching.errors import DEFAULT_LIMITS, LimitExceeded, Limits
from patching.list_rules import NO_LISTS, ArraySet, ListRule, Lists, by_name
from patching.values import ABSENT, Document, Json, encoded_bytes, equal, exceeds_bytes

# Comparing this many bytes of JSON text takes as long as examining one member or item.
_BYTES_PER_VALUE = 16


def diff(
    a: Document,
    b: Document,
    *,
    compact: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    examined_max: int | None = None,
    lists: Lists = NO_LISTS,
) -> list[dict[str, Json]]:
    """Returns a patch as decoded JSON with `equal(apply(a, diff(a, b)), b)`; [] if and only if they
    are equal.

    Equality is that of `equal`: 1 and 1.0 need no operation, so `apply` keeps the number of `a`,
    while `true` and 1 differ. The patch holds values of `b` itself, not copies. It has only `add`,
    `remove` and `replace`, in an order that depends on nothing but `a` and `b`. From `ABSENT` it is
    an `add` at "", to `ABSENT` a `remove` at "".

    `compact` replaces a value as a whole if that takes fewer bytes than changing it part by part,
    and the whole document if `limits.operations_max` would be passed: right for a record of what
    happened. Don't *send* such a patch, for replacing an object undoes what others have added to it
    since. With `compact=False` an object is never replaced by an object, nor an array that holds
    containers by an array, and the number of operations isn't bounded.

    Arrays: common ends are trimmed, then a longest common subsequence is kept if the arrays are at
    most 256 insertions and removals apart; otherwise, items are compared by position. Below
    `limits.depth_max`, values that differ are replaced.

    Items of `lists` are matched by key, wherever they are; their order doesn't matter. The
    patch is then an extended one, for `apply_extended` with the same lists: it names items by key
    and uses `add_to_set` and `pull`. The result is `b` except for the order of the items: those of
    `a` come first. Two such patches that change different items don't get in each other's way.
    `compact` then replaces nothing that contains lists. A list that in `a` or `b` has two items
    with one key, or an item without a key, is replaced.

    Raises LimitExceeded (`items_examined_max`) if more than `examined_max` members and items would
    be examined. Items of arrays count each time."""
    if a is ABSENT:
        return [] if b is ABSENT else [{"op": "add", "path": "", "value": b}]
    if b is ABSENT:
        return [{"op": "remove", "path": ""}]
    changes = _Changes(compact, limits, examined_max)
    changes.between("", a, b, 0, lists)
    if compact and len(changes.operations) > limits.operations_max:
        return [{"op": "replace", "path": "", "value": b}]
    return changes.operations


class _Changes:
    """The operations so far, and their size as compact JSON."""

    def __init__(self, compact: bool, limits: Limits, examined_max: int | None) -> None:
        self.examined = 0
        self.examined_max = examined_max
        self.operations: list[dict[str, Json]] = []
        self.bytes = 0
        self.compact = compact
        self.depth_max = limits.depth_max

    def examine(self, count: int) -> None:
        self.examined += count
        if self.examined_max is not None and self.examined > self.examined_max:
            raise LimitExceeded("items_examined_max", self.examined_max, self.examined)

    def examine_arrays(self, a: list[Any], b: list[Any]) -> None:
        """Counts two arrays, with everything in them, before their ends are compared."""
        if self.examined_max is None:
            return
        self.examine(len(a) + len(b))
        if _holds_containers(a) and _holds_containers(b):
            self.examine((encoded_bytes(a) + encoded_bytes(b)) // _BYTES_PER_VALUE)

    def examine_middles(self, a: int, b: int) -> None:
        """Counts the search in arrays of these lengths, the square of a distance, beforehand."""
        if a and b:
            self.examine(a + b + min(a + b, DISTANCE_MAX) ** 2 // 4)

    def emit(self, operation: dict[str, Json]) -> None:
        self.operations.append(operation)
        self.bytes += encoded_bytes(operation) + 1

    def between(self, path: str, a: Json, b: Json, level: int, lists: Lists) -> None:
        """Emits the operations that turn `a`, at `path`, into `b`."""
        if a is b:
            return
        rule = lists.rule if lists.rules else None
        if rule is not None:
            if isinstance(a, list) and isinstance(b, list):
                self.listed(path, a, b, level + 1, lists, rule)
            elif not equal(a, b):  # pointers below it would be read as keys of items
                self.emit({"op": "replace", "path": path, "value": b})
            return
        mark = len(self.operations), self.bytes
        if isinstance(a, dict) and isinstance(b, dict) and level < self.depth_max:
            self.objects(path, a, b, level + 1, lists)
            if self.compact and not lists.rules:
                self.prefer_replace(mark, path, b)
        elif isinstance(a, list) and isinstance(b, list) and level < self.depth_max:
            self.arrays(path, a, b, level + 1, lists)
            if not lists.rules and (self.compact or not _holds_containers(a)):
                self.prefer_replace(mark, path, b)
        elif not equal(a, b):
            self.emit({"op": "replace", "path": path, "value": b})

    def objects(
        self, path: str, a: dict[str, Any], b: dict[str, Any], level: int, lists: Lists
    ) -> None:
        self.examine(len(a) + len(b))
        for name in a:
            if name not in b:
                self.emit({"op": "remove", "path": _below(path, name)})
        for name, value in b.items():
            if name in a:
                if a[name] is not value:  # before its path is built: most members are shared
                    below = lists.below(name) if lists.rules else NO_LISTS
                    self.between(_below(path, name), a[name], value, level, below)
            else:
                self.emit({"op": "add", "path": _below(path, name), "value": value})

    def arrays(self, path: str, a: list[Any], b: list[Any], level: int, lists: Lists) -> None:
        self.examine_arrays(a, b)
        start, end_a, end_b = _trimmed(a, b)
        middle_a, middle_b = a[start:end_a], b[start:end_b]
        self.examine_middles(len(middle_a), len(middle_b))
        kept = common_items(middle_a, middle_b)
        kept.append((len(middle_a), len(middle_b)))
        position = start
        done_a = done_b = 0
        for next_a, next_b in kept:
            gap_a, gap_b = middle_a[done_a:next_a], middle_b[done_b:next_b]
            for old, new in zip(gap_a, gap_b, strict=False):
                below = lists.below(str(position)) if lists.rules else NO_LISTS
                self.between(f"{path}/{position}", old, new, level, below)
                position += 1
            for _ in gap_a[len(gap_b) :]:
                self.emit({"op": "remove", "path": f"{path}/{position}"})
            for new in gap_b[len(gap_a) :]:
                self.emit({"op": "add", "path": f"{path}/{position}", "value": new})
                position += 1
            position += 1  # past the item that is kept
            done_a, done_b = next_a + 1, next_b + 1

    def listed(
        self, path: str, a: list[Any], b: list[Any], level: int, lists: Lists, rule: ListRule
    ) -> None:
        """Emits removals first, then additions and changes in the order of `b`."""
        self.examine_arrays(a, b)
        before, after = (by_name(each, rule.address_of) for each in (a, b))
        if before is None or after is None or level > self.depth_max:
            if not equal(a, b):
                self.emit({"op": "replace", "path": path, "value": b})
            return
        is_set = isinstance(rule, ArraySet)
        for token, item in before.items():
            if token not in after and is_set:
                self.emit({"op": "pull", "path": path, "value": item})
            elif token not in after:
                self.emit({"op": "remove", "path": _below(path, token)})
        for token, item in after.items():
            if token not in before and is_set:
                self.emit({"op": "add_to_set", "path": path, "value": item})
            elif token not in before:
                self.emit({"op": "add", "path": _below(path, token), "value": item})
            elif not is_set:
                self.between(_below(path, token), before[token], item, level, lists.below(token))

    def prefer_replace(self, mark: tuple[int, int], path: str, b: Json) -> None:
        """Drops the operations since `mark` if replacing the whole value with `b` is shorter."""
        count, size = mark
        spent = self.bytes - size
        if not spent or exceeds_bytes(b, spent):  # don't measure what can't be shorter
            return
        whole: dict[str, Json] = {"op": "replace", "path": path, "value": b}
        if encoded_bytes(whole) + 1 < spent:
            del self.operations[count:]
            self.bytes = size
            self.emit(whole)


def _holds_containers(items: list[Any]) -> bool:
    return any(isinstance(item, dict | list) for item in items)


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def _trimmed(a: list[Any], b: list[Any]) -> tuple[int, int, int]:
    """Where the two begin to differ, and where each ends once the common end is cut off."""
    end_a, end_b = len(a), len(b)
    start = 0
    while start < end_a and start < end_b and equal(a[start], b[start]):
        start += 1
    while end_a > start and end_b > start and equal(a[end_a - 1], b[end_b - 1]):
        end_a -= 1
        end_b -= 1
    return start, end_a, end_b


DISTANCE_MAX = 256  # insertions and removals; the cost grows with the square: 10 ms at this one

_encode = msgspec.json.Encoder(order="sorted").encode


def common_items(a: list[Any], b: list[Any]) -> list[tuple[int, int]]:
    """A longest common subsequence of `a` and `b`, as ascending pairs of indexes.

    [] if they are more than 256 insertions and removals apart, so that the cost stays within
    (len(a) + len(b)) * 256. Items are the same if their JSON text is, ignoring the order of
    members; so 1 and 1.0 differ here, which makes a patch longer but not wrong."""
    if not a or not b or abs(len(a) - len(b)) > DISTANCE_MAX:
        return []
    numbers: dict[bytes | str, int] = {}
    keys_a = [numbers.setdefault(_text(item), len(numbers)) for item in a]
    keys_b = [numbers.setdefault(_text(item), len(numbers)) for item in b]
    rounds = _search(keys_a, keys_b)
    return _traced(rounds, len(a), len(b)) if rounds else []


def _text(item: Json) -> bytes | str:
    try:
        return _encode(item)
    except (UnicodeEncodeError, ValueError):  # lone surrogates
        return json.dumps(item, sort_keys=True)


def _search(a: list[int], b: list[int]) -> list[dict[int, int]]:
    """For each distance d, how far along `a` each diagonal (index in a minus index in b) was
    reached before the d-th edit; [] if `b` is too far from `a`."""
    furthest = {1: 0}
    rounds: list[dict[int, int]] = []
    last = len(a) - len(b)
    for distance in range(min(len(a) + len(b), DISTANCE_MAX) + 1):
        rounds.append(furthest.copy())
        for diagonal in range(-distance, distance + 1, 2):
            inserts = _inserts(furthest, diagonal, distance)
            x = furthest[diagonal + 1] if inserts else furthest[diagonal - 1] + 1
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x += 1
                y += 1
            furthest[diagonal] = x
            if diagonal == last and x >= len(a):
                return rounds
    return []


def _inserts(furthest: dict[int, int], diagonal: int, distance: int) -> bool:
    """Whether the path that goes furthest enters `diagonal` by an insertion, not by a removal."""
    if diagonal in (-distance, distance):
        return diagonal == -distance
    return furthest[diagonal - 1] < furthest[diagonal + 1]


def _traced(rounds: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """Walks the rounds back from the end and collects the steps that kept an item."""
    kept: list[tuple[int, int]] = []
    for distance in range(len(rounds) - 1, -1, -1):
        furthest = rounds[distance]
        diagonal = x - y
        inserts = _inserts(furthest, diagonal, distance)
        entered = furthest[diagonal + 1] if inserts else furthest[diagonal - 1] + 1
        while x > entered:
            x -= 1
            y -= 1
            kept.append((x, y))
        if inserts:
            y -= 1
        else:
            x -= 1
    kept.reverse()
    return kept
