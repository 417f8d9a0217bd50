"""Turns the store's errors into those of the gateway: is a write certainly not applied, or unknown?

The driver's message stays in the error's cause, and isn't shown to clients: it names hosts and
their state.
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
    """The error for a write that the database refuses as a whole."""
    return StoreUnavailable(f"the database refuses this write, and nothing was applied: {reason}")


@contextmanager
def as_unavailable() -> Iterator[None]:
    """For use around reads, and writes that may be repeated. Raises StoreUnavailable for
    StoreUnreachable, and CatalogRestored for BeingRestored."""
    try:
        yield
    except BeingRestored as error:
        raise CatalogRestored(error.catalog) from None
    except StoreUnreachable as error:
        if isinstance(error, WriteRejected) and error.nothing_done:
            _log.warning("the database refuses a write: %s", error)
            raise write_refused(error) from None
        raise StoreUnavailable("the database can't be reached") from error


@contextmanager
def as_unknown(*, is_done: bool = False) -> Iterator[None]:
    """For use around one call that changes the database and moves no head: if its answer is lost,
    nobody knows whether it did. ``is_done``: the change is made already, and the code inside only
    follows it. Once the change is made, the request isn't broken off any more, however much it has
    computed: the client would be told that nothing was applied.

    Raises UnknownOutcome, or the errors of ``as_unavailable`` if certainly nothing was changed.
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
