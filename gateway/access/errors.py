"""Why somebody is not let in.

::

    AccessError
    ├── Unauthenticated   nobody can tell whom the request is from
    ├── Forbidden         it is known, and may not do this
    └── KeysUnavailable   its token can't be verified now
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from gateway.access.principal import Grant, Principal, Role

_GRANTS_SHOWN: Final = 5


class AccessError(Exception):
    """``code`` is the problem's. ``detail`` holds nothing of a token."""

    code: ClassVar[str]

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Unauthenticated(AccessError):
    """``presented``: whether there was a token at all."""

    code = "unauthenticated"

    def __init__(self, detail: str, *, presented: bool) -> None:
        super().__init__(detail)
        self.presented = presented


class Forbidden(AccessError):
    """The principal has no grant of ``role`` in ``catalog``. ``detail`` tells those it has, as many
    as are soon read."""

    code = "forbidden"

    def __init__(self, by: Principal, role: Role, catalog: str, to: str = "this") -> None:
        role_name = role.name.lower()
        super().__init__(
            f"{by.name!r} doesn't have the role {role_name!r} in catalog {catalog!r}, which {to}"
            f" needs; it has {_shown(by.grants)}"
        )
        self.role = role_name
        self.catalog = catalog


class KeysUnavailable(AccessError):
    """The keys that tokens are signed with can't be fetched."""

    code = "keys_unavailable"


def _shown(grants: Sequence[Grant]) -> str:
    shown = [f"{each.role.name.lower()}:{each.pattern[:100]}" for each in grants[:_GRANTS_SHOWN]]
    more = len(grants) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])]) or "no grants"
