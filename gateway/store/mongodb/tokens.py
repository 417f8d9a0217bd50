"""Issued tokens: see ``gateway.store.contract`` for the contract.

``tokens``  ``_id`` the token's id; name, grants, the secret's digest, times. A handful of records:
            read by ``_id``, listed as a whole, not sharded
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec
from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from gateway.model import StoredToken
from gateway.store.mongodb.connection import StorePart, require_name_taken
from gateway.store.mongodb.records import Record


class MongoTokens(StorePart):
    """See ``gateway.store.contract.TokenStore``. Skips records that can't be read."""

    @property
    def _tokens(self) -> Collection[Record]:
        return self._on.database["tokens"]

    def create_token(self, token: StoredToken) -> None:
        record = {
            "_id": token.id,
            "name": token.name,
            "grants": list(token.grants),
            "secret_sha256": token.secret_sha256,
            "created_us": token.created_us,
            "expires_us": token.expires_us,
            "revoked_us": token.revoked_us,
        }
        with self._on.writing() as session:
            try:
                self._tokens.insert_one(record, session=session)
            except DuplicateKeyError as error:
                require_name_taken(error)
                raise ValueError("there is a token with this id") from error

    def token(self, token_id: str) -> StoredToken | None:
        with self._on.reading() as session:
            found = list(self._tokens.find({"_id": {"$eq": token_id}}, session=session))
        return next(iter(self._ours(found)), None)

    def tokens_of(self, ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        with self._on.reading() as session:
            records = list(self._tokens.find({"_id": {"$in": list(ids)}}, session=session))
        return {token.id: token for token in self._ours(records)}

    def tokens(self) -> Sequence[StoredToken]:
        with self._on.reading() as session:
            records = list(self._tokens.find({}, session=session))
        return sorted(self._ours(records), key=lambda each: (each.created_us, each.id))

    def revoke_token(self, token_id: str, revoked_us: int) -> StoredToken | None:
        first = {"_id": {"$eq": token_id}, "revoked_us": None}
        with self._on.writing() as session:
            record = self._tokens.find_one_and_update(
                first,
                {"$set": {"revoked_us": revoked_us}},
                return_document=ReturnDocument.AFTER,
                session=session,
            )
        return self.token(token_id) if record is None else next(iter(self._ours([record])), None)

    def _ours(self, found: Iterable[Record]) -> list[StoredToken]:
        return self._readable(found, _token_from, "token")


def _token_from(record: Record) -> StoredToken:
    """The token in a record. Raises LookupError, TypeError and ValueError."""
    return msgspec.convert({**record, "id": record["_id"]}, StoredToken)
