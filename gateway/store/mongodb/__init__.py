"""The store on MongoDB, put together from its parts. ``gateway.store.contract`` says what it
promises."""

from __future__ import annotations

import pymongo
from pymongo.read_preferences import ReadPreference

from gateway.store.mongodb import records
from gateway.store.mongodb.backup_copies import MongoCopies
from gateway.store.mongodb.commit_loop import LoopPart
from gateway.store.mongodb.connection import Connection, has_primary
from gateway.store.mongodb.diagnosis import count_head_writes
from gateway.store.mongodb.mending import MongoMending
from gateway.store.mongodb.reads import HistoryPart, ListingsPart
from gateway.store.mongodb.retention import RetentionPart
from gateway.store.mongodb.signals import SignalsPart
from gateway.store.mongodb.subscription_records import MongoSubscriptions
from gateway.store.mongodb.tokens import MongoTokens
from gateway.store.mongodb.uploads import MongoUploads
from patching import Json

__all__ = ["MongoStore", "MongoUploads", "connect", "count_head_writes"]


def connect(uri: str, database: str, timeout_ms: int) -> MongoStore:
    """A store on the database of that name. It connects in the background, or at the first call.

    ``timeout_ms`` bounds each call as a whole, including the driver's own retries. Raises
    ValueError if the URI is malformed.
    """
    return MongoStore(Connection.to(uri, database, timeout_ms, appname="metadata-gateway"))


class MongoStore(LoopPart, HistoryPart, ListingsPart, SignalsPart, RetentionPart):
    """See ``gateway.store.contract.Store``. All parts use the same client and database."""

    def uploads(self) -> MongoUploads:
        return MongoUploads(self._on)

    def subscriptions(self) -> MongoSubscriptions:
        return MongoSubscriptions(self._on)

    def copies(self) -> MongoCopies:
        return MongoCopies(self._on)

    def mending(self) -> MongoMending:
        return MongoMending(self._on)

    def tokens(self) -> MongoTokens:
        return MongoTokens(self._on)

    def stored_bytes(self, content: Json) -> int:
        return records.stored_bytes(content)

    def await_reachable(self, patience_s: float) -> None:
        if not has_primary(self._on.client):
            with pymongo.timeout(patience_s), self._on.as_unreachable():
                self._on.client.admin.command("ping", read_preference=ReadPreference.PRIMARY)

    def ping(self) -> None:
        # A write like that of a request, on a head that no catalog has: it fails if theirs do.
        nobody = {"_id": ""}
        with self._on.reading() as session:
            self._on.catalogs.find_one(nobody, session=session)
        with self._on.writing() as session:
            self._on.catalogs.update_one(nobody, {"$set": {"head": 0}}, session=session)

    def close(self) -> None:
        self._on.client.close()
