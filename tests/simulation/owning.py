"""Whether owners are respected, told from the log alone: no model of what an apply does.

Of each commit of one edit, from the documents before and after it:

- what is owned is a leaf of the document, and nobody owns it since a revision to come;
- an apply or letting go leaves the owners of what it leaves alone but for the manager, and puts
  nobody else in; an apply changes no leaf of another's that isn't forced;
- what goes by letting go is what the manager alone owned, all of that and nothing else;
- a plain write leaves the owners of what it doesn't change; what it changes of theirs is its
  author's; and what nobody owned stays nobody's.

An empty object is left out of some of it: it ends by itself where there are members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .asks import Ask
from .gone import GONE
from .ledger import Ledger, Violation
from .model import Doc, live
from .model_owners import NOBODY, leaves
from .recorder import Call


def check_owners(ledger: Ledger, calls: Mapping[str, Call]) -> Iterator[Violation]:
    for made in ledger.log:
        revision, ask = made.commit.revision, calls[made.commit.message or ""].ask
        before, after = ledger.states[revision - 1], ledger.states[revision]
        for key, doc in after.items():
            if doc.revision != revision or live(doc) is None:
                continue
            for wrong in (*_unsound(doc), *_disrespectful(ask, live(before.get(key)), doc)):
                detail = f"{ledger.catalog}@{revision} {key} {ask.label}: {wrong}"
                yield Violation("owners", detail)
        for key, doc in before.items():
            gone = live(doc) is not None and live(after.get(key)) is None
            if gone and [each.deed for each in ask.actions] == ["let-go"] and not ask.otherwise:
                yield from _pruned(ledger, ask, doc)


def _unsound(doc: Doc) -> Iterator[str]:
    there = leaves(doc.content)
    for tokens, names in doc.owners.items():
        if tokens not in there or not names:
            yield f"{tokens} is owned, and no leaf"
        if max(names.values()) > doc.revision:
            yield f"{tokens} is owned since a revision to come"


def _disrespectful(ask: Ask, before: Doc | None, after: Doc) -> Iterator[str]:
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
    elif action.deed in ("put", "patch", "merge", "revert"):
        yield from _of_plain(ask.label, before, after)


def _of_manager(manager: str, before: Doc, after: Doc) -> Iterator[str]:
    then, now = leaves(before.content), leaves(after.content)
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


def _taken_away(manager: str, before: Doc, after: Doc) -> Iterator[str]:
    then, now = leaves(before.content), leaves(after.content)
    for tokens, names in before.owners.items():
        is_others = set(names) - {(manager, False)} and then[tokens] != {}
        if is_others and now.get(tokens, GONE) != then[tokens]:
            yield f"{tokens} of {names} was {then[tokens]}, and is {now.get(tokens)}"


def _let_go(manager: str, before: Doc, after: Doc) -> Iterator[str]:
    then, now = leaves(before.content), leaves(after.content)
    alone = {tokens for tokens, names in before.owners.items() if set(names) == {(manager, False)}}
    left = {tokens: value for tokens, value in then.items() if tokens not in alone}
    if now != (left or {(): {}}):
        yield f"{manager} alone owned {alone} of {then}, and {now} is left"
    if any((manager, False) in names for names in after.owners.values()):
        yield f"{manager} still owns something"


def _pruned(ledger: Ledger, ask: Ask, before: Doc) -> Iterator[Violation]:
    manager, prune = ask.actions[0].value
    alone = all(set(names) == {(manager, False)} for names in before.owners.values())
    if not (prune and alone and before.owners.keys() == leaves(before.content).keys()):
        detail = f"{ledger.catalog} {ask.label}: {before} is gone"
        yield Violation("owners", detail)


def _of_plain(author: str, before: Doc, after: Doc) -> Iterator[str]:
    then, now = leaves(before.content), leaves(after.content)
    for tokens, value in now.items():
        had, has = before.owners.get(tokens, NOBODY), after.owners.get(tokens, NOBODY)
        if tokens in then and then[tokens] == value:
            if had != has:
                yield f"{tokens} was owned by {had}, and is by {has}"
        elif tokens in then and set(has) != ({(author, True)} if had else set()):
            yield f"{tokens} was owned by {had}, written, and is owned by {has}"
        elif not set(has) <= {(author, True)}:
            yield f"{tokens} is new, and owned by {has}"
