"""Names of hosts resolved by threads of their own, so that those that nobody answers hold up no
others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gevent.monkey import get_original
from gevent.threadpool import ThreadPool


def own_resolver(threads: int) -> Callable[..., Sequence[tuple[Any, ...]]]:
    """As ``socket.getaddrinfo``, by threads of its own, for as many at once as there are
    ``threads``.

    Under gevent all names are resolved by ten threads of the process. One whose name server doesn't
    answer occupies its thread for half a minute: a few of them, and nobody finds MongoDB any more.
    """
    resolve: Callable[..., Any] = get_original("socket", "getaddrinfo")
    pool = cache(lambda: ThreadPool(threads))

    def resolved(*asked: Any, **more: Any) -> Sequence[tuple[Any, ...]]:
        found: Sequence[tuple[Any, ...]] = pool().apply(resolve, asked, more)
        return found

    return resolved
