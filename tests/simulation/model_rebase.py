"""The model's rebases: whether what changed since an older state leaves an edit as it was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .asks import Action, Ask
from .gone import GONE
from .misfit import Misfit
from .model_lists import (
    ITEMS,
    MARKS,
    NO_LISTS,
    Lists,
    Tokens,
    differing,
    displaced,
    item_at,
    key_of,
    meet,
)
from .model_owners import NOBODY, Owners, leaves
from .model_patches import operated, operated_by_key, tokens_of
from .model_repeatables import REPEATABLES, Stamps


def independent(
    action: Action,
    base: Any,
    now: Any,
    lists: Lists = NO_LISTS,
    owners: Owners = NOBODY,
    owners_now: Owners = NOBODY,
) -> bool:
    """Whether no place that ``action`` reads or writes, on a document that was ``base`` and is
    ``now``, has changed; both with their owners. See ``means`` for arrays that are no ``lists``:
    patches that go into them are taken for independent."""
    changed = differing(base, now, lists)
    if action.deed == "apply":
        own = (action.value.manager, False)
        then, since = (
            [tokens for tokens, names in each.items() if own in names]
            for each in (owners, owners_now)
        )
        wanted = leaves(action.value.content, lists)
        for tokens in since:  # what it came to own, it would let go of
            known = any(tokens[: len(each)] == each for each in then)
            if not known and not any(_covers(each, wanted, tokens, lists) for each in wanted):
                return False
        whole = [_outside_arrays(each, base) for each in then]
        return not meet((*leaves(action.value.content), *whole), changed)
    if action.deed == "merge":
        return not meet([(name,) for name in action.value] or [()], changed)
    if action.deed == "edit":
        return not meet(list(_by_key(action, base, lists)), changed)
    places, indexed = _by_index(action, base, lists)
    return not (meet(places, changed) or any(displaced(name, base, now) for name in indexed))


def _covers(leaf: Tokens, wanted: Mapping[Tokens, Any], tokens: Tokens, lists: Lists) -> bool:
    """Whether the wanted ``leaf`` is in the place of ``tokens``, or in or around that."""
    if leaf[: len(tokens)] == tokens:
        return True
    is_empty = wanted[leaf] == {} or (wanted[leaf] == [] and leaf in {(each,) for each in lists})
    return tokens[: len(leaf)] == leaf and not is_empty


def means(ask: Ask, lists: Lists) -> list[Ask]:
    """What it may come to where lists aren't declared that its patch goes into: whether it can be
    rebased depends on how the differences of two arrays are told."""
    action = ask.actions[0] if ask.actions else None
    if not ask.rebase or action is None or action.deed not in ("patch", "edit"):
        return [ask]
    if not any(_goes_into(each) in {ITEMS, MARKS} - lists for each in action.value):
        return [ask]
    return [ask, replace(ask, rebase=False)]


def _goes_into(operation: Mapping[str, Any]) -> str:
    """The member that an operation doesn't treat as a whole."""
    tokens = tokens_of(operation)
    is_whole = len(tokens) < 2 and operation["op"] not in ("add_to_set", "pull")
    return "" if is_whole else tokens[0]


def _outside_arrays(tokens: Tokens, base: Any) -> Tokens:
    node = base
    for length, token in enumerate(tokens):
        if not isinstance(node, dict):
            return tokens[:length]
        node = node.get(token)
    return tokens


def _by_key(action: Action, base: Any, lists: Lists) -> Iterator[Tokens]:
    for position, operation in enumerate(action.value):
        tokens = tokens_of(operation)
        if _goes_into(operation) in {ITEMS, MARKS} - lists:
            continue
        if operation["op"] in ("add_to_set", "pull"):
            yield (*tokens, str(key_of(MARKS, operation["value"])))
        elif operation.get("create_parents") and not _fits(action.value[:position], base, lists):
            yield tokens[:1]
        elif operation["op"] in REPEATABLES and tokens[:1] == (ITEMS,) and tokens[2:] == ("id",):
            yield tokens[:2]
        else:
            yield tokens


def _fits(operations: Sequence[Mapping[str, Any]], base: Any, lists: Lists) -> bool:
    """Otherwise it isn't known which parents are missing."""
    try:
        operated_by_key(base, operations, lists, Stamps("", 0, ""))
    except Misfit:
        return False
    return True


def _by_index(action: Action, base: Any, lists: Lists) -> tuple[list[Tokens], set[str]]:
    """The places, and the lists that it leads through by index."""
    places: list[Tokens] = []
    indexed: set[str] = set()
    document = base
    for operation in action.value:
        tokens = tokens_of(operation)
        before = document
        try:
            document = GONE if document is GONE else operated(document, [operation])
        except Misfit:
            document = GONE  # unknown
        if _goes_into(operation) not in lists:
            if _goes_into(operation) not in (ITEMS, MARKS):
                places.append(tokens[:1])
            continue
        if operation["op"] == "add" and len(tokens) == 2 and before is not GONE:
            if document is not GONE:
                places.append((tokens[0], str(key_of(tokens[0], operation["value"]))))
            continue
        found = item_at(before, tokens, lists)
        places.append(tokens[:1] if found is None else (*found, *tokens[2:]))
        indexed.add(tokens[0])
    return places, indexed
