"""`/console/sign-in`: how a person who opens the console gets a token from the issuer.

It is for the console alone, so it is no part of the contract. Its requests have no principal yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from gateway.access.principal import Principal
from gateway.decide.strict import Exact, strict
from gateway.http.context import Need, OpenContext
from gateway.http.door.admission import take_members
from gateway.http.routes import Routes, route
from gateway.http.wire.body import refuse_member
from gateway.http.wire.query import NO_PARAMETERS, parameters
from gateway.http.wire.responses import NO_STORE, Answer, body_answer, encode
from gateway.limits import RequestLimits
from gateway.service import GatewayService

_BODY_BYTES_MAX: Final = 16_384
# RFC 7636, 4.1.
_is_verifier: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}").fullmatch
_is_web_url: Final = re.compile(r"https?://[!-~]{1,2000}").fullmatch
_ANSWER: Final = strict(
    code=Exact(
        str, "it must be the issuer's code", lambda text: 0 < len(text) <= 4_000, required=True
    ),
    code_verifier=Exact(
        str,
        "it must be 43 to 128 letters, digits, '-', '.', '_' or '~' (RFC 7636)",
        _is_verifier,
        required=True,
    ),
    redirect_uri=Exact(str, "it must be an http(s) URL", _is_web_url, required=True),
)


class PeopleSignIn(Protocol):
    """See ``tokens.openid_sign_in.OpenIdSignIn``. Raises Unauthenticated and KeysUnavailable."""

    def offer(self) -> Mapping[str, str | None]: ...

    def exchange(self, code: str, verifier: str, redirect_uri: str) -> tuple[str, Principal]: ...


class SignInRoutes(Routes):
    def __init__(
        self, gateway: GatewayService, limits: RequestLimits, sign_in: PeopleSignIn | None
    ) -> None:
        """``sign_in`` None: people enter a token themselves."""
        super().__init__(gateway, replace(limits, body_bytes_max=_BODY_BYTES_MAX))
        self._sign_in = sign_in

    @route("GET", "/console/sign-in", "read_sign_in", Need.NOTHING)
    def offered(self, context: OpenContext) -> Answer:
        """The issuer's address for the browser; null if people enter a token."""
        parameters(context.environ, NO_PARAMETERS)
        offer = None if self._sign_in is None else self._sign_in.offer()
        return body_answer(encode({"sign_in": offer}), [NO_STORE])

    @route("POST", "/console/sign-in", "sign_in", Need.NOTHING)
    def exchange(self, context: OpenContext) -> Answer:
        """Exchange the issuer's code for a token, which the browser sends from now on."""
        parameters(context.environ, NO_PARAMETERS)
        given = take_members(context, self._limits, _ANSWER)
        if self._sign_in is None:
            refuse_member("", "this gateway has no issuer to sign in with")
        token, principal = self._sign_in.exchange(
            given["code"], given["code_verifier"], given["redirect_uri"]
        )
        context.observed.audited = {"signed_in": principal.name}
        content = {"token": token, "name": principal.name}
        return body_answer(encode(content), [NO_STORE])
