"""JSON Web Tokens of another issuer (RFC 7519), verified by the issuer's public keys.

The keys are fetched for the first token, then every five minutes, and when a token names an unknown
key. Fetches are bounded: one at a time, which ends after five seconds, and one in ten seconds,
however many tokens come. Only a limited number of requests wait for a fetch, because made-up tokens
mustn't occupy the whole worker. Keys stay valid for an hour while they can't be fetched again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
import msgspec

from gateway.access.principal import Principal, checked_name, principal
from gateway.errors import KeysUnavailable, Unauthenticated
from gateway.tokens.fetching import body_of

_log = logging.getLogger(__name__)

KEYS_MAX: Final = 500
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def fetched_keys(url: str, seconds: float) -> Mapping[str, jwt.PyJWK]:
    """The signing keys at ``url``, by their ids. It follows no redirect.

    Entries that can't be used are skipped: the issuer may publish kinds of keys that are unknown
    here. Symmetric ones are skipped, too, since no token may be signed with them; so they can't
    displace a key with the same id.

    Raises OSError (including TimeoutError after ``seconds``), ValueError, RecursionError, and the
    library's PyJWTError.
    """
    keys = _decode(body_of(url, seconds)).get("keys")
    if not isinstance(keys, list) or len(keys) > KEYS_MAX:
        raise ValueError(f"a key set must have a list of at most {KEYS_MAX} keys")
    found = [key for each in keys if (key := _signing_key(each)) is not None]
    if not found:
        raise ValueError("the key set has no signature key with an id (kid)")
    return {key.key_id: key for key in found if key.key_id}


def _signing_key(entry: Any) -> jwt.PyJWK | None:
    """The signing key in an entry of a key set; None if it is no signing key, or has no id."""
    if not isinstance(entry, dict) or entry.get("kty") == "oct":
        return None
    key_id = entry.get("kid")
    if not isinstance(key_id, str) or not key_id or entry.get("use") not in ("sig", None):
        return None
    try:
        return jwt.PyJWK(entry)
    except _UNUSABLE:
        return None


# The library's errors for an entry that is no key, or of an unknown kind.
_UNUSABLE: Final = (
    *(jwt.PyJWTError, ValueError, TypeError),
    *(AttributeError, OverflowError, NotImplementedError),
)
_REQUIRED: Final = ["exp", "iss", "aud", "sub"]
# Allowed difference between the clocks of two machines.
_LEEWAY_S: Final = 30

_REASONS: Final[dict[type[Exception], str]] = {
    jwt.ExpiredSignatureError: "the token expired",
    jwt.ImmatureSignatureError: "the token isn't valid yet",
    jwt.InvalidAudienceError: "the token is for another service (aud)",
    jwt.InvalidIssuerError: "the token's issuer isn't trusted (iss)",
    jwt.InvalidAlgorithmError: "the token is signed by an algorithm that isn't allowed (alg)",
    jwt.InvalidSignatureError: "the token's signature is wrong",
    jwt.MissingRequiredClaimError: f"the token lacks one of the claims {', '.join(_REQUIRED)}",
}
# The library's errors for an invalid token.
_REFUSALS: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Trust:
    """The conditions for a token, all of which it must fulfil. ``grants_claim`` is the claim with
    the list of grants, ``name_claim`` the one with the holder's name.

    ``algorithms`` are asymmetric: a symmetric one would use a public key as the secret. ``prefix``
    is put before each holder's name, so that the issuer can't name principals of others.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    grants_claim: str
    prefix: str
    name_claim: str = "sub"


