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

# How long the server holds an empty answer back: each costs both sides a millisecond. The driver
# fixes this time for the life of a cursor, so ``next`` may be late by as much.
_HELD_BACK_MS = 1000
_PIPELINE: list[records.Record] = [
    {"$changeStream": {}},
    {"$match": {"operationType": "insert"}},
    # Keeps the event's own _id, which the server requires.
    {"$project": {"commit": "$documentKey._id"}},
]


class SignalsPart(StorePart):
    """See ``gateway.store.contract.Store``."""

    def commit_signals(self) -> CommitSignals:
        self._on.ensure_indexes()
        with self._on.as_unreachable():
            # As raw batches: all events that there are come at once and are decoded together. The
            # driver's own change stream gives one at a time, and doesn't say which is the last.
            cursor = self._on.commits.aggregate_raw_batches(_PIPELINE, maxAwaitTimeMS=_HELD_BACK_MS)
        return MongoSignals(cursor, self._on.client)


class MongoSignals:
    """See ``gateway.store.contract.CommitSignals``. For one caller at a time.

    ``next`` may take a second longer than its time; if the server can't be reached, as long as a
    call may take.
    """

    def __init__(self, batches: Any, client: MongoClient[Any]) -> None:
        timeout_s = client.options.timeout
        self._batches = batches
        self._client = client
        self._timeout_s = None if timeout_s is None else timeout_s + _HELD_BACK_MS / 1000

    def next(self, timeout_s: float) -> Mapping[str, int]:
        deadline = time.monotonic() + timeout_s
        while True:
            newest = self._next_batch()
            if newest or time.monotonic() >= deadline:
                return newest

    def close(self) -> None:
        self._batches.close()

    def _next_batch(self) -> dict[str, int]:
        """The signals in one answer: the newest revision by catalog. Once it raises
        StoreUnreachable, it always does."""
        try:
            # The bound on a call starts only when the server stops holding the answer back.
            with pymongo.timeout(self._timeout_s):
                batch = self._batches.try_next()
        except PyMongoError as error:
            self._batches.close()
            raise StoreUnreachable(explained(self._client, error)[:500]) from error
        newest: dict[str, int] = {}
        for event in decode_all(batch or b""):
            with suppress(ValueError, AttributeError):  # a record that isn't a gateway's: no commit
                catalog, revision = records.named_by(event["commit"])
                newest[catalog] = max(revision, newest.get(catalog, 0))
        # The server ends the stream, for example when the collection is dropped.
        if not newest and not self._batches.alive:
            raise StoreUnreachable("the signals have ended")
        return newest
