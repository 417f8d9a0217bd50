"""Signing in by OpenID Connect: an authorization code becomes a token that the gateway accepts.

The browser asks the issuer for the code, with a challenge whose verifier only it knows (PKCE, RFC
7636), and the gateway exchanges both, for it alone may know the client's secret. It keeps nothing
of it: the token is sent with each request, as any other is, and means what its claims say.
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
from gateway.tokens.web import WebTokens

FRESH_S: Final = 300.0
_TIMEOUT_S: Final = 5.0
# How many sign in at a time: nobody is known yet who asks for it.
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
    """Where the issuer is asked, as it says itself (OpenID Connect Discovery 1.0)."""

    authorization: str
    token: str
    end_session: str | None
    takes_basic: bool


class OpenIdSignIn:
    """Thread-safe. ``tokens`` decides which of the issuer's tokens are accepted; ``web_url`` raises
    ValueError for what may not be asked.
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
        self._asking = threading.BoundedSemaphore(AT_ONCE_MAX)

    def offer(self) -> Mapping[str, str | None]:
        """What the browser asks the issuer with. Raises KeysUnavailable."""
        provider = self._provider()
        return {
            "issuer": self._issuer,
            "client_id": self._client.id,
            "scope": self._client.scopes,
            "authorization_endpoint": provider.authorization,
            "end_session_endpoint": provider.end_session,
        }

    def _provider(self) -> OpenIdProvider:
        """Asked for anew after FRESH_S. Raises KeysUnavailable where the issuer doesn't say."""
        known = self._known
        now_s = self._monotonic()
        if known is not None and now_s - known[0] < FRESH_S:
            return known[1]
        url = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
        try:
            found = self._provider_of(_decode(self._ask(url)))
        except (OSError, ValueError, RecursionError) as error:
            raise KeysUnavailable(f"the issuer doesn't say how to sign in: {error}") from None
        self._known = (now_s, found)
        return found

    def exchange(self, code: str, verifier: str, redirect_uri: str) -> tuple[str, Principal]:
        """A token, and who may send it.

        Raises Unauthenticated where the issuer refuses, or gives no token that the gateway
        accepts; KeysUnavailable where it can't be asked.
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
        """By the access token, where that is a JWT for the gateway, else by the ID token."""
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

    def _ask(
        self, url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        if not self._asking.acquire(blocking=False):
            raise KeysUnavailable("too many sign in at once")
        try:
            return body_of(url, _TIMEOUT_S, form, headers)
        finally:
            self._asking.release()

    def _provider_of(self, told: Mapping[str, Any]) -> OpenIdProvider:
        """Raises ValueError."""
        if told.get("issuer") != self._issuer:
            raise ValueError("it names another issuer")
        methods = told.get("token_endpoint_auth_methods_supported")
        end_session = told.get("end_session_endpoint")
        return OpenIdProvider(
            self._url(told, "authorization_endpoint"),
            self._url(told, "token_endpoint"),
            None if end_session is None else self._url(told, "end_session_endpoint"),
            not isinstance(methods, list) or "client_secret_basic" in methods,
        )

    def _url(self, told: Mapping[str, Any], name: str) -> str:
        url = told.get(name)
        try:
            return self._web_url(url if isinstance(url, str) else "")
        except ValueError:
            raise ValueError(f"{name} has to be an https URL, or one of this machine") from None


def _basic(name: str, secret: str) -> str:
    # Each encoded as a form is, before they are put together (RFC 6749, 2.3.1).
    pair = f"{quote(name, safe='')}:{quote(secret, safe='')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _refusal(declined: Declined) -> str:
    """What the issuer says, which is for people and of no form."""
    try:
        told = _decode(declined.body)
    except (ValueError, RecursionError):
        told = {}
    reasons = [str(told[name]) for name in ("error", "error_description") if name in told]
    shown = " ".join(": ".join(reasons).split())[:300] or str(declined)
    return f"the issuer refuses to sign you in: {shown}"
