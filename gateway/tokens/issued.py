"""Opaque tokens, ``gwt_<id>_<secret>``: issued, listed, revoked, verified.

The secret is 256 random bits, and only its SHA-256 is stored. Nobody can guess it, so no slower
hash is needed; and a reader of the database learns no secret.

A token that was read is remembered for three seconds, counted from before the read. So a token
costs at most two queries in that time, however many requests carry it, and a revocation takes
effect soon.

Ids can be made up. Unknown ids are looked up together, at most ten times a second::

    id 1 comes                                      -->  a query for 1
    ids 2, 3 and 2 come meanwhile, or within 0.1 s  -->  one query for 2 and 3

So a new token, from any gateway, works at once, or a tenth of a second later while others try
made-up ids. Ids without a token are remembered separately, so no made-up id displaces a token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway import cpu
from gateway.access.principal import Grant, Principal, grant_text, principal
from gateway.errors import Unauthenticated
from gateway.model import IssuedToken, StoredToken
from gateway.store.contract import StoreUnreachable, TokenStore
from gateway.store.unreachable import as_unavailable, as_unknown

PREFIX: Final = "gwt_"
REMEMBERED_S: Final = 3.0
# At this age, one request looks the token up again while the others use the remembered one.
# Otherwise, all of them would look it up at once when its time is over.
_RENEWED_S: Final = 1.5
_REMEMBERED_MAX: Final = 10_000
_BETWEEN_QUERIES_S: Final = 0.1
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_parsed = re.compile(
    rf"gwt_([0-9a-f]{{{2 * _ID_BYTES}}})_([0-9a-f]{{{2 * _SECRET_BYTES}}})"
).fullmatch


@dataclass(slots=True)
class _CachedToken:
    """A token as it was at ``read_s``; None: there was none with this id."""

    token: StoredToken | None
    principal: Principal | None
    read_s: float
    is_renewed: bool = False


class Tokens:
    """Issues and verifies tokens. Thread-safe. Every call but ``principal`` raises the store's
    StoreUnreachable."""

    def __init__(
        self,
        store: TokenStore,
        *,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._store = store
        self._now_us = now_us
        self._monotonic = monotonic
        self._cached: OrderedDict[str, _CachedToken] = OrderedDict()
        self._none: OrderedDict[str, _CachedToken] = OrderedDict()
        self._unknown = _Lookups(store, monotonic, sleep)
        self._lock = threading.Lock()

    def issue(self, name: str, grants: Sequence[Grant], lifetime_s: int | None) -> IssuedToken:
        """A new token; without a lifetime, it never expires. Raises ValueError for an invalid
        name."""
        texts = tuple(map(grant_text, grants))
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
        """All tokens, including expired and revoked ones, oldest first."""
        return self._store.tokens()

    def revoke(self, token_id: str) -> StoredToken | None:
        """Revoke the token, and return it; None if there is none. A second revocation keeps the
        first one's time."""
        return self._store.revoke_token(token_id, self._now_us())

    def is_one(self, token: str) -> bool:
        return token.startswith(PREFIX)

    def principal(self, token: str) -> Principal:
        """The principal that the token was issued to. Raises Unauthenticated, StoreUnavailable."""
        found = _parsed(token)
        if found is None:
            raise _invalid("this gateway did not issue the token")
        token_id, secret = found.groups()
        cached = self._look_up(token_id)
        stored = cached.token
        # The comparison's time says nothing about the secret. Ids aren't secret.
        if stored is None or not hmac.compare_digest(_digest(secret), stored.secret_sha256):
            raise _invalid("this gateway did not issue the token")
        if stored.revoked_us is not None:
            raise _invalid("the token was revoked")
        if stored.expires_us is not None and stored.expires_us <= self._now_us():
            raise _invalid("the token expired")
        assert cached.principal is not None
        return cached.principal

    def _look_up(self, token_id: str) -> _CachedToken:
        now_s = self._monotonic()
        age_s = 0.0
        with self._lock:
            cached = self._cached.get(token_id) or self._none.get(token_id)
            if cached is not None:
                age_s = now_s - cached.read_s
                if age_s < _RENEWED_S or (age_s < REMEMBERED_S and cached.is_renewed):
                    return cached
                cached.is_renewed = True
        try:
            if cached is None or cached.token is None:
                stored = self._unknown.token(token_id)
            else:
                stored = self._store.token(token_id)
        except StoreUnreachable:
            if cached is not None and age_s < REMEMBERED_S:
                return cached
            with as_unavailable():
                raise
        # A token with a malformed grant, which others wrote into the database, counts as none.
        whose = None if stored is None else _principal_of(stored)
        cached = _CachedToken(stored if whose is not None else None, whose, now_s)
        remembered, other = self._cached, self._none
        if cached.token is None:
            remembered, other = other, remembered
        with self._lock:
            other.pop(token_id, None)
            remembered[token_id] = cached
            remembered.move_to_end(token_id)
            while len(remembered) > _REMEMBERED_MAX:
                remembered.popitem(last=False)
        return cached


