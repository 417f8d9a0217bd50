"""How much a JSON Schema can make of a small document: references that fan out, bounded.

A chain of definitions in which each refers to the next one twice takes twice the time with every
link, whatever is validated. So a schema is weighed with its references written out where they
stand; a definition that refers to itself counts once. That leaves recursion through the document:
a schema that looks at the same part of it along two recursive ways takes time that grows with the
document's nesting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from patching import PatchError, split_pointer

_WORK_MAX = 50_000
_VALUES = frozenset(("const", "enum", "default", "examples"))


class SchemaTooHeavy(Exception):
    """The schema can't be used; the text says why."""


def refuse_heavy_schema(schema: Any) -> None:
    """Raise SchemaTooHeavy for a schema that fans out, or refers to anything outside itself."""
    weighing = _Weighing(schema)
    try:
        weighing.work_of(schema)
    except RecursionError:
        raise SchemaTooHeavy("its references form too long a chain") from None


class _Weighing:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, int] = {}  # by the id of a part of the schema
        self._under_way: set[int] = set()
        self._anchors = _anchors(root)

    def work_of(self, part: Any) -> int:
        """The nodes of ``part`` with all that it refers to written out."""
        if not isinstance(part, dict | list):
            return 1
        if id(part) in self._under_way:
            return 1
        if id(part) not in self._known:
            self._under_way.add(id(part))
            self._known[id(part)] = self._weigh(part)
            self._under_way.discard(id(part))
        return self._known[id(part)]

    def _weigh(self, part: dict[str, Any] | list[Any]) -> int:
        work = 1 + sum(map(self.work_of, _children(part)))
        if isinstance(part, dict):
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                reference = part.get(keyword)
                if isinstance(reference, str):
                    work += self.work_of(self._target(reference))
        if work > _WORK_MAX:
            raise SchemaTooHeavy(
                f"with its references written out it has more than {_WORK_MAX} parts"
            )
        return work

    def _target(self, reference: str) -> Any:
        name = reference.removeprefix("#")
        if name == reference:
            raise SchemaTooHeavy(
                f"it refers to {reference[:100]!r}: only references within it, '#/…', are followed"
            )
        name = unquote(name)
        if name in self._anchors:
            return self._anchors[name]
        part = self._root
        try:
            for token in split_pointer(name):
                part = part[int(token)] if isinstance(part, list) else part[token]
        except (PatchError, KeyError, IndexError, ValueError, TypeError):
            raise SchemaTooHeavy(f"there is no {reference[:100]!r} in it") from None
        return part


def _anchors(root: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    waiting = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(part.get(keyword), str):
                    found[part[keyword]] = part
        if isinstance(part, dict | list):
            waiting.extend(_children(part))
    return found


def _children(part: dict[str, Any] | list[Any]) -> Iterable[Any]:
    """What may be a schema or hold some: not what keywords give as values."""
    if isinstance(part, list):
        return part
    return [child for name, child in part.items() if name not in _VALUES]
