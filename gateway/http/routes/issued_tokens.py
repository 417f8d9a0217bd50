"""`/v1/tokens`: tokens are made, listed and revoked by whoever is admin of every catalog.

A token is shown once, when it is made. Neither it nor its secret is in any log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from gateway.access.principal import Grant, checked_name, parse_grant
from gateway.decide.strict import Exact, integer, strict
from gateway.http.context import Context, Need
from gateway.http.door.admission import take_members
from gateway.http.routes import Routes, route
from gateway.http.wire.body import refuse_member
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import refuse_terms
from gateway.http.wire.responses import NO_STORE, Answer, body_answer, empty_answer, encode
from gateway.limits import RequestLimits
from gateway.model import IssuedToken, StoredToken
from gateway.service import GatewayService
from patching.values import rfc3339

_LIFETIME_S_MAX: Final = 36_500 * 86_400
_GRANTS_MAX: Final = 100
TOKEN_REQUEST: Final = strict(
    name=Exact(str, "it must be a string", required=True),
    grants=Exact(
        list,
        f"it must be a list of 1 to {_GRANTS_MAX} strings",
        lambda items: 0 < len(items) <= _GRANTS_MAX and all(isinstance(e, str) for e in items),
        required=True,
    ),
    expires_in_s=integer(1, _LIFETIME_S_MAX),
)


class TokenIssuer(Protocol):
    """See ``gateway.tokens.issued.ServedTokens``. Each method raises StoreUnavailable."""

    def issue(self, name: str, grants: Sequence[Grant], lifetime_s: int | None) -> IssuedToken: ...

    def all(self) -> Sequence[StoredToken]: ...

    def revoke(self, token_id: str) -> StoredToken | None: ...


class TokenRoutes(Routes):
    def __init__(
        self, gateway: GatewayService, limits: RequestLimits, issuer: TokenIssuer | None
    ) -> None:
        """``issuer`` None: there is no database of tokens."""
        super().__init__(gateway, limits)
        self._issuer = issuer

    @route("POST", "/v1/tokens", "create_token", Need.EVERYTHING)
    def create(self, context: Context) -> Answer:
        """A new token, which only this answer shows."""
        refuse_terms(context.environ)
        members = take_members(context, self._limits, TOKEN_REQUEST)
        name, grants = _named(members["name"]), _granted(members["grants"])
        issued = self._tokens().issue(name, grants, members["expires_in_s"])
        _audit(context, issued.stored)
        content = {**_shape(issued.stored), "token": issued.text}
        return body_answer(encode(content), [NO_STORE], 201)

    @route("GET", "/v1/tokens", "list_tokens", Need.EVERYTHING)
    def page(self, context: Context) -> Answer:
        """All tokens without their secrets, the oldest first; also revoked and expired ones."""
        refuse_terms(context.environ)
        tokens = self._tokens().all()
        return body_answer(encode({"tokens": [_shape(each) for each in tokens]}), [NO_STORE])

    @route("DELETE", "/v1/tokens/<segment:token_id>", "revoke_token", Need.EVERYTHING)
    def revoke(self, context: Context, token_id: str) -> Answer:
        """Revoke a token, which works for at most five more seconds. It may be revoked already."""
        refuse_terms(context.environ)
        revoked = self._tokens().revoke(token_id)
        if revoked is None:
            # The id that was sent may be a token, by mistake: so the answer doesn't repeat it.
            raise RequestRefused("token_not_found", "there is no token with this id")
        _audit(context, revoked)
        return empty_answer([])

    def _tokens(self) -> TokenIssuer:
        if self._issuer is None:
            raise RequestRefused("token_not_found", "this gateway issues no tokens")
        return self._issuer


def _named(name: str) -> str:
    try:
        return checked_name(name)
    except ValueError as error:
        refuse_member("/name", str(error))


def _granted(texts: Sequence[str]) -> list[Grant]:
    grants = []
    for index, text in enumerate(texts):
        try:
            grants.append(parse_grant(text))
        except ValueError as error:
            refuse_member(f"/grants/{index}", str(error))
    return grants


def _audit(context: Context, token: StoredToken) -> None:
    """Have the audit line name the token and its principal; neither is secret."""
    context.observed.audited = {"token": token.id, "issued_to": token.name}


def _shape(token: StoredToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "grants": token.grants,
        "created": rfc3339(token.created_us),
        "expires": None if token.expires_us is None else rfc3339(token.expires_us),
        "revoked": None if token.revoked_us is None else rfc3339(token.revoked_us),
    }
