"""Lists: arrays whose items are identified by key or by value instead of by index.

Worked example. In a document with

    {"fields": [{"path": "id", "tags": ["pii"]}], "tags": ["gold"]}

the rules {"pointer": "/fields", "item_key": ["path"]} and {"pointer": "/tags", "set": true} and
{"pointer": "/fields/*/tags", "set": true} say: the items of /fields are identified by their
`path`, and the tags by their whole value. The *key* of the only field is ("id",), that of its only
tag is ('"pii"',). The *address* "/fields/id/tags" means /fields/0/tags, wherever the field is in
its list.

Objects and such lists are *containers*: everything in them has a name, that of a member or the
address of an item. All else, and an empty container, is a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

from patching.canonical_json import canonical
from patching.errors import InvalidPatch, ListViolation, PatchConflict
from patching.owners import Tree
from patching.pointers import Tokens, find, index_of, join_pointer
from patching.values import ABSENT, Container, Document, Json, described, encoded_bytes, shown

SEPARATOR: Final = "␟"  # U+241F, between the values of a composite key

ANY_TOKEN: Final = "*"  # in the pointer of a rule: every member or item

_INTEGRAL_MAX = 2.0**63  # whole floats up to this are written like the integers they equal

ItemKey: TypeAlias = "tuple[str, ...]"


class ArrayKeys(msgspec.Struct, frozen=True):
    """The key members of one array's items, as given ("a/b" is `b` in `a`) and as tokens."""

    members: tuple[str, ...]
    paths: tuple[Tokens, ...]

    def key_of(self, item: Json) -> ItemKey | None:
        """The text of each key member of `item`: strings as they are, other scalars as canonical
        JSON, so that 1, 1.0 and "1" are one key. None if one is missing or a container, or if one
        of several contains the separator."""
        texts = [_text(find(item, path)) for path in self.paths]
        if None in texts or (len(texts) > 1 and any(SEPARATOR in text for text in texts if text)):
            return None
        return tuple(texts)  # type: ignore[arg-type]

    def address_of(self, item: Json) -> str | None:
        """The token that addresses `item`; None if it has no key."""
        key = self.key_of(item)
        return None if key is None else SEPARATOR.join(key)

    def fault_of(self, item: Json) -> tuple[Tokens, str]:
        """Returns where in `item`, which has no key, the fault is, and what it is."""
        if not isinstance(item, dict):
            return (), f"an item with a key must be an object, not {described(item)}"
        for path in self.paths:
            value = find(item, path)
            if value is ABSENT:
                return path, f"the key '{join_pointer(path)[1:]}' is missing"
            text = _text(value)
            if text is None:
                return path, f"{shown(value)} can't be a key: it isn't a scalar, or is too long"
            if len(self.paths) > 1 and SEPARATOR in text:
                return path, f"{shown(value)} can't be a key: it contains '{SEPARATOR}'"
        return (), "it has a key"

    def text_at(self, item: Document, path: Tokens) -> str | None:
        """The key at `path` of `item` as it is written in an address; None if it can't be."""
        return _text(find(item, path))

    def parts(self, token: str) -> list[str]:
        """The text of each key in the address `token`.

        Raises InvalidPatch if a composite key hasn't as many parts as there are members."""
        if len(self.paths) == 1:
            return [token]
        parts = token.split(SEPARATOR)
        if len(parts) != len(self.paths):
            raise InvalidPatch(
                f"the address {shown(token)} must have {len(self.paths)} key values "
                f"({', '.join(self.members)}), joined by '{SEPARATOR}', but has {len(parts)}"
            )
        return parts

    def check(self, value: Json, token: str) -> None:
        """Raises InvalidPatch if `value` can't be the item at `token`: it isn't an object, or it
        has a key of another value."""
        if not isinstance(value, dict):
            raise InvalidPatch(
                f"an item of a keyed array must be an object, not {shown(value)}", member="value"
            )
        for member, path, part in zip(self.members, self.paths, self.parts(token), strict=True):
            own = _nearest(value, path)
            if own is not ABSENT and _text(own) != part:
                raise InvalidPatch(
                    f"the address says that '{member}' is {shown(part)}, but the value says "
                    f"{shown(own)}",
                    member="value",
                )

    def filled(self, value: Json, token: str, present: Document = ABSENT) -> dict[str, Any]:
        """`value` with the key members that it lacks: those of the item that is there now
        (`present`), else the text of the address. If it lacks none, `value` itself.

        Raises PatchConflict if `value` isn't an object."""
        if not isinstance(value, dict):
            raise PatchConflict(
                f"an item of a keyed array must be an object, not {described(value)}"
            )
        for path, part in zip(self.paths, self.parts(token), strict=True):
            if find(value, path) is ABSENT:
                own = find(present, path)
                value = _with(value, path, part if own is ABSENT else own)
        return value

    def decided_by(self, below: Tokens) -> bool:
        """Whether writing at `below`, tokens from an item on, can change the item's address."""
        return any(path[: len(below)] == below[: len(path)] for path in self.paths)


