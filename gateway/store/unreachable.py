"""What is told where the database didn't answer: whether anything may have been changed.

What the database's driver says is the cause's, and not told: it names hosts and their state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.cpu import conclude
from gateway.errors import CatalogRestored, StoreUnavailable, UnknownOutcome
from gateway.store.contract import BeingRestored, StoreUnreachable, WriteRejected

_log = logging.getLogger(__name__)


def write_refused(reason: object) -> StoreUnavailable:
    """What the database won't take, and refuses as a whole."""
    return StoreUnavailable(f"the database refuses this write, and nothing was applied: {reason}")


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Around what only reads, or may be done again. Raises StoreUnavailable for StoreUnreachable,
    and CatalogRestored for BeingRestored."""
    try:
        yield
    except BeingRestored as error:
        raise CatalogRestored(error.catalog) from None
    except StoreUnreachable as error:
        if isinstance(error, WriteRejected) and error.nothing_done:
            _log.warning("a write is refused: %s", error)
            raise write_refused(error) from None
        raise StoreUnavailable("the database can't be reached") from error


@contextmanager
def as_unknown(*, is_done: bool = False) -> Iterator[None]:
    """Around one call that changes the database and moves no head. Where its answer is lost, nobody
    knows whether it did. ``is_done``: the change is made; around what follows it. Once it is made,
    nothing of the request is broken off, however much it has computed: that would be told as if
    nothing was applied.

    Raises UnknownOutcome, or what ``as_unavailable`` does where nothing was changed for certain.
    """
    if is_done:
        conclude()
    try:
        yield
        conclude()
    except StoreUnreachable as error:
        if is_done or not error.nothing_done:
            raise UnknownOutcome from error
        with as_unavailable():
            raise
