"""The principal of a request, by its header Authorization."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from gateway.access.principal import ANONYMOUS, Principal
from gateway.errors import Unauthenticated

# From the value of the header Authorization (None: no header) to the principal. Raises AccessError
# and the errors of reading stored tokens.
Authenticate = Callable[[str | None], Principal]

# RFC 6750, section 2.1; the scheme is case-insensitive (RFC 9110, section 11.1).
_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE | re.ASCII)


class Verifier(Protocol):
    """Verifies one kind of tokens."""

    def is_one(self, token: str) -> bool:
        """Whether the token has the form of this kind."""

    def principal(self, token: str) -> Principal:
        """The principal that the token was issued to. Raises as ``Authenticate`` does."""


def everybody(_: str | None) -> Principal:
    """The principal of every request where access control is off."""
    return ANONYMOUS


class BearerTokens:
    """An ``Authenticate``: the first verifier that knows the form of a token decides about it."""

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
