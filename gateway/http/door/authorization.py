"""Authorization: lets each request in or refuses it, before its route sees it.

The header ``Authorization`` alone names the principal, whose roles decide. The catalog is the one
that the route itself takes from the path: the same segment, decoded by the same function, and never
normalised in any other way.

Without access control, every client that reaches the gateway may do everything, and a browser on
this machine can reach it on behalf of any page that its user visits. So a request is let in only if
no page of another site can have sent it: its ``Host`` is one that no name server resolves, and it
has no ``Origin`` or ``Sec-Fetch-Site`` of another site. Browsers set all three by themselves; other
clients send only the first.

Each route says what it needs (``gateway.http.routes.route``).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Protocol

from flask import Response

from gateway.access import ANONYMOUS, Principal, Role
from gateway.access.principal import forbidden
from gateway.access.token_buckets import REFUSALS, PrincipalLimits
from gateway.errors import GatewayError, Unauthenticated
from gateway.http.context import Context, Environ, Need, Observed, Recheck, Sender
from gateway.http.wire.codes import RequestRefused, TryLater
from gateway.http.wire.headers import catalog_name
from gateway.http.wire.problems import problem_answer
from gateway.limits import RequestLimits

_log = logging.getLogger(__name__)

# How often a request under way checks its principal again. Together with the time for which a token
# is remembered, it is less than the five seconds within which a revocation takes effect.
RECHECK_S: Final = 1.5

# Makes the principal from the value of the header Authorization (None: no header). Raises
# AccessError and StoreUnavailable.
Authenticate = Callable[[str | None], Principal]

# RFC 6750, section 2.1; the scheme is case-insensitive (RFC 9110, section 11.1).
_bearer = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE | re.ASCII).fullmatch
# A name or an address, in brackets if it is of IPv6, and perhaps a port.
_host = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9.-]{1,255})(?::[0-9]{0,5})?").fullmatch
# ``none``: the user typed the address, or opened a bookmark.
_OWN_SITES: Final = (None, "same-origin", "none")

_READING: Final = ("GET", "HEAD")


class Verifier(Protocol):
    """Verifies one kind of token."""

    def is_one(self, token: str) -> bool:
        """Whether the token has the form of this kind."""

    def principal(self, token: str) -> Principal:
        """The principal that the token was issued to. Raises as ``Authenticate`` does."""


class BearerTokens:
    """An ``Authenticate``: the first verifier that recognises a token's form decides about it."""

    def __init__(self, *verifiers: Verifier) -> None:
        self._verifiers = verifiers

    def __call__(self, authorization: str | None) -> Principal:
        if authorization is None:
            raise Unauthenticated(
                "the request has no token: send Authorization: Bearer TOKEN", presented=False
            )
        found = _bearer(authorization)
        if found is None:
            raise Unauthenticated("Authorization: it must be 'Bearer' and a token", presented=False)
        token = found[1]
        for verifier in self._verifiers:
            if verifier.is_one(token):
                return verifier.principal(token)
        raise Unauthenticated("this gateway doesn't accept tokens of this kind", presented=True)


