"""Rules for lists as JSON: parsing them, for one document or by key, and telling which contradict
each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from patching.errors import DEFAULT_LIMITS, InvalidPatch, Limits
from patching.list_rules import ANY_TOKEN, NO_LISTS, ArrayKeys, ArraySet, ListRule, Lists
from patching.operations import as_json
from patching.pointers import Tokens, join_pointer, split_pointer
from patching.values import shown

_RULES_MAX = 100  # each is compared with every other one

_PATTERN_CHARACTERS_MAX = 1000
_KNOWN_MAX = 1000  # cached results of `lists_of`

Rule: TypeAlias = "tuple[Tokens, ListRule]"

_PRIMARY_KEYS: Final = "array_primary_keys"


def parse_lists(value: object, *, limits: Limits = DEFAULT_LIMITS) -> Lists:
    """Parses `[{"pointer": "/fields", "item_key": ["path"]}, {"pointer": "/tags", "set": true}]`.

    In a pointer the token `*` stands for every member or item. Raises InvalidPatch, with the
    pointer into `value` and the member at fault, for anything that isn't of this form, and if two
    rules contradict each other: see `contradiction`."""
    rules = [_rule(each, at, limits) for at, each in _entries(value)]
    _refuse_contradictions([("*", rule) for rule in rules])
    return ordered(rules)


class ListDeclarations:
    """Which rules for lists apply to which documents, by key. False if there are none.

    Made by `parse_declarations`."""

    def __init__(self, entries: Sequence[tuple[str, Rule]] = ()) -> None:
        self.entries = tuple(entries)
        self._matching = [(key_pattern(pattern), rule) for pattern, rule in self.entries]
        self._known: dict[tuple[bool, ...], Lists] = {}

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ListDeclarations, (self.entries,))

    def lists_of(self, key: str) -> Lists:
        """The rules for the document under `key`."""
        if not self.entries:
            return NO_LISTS
        fits = tuple([bool(matches(key)) for matches, _ in self._matching])
        lists = self._known.get(fits)
        if lists is None:
            of_key = zip(fits, self.entries, strict=True)
            lists = ordered([rule for fitting, (_, rule) in of_key if fitting])
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[fits] = lists
        return lists

    def adds_to(self, other: ListDeclarations) -> bool:
        """Whether it has a declaration that `other` lacks."""
        return not set(self.entries) <= set(other.entries)


NO_DECLARATIONS: Final = ListDeclarations()


def parse_declarations(value: object, *, limits: Limits = DEFAULT_LIMITS) -> ListDeclarations:
    """Parses rules like those of `parse_lists`, each with a pattern of the keys that it applies to:
    `[{"keys": "tables/*", "pointer": "/fields", "item_key": ["path"]}]`.

    In the pattern `*` stands for any text. Errors as `parse_lists`; rules that can't both apply to
    one document don't contradict each other."""
    entries: list[tuple[str, Rule]] = []
    for at, each in _entries(value):
        rule = _rule(each, at, limits, ("keys",))
        pattern = each.get("keys")
        if not isinstance(pattern, str) or not 0 < len(pattern) <= _PATTERN_CHARACTERS_MAX:
            raise InvalidPatch(
                f"'keys' must be a pattern of 1 to {_PATTERN_CHARACTERS_MAX} characters",
                pointer=f"{at}/keys",
                member="keys",
            )
        entries.append((pattern, rule))
    _refuse_contradictions(entries)
    return ListDeclarations(entries)


def _entries(value: object) -> Iterator[tuple[str, Any]]:
    """The rules, each with its pointer."""
    if not isinstance(value, list):
        raise InvalidPatch(f"the rules must be an array, not {shown(as_json(value))}", pointer="")
    if len(value) > _RULES_MAX:
        raise InvalidPatch(f"{len(value)} rules; the limit is {_RULES_MAX}", pointer="")
    for index, each in enumerate(value):
        yield f"/{index}", each


def _refuse_contradictions(entries: Sequence[tuple[str, Rule]]) -> None:
    for index, (pattern, rule) in enumerate(entries):
        for other, (earlier_pattern, earlier) in enumerate(entries[:index]):
            detail = contradiction(earlier, rule)
            if detail and can_meet(pattern, earlier_pattern):
                raise InvalidPatch(f"rules {other} and {index}: {detail}", pointer=f"/{index}")


def parse_keyed(value: object, limits: Limits) -> Lists:
    """Parses `array_primary_keys`: pointers to arrays, each with the key members of its items.

    Literal tokens take precedence over "*"; below a list they are keys of its items. Raises
    InvalidPatch, with the pointer, for anything that isn't of this form, or is deeper than
    `depth_max`."""

    def refused(detail: str, pointer: str | None) -> InvalidPatch:
        return InvalidPatch(f"'{_PRIMARY_KEYS}': {detail}", pointer=pointer, member=_PRIMARY_KEYS)

    if not isinstance(value, dict):
        raise refused(f"it must be an object of pointers, not {shown(as_json(value))}", None)
    if len(value) > _RULES_MAX:
        raise refused(f"{len(value)} keyed arrays; the limit is {_RULES_MAX}", None)
    rules: list[Rule] = []
    for pointer, members in value.items():
        try:
            tokens = split_pointer(pointer)
        except InvalidPatch as error:
            error.member = _PRIMARY_KEYS
            raise
        if len(tokens) >= limits.depth_max:
            raise refused(_too_deep(tokens, limits), pointer)
        rules.append((tokens, _keys(members, partial(refused, pointer=pointer))))
    return ordered(rules)


