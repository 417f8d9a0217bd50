"""The store on MongoDB, put together from its parts."""

from __future__ import annotations

from pymongo import MongoClient
from pymongo.errors import PyMongoError
from pymongo.read_preferences import ReadPreference

from gateway.store.mongodb import records
from gateway.store.mongodb.connection import Connection, reaching
from gateway.store.mongodb.history import HistoryPart
from gateway.store.mongodb.leases import LeasesPart
from gateway.store.mongodb.listings import ListingsPart
from gateway.store.mongodb.loop import LoopPart
from gateway.store.mongodb.records import Record
from gateway.store.mongodb.retention import RetentionPart
from gateway.store.mongodb.signals import SignalsPart
from gateway.store.mongodb.tokens import MongoTokens
from gateway.store.mongodb.uploads import MongoUploads
from patching import Json


def connect(uri: str, database: str, timeout_ms: int) -> MongoStore:
    """A store on the database named; connects in the background, with the first call at the latest.

    ``timeout_ms`` bounds each call as a whole, the driver's own retries included. Raises
    ValueError where the URI is malformed.
    """
    try:
        client: MongoClient[Record] = MongoClient(
            uri,
            timeoutMS=timeout_ms,
            serverSelectionTimeoutMS=timeout_ms,
            connectTimeoutMS=timeout_ms,
            # The loop repeats writes itself, and knows which of them must be looked up first. The
            # driver's own way costs the server a fifth to a third more for each write.
            retryWrites=False,
            appname="metadata-gateway",
        )
    except (PyMongoError, ValueError) as error:
        raise ValueError(f"the MongoDB URI can't be used: {error}") from error
    return MongoStore(Connection(client, database))


class MongoStore(LoopPart, HistoryPart, ListingsPart, SignalsPart, RetentionPart, LeasesPart):
    """See ``gateway.store.contract.Store``."""

    def uploads(self) -> MongoUploads:
        """Staged uploads, kept in the same database and over the same client."""
        return MongoUploads(self._on)

    def tokens(self) -> MongoTokens:
        """Issued tokens, kept in the same database and over the same client."""
        return MongoTokens(self._on)

    def stored_bytes(self, content: Json) -> int:
        return records.stored_bytes(content)

    def ping(self) -> None:
        with reaching():
            self._on.client.admin.command("ping", read_preference=ReadPreference.PRIMARY)

    def close(self) -> None:
        self._on.client.close()
