"""Issued tokens in memory: see ``gateway.store.tokens`` for the contract."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from gateway.store.tokens import StoredToken


class MemoryTokens:
    """See ``gateway.store.tokens.TokenStore``. Every call is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[str, StoredToken] = {}

    def create_token(self, token: StoredToken) -> None:
        with self._lock:
            if self._tokens.setdefault(token.id, token) is not token:
                raise ValueError("there is a token with this id")

    def token(self, token_id: str) -> StoredToken | None:
        with self._lock:
            return self._tokens.get(token_id)

    def tokens_of(self, ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        with self._lock:
            return {each: self._tokens[each] for each in ids if each in self._tokens}

    def tokens(self) -> Sequence[StoredToken]:
        with self._lock:
            return sorted(self._tokens.values(), key=lambda each: (each.created_us, each.id))

    def revoke_token(self, token_id: str, revoked_us: int) -> StoredToken | None:
        with self._lock:
            token = self._tokens.get(token_id)
            if token is not None and token.revoked_us is None:
                token = self._tokens[token_id] = replace(token, revoked_us=revoked_us)
            return token
