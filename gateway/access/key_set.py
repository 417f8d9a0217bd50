"""The keys that an issuer signs its tokens with, by their ids.

They are fetched when the first token comes, and again every five minutes, or when a token names a
key that isn't among them. That is bounded: however many such tokens come, there is one fetch at a
time and one in ten seconds. Keys that can't be fetched anew count for an hour.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import jwt

from gateway.access.errors import KeysUnavailable, Unauthenticated

FRESH_S: Final = 300.0
USABLE_S: Final = 3600.0
# Between two fetches, whatever they were for and whether they succeeded.
PAUSE_S: Final = 10.0
_TIMEOUT_S: Final = 5.0

# Raises OSError, ValueError, RecursionError, or the library's PyJWTError.
Fetch = Callable[[], Mapping[str, jwt.PyJWK]]


@dataclass(frozen=True, slots=True)
class _Held:
    keys: Mapping[str, jwt.PyJWK]
    fetched_s: float


class KeySet:
    """Thread-safe. ``monotonic`` in seconds."""

    def __init__(self, fetch: Fetch, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._held: _Held | None = None
        self._tried_s: float | None = None
        self._failed = False
        self._fetching = threading.Lock()

    def key(self, key_id: str) -> jwt.PyJWK:
        """Raises Unauthenticated where there is none with this id, KeysUnavailable where nobody
        can tell now."""
        key = self._usable(key_id, FRESH_S)
        if key is not None:
            return key
        # Whoever has a key that counts doesn't wait for somebody else's fetch.
        waits = self._usable(key_id, USABLE_S) is None
        if self._fetching.acquire(blocking=waits):
            try:
                if self._usable(key_id, FRESH_S) is None:
                    self._refresh()
            finally:
                self._fetching.release()
        key = self._usable(key_id, USABLE_S)
        if key is not None:
            return key
        if self._failed or self._held is None:
            raise KeysUnavailable("the keys that tokens are signed with can't be fetched")
        raise Unauthenticated(
            "the token is signed with a key that its issuer doesn't show", presented=True
        )

    def _usable(self, key_id: str, age_max_s: float) -> jwt.PyJWK | None:
        held = self._held
        if held is None or self._monotonic() - held.fetched_s >= age_max_s:
            return None
        return held.keys.get(key_id)

    def _refresh(self) -> None:
        now_s = self._monotonic()
        if self._tried_s is not None and now_s - self._tried_s < PAUSE_S:
            return
        try:
            self._held = _Held(self._fetch(), now_s)
            self._failed = False
        except (OSError, ValueError, RecursionError, jwt.PyJWTError):
            self._failed = True
        finally:
            self._tried_s = self._monotonic()


def fetch_from(url: str) -> Fetch:
    """Fetches the key set that lies at ``url``; without following it elsewhere."""
    client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=_TIMEOUT_S)

    def fetch() -> Mapping[str, jwt.PyJWK]:
        return {key.key_id: key for key in client.get_signing_keys(refresh=True) if key.key_id}

    return fetch