class Authorization:
    """Raises AccessError, StoreUnavailable, and RequestRefused for a request that isn't let in.

    Without ``authenticate`` access control is off.
    """

    def __init__(self, authenticate: Authenticate | None, limits: RequestLimits) -> None:
        self._authenticate = authenticate
        self._limits = limits
        self._refusals = PrincipalLimits((REFUSALS,), time.monotonic)

    def identify(self, observed: Observed) -> Principal | None:
        """The principal that sent the request; None if the route is open to everybody."""
        if self._authenticate is None:
            _refuse_foreign_pages(observed.environ)
        # Only a caller with a valid token learns that there is no such route, or not this method.
        if observed.route.need is Need.NOTHING:
            return None
        return self._principal(observed.environ.get("HTTP_AUTHORIZATION"))

    def admit(self, observed: Observed, sender: Sender) -> Context | None:
        """The request's context, if its principal may do what it asks for; None: no such route."""
        route, principal = observed.route, sender.principal
        if route.endpoint is None:
            return None
        if route.need is None:
            _log.error("route %s doesn't say what %s needs", route.endpoint, observed.method)
            raise RequestRefused("forbidden", "the gateway has no rule for who may use this route")
        role: Role | None = None
        catalog = EVERY_CATALOG
        if route.need is Need.EVERYTHING:
            role = Role.ADMIN
        elif isinstance(route.need, Role):
            role, catalog = route.need, catalog_name(route.names["catalog"], self._limits)
        if role is not None and not principal.may(role, catalog):
            self._slow_down(principal)
            raise forbidden(principal, role, catalog, "the request")
        recheck = self._recheck(observed.environ, principal, role, catalog)
        return Context(observed, sender, catalog, recheck)

    def _slow_down(self, principal: Principal) -> None:
        """Raise TryLater if the principal was refused too often of late."""
        excess = self._refusals.take(principal.name, {REFUSALS.name: 1})
        if excess is not None:
            detail = f"principal {principal.name!r} has sent too many forbidden requests"
            raise TryLater("rate_limited", detail, excess.wait_s, violated_policies=[REFUSALS.name])

    def withhold(self, observed: Observed, answer: Response) -> Response:
        """Withhold the answer to a read if its principal would no longer be let in.

        Only for reads: a principal that was let in when its write was decided gets the outcome.
        """
        recheck = observed.require_still_let_in
        if recheck is None or answer.status_code >= 400 or observed.method not in _READING:
            return answer
        try:
            recheck()
        except GatewayError as error:
            answer.close()
            return problem_answer(error, observed)
        return answer

    def _principal(self, given: str | None) -> Principal:
        if self._authenticate is None:
            return ANONYMOUS
        return self._authenticate(given)

    def _recheck(
        self, environ: Environ, principal: Principal, role: Role | None, catalog: str
    ) -> Recheck:
        checked_at = time.monotonic()
        # The closure keeps only these values: with the environment it would be a cycle.
        given, name = environ.get("HTTP_AUTHORIZATION"), principal.name

        def recheck() -> None:
            nonlocal checked_at
            now = time.monotonic()
            if now - checked_at < RECHECK_S:
                return
            principal = self._principal(given)
            if principal.name != name:
                raise Unauthenticated("the token now belongs to another principal", presented=True)
            if role is not None:
                require(principal, role, catalog)
            checked_at = now  # set last, so that a check that was refused is repeated

        return recheck


def require(principal: Principal, role: Role, catalog: str, to: str = "the request") -> None:
    """Raise Forbidden unless ``principal`` has ``role`` in ``catalog``. ``to``: what needs it."""
    if not principal.may(role, catalog):
        raise forbidden(principal, role, catalog, to)


def _refuse_foreign_pages(environ: Environ) -> None:
    """Raise RequestRefused for a request that a page of another site may have sent."""
    host: str | None = environ.get("HTTP_HOST")
    # Browsers always name a host.
    if host is not None and not _is_loopback(host):
        raise _foreign(f"Host: {host[:100]!r} isn't served without access control; use localhost")
    origin: str | None = environ.get("HTTP_ORIGIN")
    if origin is not None and origin.partition("://")[2] != (host or "").lower():
        raise _foreign(f"Origin: pages of {origin[:100]!r} aren't served without access control")
    if environ.get("HTTP_SEC_FETCH_SITE") not in _OWN_SITES:
        raise _foreign("Sec-Fetch-Site: other sites' pages aren't served without access control")


def _foreign(detail: str) -> RequestRefused:
    return RequestRefused("foreign_page", detail)


@lru_cache(maxsize=64)
def _is_loopback(host: str) -> bool:
    """Whether a header ``Host`` names this machine, in a way that no name server can change."""
    named = _host(host.lower())
    if named is None:
        return False
    try:
        return ip_address(named[1].strip("[]")).is_loopback
    except ValueError:
        return named[1] == "localhost"


# Stands for all catalogs: only a pattern that matches every name matches it.
EVERY_CATALOG: Final = "*"


def author_of(named: str | None, by: Principal, catalog: str) -> str:
    """``named``, or ``by`` if nobody is named. Raises Forbidden if ``by`` may not name another."""
    if named is None or named == by.name:
        return by.name
    require(by, Role.ADMIN, catalog, "naming another author")
    return named
