"""From what a request says about itself to its principal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from gateway.access.principal import ANONYMOUS, Principal
from gateway.errors import Unauthenticated

# Of the value of a header Authorization, None where there is none. Raises AccessError, and what
# reading stored tokens raises.
Authenticate = Callable[[str | None], Principal]

# RFC 6750, section 2.1; the scheme's case is no matter (RFC 9110, section 11.1).
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE | re.ASCII)


class Verifier(Protocol):
    """Of one kind of tokens."""

    def is_one(self, token: str) -> bool:
        """Whether it looks like one of this kind."""

    def principal(self, token: str) -> Principal:
        """Whom it was issued to. Raises as ``Authenticate`` does."""


def everybody(_: str | None) -> Principal:
    """Where access control is off, whatever a request says about itself."""
    return ANONYMOUS


class BearerTokens:
    """An ``Authenticate``: the first kind that a token looks like tells whom it is from."""

    def __init__(self, *verifiers: Verifier) -> None:
        self._verifiers = verifiers

    def __call__(self, authorization: str | None) -> Principal:
        if authorization is None:
            raise Unauthenticated(
                "the request has no token (Authorization: Bearer)", presented=False
            )
        found = _BEARER.fullmatch(authorization)
        if found is None:
            raise Unauthenticated("Authorization: it isn't 'Bearer' and a token", presented=False)
        token = found[1]
        for verifier in self._verifiers:
            if verifier.is_one(token):
                return verifier.principal(token)
        raise Unauthenticated("the token is of no kind that is taken here", presented=True)
