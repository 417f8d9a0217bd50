"""Who a request is from."""

from __future__ import annotations

from gateway.access import ANONYMOUS, Principal
from gateway.http.raw_path import Environ

_KEY = "gateway.principal"


def principal_of(environ: Environ) -> Principal:
    """The principal that was authenticated; ``ANONYMOUS`` where access control is off."""
    principal = environ.get(_KEY, ANONYMOUS)
    assert isinstance(principal, Principal)
    return principal
