"""Whether owners are respected, told from the log alone: no model of what an apply does.

Of each commit of one edit, from the documents before and after it:

- what is owned is a leaf of the document, and nobody owns it since a revision to come;
- an apply or letting go leaves the owners of what it leaves alone but for the manager, and puts
  nobody else in; an apply changes no leaf of another's that isn't forced;
- what goes by letting go is what the manager alone owned, all of that and nothing else;
- a plain write leaves the owners of what it doesn't change; what it changes of theirs is its
  author's; and what nobody owned stays nobody's;
- who gives back changes no value, and takes only plain writes' ownership of what is named;
- what a revert gives back was owned so before, with the value that it has then.

An empty object is left out of some of it: it ends by itself where there are members. Items of lists
are told apart by their keys, which stay as long as anything else is left of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .asks import Ask
from .gone import GONE
from .ledger import Ledger, Violation
from .model import Doc, live
from .model_lists import ITEMS, Lists, sound
from .model_owners import NOBODY, Owners, Tokens, fitted, leaves
from .recorder import Call


@dataclass(frozen=True)
class Owned:
    """The leaves of a document, and who owns them, by the lists that are declared."""

    leaves: Mapping[Tokens, Any]
    owners: Owners
    revision: int
    lists: Lists

    def gives_way(self, tokens: Tokens) -> bool:
        """Whether it is an empty container, which ends by itself."""
        empty_list = self.leaves[tokens] == [] and tokens[0] in self.lists
        return empty_list or bool(self.leaves[tokens] == {})


def check_owners(ledger: Ledger, calls: Mapping[str, Call]) -> Iterator[Violation]:
    for made in ledger.log:
        revision, ask = made.commit.revision, calls[made.commit.message or ""].ask
        before, after = ledger.states[revision - 1], ledger.states[revision]
        lists = ledger.state(revision - 1).lists
        for key, doc in after.items():
            if doc.revision != revision or live(doc) is None:
                continue
            there = live(before.get(key))
            alike = sound(lists, None if there is None else there.content, doc.content)
            then, now = _owned(there, alike), _owned(doc, alike)
            assert now is not None
            found = [*_unsound(now), *_disrespectful(ask, then, now)]
            if [each.deed for each in ask.actions] == ["revert"]:
                earlier = _earlier(ledger, key, revision, alike)
                found += _given_back(ask.label, then, now, earlier)
            for wrong in found:
                detail = f"{ledger.catalog}@{revision} {key} {ask.label}: {wrong}"
                yield Violation("owners", detail)
        for key, doc in before.items():
            gone = live(doc) is not None and live(after.get(key)) is None
            if gone and [each.deed for each in ask.actions] == ["let-go"] and not ask.otherwise:
                was = _owned(doc, lists)
                assert was is not None
                yield from _pruned(ledger, ask, was)


def _owned(doc: Doc | None, lists: Lists) -> Owned | None:
    if doc is None:
        return None
    there = leaves(doc.content, lists)
    return Owned(there, fitted(doc.owners, doc.content, lists), doc.revision, lists)


def _earlier(ledger: Ledger, key: str, revision: int, lists: Lists) -> Iterator[Owned]:
    """The document in its states before `revision`, the newest first."""
    docs = (live(ledger.states[each].get(key)) for each in range(revision - 1, -1, -1))
    return (found for doc in docs if (found := _owned(doc, lists)) is not None)


def _unsound(doc: Owned) -> Iterator[str]:
    for tokens, names in doc.owners.items():
        if tokens not in doc.leaves or not names:
            yield f"{tokens} is owned, and no leaf"
        if max(names.values()) > doc.revision:
            yield f"{tokens} is owned since a revision to come"


def _disrespectful(ask: Ask, before: Owned | None, after: Owned) -> Iterator[str]:
    if before is None or len(ask.actions) != 1 or ask.otherwise:
        return
    (action,) = ask.actions
    if action.deed == "apply":
        yield from _of_manager(action.value.manager, before, after)
        if action.value.conflict != "force" and not action.value.force:
            yield from _taken_away(action.value.manager, before, after)
    elif action.deed == "let-go":
        yield from _of_manager(action.value[0], before, after)
        yield from _let_go(action.value[0], before, after)
    elif action.deed == "give-back":
        yield from _of_giver(action.value, before, after)
    elif action.deed in ("put", "patch", "edit", "merge"):
        yield from _of_plain(ask.label, before, after)


def _of_manager(manager: str, before: Owned, after: Owned) -> Iterator[str]:
    then, now = before.leaves, after.leaves
    for tokens in now:
        had, has = before.owners.get(tokens, {}), after.owners.get(tokens, {})
        others = {name: since for name, since in has.items() if name != (manager, False)}
        same = tokens in then and then[tokens] == now[tokens]
        if others != ({n: s for n, s in had.items() if n != (manager, False)} if same else {}):
            yield f"{tokens} was owned by {had}, and is by {has}"
        if (
            same
            and (manager, False) in had
            and has.get((manager, False))
            not in (
                None,
                had[manager, False],
            )
        ):
            yield f"{tokens} is owned since another time"


def _taken_away(manager: str, before: Owned, after: Owned) -> Iterator[str]:
    then, now = before.leaves, after.leaves
    for tokens, names in before.owners.items():
        is_others = set(names) - {(manager, False)} and not before.gives_way(tokens)
        if is_others and now.get(tokens, GONE) != then[tokens]:
            yield f"{tokens} of {names} was {then[tokens]}, and is {now.get(tokens)}"


def _let_go(manager: str, before: Owned, after: Owned) -> Iterator[str]:
    then, now = before.leaves, after.leaves
    alone = {tokens for tokens, names in before.owners.items() if set(names) == {(manager, False)}}
    left = {tokens: value for tokens, value in then.items() if tokens not in alone}
    items = {tokens[:2] for tokens in left if tokens[:1] == (ITEMS,) and len(tokens) > 2}
    left |= {each: then[each] for each in alone if each[2:] == ("id",) and each[:2] in items}
    if now != (left or {(): {}}):
        yield f"{manager} alone owned {alone} of {then}, and {now} is left"
    if any((manager, False) in names for names in after.owners.values()):
        yield f"{manager} still owns something"


def _pruned(ledger: Ledger, ask: Ask, before: Owned) -> Iterator[Violation]:
    manager, prune = ask.actions[0].value
    alone = all(set(names) == {(manager, False)} for names in before.owners.values())
    if not (prune and alone and before.owners.keys() == before.leaves.keys()):
        detail = f"{ledger.catalog} {ask.label}: {before} is gone"
        yield Violation("owners", detail)


def _of_giver(places: Collection[Tokens], before: Owned, after: Owned) -> Iterator[str]:
    if before.leaves != after.leaves:
        yield f"{before.leaves} was given back, and is {after.leaves}"
    for tokens, names in before.owners.items():
        is_named = any(tokens[: len(each)] == each for each in places)
        left = {name: since for name, since in names.items() if not (is_named and name[1])}
        if left != after.owners.get(tokens, {}):
            yield f"{tokens} was owned by {names}, and is by {after.owners.get(tokens)}"


def _of_plain(author: str, before: Owned, after: Owned) -> Iterator[str]:
    then, now = before.leaves, after.leaves
    for tokens, value in now.items():
        had, has = before.owners.get(tokens, NOBODY), after.owners.get(tokens, NOBODY)
        if tokens in then and then[tokens] == value:
            if had != has:
                yield f"{tokens} was owned by {had}, and is by {has}"
        elif tokens in then and set(has) != ({(author, True)} if had else set()):
            yield f"{tokens} was owned by {had}, written, and is owned by {has}"
        elif not set(has) <= {(author, True)}:
            yield f"{tokens} is new, and owned by {has}"


def _given_back(
    author: str, before: Owned | None, after: Owned, earlier: Iterator[Owned]
) -> Iterator[str]:
    states = list(earlier)
    for tokens, names in after.owners.items():
        for name, since in names.items():
            if name == (author, True):
                taken = before is None or not any(map(_meets(tokens), before.owners))
                if taken:
                    yield f"{tokens} was nobody's, and is owned by {name}"
            elif not any(_is_owned_so(each, tokens, name, since, after) for each in states):
                yield f"{tokens} was never owned by {name} since {since}, as {after.leaves[tokens]}"


def _meets(tokens: Tokens) -> Callable[[Tokens], bool]:
    return lambda other: other[: len(tokens)] == tokens or tokens[: len(other)] == other


def _is_owned_so(
    state: Owned, tokens: Tokens, name: tuple[str, bool], since: int, after: Owned
) -> bool:
    is_owned = state.owners.get(tokens, NOBODY).get(name) == since
    return is_owned and bool(state.leaves.get(tokens, GONE) == after.leaves[tokens])
