"""What is asked of an application: a step of its own, or a request under the fence of a version."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

# No name of a principal begins like this.
_SCOPE: Final = "\n"

_fence = re.compile(
    r"([0-9]{1,18})(?:-([0-9a-f]{1,32}))?(\*?)\.([0-9a-f]{1,32})\.(.{1,255})",
    re.ASCII | re.DOTALL,
).fullmatch


class Fence(NamedTuple):
    """A version of an application, as its begin answered it; ``scope`` tells the application from
    another one that had the name before.

    ``run``: the start of the job that sends the request. None: its client doesn't tell. ``open``:
    the application is; such a fence only guards, and idempotency keys stay the principal's.
    """

    version: int
    scope: str
    name: str
    run: str | None = None
    open: bool = False

    @property
    def text(self) -> str:
        run = "" if self.run is None else f"-{self.run}"
        return f"{self.version}{run}{'*' if self.open else ''}.{self.scope}.{self.name}"


class ApplicationStep(msgspec.Struct, frozen=True):
    """A step of an application; see ``decide.applications``.

    With a ``version`` it is begun, and finished if that is asked for; ``principals`` are all whom
    the caller knows to share it, and share it from now on. Without one, they are all who do;
    None: the application is forgotten.

    ``keys`` is how the caller makes the idempotency keys of the version, and ``open`` makes the
    application everybody's who may write the catalog. ``run`` changes nothing in the records: it
    is for the fence.
    """

    catalog: str
    name: str
    version: int | None = None
    finished: bool = False
    principals: tuple[str, ...] | None = None
    keys: str | None = None
    open: bool = False
    run: str | None = None

    @property
    def forgets(self) -> bool:
        return self.version is None and self.principals is None


def parse_fence(text: str) -> Fence | None:
    """None for what isn't one."""
    found = _fence(text)
    if found is None:
        return None
    return Fence(int(found[1]), found[4], found[5], run=found[2], open=bool(found[3]))


def scope_of(fence: Fence | None, principal: str) -> str:
    """Whose an idempotency key is: the application's, or the principal's who sends it."""
    return principal if fence is None or fence.open else _SCOPE + fence.scope