class ArraySet(msgspec.Struct, frozen=True):
    """An array that has no two equal items (see `equal`)."""

    def key_of(self, item: Json) -> ItemKey:
        """The item's canonical JSON, of which `json.loads` makes an equal item."""
        return (canonical(item).decode(),)

    def address_of(self, item: Json) -> str:
        """The token for `item` in the pointers of a footprint; patches don't address items so."""
        return self.key_of(item)[0]


ListRule: TypeAlias = ArrayKeys | ArraySet


class Lists(msgspec.Struct, frozen=True, eq=False):
    """The rules for the lists of a document, or of a part of it. False if there are none.

    Made by `parse_lists`. Rules with a literal token come before those with "*" in its place."""

    rules: tuple[tuple[Tokens, ListRule], ...] = ()
    _way: Any = None  # made on first use

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lists) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def rule(self) -> ListRule | None:
        """The rule for the value itself."""
        return next((rule for own, rule in self.rules if not own), None)

    def at(self, tokens: Tokens) -> ListRule | None:
        """The rule for the array at `tokens`, a pointer or an address; None if its items go by
        index."""
        way = self.way
        for token in tokens:
            way = way.below(token)
        return way.rule

    def keys_along(self, address: Tokens) -> Iterator[ArrayKeys | None]:
        """`keys_at` for each prefix of `address`, from () to the whole."""
        way = self.way
        yield way.keys
        for token in address:
            way = way.below(token)
            yield way.keys

    @property
    def way(self) -> _Way:
        """The same rules, to be followed token by token."""
        if self._way is None:
            force_setattr(self, "_way", _Way(self.rules))
        way: _Way = self._way
        return way

    def keys_at(self, tokens: Tokens) -> ArrayKeys | None:
        """The rule for the array at `tokens`, if its items have a key; else None."""
        rule = self.at(tokens)
        return rule if isinstance(rule, ArrayKeys) else None

    def below(self, token: str) -> Lists:
        """The rules for the member or item `token`, as seen from there; the same for all
        items of a list."""
        rules = tuple([(own[1:], rule) for own, rule in self.rules if own and _fits(own[0], token)])
        return Lists(rules) if rules else NO_LISTS

    def extended_by(self, more: Lists) -> Lists:
        """These rules and those of `more`, which don't contradict them."""
        if not more:
            return self
        rules = {*self.rules, *more.rules}
        return Lists(tuple(sorted(rules, key=lambda rule: [t == ANY_TOKEN for t in rule[0]])))

    def check(self, address: Tokens) -> None:
        """Raises InvalidPatch if a composite key in `address` lacks parts."""
        for keys, token in zip(self.keys_along(address), address, strict=False):
            if keys:
                keys.parts(token)

    def primary_keys(self) -> dict[str, Json]:
        """The rules with keys as `array_primary_keys` has them."""
        return {
            join_pointer(tokens): list(rule.members)
            for tokens, rule in self.rules
            if isinstance(rule, ArrayKeys)
        }

    def arrays(self, document: Document) -> Iterator[tuple[Tokens, list[Any], ListRule]]:
        """The lists that are in `document`, with their pointers' tokens, each once."""
        for tokens, part, way in _parts(self, document, ABSENT):
            if way.rule is not None and isinstance(part, list):
                yield tokens, part, way.rule

    def require(self, document: Document, before: Document = ABSENT) -> int:
        """Checks the lists in `document`. Returns how many items and members it examined.

        Raises ListViolation if a list has two items with one key, or one without. It skips what is
        the same object in `before`: see `apply` for what is shared."""
        examined = 0
        for tokens, part, way in _parts(self, document, before):
            if way.others is not None:
                examined += len(part)
            if way.rule is not None and isinstance(part, list):
                examined += len(part)
                require_distinct(part, tokens, way.rule)
        return examined


