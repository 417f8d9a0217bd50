"""What is asked of an application: a step of its own, or a request under the fence of a version."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

# No name of a principal begins like this.
_SCOPE: Final = "\n"

_fence = re.compile(r"([0-9]{1,18})\.([0-9a-f]{1,32})\.(.{1,255})", re.ASCII | re.DOTALL).fullmatch


class Fence(NamedTuple):
    """A version of an application, as its begin answered it; ``scope`` tells the application from
    another one that had the name before."""

    version: int
    scope: str
    name: str


class ApplicationStep(msgspec.Struct, frozen=True):
    """A step of an application; see ``decide.applications``.

    With a ``version`` it is begun, and finished if that is asked for; ``principals`` are all whom
    the caller knows to share it, and share it from now on. Without one, they are all who do;
    None: the application is forgotten.
    """

    catalog: str
    name: str
    version: int | None = None
    finished: bool = False
    principals: tuple[str, ...] | None = None

    @property
    def forgets(self) -> bool:
        return self.version is None and self.principals is None


def parse_fence(text: str) -> Fence | None:
    """None for what isn't one."""
    found = _fence(text)
    return None if found is None else Fence(int(found[1]), found[2], found[3])


def scope_of(fence: Fence) -> str:
    """In the place of the principal that an idempotency key belongs to."""
    return _SCOPE + fence.scope
