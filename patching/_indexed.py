"""Indexes into lists: an RFC 6902 patch may use only those that it has tested itself.

An index means the item that was there when the client read the document. By now it may be another
item's. So before an operation that addresses an item of a list by index, the patch needs a `test`
of that item: of its key, of the whole item, or of a value that contains it.

Worked example. /fields is keyed by `path`. In

    [{"op": "test", "path": "/fields/3/path", "value": "id"},
     {"op": "remove", "path": "/fields/0"},
     {"op": "replace", "path": "/fields/2/type", "value": "int"}]

the second operation is refused: nobody said which item is meant. With a test of /fields/0/path
before it the patch is good, and so is the third operation: by then the tested item is at 2. A test
that passes pins an item, not an index. Whatever else the list contains, this patch shifts pinned
items alike, because all that it inserts and removes is at a pinned item or an index of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from patching._predicates import Predicate
from patching.errors import IndexNeedsTest
from patching.list_rules import ArrayKeys, ArraySet, ItemKey, ListRule, Lists
from patching.operations import Add, Copy, Move, Operation, Remove, Replace, Test
from patching.pointers import Tokens, find, index_of, join_pointer
from patching.values import ABSENT, Document, Json

_MEMBER: Final = ""  # in addresses, stands for any member of a set: no list lies inside one


class _Step(NamedTuple):
    """An item of a list that a pointer leads through or to, by the index at position `at`."""

    address: Tokens
    rule: ListRule
    item: Json
    at: int


class _Addressed(Protocol):
    """Any operation of an extended patch."""

    @property
    def path(self) -> str: ...

    @property
    def tokens(self) -> Tokens: ...


class PinnedItems:
    """The items that one patch has pinned so far: by key, and members of sets by identity, so that
    large ones needn't be encoded."""

    def __init__(self, lists: Lists) -> None:
        self._lists = lists
        self._keys: set[tuple[Tokens, ItemKey]] = set()
        # of items with some key members still untested: the tested ones
        self._parts: dict[tuple[Tokens, ItemKey], set[Tokens]] = {}
        # the references keep the ids from being used again
        self._members: dict[tuple[Tokens, int], Json] = {}

    def require(self, root: Document, operation: Operation, position: int) -> None:
        """Raises IndexNeedsTest if `operation`, about to be performed on `root`, addresses an item
        of a list that isn't pinned. An insertion needs no test: it addresses no item."""
        if isinstance(operation, Test):
            return
        inserts = isinstance(operation, Add | Move | Copy)
        places = [(operation.tokens, operation.path, inserts)]
        if isinstance(operation, Move | Copy):
            places.insert(0, (operation.source_tokens, operation.source, False))
        for tokens, path, last_inserts in places:
            for step in self._steps(root, tokens):
                if last_inserts and step.at == len(tokens) - 1:
                    continue
                if not self._is_pinned(step):
                    raise _refusal(tokens, step.at, step.rule, path, position)

    def performed(self, root: Document, operation: Operation) -> None:
        """Pins the items that `operation`, which has made `root`, identifies."""
        tokens = operation.tokens[:-1] if isinstance(operation, Remove) else operation.tokens
        for step in self._steps(root, tokens):
            # Any other operation needed the item pinned, or made it; its key may have changed.
            if not isinstance(operation, Test) or self._identifies(step, tokens[step.at + 1 :]):
                self._pin(step.address, step.rule, step.item)
        if isinstance(operation, Test | Add | Replace):
            self._pin_below(root, tokens)

    def _steps(self, root: Document, tokens: Tokens) -> list[_Step]:
        steps: list[_Step] = []
        node: Any = root
        lists = self._lists
        address: Tokens = ()
        for at, token in enumerate(tokens):
            if not lists:
                break
            rule = lists.rule if isinstance(node, list) else None
            if rule is not None:
                index = index_of(token, len(node))
                if index < 0:  # "-", or there is no such item
                    break
                steps.append(_Step(address, rule, node[index], at))
                token_in_address = _MEMBER
                if isinstance(rule, ArrayKeys):
                    token_in_address = rule.address_of(node[index]) or token
                address = (*address, token_in_address)
            else:
                address = (*address, token)
            node = find(node, (token,))
            if node is ABSENT:
                break
            lists = lists.below(token)
        return steps

    def _identifies(self, step: _Step, below: Tokens) -> bool:
        """Whether a test at `below` in the item, with earlier ones, tells which item it is."""
        if not below:
            return True
        key = step.rule.key_of(step.item) if isinstance(step.rule, ArrayKeys) else None
        if key is None or not isinstance(step.rule, ArrayKeys):
            return False
        parts = self._parts.setdefault((step.address, key), set())
        parts.update(path for path in step.rule.paths if path[: len(below)] == below)
        return len(parts) == len(step.rule.paths)

    def _is_pinned(self, step: _Step) -> bool:
        if isinstance(step.rule, ArrayKeys):
            key = step.rule.key_of(step.item)
            return key is not None and (step.address, key) in self._keys
        return (step.address, id(step.item)) in self._members

    def _pin(self, address: Tokens, rule: ListRule, item: Json) -> None:
        if not isinstance(rule, ArrayKeys):
            self._members[address, id(item)] = item
            return
        key = rule.key_of(item)
        if key is not None:
            self._keys.add((address, key))

    def _pin_below(self, root: Document, tokens: Tokens) -> None:
        """Pins all items in the value at `tokens`: whoever sent the patch knows that value."""
        value = find(root, tokens)
        if not isinstance(value, dict | list):
            return
        lists = self._lists
        for token in tokens:
            lists = lists.below(token)
        for below, items, rule in lists.arrays(value):
            address = self._address(root, (*tokens, *below))
            for item in items:
                self._pin(address, rule, item)

    def _address(self, root: Document, tokens: Tokens) -> Tokens:
        address = list(tokens)
        for step in self._steps(root, tokens):
            if isinstance(step.rule, ArrayKeys):
                address[step.at] = step.rule.address_of(step.item) or address[step.at]
        return tuple(address)


