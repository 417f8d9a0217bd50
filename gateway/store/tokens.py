"""Issued tokens in a database. Apart from ``Store``, since they are of no catalog.

Errors: ``Unreachable`` from any call, as in ``gateway.store.contract``. A read is never older than
a write that was acknowledged before it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredToken:
    """``grants`` as text, ``role:pattern``. Only a digest of the secret is stored.

    ``expires_us`` None: it never expires. ``revoked_us`` None: it isn't revoked.
    """

    id: str
    name: str
    grants: tuple[str, ...]
    secret_sha256: str
    created_us: int
    expires_us: int | None = None
    revoked_us: int | None = None


class TokenStore(Protocol):
    """See the module's docstring for the rules of every call."""

    def create_token(self, token: StoredToken) -> None:
        """Store a token with a new id. ValueError where the id is taken."""

    def token(self, token_id: str) -> StoredToken | None: ...

    def tokens_of(self, ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        """By id, the existing tokens of ``ids``."""

    def tokens(self) -> Sequence[StoredToken]:
        """All tokens, oldest first."""

    def revoke_token(self, token_id: str, revoked_us: int) -> StoredToken | None:
        """Revoke the token for good, and return it; a second revocation keeps the first one's time.
        None: there is no such token.
        """
