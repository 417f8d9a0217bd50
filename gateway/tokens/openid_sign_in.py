"""Signing in by OpenID Connect: an authorization code becomes a token that the gateway accepts.

The browser asks the issuer for the code, with a challenge whose verifier only the browser knows
(PKCE, RFC 7636). The gateway exchanges code and verifier for a token, because only the gateway may
know the client's secret. It keeps nothing: the token is sent with each request, like any other, and
means what its claims say.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from gateway.access.principal import Principal
from gateway.errors import KeysUnavailable, Unauthenticated
from gateway.tokens.fetching import Declined, body_of
from gateway.tokens.web import FRESH_S, PAUSE_S, USABLE_S, WebTokens

_TIMEOUT_S: Final = 5.0
# How many may sign in at a time, and how many may wait for the issuer's discovery document: nobody
# is authenticated yet.
AT_ONCE_MAX: Final = 16
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class OpenIdClient:
    """The gateway, as the issuer knows it."""

    id: str
    secret: str | None
    scopes: str


@dataclass(frozen=True, slots=True)
class OpenIdProvider:
    """The issuer's endpoints, from its discovery document (OpenID Connect Discovery 1.0)."""

    authorization: str
    token: str
    end_session: str | None
    takes_basic: bool


class OpenIdSignIn:
    """Signs people in. Thread-safe. ``tokens`` decides which of the issuer's tokens are accepted;
    ``web_url`` raises ValueError for a URL that may not be called.
    """

    def __init__(
        self,
        issuer: str,
        client: OpenIdClient,
        tokens: WebTokens,
        web_url: Callable[[str], str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._client = client
        self._tokens = tokens
        self._web_url = web_url
        self._monotonic = monotonic
        self._known: tuple[float, OpenIdProvider] | None = None
        # When the discovery document was asked for, and why that failed.
        self._tried_s = -PAUSE_S
        self._failure = "it hasn't answered yet"
        self._discovering = threading.Lock()
        self._waiting = threading.BoundedSemaphore(AT_ONCE_MAX)
        # When the issuer last gave no answer to an exchange.
        self._silent_s = -PAUSE_S
        self._asking = threading.BoundedSemaphore(AT_ONCE_MAX)

    def offer(self) -> Mapping[str, str | None]:
        """What the browser needs to ask the issuer. Raises KeysUnavailable."""
        provider = self._provider()
        return {
            "issuer": self._issuer,
            "client_id": self._client.id,
            "scope": self._client.scopes,
            "authorization_endpoint": provider.authorization,
            "end_session_endpoint": provider.end_session,
        }

    def _provider(self) -> OpenIdProvider:
        """The issuer's endpoints. They are read again after FRESH_S, by one thread at a time, and
        not twice within PAUSE_S. If that fails, the old ones are used up to USABLE_S. Raises
        KeysUnavailable if there are none."""
        found = self._usable(FRESH_S)
        if found is not None:
            return found
        # Known endpoints are used at once, without waiting for the thread that reads them.
        if self._begin_discovery(waits=self._usable(USABLE_S) is None):
            try:
                if self._usable(FRESH_S) is None:
                    self._discover()
            finally:
                self._discovering.release()
        found = self._usable(USABLE_S)
        if found is None:
            raise KeysUnavailable(f"the issuer doesn't say how to sign in: {self._failure}")
        return found

    def _usable(self, age_max_s: float) -> OpenIdProvider | None:
        known = self._known
        return known[1] if known and self._monotonic() - known[0] < age_max_s else None

    def _begin_discovery(self, *, waits: bool) -> bool:
        """Take the lock for discovery, perhaps after waiting; whether this thread has it now."""
        if self._discovering.acquire(blocking=False):
            return True
        if not waits or not self._waiting.acquire(blocking=False):
            return False
        try:
            return self._discovering.acquire(timeout=_TIMEOUT_S)
        finally:
            self._waiting.release()

    def _discover(self) -> None:
        now_s = self._monotonic()
        if now_s - self._tried_s < PAUSE_S:
            return
        url = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
        try:
            self._known = now_s, self._provider_of(_decode(body_of(url, _TIMEOUT_S)))
        except (OSError, ValueError, RecursionError) as error:
            self._failure = str(error)
        finally:
            self._tried_s = self._monotonic()

    def exchange(self, code: str, verifier: str, redirect_uri: str) -> tuple[str, Principal]:
        """The token for a code, and its principal.

        Raises Unauthenticated if the issuer refuses, or gives no token that the gateway accepts;
        KeysUnavailable if it can't be asked.
        """
        provider = self._provider()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
            "client_id": self._client.id,
        }
        headers = {"Accept": "application/json"}
        if self._client.secret is not None and provider.takes_basic:
            headers["Authorization"] = _basic(self._client.id, self._client.secret)
        elif self._client.secret is not None:
            form["client_secret"] = self._client.secret
        try:
            answer = _decode(self._ask(provider.token, urlencode(form).encode(), headers))
        except Declined as error:
            if error.status >= 500:
                raise KeysUnavailable(f"the issuer can't sign in: {error}") from None
            raise Unauthenticated(_refusal(error), presented=True) from None
        except (OSError, ValueError, RecursionError) as error:
            raise KeysUnavailable(f"the issuer can't sign in: {error}") from None
        return self._accepted(answer)

    def _accepted(self, answer: Mapping[str, Any]) -> tuple[str, Principal]:
        """The access token, if it is a JWT that the gateway accepts, otherwise the ID token; with
        its principal. Raises Unauthenticated."""
        refused = Unauthenticated(
            "the issuer signed you in, but gave no JWT: ask for the scope `openid`", presented=True
        )
        for name in ("access_token", "id_token"):
            token = answer.get(name)
            if isinstance(token, str) and self._tokens.is_one(token):
                try:
                    return token, self._tokens.principal(token)
                except Unauthenticated as error:
                    detail = f"the issuer signed you in, but its {name} isn't accepted: {error}"
                    refused = Unauthenticated(detail, presented=True)
        raise refused from None

    def _ask(self, url: str, form: bytes, headers: Mapping[str, str]) -> bytes:
        """The issuer's answer to a form. It isn't asked within PAUSE_S after it gave no answer, so
        that calls that wait in vain don't take all places when it answers again. Raises
        KeysUnavailable."""
        if self._monotonic() - self._silent_s < PAUSE_S:
            raise KeysUnavailable("the issuer doesn't answer; try again in some seconds")
        if not self._asking.acquire(blocking=False):
            raise KeysUnavailable("too many people are signing in; try again in some seconds")
        try:
            return body_of(url, _TIMEOUT_S, form, headers)
        except Declined:
            raise
        except OSError:
            self._silent_s = self._monotonic()
            raise
        finally:
            self._asking.release()

    def _provider_of(self, found: Mapping[str, Any]) -> OpenIdProvider:
        """The endpoints in a discovery document. Raises ValueError."""
        if found.get("issuer") != self._issuer:
            raise ValueError("it names another issuer")
        methods = found.get("token_endpoint_auth_methods_supported")
        end_session = found.get("end_session_endpoint")
        return OpenIdProvider(
            self._url(found, "authorization_endpoint"),
            self._url(found, "token_endpoint"),
            None if end_session is None else self._url(found, "end_session_endpoint"),
            not isinstance(methods, list) or "client_secret_basic" in methods,
        )

    def _url(self, found: Mapping[str, Any], name: str) -> str:
        url = found.get(name)
        try:
            return self._web_url(url if isinstance(url, str) else "")
        except ValueError:
            raise ValueError(f"{name} must be an https URL, or one of this machine") from None


def _basic(name: str, secret: str) -> str:
    # Each is form-encoded before they are joined (RFC 6749, 2.3.1).
    pair = f"{quote(name, safe='')}:{quote(secret, safe='')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _refusal(declined: Declined) -> str:
    """The issuer's reason, as text for people."""
    try:
        found = _decode(declined.body)
    except (ValueError, RecursionError):
        found = {}
    reasons = [str(found[name]) for name in ("error", "error_description") if name in found]
    shown = " ".join(": ".join(reasons).split())[:300] or str(declined)
    return f"the issuer refuses to sign you in: {shown}"
