"""A JSON Schema in parts: which of its schemas check which values of a document.

For each schema within it: the schemas that check the same value, and those that check the members
and items of this value. References are only followed within the schema.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import jsonschema_rs

from patching import PatchError, split_pointer

ENDLESS: Final = 10**12
_CHAIN_MAX = 250
_PATTERN_STEPS = 100
# The work for each value in an object or array of an enum or const, which has to be compared.
_COMPARE_WORK = 8
# The most bytes of all compiled patterns of a catalog's schemas: some 40 ms to compile.
COMPILED_BYTES_MAX: Final = 4 << 20
_COMPILED_BYTES_MIN: Final = 1 << 10
# By the compiled size of a pattern, its work for each character of a text, in the worst case.
_PATTERN_WORK: Final = (
    (1 << 10, 2),
    (2 << 10, 6),
    (8 << 10, 14),
    (16 << 10, 40),
    (128 << 10, 180),
    (1 << 20, 600),
    (10 << 20, 1_600),
)

_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")
_MAPS: Final = ("dependentSchemas", "dependencies")
_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS: Final = ("additionalItems", "unevaluatedItems", "contains")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_REFERENCES_ALONE: Final = frozenset((*_REFERENCES, "description", "title", "$comment"))
_VALUES: Final = frozenset(("const", "enum", "default", "examples"))


class SchemaTooHeavy(Exception):
    """The schema can't be used; the text says why."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One schema within the schema, by its keywords.

    ``here`` are the schemas that check the same value; ``named`` those that check one member or
    item of it, with its name or index; ``members`` and ``items`` those that check all of them.
    """

    work: int
    text_work: int
    here: tuple[Any, ...]
    named: tuple[tuple[str | int, Any], ...]
    members: tuple[Any, ...]
    items: tuple[Any, ...]
    asks_what_was_evaluated: bool
    refers_alone: bool = False


Counts = dict[int, int]  # how often, by the id of a schema
Way = tuple[tuple[int, int], ...]  # the same, as pairs


@dataclass(slots=True)
class Here:
    """The work for a value of all schemas that check it because one schema does, and how often
    schemas check its members and items."""

    work: int = 0
    text_work: int = 0
    named: dict[str | int, Counts] = field(default_factory=dict)
    members: Counts = field(default_factory=dict)
    items: Counts = field(default_factory=dict)

    @property
    def links(self) -> int:
        named = sum(map(len, self.named.values()))
        return len(self.members) + len(self.items) + named

    def ways(self) -> set[Way]:
        """The schemas that check a member or an item, for each different kind of member."""
        ways = {tuple(self.members.items()), tuple(self.items.items())}
        for label, counts in self.named.items():
            every = self.members if isinstance(label, str) else self.items
            ways.add(tuple((Counter(every) + Counter(counts)).items() if every else counts.items()))
        return ways


def _add(counts: Counts, more: Counts, times: int) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count * times


class Schema:
    """A schema, divided into parts one by one as they are needed. ``step`` counts the work."""

    def __init__(self, root: Any, strict: bool, step: Callable[[int], None]) -> None:
        self.root = root
        self.step = step
        self._strict = strict
        self._draft_4 = isinstance(root, dict) and "draft-04" in str(root.get("$schema"))
        self._nodes: dict[int, Any] = {id(root): root, id(_WHOLE): _WHOLE}
        self._parts: dict[int, _Part] = {}
        self._anchors = _anchors(root)

    def reachable(self) -> dict[int, Here]:
        """By its id, each schema that checks the root or a value below it."""
        heres: dict[int, Here] = {}
        waiting = [id(self.root)]
        while waiting:
            name = waiting.pop()
            if name in heres:
                continue
            target, hops = self._followed(name)
            here = heres.get(target)
            if here is None:
                here = heres[target] = self._all_here(target)
                self.step(1 + here.links)
                waiting += [*here.members, *here.items]
                for counts in here.named.values():
                    waiting += counts
            if hops:
                heres[name] = replace(here, work=here.work + hops)
        return heres

    def _followed(self, name: int) -> tuple[int, int]:
        """The schema at the end of a chain of mere references, and the length of the chain."""
        for hops in range(_CHAIN_MAX):
            part = self._part(name)
            if not part.refers_alone:
                return name, hops
            name = id(part.here[0])
        raise SchemaTooHeavy("it refers to itself, or its references form too long a chain")

    def _all_here(self, name: int) -> Here:
        """The ``Here`` of a schema. A part comes after all parts that lead to it, so that the
        number of times that it checks the value is complete."""
        here = Here()
        times, asked = {name: 1}, {name: 0}
        for each in self._in_order(name):
            part = self._part(each)
            at = times[each]
            asks = asked[each] + (at if part.asks_what_was_evaluated else 0)
            here.work += at * part.work
            here.text_work += at * part.text_work
            for child in map(id, part.here):
                times[child] = times.get(child, 0) + at + asks
                asked[child] = asked.get(child, 0) + asks
            for label, child in part.named:
                _add(here.named.setdefault(label, {}), {id(child): 1}, at)
            _add(here.members, Counter(map(id, part.members)), at)
            _add(here.items, Counter(map(id, part.items)), at)
            if at > ENDLESS:
                break
        return here

    def _in_order(self, name: int) -> list[int]:
        """The parts that check a value if ``name`` does; parts that lead to others come first."""
        order: list[int] = []
        seen = {name}
        under_way = {name}
        waiting = [(name, iter(self._part(name).here))]
        while waiting:
            each, children = waiting[-1]
            for child in children:
                if id(child) in under_way and self._strict:
                    raise SchemaTooHeavy("it refers to itself without descending into the document")
                if id(child) not in seen:
                    seen.add(id(child))
                    under_way.add(id(child))
                    waiting.append((id(child), iter(self._part(id(child)).here)))
                    break
            else:
                waiting.pop()
                under_way.discard(each)
                order.append(each)
            if len(waiting) > _CHAIN_MAX:
                raise SchemaTooHeavy("its references form too long a chain")
        order.reverse()
        return order

    def _part(self, name: int) -> _Part:
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = self._taken_apart(self._nodes[name])
            children = (*part.here, *part.members, *part.items, *(each for _, each in part.named))
            self._nodes.update((id(child), child) for child in children)
            self.step(1 + len(children))
        return part

    def _taken_apart(self, node: Any) -> _Part:
        if node is _WHOLE:
            return _Part(1, 0, (), (), (_WHOLE,), (_WHOLE,), False)
        if not isinstance(node, dict):
            return _Part(1, 0, (), (), (), (), False)
        self._refuse_resource(node)
        here = [*_schemas_of(node, _LISTS), *_schemas_of(node, _SINGLE), *_schemas_of(node, _MAPS)]
        for keyword in _REFERENCES:
            if isinstance(node.get(keyword), str):
                here += self._targets(keyword, node[keyword])
        patterns = node.get("patternProperties")
        patterns = patterns if isinstance(patterns, dict) else {}
        items, in_order = node.get("items"), node.get("prefixItems")
        each_item = [
            *_schemas_of(node, _ITEMS),
            *([items] if isinstance(items, dict | bool) else ()),
        ]
        in_order = items if isinstance(items, list) else in_order
        if node.get("uniqueItems") is True:
            each_item.append(_WHOLE)
        properties = node.get("properties")
        named: list[tuple[str | int, Any]] = []
        named += properties.items() if isinstance(properties, dict) else ()
        named += enumerate(in_order) if isinstance(in_order, list) else ()
        texts = [*patterns, node["pattern"]] if "pattern" in node else [*patterns]
        self.step(_PATTERN_STEPS * len(texts))
        return _Part(
            work=_own_work(node),
            text_work=sum(_pattern_work(each) for each in texts if isinstance(each, str)),
            here=tuple(here),
            named=tuple(named),
            members=(*_schemas_of(node, _MEMBERS), *patterns.values()),
            items=tuple(each_item),
            asks_what_was_evaluated="unevaluatedProperties" in node or "unevaluatedItems" in node,
            refers_alone=len(here) == 1 and not node.keys() - _REFERENCES_ALONE,
        )

    def _refuse_resource(self, node: dict[str, Any]) -> None:
        """Raise SchemaTooHeavy for a schema within the schema that has its own ``$id``: references
        below it are relative to it, which isn't followed here."""
        name = node.get("id" if self._draft_4 else "$id")
        if self._strict and node is not self.root and isinstance(name, str) and name[:1] != "#":
            raise SchemaTooHeavy(f"a schema inside it has its own $id {name[:100]!r}: leave it out")

    def _targets(self, keyword: str, reference: str) -> list[Any]:
        name = reference.removeprefix("#")
        if name == reference:
            raise SchemaTooHeavy(
                f"it refers to {reference[:100]!r}; only references inside it, '#/…', are followed"
            )
        if keyword == "$recursiveRef":
            return [self.root, *self._anchors.get(True, ())]
        name = unquote(name)
        if name in self._anchors:
            return self._anchors[name]
        part = self.root
        try:
            for token in split_pointer(name):
                part = part[int(token)] if isinstance(part, list) else part[token]
        except (PatchError, KeyError, IndexError, ValueError, TypeError):
            raise SchemaTooHeavy(f"it refers to {reference[:100]!r}, which isn't in it") from None
        return [part]


