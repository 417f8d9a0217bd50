"""A document as it was: back to the nearest change that says everything, and forward from there."""

from __future__ import annotations

from gateway.commits.advance import advance_all
from gateway.model import Document
from gateway.store.contract import Store


class HistoryIncomplete(Exception):
    """The changes that the state was made by aren't all there: it was compacted away."""


def rebuild(store: Store, catalog: str, key: str, revision: int) -> Document | None:
    """The state of ``key`` at ``revision``, tombstones included; None where it never existed.

    Costs at most K changes, however old it is. The caller sees to it that ``revision`` is written
    out, and afterwards that it wasn't compacted meanwhile. Raises HistoryIncomplete, Unreachable.
    """
    newest_first = store.changes_of(catalog, key, revision)
    if newest_first:
        oldest = newest_first[-1]
        if not oldest.change_of(key).begins_at(oldest.revision):
            raise HistoryIncomplete
    return advance_all(None, key, reversed(newest_first))
