"""The log as watchers read it: onward for all of them at once, or back for one that lags.

Only what lies above the floor is told. The floor is read after the commits: a sweep that cut some
of them down had raised it before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.commits.errors import RevisionCompacted
from gateway.commits.watch_values import Encode, Selection, Told, told_of
from gateway.model import Commit, Head
from gateway.store.contract import Store

# How many commits of one catalog are read onward at a time.
_ONWARD_COMMITS_MAX = 500
_PAGE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Onward:
    """What follows a position, without a gap, and the head as it was read after that."""

    told: Sequence[Told]
    head: Head


class WatchLog:
    """Every method raises Unreachable."""

    def __init__(self, store: Store, encode: Encode) -> None:
        self._store = store
        self._encode = encode

    def onward(self, positions: Mapping[str, int]) -> dict[str, Onward]:
        """By catalog, the commits written out above its position: two reads for all of them.

        Nothing is told above a position that is below the floor.
        """
        spans = {c: (after, after + _ONWARD_COMMITS_MAX) for c, after in positions.items()}
        commits = self._store.commits(spans)
        heads = self._store.heads(positions)
        found: dict[str, Onward] = {}
        for catalog, after in positions.items():
            head = heads.get(catalog) or Head(catalog)
            retained = commits.get(catalog, ()) if after >= head.floor else ()
            found[catalog] = Onward([told_of(each, self._encode) for each in retained], head)
        return found

    def page(
        self, catalog: str, after: int, through: int, limit: int, selection: Selection
    ) -> tuple[list[Told], int]:
        """Wanted commits above ``after``, and the revision up to which those are all.

        ``through`` is written out. At most ``limit`` commits are looked at, or as many bytes as
        make a page. Raises RevisionCompacted where ``after`` is below the floor.
        """
        key = selection.single_key
        listed = self._store.list_commits(catalog, after, through, limit, key, _PAGE_BYTES_MAX)
        head = self._store.heads([catalog]).get(catalog)
        if head is not None and after < head.floor:
            raise RevisionCompacted(after, head.floor)
        told = [told_of(commit, self._encode) for commit in listed]
        return [each for each in told if selection.wants(each)], _reached(listed, through, key)


def _reached(listed: Sequence[Commit], through: int, key: str | None) -> int:
    if listed:
        return listed[-1].revision
    # Of one key there may be nothing; of all there is something, or the floor has passed it.
    assert key is not None, "commits are missing from the log"
    return through