# Stands for a schema that checks each value below once.
_WHOLE: Final = object()


def _schemas_of(node: dict[str, Any], keywords: Iterable[str]) -> Iterator[Any]:
    for keyword in keywords:
        value = node.get(keyword)
        if keyword in _MAPS:
            value = list(value.values()) if isinstance(value, dict) else []
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, dict | bool):
                yield each


def _own_work(node: dict[str, Any]) -> int:
    """The work of the keywords that hold no schemas; keywords with names take one unit for each."""
    work = 1
    for keyword in ("required", "properties", "dependentRequired", "dependencies"):
        value = node.get(keyword)
        if isinstance(value, dict):
            work += len(value) + sum(len(each) for each in value.values() if isinstance(each, list))
        elif isinstance(value, list):
            work += len(value)
    # Scalars of an enum are looked up; its objects and arrays are compared one by one.
    enum = node.get("enum")
    values = [*(enum if isinstance(enum, list) else ()), node.get("const")]
    compared = [each for each in values if isinstance(each, dict | list)]
    return work + _COMPARE_WORK * sum(1 for each in compared for _ in values_in(each))


def _pattern_work(pattern: str) -> int:
    """The work of a pattern for each character, by its compiled size, which bounds the time in the
    worst case.

    A bounded repetition right after the start of a text counts as an unbounded one, which is
    smaller: only one of its rounds can be under way at a time.
    """
    size = compiled_bytes(_FIRST_RUN.sub(r"\1*", pattern, count=1))
    return next((work for most, work in _PATTERN_WORK if size <= most), _PATTERN_WORK[-1][1])