NO_LISTS: Final = Lists()


_Name = TypeVar("_Name", str, ItemKey)


def by_name(
    items: Iterable[Any], name_of: Callable[[Any], _Name | None]
) -> dict[_Name, Any] | None:
    """The items by their names; None if two have one name, or one has none."""
    found: dict[_Name, Any] = {}
    for item in items:
        name = name_of(item)
        if name is None or name in found:
            return None
        found[name] = item
    return found


def require_distinct(array: list[Any], tokens: Tokens, rule: ListRule) -> None:
    """Raises ListViolation if two items of the list at `tokens` have one key, or one has none."""
    first: dict[ItemKey, int] = {}
    for index, item in enumerate(array):
        key = rule.key_of(item)
        if key is None:
            assert isinstance(rule, ArrayKeys)  # every value is a member of a set
            path, detail = rule.fault_of(item)
            at = (*tokens, str(index))
            raise ListViolation(detail, pointer=join_pointer(at), other=join_pointer((*at, *path)))
        present = first.setdefault(key, index)
        if present != index:
            pointers = [join_pointer((*tokens, each)) for each in (present, index)]
            own = f"have the same key {shown(list(key))}"
            raise ListViolation(
                f"'{pointers[0]}' and '{pointers[1]}' "
                f"{'are equal items of a set' if isinstance(rule, ArraySet) else own}",
                pointer=pointers[1],
                other=pointers[0],
            )


def _fits(own: str, token: str) -> bool:
    return own in (ANY_TOKEN, token)


class _Way:
    """The rules for a value, `depth` tokens down, and for what is in it: by token (made when
    needed), and for all `others`. However many rules there are, a step takes the same time. It
    doesn't refer to its `Lists`, for that would be a cycle."""

    __slots__ = ("_depth", "_rules", "keys", "named", "others", "rule")

    def __init__(self, rules: Sequence[tuple[Tokens, ListRule]], depth: int = 0) -> None:
        self._depth = depth
        self.rule = next((rule for own, rule in rules if len(own) == depth), None)
        self.keys = self.rule if isinstance(self.rule, ArrayKeys) else None
        self._rules = [each for each in rules if len(each[0]) > depth]
        self.named: dict[str, _Way | None] = {
            own[depth]: None for own, _ in self._rules if own[depth] != ANY_TOKEN
        }
        others = [each for each in self._rules if each[0][depth] == ANY_TOKEN]
        self.others = _Way(others, depth + 1) if others else None

    def below(self, token: str) -> _Way:
        if token not in self.named:
            return self.others or _NO_WAY
        way = self.named[token]
        if way is None:
            fitting = [each for each in self._rules if _fits(each[0][self._depth], token)]
            way = self.named[token] = _Way(fitting, self._depth + 1)
        return way

    def inside(self, tokens: Tokens, part: Container, before: Document) -> Iterator[_Part]:
        """The containers in `part` that rules lead to, except those that `before` shares."""
        names: Iterable[Any] = self.named
        if self.others is not None or len(part) < len(self.named):
            names = part if isinstance(part, dict) else range(len(part))
        for name in names:
            value, then = _member(part, name), _member(before, name)
            if value is not then and isinstance(value, dict | list):
                way = self.below(str(name))
                if way is not _NO_WAY:
                    yield (*tokens, str(name)), value, then, way


_NO_WAY: Final = NO_LISTS.way


_Part: TypeAlias = "tuple[Tokens, Container, Document, _Way]"


def _member(part: Document, name: Any) -> Any:
    """The value in `part` under `name`, a token or an index; or ABSENT."""
    if isinstance(part, dict):
        return part.get(name, ABSENT)
    if isinstance(part, list):
        index = index_of(name, len(part)) if isinstance(name, str) else name
        return part[index] if 0 <= index < len(part) else ABSENT
    return ABSENT


