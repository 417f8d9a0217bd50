"""The state that a request of a batch is decided on: what the requests before it have left."""

from __future__ import annotations

from gateway.decide.compares import ITEM_BYTES
from gateway.decide.ranges import Count, RangeState
from gateway.decide.request import View
from gateway.model import Commit, Document, living

# A batch ends when it has worked through documents of this size in all: it holds up everybody else.
_BATCH_WORK_BYTES_MAX = 32 * 1024 * 1024


class BatchState:
    """A view with the commits that were decided on it so far: see ``compares.State``."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._work_bytes = 0
        self.commits: list[Commit] = []
        self.documents: dict[str, Document] = {}
        self._ranges = RangeState(view.ranges, view.documents, self.documents)

    @property
    def tired(self) -> bool:
        """Whether the batch has taken long enough."""
        return self._work_bytes > _BATCH_WORK_BYTES_MAX

    @property
    def revision(self) -> int:
        return self._view.revision + len(self.commits)

    def document(self, key: str) -> Document | None:
        return self.documents.get(key) or self._view.documents[key]

    def base(self, key: str, token: str) -> Document | None:
        before = self._view.documents[key]
        if before is not None and before.token == token:
            return living(before)
        return self._view.bases.get((key, token))

    def changed_under(self, prefix: str, since: int) -> int | None:
        self.spend(len(self.documents) * ITEM_BYTES)
        return self._ranges.changed(prefix, since)

    def count_under(self, prefix: str) -> Count:
        self.spend(len(self.documents) * ITEM_BYTES)
        return self._ranges.count(prefix)

    def spend(self, work_bytes: int) -> None:
        self._work_bytes += work_bytes
