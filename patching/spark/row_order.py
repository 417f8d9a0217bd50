"""Whether the rows about one document were applied in their order: the revisions tell."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, Final

_HELD_MAX: Final = 100_000


class RowOrder:
    """Of one partition, as one attempt sees it. Rows about a document that are further apart than
    ``held_max`` other documents are not compared."""

    def __init__(self, held_max: int = _HELD_MAX) -> None:
        self._held_max = held_max
        self._newest: OrderedDict[Hashable, int] = OrderedDict()

    def overtakes(self, document: Hashable, answer: Mapping[str, Any] | None) -> bool:
        """Whether the next row, which is about ``document`` and was applied, has a revision below
        that of a row before it."""
        revision = answer.get("catalog_revision") if answer else None
        if not isinstance(revision, int):
            return False
        newest = self._newest.pop(document, 0)
        self._newest[document] = max(newest, revision)
        if len(self._newest) > self._held_max:
            self._newest.popitem(last=False)
        return revision < newest
