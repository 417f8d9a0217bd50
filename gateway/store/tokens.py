"""The tokens that were issued, as a database keeps them. Apart from ``Store``: no catalog has them.

Errors: ``Unreachable`` from any call, as in ``gateway.store.contract``. A read is never older than
any write that was acknowledged before it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredToken:
    """``grants`` as they are written, ``role:pattern``. Of the secret only a digest is kept.

    ``expires_us`` None: it doesn't. ``revoked_us`` None: it isn't.
    """

    id: str
    name: str
    grants: tuple[str, ...]
    secret_sha256: str
    created_us: int
    expires_us: int | None = None
    revoked_us: int | None = None


class TokenStore(Protocol):
    """See the module's docstring for what holds of every call."""

    def create_token(self, token: StoredToken) -> None:
        """Keep a token with a new id. ValueError where there is one with it."""

    def token(self, token_id: str) -> StoredToken | None: ...

    def tokens_of(self, ids: AbstractSet[str]) -> Mapping[str, StoredToken]:
        """By id, those of ``ids`` that there are."""

    def tokens(self) -> Sequence[StoredToken]:
        """All of them, by the time they were made, oldest first."""

    def revoke_token(self, token_id: str, revoked_us: int) -> StoredToken | None:
        """The token, revoked for good; one that was revoked stays so since then. None: no such."""
