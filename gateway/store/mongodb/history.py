"""Reads of the commits that were written out, by key, by time and in pages."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pymongo import ASCENDING, DESCENDING

from gateway.model import Commit
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import Part
from gateway.store.mongodb.ranges import one_of, span
from gateway.store.mongodb.records import Record

_FEW = 4


class HistoryPart(Part):
    """See ``gateway.store.contract.Store``."""

    def changes_of(self, catalog: str, key: str, through: int) -> Sequence[Commit]:
        query = {"catalog": catalog, "keys": key, "revision": {"$lte": through}}
        found: list[Commit] = []
        with self._on.reading() as session:
            cursor = self._on.commits.find(query, session=session).sort("revision", DESCENDING)
            # Few at a time: often the first one says everything, and they may be large.
            for record in cursor.batch_size(_FEW):
                found.append(records.commit_from(record))
                if found[-1].change_of(key).begins_at(found[-1].revision):
                    break
        return found

    def commit_at(self, catalog: str, time_us: int) -> Commit | None:
        query = {"catalog": catalog, "time_us": {"$lte": time_us}}
        with self._on.reading() as session:
            latest = [("time_us", DESCENDING)]
            record = self._on.commits.find_one(query, sort=latest, session=session)
        return None if record is None else records.commit_from(record)

    def list_commits(
        self, catalog: str, after: int, through: int, limit: int, key: str | None, bytes_max: int
    ) -> Sequence[Commit]:
        if key is None:
            query: Record = span(catalog, after, through)
            order = "_id"
        else:
            query = {"catalog": catalog, "keys": key, "revision": {"$gt": after, "$lte": through}}
            order = "revision"
        commits: list[Commit] = []
        with self._on.reading() as session:
            cursor = self._on.commits.find(query, session=session).sort(order, ASCENDING)
            for record in cursor.limit(limit):
                commits.append(records.commit_from(record))
                bytes_max -= len(record["changes"])
                if bytes_max <= 0:
                    break
        return commits

    def commits_of_keys(
        self, catalog: str, keys: Collection[str], through: int
    ) -> Sequence[Commit]:
        if not keys:
            return []
        query = {"catalog": catalog, "keys": one_of(keys), "revision": {"$lte": through}}
        with self._on.reading() as session:
            found = [records.commit_from(r) for r in self._on.commits.find(query, session=session)]
        # Sorted here: of many keys the server would sort whole records, and has less room for it.
        return sorted(found, key=lambda commit: commit.revision)
