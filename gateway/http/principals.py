"""Who a request is from: set once for each request, before any route sees it."""

from __future__ import annotations

from typing import Final

from gateway.access import Principal
from gateway.access.limits import holder_of
from gateway.http.raw_path import Environ

_KEY: Final = "gateway.principal"
# The server looks at it, too, when a body is read.
_HOLDER: Final = "gateway.share_holder"


def set_principal(environ: Environ, principal: Principal) -> None:
    """``principal`` was authenticated."""
    environ[_KEY] = principal
    environ[_HOLDER] = holder_of(principal)


def principal_of(environ: Environ) -> Principal:
    """The principal that was authenticated. KeyError, a defect, where nobody looked who it is."""
    principal: Principal = environ[_KEY]
    return principal


def principal_name(environ: Environ) -> str | None:
    """Its name, for logs; None where it is not known, as on routes that are open to everybody."""
    principal: Principal | None = environ.get(_KEY)
    return None if principal is None else principal.name


def share_holder(environ: Environ) -> str | None:
    """Whose share of what there is only so much of counts (``gateway.access.limits``), if any's."""
    holder: str | None = environ.get(_HOLDER)
    return holder