@lru_cache(maxsize=4096)
def compiled_bytes(pattern: str) -> int:
    """The compiled size of the pattern, rounded up to a power of two; more than
    ``COMPILED_BYTES_MAX`` if it can't be compiled within that. Compiling takes up to 10 ns a byte.
    """
    size = _COMPILED_BYTES_MIN
    while size <= COMPILED_BYTES_MAX:
        try:
            options = jsonschema_rs.RegexOptions(size_limit=size)
            jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
        except (jsonschema_rs.ValidationError, ValueError):
            size *= 2
            continue
        break
    return size


# A set that covers most of Unicode takes 2 ms to fold, and almost no space when compiled.
_FOLDED_BYTES: Final = 1 << 18
FOLDED_MAX: Final = COMPILED_BYTES_MAX // _FOLDED_BYTES
_FOLDS: Final = re.compile(r"\(\?[a-zA-Z]*i")
_SET: Final = re.compile(r"\[\^?\]?(?:\\.|[^\[\]\\])*", re.DOTALL)
_WIDE: Final = re.compile(r"\\[PWDSxuU]")
_RANGE: Final = re.compile(r"(.)-([^\x00-\x7f])", re.DOTALL)


def folding_bytes(pattern: str) -> int:
    """The time to fold the sets of a pattern that ignores case, as bytes of ``compiled_bytes`` that
    take as long to compile. ``compiled_bytes`` doesn't show it: each of their characters is looked
    up."""
    if _FOLDS.search(pattern) is None:
        return 0
    return sum(_set_bytes(pattern, each) for each in _SET.finditer(pattern))


def _set_bytes(pattern: str, found: re.Match[str]) -> int:
    behind = pattern[found.end() : found.end() + 3]
    holds_sets = behind.startswith("[") and (behind[1:2] != ":" or behind[2:3] == "^")
    if holds_sets or _WIDE.search(found[0]):
        return _FOLDED_BYTES
    wide = sum(max(ord(last) - ord(first), 0) for first, last in _RANGE.findall(found[0]))
    return min(wide, _FOLDED_BYTES)


# At the start, a row of single characters and classes, the last of which is repeated {m,n} times.
_CHARACTER = r"(?:\\[^pPbBkux\d]|\[\^?\]?[^\[\]\\]*\]|[^\\\[\](){}|*+?^$])"
_FIRST_RUN = re.compile(rf"(\A\^{_CHARACTER}*?{_CHARACTER})\{{\d+(?:,\d*)?\}}(?![?+])")


def values_in(schema: Any) -> Iterator[Any]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _anchors(root: Any) -> Mapping[Any, list[Any]]:
    """The schemas by their anchors; under True those that ``$recursiveRef`` may lead to."""
    found: dict[Any, list[Any]] = {}
    waiting = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            for keyword in ("$anchor", "$dynamicAnchor", "$recursiveAnchor", "$id", "id"):
                name = part.get(keyword)
                if keyword.endswith("id"):  # before draft 2019-09
                    name = name[1:] if isinstance(name, str) and name[:1] == "#" else None
                if name is True or (isinstance(name, str) and name):
                    found.setdefault(name, []).append(part)
            waiting.extend(child for name, child in part.items() if name not in _VALUES)
        elif isinstance(part, list):
            waiting.extend(part)
    return found


def patterns_in(schema: Any) -> Iterator[str]:
    """All texts that may be compiled as patterns, perhaps also some that aren't patterns."""
    for part in values_in(schema):
        if isinstance(part, dict):
            named = part.get("patternProperties")
            yield from named if isinstance(named, dict) else ()
            if isinstance(pattern := part.get("pattern"), str):
                yield pattern
