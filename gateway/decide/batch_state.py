"""The state that a request of a batch is decided on: what the requests before it have left."""

from __future__ import annotations

from functools import cached_property

from gateway.decide.compares import ITEM_BYTES
from gateway.decide.ranges import Count, RangeEdit, RangeState
from gateway.decide.request import View
from gateway.model import APPLICATIONS_KEY, SETTINGS_KEY, Commit, Document, living

# A batch ends when it has worked through documents of this size in all: it holds up everybody else.
_BATCH_WORK_BYTES_MAX = 32 * 1024 * 1024


class BatchState:
    """A view with the commits that were decided on it so far: see ``compares.State``."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._work_bytes = 0
        self.commits: list[Commit] = []
        self.documents: dict[str, Document] = {}

    @cached_property
    def _ranges(self) -> RangeState:
        return RangeState(self._view.ranges, self._view.documents, self.documents)

    @property
    def tired(self) -> bool:
        """Whether the batch has taken long enough."""
        return self._work_bytes > _BATCH_WORK_BYTES_MAX

    @property
    def revision(self) -> int:
        return self._view.revision + len(self.commits)

    @property
    def deleted(self) -> bool:
        """Whether the catalog is, as the batch has left it."""
        return self.commits[-1].deletes_catalog if self.commits else self._view.deleted

    def document(self, key: str) -> Document | None:
        return self.documents.get(key) or self._view.documents[key]

    def base(self, key: str, token: str) -> Document | None:
        before = self._view.documents[key]
        if before is not None and before.token == token:
            return living(before)
        return self._view.bases.get((key, token))

    def written_since(self, revision: int) -> list[Document | None] | None:
        """The documents written after ``revision``, those of this batch among them."""
        view = self._view
        if view.changed_since is None or view.changed_since > revision:
            return None
        keys = (view.changed | self.documents.keys()) - {SETTINGS_KEY, APPLICATIONS_KEY}
        documents = [self.document(key) for key in keys]
        self.spend(sum(each.size_bytes for each in documents if each is not None))
        return documents

    def changed_under(self, prefix: str, since: int) -> int | None:
        self.spend(len(self.documents) * ITEM_BYTES)
        return self._ranges.changed(prefix, since)

    def count_under(self, prefix: str) -> Count:
        self.spend(len(self.documents) * ITEM_BYTES)
        return self._ranges.count(prefix)

    def keys_for(self, edit: RangeEdit) -> list[str]:
        keys = self._ranges.keys(edit)
        self.spend((len(keys) + len(self.documents)) * ITEM_BYTES)
        return keys

    def spend(self, work_bytes: int) -> None:
        self._work_bytes += work_bytes
