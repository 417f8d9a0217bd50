"""Signals of commits, by a change stream on their inserts.

The server cuts each event down to the ``_id`` of the commit (catalog and revision) and of the
event, so that neither side handles the content of commits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pymongo
from bson import decode_all
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from gateway.store.contract import CommitSignals, StoreUnreachable
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import StorePart, explained

# Time that the server holds an empty answer back: each of them costs both a millisecond. The driver
# fixes it for the life of a cursor, so ``next`` may be late by as much.
_HELD_BACK_MS = 1000
_PIPELINE: list[records.Record] = [
    {"$changeStream": {}},
    {"$match": {"operationType": "insert"}},
    # The event's own _id has to stay; the server insists.
    {"$project": {"commit": "$documentKey._id"}},
]


class SignalsPart(StorePart):
    """See ``gateway.store.contract.Store``."""

    def commit_signals(self) -> CommitSignals:
        self._on.ensure_indexes()
        with self._on.as_unreachable():
            # As raw batches: all that there is to tell comes at once, and no event is decoded by
            # itself. The driver's own change stream tells one at a time, and not which is last.
            cursor = self._on.commits.aggregate_raw_batches(_PIPELINE, maxAwaitTimeMS=_HELD_BACK_MS)
        return MongoSignals(cursor, self._on.client)


class MongoSignals:
    """See ``gateway.store.contract.CommitSignals``. For one caller at a time.

    ``next`` may take a second longer than its time; where the server is out of reach, up to the
    bound on a call.
    """

    def __init__(self, batches: Any, client: MongoClient[Any]) -> None:
        timeout_s = client.options.timeout
        self._batches = batches
        self._client = client
        self._timeout_s = None if timeout_s is None else timeout_s + _HELD_BACK_MS / 1000

    def next(self, timeout_s: float) -> Mapping[str, int]:
        deadline = time.monotonic() + timeout_s
        while True:
            told = self._told()
            if told or time.monotonic() >= deadline:
                return told

    def close(self) -> None:
        self._batches.close()

    def _told(self) -> dict[str, int]:
        """The signals in one answer. Raises StoreUnreachable, and from then on always."""
        try:
            # The bound on a call starts when the server may answer.
            with pymongo.timeout(self._timeout_s):
                batch = self._batches.try_next()
        except PyMongoError as error:
            self._batches.close()
            raise StoreUnreachable(explained(self._client, error)[:500]) from error
        told: dict[str, int] = {}
        for event in decode_all(batch or b""):
            with suppress(ValueError, AttributeError):  # what somebody else has put there is none
                catalog, revision = records.named_by(event["commit"])
                told[catalog] = max(revision, told.get(catalog, 0))
        # The server ends the stream, for example when the collection is dropped.
        if not told and not self._batches.alive:
            raise StoreUnreachable("the signals have ended")
        return told