class WebTokens:
    """Verifies JWTs. Thread-safe."""

    def __init__(self, keys: KeySet, trust: Trust) -> None:
        self._keys = keys
        self._trust = trust

    def is_one(self, token: str) -> bool:
        return token.count(".") == 2

    def principal(self, token: str) -> Principal:
        """The token's holder, named with the issuer's prefix, with the grants in the token's claim.

        A token without grants gives no rights; a token with a malformed grant is refused. Raises
        Unauthenticated and KeysUnavailable.
        """
        try:
            key = self._keys.key(_key_id(token))
            claims = self._verified(token, key)
        except _REFUSALS as error:
            reason = _REASONS.get(type(error), "the token can't be understood")
            # Without the library's error as its cause: that may quote the token.
            raise Unauthenticated(reason, presented=True) from None
        trust = self._trust
        try:
            name = trust.prefix + checked_name(_holder(claims, trust.name_claim))
            return principal(name, claims.get(trust.grants_claim, []))
        except ValueError as error:
            where = f"{trust.name_claim}, {trust.grants_claim}"
            raise Unauthenticated(
                f"the token's claims ({where}): {error}", presented=True
            ) from None

    def _verified(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        trust = self._trust
        return jwt.decode(
            token,
            key,
            algorithms=trust.algorithms,
            audience=trust.audience,
            issuer=trust.issuer,
            leeway=_LEEWAY_S,
            options={"require": _REQUIRED},
        )


def _holder(claims: Mapping[str, Any], claim: str) -> str:
    """The holder's name. Raises ValueError."""
    name = claims.get(claim)
    if not isinstance(name, str):
        raise ValueError(f"{claim!r} must name the holder of the token")
    # With an unverified address, somebody could take another's name at the issuer.
    if claim == "email" and claims.get("email_verified", True) is not True:
        raise ValueError("the issuer hasn't verified the e-mail address")
    return name


def _key_id(token: str) -> str:
    key_id = jwt.get_unverified_header(token).get("kid")
    if not isinstance(key_id, str):
        raise Unauthenticated(
            "the token doesn't say which key it is signed with (kid)", presented=True
        )
    return key_id


# The age at which keys are fetched again, and up to which they are used if that fails.
FRESH_S: Final = 300.0
USABLE_S: Final = 3600.0
# The shortest time between two fetches, successful or not.
PAUSE_S: Final = 10.0
_TIMEOUT_S: Final = 5.0
# How many threads may wait for a fetch.
WAITING_MAX: Final = 64

# Raises OSError, ValueError, RecursionError, or the library's PyJWTError.
Fetch = Callable[[], Mapping[str, jwt.PyJWK]]


@dataclass(frozen=True, slots=True)
class _Held:
    keys: Mapping[str, jwt.PyJWK]
    fetched_s: float


class KeySet:
    """An issuer's keys. Thread-safe. ``monotonic`` in seconds; ``patience_s``: how long to wait for
    the fetch of another thread."""

    def __init__(
        self,
        fetch: Fetch,
        monotonic: Callable[[], float] = time.monotonic,
        patience_s: float = _TIMEOUT_S,
    ) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._patience_s = patience_s
        self._waiting = threading.BoundedSemaphore(WAITING_MAX)
        self._held: _Held | None = None
        self._tried_s: float | None = None
        self._failed = False
        self._fetching = threading.Lock()

    def key(self, key_id: str) -> jwt.PyJWK:
        """The key with this id. Raises Unauthenticated if the issuer has none, KeysUnavailable if
        the keys can't be fetched.
        """
        key = self._usable(key_id, FRESH_S)
        if key is not None:
            return key
        # A known key is used at once, without waiting for another thread's fetch.
        waits = self._usable(key_id, USABLE_S) is None
        if self._begin_fetch(waits=waits):
            try:
                if self._usable(key_id, FRESH_S) is None:
                    self._refresh()
            finally:
                self._fetching.release()
        elif waits:
            raise KeysUnavailable("the keys that tokens are signed with are still being fetched")
        key = self._usable(key_id, USABLE_S)
        if key is not None:
            return key
        if self._failed or self._held is None:
            raise KeysUnavailable("the keys that tokens are signed with can't be fetched")
        raise Unauthenticated(
            "the token is signed with a key that its issuer doesn't publish", presented=True
        )

    def _begin_fetch(self, *, waits: bool) -> bool:
        """Take the lock for a fetch, perhaps after waiting; whether this thread has it now."""
        if self._fetching.acquire(blocking=False):
            return True
        if not waits or not self._waiting.acquire(blocking=False):
            return False
        try:
            return self._fetching.acquire(timeout=self._patience_s)
        finally:
            self._waiting.release()

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
        except (OSError, ValueError, RecursionError, jwt.PyJWTError) as error:
            self._failed = True
            _log.warning("the issuer's keys can't be fetched: %s", error)
        finally:
            self._tried_s = self._monotonic()


def fetch_from(url: str, seconds: float = _TIMEOUT_S) -> Fetch:
    """A function that fetches the key set at ``url``; it follows no redirect."""
    return lambda: fetched_keys(url, seconds)
