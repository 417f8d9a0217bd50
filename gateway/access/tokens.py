"""Opaque tokens, ``gwt_<id>_<secret>``: issued, listed, revoked, and told whom they are from.

Of the secret, 256 random bits, only its SHA-256 is kept: it can't be guessed, so nothing slower is
needed, and whoever reads the database can't use what is there.

What was read of a token is remembered for three seconds at most, since before it was read. So a
token costs one look into the database in that time, however many requests carry it, and a
revocation holds soon.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.access.errors import Unauthenticated
from gateway.access.notation import principal, written
from gateway.access.principal import Grant, Principal
from gateway.store.contract import Unreachable
from gateway.store.tokens import StoredToken, TokenStore

PREFIX: Final = "gwt_"
REMEMBERED_S: Final = 3.0
# One request of those that carry the token looks it up anew, while the others go on with what is
# remembered: at its end they would all look it up at the same time.
_RENEWED_S: Final = 1.5
_REMEMBERED_MAX: Final = 10_000
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_parsed = re.compile(
    rf"gwt_([0-9a-f]{{{2 * _ID_BYTES}}})_([0-9a-f]{{{2 * _SECRET_BYTES}}})"
).fullmatch


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """``text`` is what its holder sends; it can't be had a second time."""

    stored: StoredToken
    text: str = field(repr=False)


@dataclass(slots=True)
class _Seen:
    """``token`` None: there was none, when it was looked for at ``looked_s``."""

    token: StoredToken | None
    principal: Principal | None
    looked_s: float
    is_renewed: bool = False


class Tokens:
    """Thread-safe. Any call raises the store's Unreachable."""

    def __init__(
        self,
        store: TokenStore,
        *,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._now_us = now_us
        self._monotonic = monotonic
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def issue(self, name: str, grants: Sequence[Grant], lifetime_s: int | None) -> IssuedToken:
        """A new token, for ever where it has no lifetime. ValueError for a name that can't be."""
        texts = tuple(map(written, grants))
        principal(name, texts)
        secret = secrets.token_hex(_SECRET_BYTES)
        now_us = self._now_us()
        stored = StoredToken(
            id=secrets.token_hex(_ID_BYTES),
            name=name,
            grants=texts,
            secret_sha256=_digest(secret),
            created_us=now_us,
            expires_us=None if lifetime_s is None else now_us + lifetime_s * 1_000_000,
        )
        self._store.create_token(stored)
        return IssuedToken(stored, f"{PREFIX}{stored.id}_{secret}")

    def all(self) -> Sequence[StoredToken]:
        """Also those that expired or were revoked; oldest first."""
        return self._store.tokens()

    def revoke(self, token_id: str) -> StoredToken | None:
        """None where there is no such token. Revoked before, it stays so since then."""
        return self._store.revoke_token(token_id, self._now_us())

    def is_one(self, token: str) -> bool:
        return token.startswith(PREFIX)

    def principal(self, token: str) -> Principal:
        """Whom the token was issued to. Raises Unauthenticated."""
        found = _parsed(token)
        if found is None:
            raise _invalid("the token is none that was issued here")
        token_id, secret = found.groups()
        seen = self._looked_up(token_id)
        stored = seen.token
        # In a time that says nothing of the secret. Of ids it may: they are none.
        if stored is None or not hmac.compare_digest(_digest(secret), stored.secret_sha256):
            raise _invalid("the token is none that was issued here")
        if stored.revoked_us is not None:
            raise _invalid("the token was revoked")
        if stored.expires_us is not None and stored.expires_us <= self._now_us():
            raise _invalid("the token expired")
        assert seen.principal is not None
        return seen.principal

    def _looked_up(self, token_id: str) -> _Seen:
        now_s = self._monotonic()
        age_s = 0.0
        with self._lock:
            seen = self._seen.get(token_id)
            if seen is not None:
                age_s = now_s - seen.looked_s
                if age_s < _RENEWED_S or (age_s < REMEMBERED_S and seen.is_renewed):
                    return seen
                seen.is_renewed = True
        try:
            stored = self._store.token(token_id)
        except Unreachable:
            if seen is not None and age_s < REMEMBERED_S:
                return seen
            raise
        # Grants that are none give no rights: somebody else wrote them into the database.
        whose = None if stored is None else _principal_of(stored)
        seen = _Seen(stored if whose is not None else None, whose, now_s)
        with self._lock:
            self._seen[token_id] = seen
            self._seen.move_to_end(token_id)
            while len(self._seen) > _REMEMBERED_MAX:
                self._seen.popitem(last=False)
        return seen


def _principal_of(stored: StoredToken) -> Principal | None:
    try:
        return principal(stored.name, stored.grants)
    except ValueError:
        return None


def _digest(secret: str) -> str:
    return hashlib.sha256(bytes.fromhex(secret)).hexdigest()


def _invalid(detail: str) -> Unauthenticated:
    return Unauthenticated(detail, presented=True)
