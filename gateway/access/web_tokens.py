"""JSON Web Tokens that another service issued (RFC 7519), verified by its public keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jwt

from gateway.access.errors import Unauthenticated
from gateway.access.key_set import KeySet
from gateway.access.notation import checked_name, principal
from gateway.access.principal import Principal

_REQUIRED: Final = ["exp", "iss", "aud", "sub"]
# How far the clocks of two machines may be apart.
_LEEWAY_S: Final = 30

_REASONS: Final[dict[type[Exception], str]] = {
    jwt.ExpiredSignatureError: "the token expired",
    jwt.ImmatureSignatureError: "the token isn't valid yet",
    jwt.InvalidAudienceError: "the token is for somebody else (aud)",
    jwt.InvalidIssuerError: "the token is of an issuer that isn't trusted (iss)",
    jwt.InvalidAlgorithmError: "the token is signed by an algorithm that isn't allowed (alg)",
    jwt.InvalidSignatureError: "the token's signature is wrong",
    jwt.MissingRequiredClaimError: f"the token lacks one of the claims {', '.join(_REQUIRED)}",
}
# What a token can make the library raise.
_REFUSALS: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Trust:
    """Which tokens are taken; all of it must hold. ``grants_claim`` names the list of grants.

    ``algorithms`` are asymmetric ones: by another, a public key would be taken for a secret.
    ``prefix`` comes before each subject: it keeps the issuer from naming a principal of others.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    grants_claim: str
    prefix: str


class WebTokens:
    """Thread-safe."""

    def __init__(self, keys: KeySet, trust: Trust) -> None:
        self._keys = keys
        self._trust = trust

    def is_one(self, token: str) -> bool:
        return token.count(".") == 2

    def principal(self, token: str) -> Principal:
        """The subject behind the issuer's prefix, with the grants that its token names. Raises
        Unauthenticated and KeysUnavailable.

        One that names none may do nothing. One that names what is no grant is refused as a whole.
        """
        try:
            key = self._keys.key(_key_id(token))
            claims = self._verified(token, key)
        except _REFUSALS as error:
            reason = _REASONS.get(type(error), "the token can't be understood")
            # Not from the library's error: it may quote the token.
            raise Unauthenticated(reason, presented=True) from None
        try:
            name = self._trust.prefix + checked_name(claims["sub"])
            return principal(name, claims.get(self._trust.grants_claim, []))
        except ValueError as error:
            where = f"sub, {self._trust.grants_claim}"
            raise Unauthenticated(
                f"the token's claims ({where}): {error}", presented=True
            ) from None

    def _verified(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        trust = self._trust
        return jwt.decode(
            token,
            key,
            algorithms=trust.algorithms,
            audience=trust.audience,
            issuer=trust.issuer,
            leeway=_LEEWAY_S,
            options={"require": _REQUIRED},
        )


def _key_id(token: str) -> str:
    key_id = jwt.get_unverified_header(token).get("kid")
    if not isinstance(key_id, str):
        raise Unauthenticated(
            "the token doesn't say which key it is signed with (kid)", presented=True
        )
    return key_id
