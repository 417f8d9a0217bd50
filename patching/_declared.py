"""Rules for lists as JSON: parsing them, and telling which contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from patching._errors import DEFAULT_LIMITS, InvalidPatch, Limits
from patching._json import shown
from patching._lists import ANY_TOKEN, ArrayKeys, ArraySet, ListRule, Lists
from patching._operations import as_json
from patching._pointer import Tokens, join_pointer, split_pointer

_RULES_MAX = 100  # each is compared with each prefix of each address

_PRIMARY_KEYS: Final = "array_primary_keys"


def parse_lists(value: object, *, limits: Limits = DEFAULT_LIMITS) -> Lists:
    """Parses `[{"pointer": "/fields", "item_key": ["path"]}, {"pointer": "/tags", "set": true}]`.

    In a pointer the token `*` stands for every member or item. InvalidPatch, with the pointer into
    `value` and the member at fault, for all that is not of this form; and where two rules
    contradict each other: see `contradiction`."""
    if not isinstance(value, list):
        raise InvalidPatch(f"an array of rules is needed, not {shown(as_json(value))}", pointer="")
    if len(value) > _RULES_MAX:
        raise InvalidPatch(f"{len(value)} rules are more than {_RULES_MAX}", pointer="")
    rules = [_rule(each, f"/{index}", limits) for index, each in enumerate(value)]
    for index, rule in enumerate(rules):
        for other, earlier in enumerate(rules[:index]):
            detail = contradiction(earlier, rule)
            if detail:
                raise InvalidPatch(f"rules {other} and {index}: {detail}", pointer=f"/{index}")
    return ordered(rules)


def parse_keyed(value: object, limits: Limits) -> Lists:
    """Parses `array_primary_keys`: pointers to arrays, each with the key members of its items.

    Literal tokens go before "*", and below a list they are keys of its items. InvalidPatch, with
    the pointer, for all that is not of this form; also where a pointer is deeper than
    `depth_max`."""

    def refused(detail: str, pointer: str | None) -> InvalidPatch:
        return InvalidPatch(f"'{_PRIMARY_KEYS}': {detail}", pointer=pointer, member=_PRIMARY_KEYS)

    if not isinstance(value, dict):
        raise refused(f"an object of pointers is needed, not {shown(as_json(value))}", None)
    if len(value) > _RULES_MAX:
        raise refused(f"{len(value)} keyed arrays are more than {_RULES_MAX}", None)
    rules: list[tuple[Tokens, ListRule]] = []
    for pointer, members in value.items():
        try:
            tokens = split_pointer(pointer)
        except InvalidPatch as error:
            error.member = _PRIMARY_KEYS
            raise
        if len(tokens) >= limits.depth_max:
            raise refused(f"the pointer has over {limits.depth_max} tokens", pointer)
        rules.append((tokens, _keys(members, partial(refused, pointer=pointer))))
    return ordered(rules)


def ordered(rules: list[tuple[Tokens, ListRule]]) -> Lists:
    """Of rules in any order."""
    return Lists(tuple(sorted(rules, key=lambda rule: [token == ANY_TOKEN for token in rule[0]])))


def contradiction(one: tuple[Tokens, ListRule], other: tuple[Tokens, ListRule]) -> str:
    """Why the two can't hold of one document, naming both; "" where they can.

    They contradict each other where both can mean one list and say different things of it; and
    where one lies in the other, but in items of a set, in a key member, or in one certain item."""
    upper, lower = sorted((one, other), key=lambda rule: len(rule[0]))
    (above, rule), (tokens, lower_rule) = upper, lower
    names = f"'{join_pointer(above)}' and '{join_pointer(tokens)}'"
    if not all(a == b or ANY_TOKEN in (a, b) for a, b in zip(above, tokens, strict=False)):
        return ""
    if len(above) == len(tokens):
        if _same(rule, lower_rule):
            return ""
        return f"{names} can mean the same array, and say different things of it"
    if isinstance(rule, ArraySet):
        return f"{names}: the items of a set are told apart by all that is in them"
    if tokens[len(above)] != ANY_TOKEN:
        return f"{names}: below a list '*' stands for every item, a name for none"
    below = tokens[len(above) + 1 :]
    if below and rule.decided_by(below):
        return f"{names}: a list can't lie in the key of an item, nor a key in a list"
    return ""


def _same(one: ListRule, other: ListRule) -> bool:
    if isinstance(one, ArrayKeys) and isinstance(other, ArrayKeys):
        return one.paths == other.paths
    return type(one) is type(other)


def _rule(value: object, at: str, limits: Limits) -> tuple[Tokens, ListRule]:
    def refused(detail: str, member: str | None = None) -> InvalidPatch:
        pointer = at if member is None else f"{at}/{member}"
        return InvalidPatch(detail, pointer=pointer, member=member)

    if not isinstance(value, dict):
        raise refused(f"a rule is an object, not {shown(as_json(value))}")
    for member in value:
        if member not in ("pointer", "item_key", "set"):
            raise refused(f"there is no member {shown(member)}; known are pointer, item_key, set")
    pointer = value.get("pointer")
    if not isinstance(pointer, str):
        raise refused("a JSON Pointer is needed, as a text", "pointer")
    try:
        tokens = split_pointer(pointer)
    except InvalidPatch as error:
        raise refused(error.detail, "pointer") from None
    if len(tokens) >= limits.depth_max:
        raise refused(f"the pointer has over {limits.depth_max} tokens", "pointer")
    if ("item_key" in value) == ("set" in value):
        raise refused("either 'item_key' or 'set' is needed")
    if "item_key" in value:
        return tokens, _keys(value["item_key"], lambda detail: refused(detail, "item_key"))
    if value["set"] is not True:
        raise refused("it must be true, or left out", "set")
    return tokens, ArraySet()


def _keys(members: object, refused: Callable[[str], InvalidPatch]) -> ArrayKeys:
    if not isinstance(members, list) or not members:
        raise refused(f"an array of member names is needed, not {shown(as_json(members))}")
    paths: list[Tokens] = []
    for member in members:
        if not isinstance(member, str) or not member or member.startswith("/"):
            raise refused(
                f"a key is a member name or a pointer without leading '/', not "
                f"{shown(as_json(member))}"
            )
        try:
            path = split_pointer("/" + member)
        except InvalidPatch as error:
            raise refused(error.detail) from None
        if any(path[: len(other)] == other[: len(path)] for other in paths):
            raise refused(f"the key {shown(member)} is, or lies in, another key")
        paths.append(path)
    return ArrayKeys(tuple(members), tuple(paths))
