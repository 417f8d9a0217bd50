"""Names of locations that don't depend on the order of lists: pointers in which the items of lists
go by what tells them apart, as footprints have them."""

from __future__ import annotations

from typing import Any

from patching._json import ABSENT, Document, Json
from patching._lists import ArrayKeys, ArraySet, ListRule, Lists
from patching._pointer import Tokens, find, index_of


class Names:
    """Of locations in the successive states of one document."""

    def __init__(self, lists: Lists) -> None:
        self.lists = lists
        # Writing out a large member of a set takes long; the reference keeps its id its own.
        self._members: dict[int, tuple[Json, str]] = {}
        # of lists of one document that outlives this, by key: see `order`
        self._items: dict[int, dict[str | None, Json]] = {}

    def of(self, root: Document, tokens: Tokens, *, written: bool = False) -> Tokens:
        """The name of the location that `tokens`, a pointer, lead to in `root`.

        It ends at a set where they lead into a member, for what is in it has no name; and at a list
        where they name no item of it, or one without a key. Elsewhere what doesn't exist keeps its
        tokens."""
        if not self.lists:
            return tokens
        node: Any = root
        lists = self.lists
        name: list[str] = []
        for at, token in enumerate(tokens):
            rule = lists.rule if isinstance(node, list) else None
            own: str | None = token
            if rule is not None:
                index = index_of(token, len(node))
                if index < 0:
                    return tuple(name)
                if isinstance(rule, ArraySet) and at < len(tokens) - 1:
                    self._members.clear()  # it may be about to change
                    return tuple(name)
                own = self.item(rule, node[index])
            if own is None:
                return tuple(name)
            name.append(own)
            below = tokens[at + 1 :]
            if written and below and isinstance(rule, ArrayKeys) and rule.decided_by(below):
                return tuple(name)
            node = find(node, (token,))
            if node is ABSENT:
                return (*name, *tokens[at + 1 :])
            lists = lists.below(token)
        return tuple(name)

    def item(self, rule: ListRule, item: Json) -> str | None:
        """What `item` goes by in a list with this rule; None where it has no key."""
        if not isinstance(rule, ArraySet):
            return rule.address_of(item)
        known = self._members.get(id(item))
        if known is None:
            known = self._members[id(item)] = item, rule.address_of(item)
        return known[1]

    def indexed(self, root: Document, tokens: Tokens) -> list[Tokens]:
        """The names of the lists that `tokens` lead through by index."""
        found: list[Tokens] = []
        for at in range(len(tokens)):
            if self.lists.at(tokens[:at]) and isinstance(find(root, tokens[:at]), list):
                found.append(self.of(root, tokens[:at]))
        return found

    def order(self, document: Document, name: Tokens) -> list[str | None]:
        """What the items of the list with this name go by, in order; [] where there is none.

        Remembers what it has looked up: not for documents that are being patched."""
        node: Any = document
        lists = self.lists
        for token in name:
            rule = lists.rule if isinstance(node, list) else None
            if rule is not None:
                items = self._items.get(id(node))
                if items is None:
                    items = self._items[id(node)] = {rule.address_of(each): each for each in node}
                node = items.get(token, ABSENT)
            else:
                node = find(node, (token,))
            lists = lists.below(token)
        rule = lists.rule
        if rule is None or not isinstance(node, list):
            return []
        return [self.item(rule, each) for each in node]
