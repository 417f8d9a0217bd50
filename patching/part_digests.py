"""The digest of a manager's part of a document: of what it sends, and of what it owns.

If the two are equal, applying the part again changes neither the document nor its owners: the
manager owns exactly the leaves that it sends, with the values that they have in the document.
(Owners from before the rules for a list are fitted to these whenever anything is applied.)

A part without lists has the digest of its value. Items of lists are identified by address, and
their order doesn't matter: the digested text has them in the order of their addresses, and a
second line with the addresses by pointer. As canonical JSON has no line break, nothing else has
this text; above all not an array of the same items without its rule:

    {"f":[{"k":"a","v":1},{"k":"b"}],"s":["x"]}
    {"/f":["a","b"],"/s":["\\"x\\""]}
"""

from __future__ import annotations

import hashlib
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from patching.canonical_json import canonical
from patching.list_rules import NO_LISTS, Lists, Rules, members, within
from patching.owners import OwnerTree, Tree, places_of
from patching.pointers import Tokens, join_pointer
from patching.values import ABSENT, Document, Json

# By pointer of a list: the addresses of its items of which anything is wanted or owned.
_Addresses: TypeAlias = "dict[str, Any]"


def part_text(wanted: Json, lists: Lists = NO_LISTS) -> bytes:
    """The digested text of `wanted`, the part of a document that a manager sends.

    Raises ListViolation if it breaks `lists`, and what `canonical` raises."""
    if not lists:
        return canonical(wanted)
    lists.require(wanted)
    addresses: _Addresses = {}
    return _text(_sorted(wanted, lists, (), addresses), addresses)


def part_digest(wanted: Json, lists: Lists = NO_LISTS) -> str:
    """The digest of what a manager sends. Errors are those of `part_text`."""
    return _hashed(part_text(wanted, lists))


def owned_digest(
    document: Json, owners: OwnerTree | None, manager: str, lists: Lists = NO_LISTS
) -> str | None:
    """The digest of what `manager` owns of `document`; None if it owns nothing.

    It equals `part_digest` of what the manager sends if and only if it owns exactly these leaves.
    If it wants a container empty, and others have put something into it, it doesn't own that."""
    places = _places(owners, manager)
    if owners is None or not places:
        return None
    addresses: _Addresses = {}
    part = _owned(owners.of, document, lists, places, (), addresses)
    assert part is not ABSENT
    return _hashed(_text(part, addresses))


def owned_digests(document: Json, owners: OwnerTree) -> dict[str, str] | None:
    """`owned_digest` of each manager that owns anything, by name; None if items of lists are owned,
    for then the rules for these are needed."""
    if not _is_of_objects(owners.of, document):
        return None
    found = {}
    for manager in owners.managers():
        digest = owned_digest(document, owners, manager)
        assert digest is not None
        found[manager] = digest
    return found


def _places(owners: OwnerTree | None, manager: str) -> set[int]:
    name = (manager, False)
    table = owners.by if owners else ()
    return {place for place, by in enumerate(table) if any(each.name == name for each in by)}


def _sorted(value: Json, rules: Rules, way: Tokens, addresses: _Addresses) -> Json:
    inside = members(value, rules)
    if inside is None:
        return value
    found = {
        name: _sorted(item, within(value, rules, name), (*way, name), addresses)
        for name, item in inside.items()
    }
    return _container(value, found, way, addresses)


def _owned(
    tree: Tree,
    value: Json,
    rules: Rules,
    places: AbstractSet[int],
    way: Tokens,
    addresses: _Addresses,
) -> Document:
    """The part that is owned; ABSENT: nothing is owned here."""
    if isinstance(tree, int):
        return value if tree in places else ABSENT
    inside = members(value, rules) or {}
    if not tree.keys() <= inside.keys():  # the rules have changed
        if places.isdisjoint(places_of(tree)):
            return ABSENT
        addresses[join_pointer(way)] = sorted(tree)
        return value
    found = {}
    for name, below in tree.items():
        rules_below = within(value, rules, name)
        part = _owned(below, inside[name], rules_below, places, (*way, name), addresses)
        if part is not ABSENT:
            found[name] = part
    return _container(value, found, way, addresses) if found else ABSENT


def _container(
    value: Json, found: dict[str, Any], way: Tokens, addresses: _Addresses
) -> dict[str, Any] | list[Any]:
    """A container of the same kind as `value`, with what was `found` in it."""
    if not isinstance(value, list):
        return found
    names = sorted(found)
    addresses[join_pointer(way)] = names
    return [found[name] for name in names]


def _is_of_objects(tree: Tree, value: Json) -> bool:
    """Whether no items of lists are owned."""
    if isinstance(tree, int):
        return True
    if not isinstance(value, dict) or not tree.keys() <= value.keys():
        return False
    return all(_is_of_objects(below, value[name]) for name, below in tree.items())


def _text(part: Json, addresses: _Addresses) -> bytes:
    text = canonical(part)
    return text + b"\n" + canonical(addresses) if addresses else text


def _hashed(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
