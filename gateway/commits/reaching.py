"""One place where a database out of reach becomes what a caller of the gateway is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.commits.errors import StoreUnavailable
from gateway.store.contract import Unreachable


@contextmanager
def reaching() -> Iterator[None]:
    """Raises StoreUnavailable where what is done inside raises Unreachable.

    What the database's driver says is the cause's, and not told: it names hosts and their state.
    """
    try:
        yield
    except Unreachable as error:
        raise StoreUnavailable("the database can't be reached") from error