def _too_deep(tokens: Tokens, limits: Limits) -> str:
    return f"the pointer has {len(tokens)} tokens; the limit is {limits.depth_max - 1}"


def ordered(rules: list[Rule]) -> Lists:
    """The `Lists` with these rules, which may be in any order."""
    return NO_LISTS.extended_by(Lists(tuple(rules)))


def contradiction(one: Rule, other: Rule) -> str:
    """Why the two rules can't both apply to one document, naming both; "" if they can.

    They contradict each other if both can mean one array but declare different things; and if one
    lies inside the other: in items of a set, in a key member, or in one particular item."""
    upper, lower = sorted((one, other), key=lambda rule: len(rule[0]))
    (above, rule), (tokens, lower_rule) = upper, lower
    names = f"'{join_pointer(above)}' and '{join_pointer(tokens)}'"
    if not all(a == b or ANY_TOKEN in (a, b) for a, b in zip(above, tokens, strict=False)):
        return ""
    if len(above) == len(tokens):
        if _same(rule, lower_rule):
            return ""
        return f"{names} can mean the same array, but declare it differently"
    if isinstance(rule, ArraySet):
        return f"{names}: a set can't contain a list, because its items are compared as a whole"
    if tokens[len(above)] != ANY_TOKEN:
        return f"{names}: below a list, write '*' for its items; a name matches none of them"
    below = tokens[len(above) + 1 :]
    if below and rule.decided_by(below):
        return f"{names}: a list can't be inside a key member, nor a key member inside a list"
    return ""


def _same(one: ListRule, other: ListRule) -> bool:
    if isinstance(one, ArrayKeys) and isinstance(other, ArrayKeys):
        return one.paths == other.paths
    return type(one) is type(other)


def _rule(value: object, at: str, limits: Limits, more: tuple[str, ...] = ()) -> Rule:
    def refused(detail: str, member: str | None = None) -> InvalidPatch:
        pointer = at if member is None else f"{at}/{member}"
        return InvalidPatch(detail, pointer=pointer, member=member)

    known = (*more, "pointer", "item_key", "set")
    if not isinstance(value, dict):
        raise refused(f"a rule must be an object, not {shown(as_json(value))}")
    for member in value:
        if member not in known:
            raise refused(f"unknown member {shown(member)}; known members: {', '.join(known)}")
    pointer = value.get("pointer")
    if not isinstance(pointer, str):
        raise refused("'pointer' must be a JSON Pointer, as a string", "pointer")
    try:
        tokens = split_pointer(pointer)
    except InvalidPatch as error:
        raise refused(error.detail, "pointer") from None
    if len(tokens) >= limits.depth_max:
        raise refused(_too_deep(tokens, limits), "pointer")
    if ("item_key" in value) == ("set" in value):
        raise refused("a rule must have either 'item_key' or 'set'")
    if "item_key" in value:
        return tokens, _keys(value["item_key"], lambda detail: refused(detail, "item_key"))
    if value["set"] is not True:
        raise refused("'set' must be true, or left out", "set")
    return tokens, ArraySet()


def _keys(members: object, refused: Callable[[str], InvalidPatch]) -> ArrayKeys:
    if not isinstance(members, list) or not members:
        raise refused(f"a key must be an array of member names, not {shown(as_json(members))}")
    paths: list[Tokens] = []
    for member in members:
        if not isinstance(member, str) or not member or member.startswith("/"):
            raise refused(
                f"a key must be a member name, or a pointer without its leading '/', not "
                f"{shown(as_json(member))}"
            )
        try:
            path = split_pointer("/" + member)
        except InvalidPatch as error:
            raise refused(error.detail) from None
        if any(path[: len(other)] == other[: len(path)] for other in paths):
            raise refused(f"the key {shown(member)} overlaps with another key")
        paths.append(path)
    return ArrayKeys(tuple(members), tuple(paths))


def key_pattern(pattern: str) -> Callable[[str], object]:
    """Returns a test of whether a key matches, in time linear in its length for each `*`."""
    # Each piece is looked for once, leftmost: an atomic group never gives back what it took.
    first, *pieces = pattern.split("*")
    if not pieces:
        return pattern.__eq__
    *middle, last = pieces
    expression = re.escape(first) + "".join(f"(?>.*?{re.escape(each)})" for each in middle if each)
    return re.compile(f"{expression}.*{re.escape(last)}", re.DOTALL).fullmatch


def can_meet(one: str, other: str) -> bool:
    """Whether some key matches both patterns."""
    if "*" not in one:
        return bool(key_pattern(other)(one))
    if "*" not in other:
        return bool(key_pattern(one)(other))
    # A star takes whatever the other pattern has in its middle: only the ends can differ.
    starts = one.split("*", 1)[0], other.split("*", 1)[0]
    ends = one.rsplit("*", 1)[1], other.rsplit("*", 1)[1]
    short, long = sorted(starts, key=len)
    tail, end = sorted(ends, key=len)
    return long.startswith(short) and end.endswith(tail)