class ServedTokens:
    """Issues, lists and revokes tokens for HTTP. Every call raises StoreUnavailable; those that
    change something also raise UnknownOutcome."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def issue(self, name: str, grants: Sequence[Grant], lifetime_s: int | None) -> IssuedToken:
        with as_unknown():
            return self._tokens.issue(name, grants, lifetime_s)

    def all(self) -> Sequence[StoredToken]:
        with as_unavailable():
            return self._tokens.all()

    def revoke(self, token_id: str) -> StoredToken | None:
        with as_unknown():
            return self._tokens.revoke(token_id)


class _Query:
    """One query for several ids. ``found`` is None until the query is over, or if it failed with
    ``error``."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.found: Mapping[str, StoredToken] | None = None
        self.error: Exception | None = None


class _Lookups:
    """Looks up tokens by ids that may be made up. Thread-safe.

    One of the threads that wait for the next query makes it for all of them.
    """

    def __init__(
        self,
        store: TokenStore,
        monotonic: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        self._sleep = sleep
        self._next = _Query()
        self._is_asking = False
        self._asked_s = float("-inf")
        self._changed = threading.Condition()

    def token(self, token_id: str) -> StoredToken | None:
        """The token with this id, or None. Raises the store's StoreUnreachable."""
        with self._changed:
            query = self._next
            query.ids.add(token_id)
            while self._is_asking and query.found is None and query.error is None:
                self._changed.wait()
            asks = query.found is None and query.error is None
            self._is_asking = self._is_asking or asks
        if asks:
            self._ask(query)
        if query.error is not None:
            raise query.error
        assert query.found is not None
        return query.found.get(token_id)

    def _ask(self, query: _Query) -> None:
        found: Mapping[str, StoredToken] | None = None
        error: Exception | None = None
        own = cpu.work_for(None)  # charged to nobody: the query is for all that wait
        try:
            wait_s = self._asked_s + _BETWEEN_QUERIES_S - self._monotonic()
            if wait_s > 0:
                self._sleep(wait_s)
            with self._changed:
                self._next = _Query()
            self._asked_s = self._monotonic()
            found = self._store.tokens_of(query.ids)
        except Exception as raised:  # noqa: BLE001 - each who waits raises it
            error = raised
        finally:
            cpu.work_for(own)
            with self._changed:
                query.found, query.error = found, error
                self._is_asking = False
                self._changed.notify_all()


def _principal_of(stored: StoredToken) -> Principal | None:
    try:
        return principal(stored.name, stored.grants)
    except ValueError:
        return None


def _digest(secret: str) -> str:
    return hashlib.sha256(bytes.fromhex(secret)).hexdigest()


def _invalid(detail: str) -> Unauthenticated:
    return Unauthenticated(detail, presented=True)