def require_tested_members(operations: Iterable[_Addressed], lists: Lists) -> None:
    """Raises IndexNeedsTest if an extended patch, which names items by key, addresses a member of a
    set by index without having tested it since the last insertion or removal there."""
    tested: set[Tokens] = set()
    for position, operation in enumerate(operations):
        if isinstance(operation, Predicate):
            if operation.op == "test":
                tested.add(operation.tokens)
            continue
        inserts = isinstance(operation, Add | Move | Copy)
        places = [(operation.tokens, operation.path, inserts)]
        if isinstance(operation, Move | Copy):
            places.insert(0, (operation.source_tokens, operation.source, False))
        for tokens, path, last_inserts in places:
            for at in range(len(tokens)):
                rule = lists.at(tokens[:at])
                if not isinstance(rule, ArraySet):
                    continue
                last = at == len(tokens) - 1
                if not (last and last_inserts) and not any(
                    tokens[:length] in tested for length in range(at + 2)
                ):
                    raise _refusal(tokens, at, rule, path, position)
                if last and not isinstance(operation, Replace):
                    tested = {
                        each for each in tested if each[:at] != tokens[:at] or len(each) <= at
                    }


def _refusal(tokens: Tokens, at: int, rule: ListRule, path: str, position: int) -> IndexNeedsTest:
    item = join_pointer(tokens[: at + 1])
    tests, other = [item], "use 'add_to_set' and 'pull' in an extended patch"
    if isinstance(rule, ArrayKeys):
        tests = [item + join_pointer(each) for each in rule.paths]
        other = "address the item by its key in an extended patch"
    return IndexNeedsTest(
        f"'{join_pointer(tokens[:at])}' is a declared list: when the patch is applied, another item"
        f" may be at index {tokens[at]}. First test which item is there"
        f" ({', '.join(tests)}), send a version token, or {other}",
        operation=position,
        pointer=path,
        tests=tests,
    )
