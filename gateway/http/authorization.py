"""Every request is let in or refused here, before its route sees it.

Who it is from is told by ``Authorization`` alone, and what it may do by ``roles``. The catalog is
the one that the route itself will take from the path: the same segment, decoded by the same
function, and never normalised in any other way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import flask
from flask import Flask

from gateway.access import Principal, Role
from gateway.access.authenticate import Authenticate
from gateway.access.errors import Forbidden, Unauthenticated
from gateway.commits.reaching import reaching
from gateway.http import names
from gateway.http.limits import RequestLimits
from gateway.http.principals import principal_of, set_principal
from gateway.http.raw_path import Environ
from gateway.http.refusals import RequestRefused
from gateway.http.roles import Need, need_of

_log = logging.getLogger(__name__)

_RECHECK: Final = "gateway.recheck"
# With the time for which a token is remembered, less than the five seconds after which a
# revocation holds.
_RECHECK_S: Final = 1.5

Recheck = Callable[[], None]


class Authorization:
    """Raises AccessError, StoreUnavailable, and RequestRefused for a request that isn't let in."""

    def __init__(self, authenticate: Authenticate, limits: RequestLimits) -> None:
        self._authenticate = authenticate
        self._limits = limits

    def register(self, app: Flask) -> None:
        app.before_request(self.admit)

    def admit(self) -> None:
        """Set the request's principal, if it may do what it asks for."""
        request = flask.request
        environ = request.environ
        if request.url_rule is None:
            # No such route, or not this method: told to those who show who they are.
            set_principal(environ, self._principal(environ))
            return
        need = need_of(request.endpoint or "", request.method)
        if need is Need.NOTHING:
            return
        principal = self._principal(environ)
        set_principal(environ, principal)
        if need is None:
            _log.error("endpoint %s has no row for %s in roles", request.endpoint, request.method)
            raise RequestRefused("forbidden", "nobody has said who may use this route")
        if need is Need.TOKEN:
            environ[_RECHECK] = self._recheck(environ, None, "")
            return
        catalog = names.catalog_name((request.view_args or {})["catalog"], self._limits)
        require(principal, need, catalog)
        environ[_RECHECK] = self._recheck(environ, need, catalog)

    def _principal(self, environ: Environ) -> Principal:
        with reaching():
            return self._authenticate(environ.get("HTTP_AUTHORIZATION"))

    def _recheck(self, environ: Environ, role: Role | None, catalog: str) -> Recheck:
        checked_at = time.monotonic()

        def recheck() -> None:
            nonlocal checked_at
            now = time.monotonic()
            if now - checked_at < _RECHECK_S:
                return
            checked_at = now
            principal = self._principal(environ)
            if principal.name != principal_of(environ).name:
                raise Unauthenticated("the token is another principal's now", presented=True)
            if role is not None:
                require(principal, role, catalog)

        return recheck


def require(principal: Principal, role: Role, catalog: str, to: str = "the request") -> None:
    """Raise Forbidden unless ``principal`` has ``role`` in ``catalog``, which ``to`` needs."""
    if not principal.may(role, catalog):
        raise Forbidden(principal.name, role, catalog, to)


def recheck_of(environ: Environ) -> Recheck:
    """For answers that go on for long: raises where the request would no longer be let in.

    Costs nothing where it was called a moment ago. Raises AccessError and StoreUnavailable.
    """
    recheck: Recheck = environ[_RECHECK]
    return recheck
