"""Who a request is from: set once for each request, before any route sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from gateway.access import ANONYMOUS, Principal
from gateway.http.raw_path import Environ, WsgiApplication

_KEY: Final = "gateway.principal"


class Everybody:
    """A WSGI middleware for where access control is off: every request is from ANONYMOUS."""

    def __init__(self, application: WsgiApplication) -> None:
        self._application = application

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        set_principal(environ, ANONYMOUS)
        return self._application(environ, start_response)


def set_principal(environ: Environ, principal: Principal) -> None:
    """``principal`` was authenticated."""
    environ[_KEY] = principal


def principal_of(environ: Environ) -> Principal:
    """The principal that was authenticated. KeyError, a defect, where nobody looked who it is."""
    principal: Principal = environ[_KEY]
    return principal