def _parts(
    lists: Lists, document: Document, before: Document
) -> Iterator[tuple[Tokens, Container, _Way]]:
    """The containers in `document` that the rules lead to or through, each once, in its order;
    without what is the same object in `before`. Holds one iterator per level."""
    if not lists or document is before or not isinstance(document, dict | list):
        return
    first: _Part = ((), document, before, lists.way)
    inside: list[Iterator[_Part]] = [iter([first])]
    while inside:
        following = next(inside[-1], None)
        if following is None:
            inside.pop()
            continue
        tokens, part, then, way = following
        yield tokens, part, way
        inside.append(way.inside(tokens, part, then))


def _text(key: Document) -> str | None:
    """How a key value is written in an address: strings as they are, other scalars as compact JSON,
    equal numbers alike. None if it can't be a key."""
    if isinstance(key, str):
        return key
    if isinstance(key, float) and key.is_integer() and abs(key) <= _INTEGRAL_MAX:
        return str(int(key))
    if key is None or isinstance(key, int | float):
        return msgspec.json.encode(key).decode() if encoded_bytes(key) < 32 else None
    return None


def _nearest(value: Json, path: Tokens) -> Document:
    """The value at `path`. If a value on the way isn't an object: a list of it, which is no key."""
    node: Document = value
    for token in path:
        if not isinstance(node, dict):
            return [node] if node is not ABSENT else ABSENT
        node = node.get(token, ABSENT)
    return node


def _with(value: dict[str, Any], path: Tokens, leaf: Json) -> dict[str, Any]:
    """A copy of `value` with `leaf` at `path`, whose missing parents are made. New members come
    first, as people write keys."""
    inner = _with(value.get(path[0], {}), path[1:], leaf) if len(path) > 1 else leaf
    return {path[0]: inner} | value | {path[0]: inner}


# The rules for a value and what is in it. None: it counts as a leaf, as all items of sets do.
Rules: TypeAlias = "Lists | None"


def kind(value: Document, rules: Rules) -> Literal["object", "list"] | None:
    """Which kind of container `value` is; None if it is none."""
    if rules is None:
        return None
    if isinstance(value, dict):
        return "object"
    if rules and isinstance(value, list) and rules.rule is not None:
        return None if value and _items(value, rules) is None else "list"
    return None


def members(value: Document, rules: Rules) -> dict[str, Any] | None:
    """What is in a container, by name; None if it is a leaf, or absent."""
    if not value or rules is None:
        return None
    if isinstance(value, dict):
        return value
    return _items(value, rules) if rules and isinstance(value, list) else None


def within(value: Json, rules: Rules, name: str) -> Rules:
    """The rules for what has this name in the container `value`."""
    if not rules:
        return rules
    if isinstance(value, list) and isinstance(rules.rule, ArraySet):
        return None
    return rules.below(name) or NO_LISTS


def changed(value: Any, inside: Mapping[str, Any], changes: Mapping[str, Document]) -> Any:
    """The container `value`, which contains `inside`, with `changes` by name: ABSENT removes, and
    new items come last."""
    if not changes:
        return value
    now = {name: changes.get(name, item) for name, item in inside.items()}
    now |= changes
    left = {name: item for name, item in now.items() if item is not ABSENT}
    return left if isinstance(value, dict) else list(left.values())


def with_key(value: Json, rules: Rules, name: str, item: Document, before: Json) -> Document:
    """`item`, the rest of `before`, with the key by which the list `value` finds it."""
    rule = rules.rule if rules and isinstance(value, list) else None
    if isinstance(rule, ArrayKeys) and item is not ABSENT and item is not before:
        return rule.filled(item, name, before)
    return item


def _items(array: list[Any], rules: Lists) -> dict[str, Any] | None:
    """The items by address; None if they have no rule, or one has no address of its own."""
    rule = rules.rule
    return None if rule is None else by_name(array, rule.address_of)


def owned_leaves(tree: Tree, content: Json, rules: Rules) -> Iterator[tuple[Tokens, int, Json]]:
    """The owned leaves in `content`: tokens, place in the table of owners, value."""
    if isinstance(tree, int):
        yield (), tree, content
        return
    inside = members(content, rules) or {}
    for name, below in tree.items():
        for tokens, place, value in owned_leaves(below, inside[name], within(content, rules, name)):
            yield (name, *tokens), place, value
