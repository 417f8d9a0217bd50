"""Names of other machines, resolved by threads of their own.

Under gevent all names are resolved by ten threads of the process. One whose name server doesn't
answer occupies its thread for half a minute: a few of them, and nobody finds MongoDB any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gevent.monkey import get_original
from gevent.threadpool import ThreadPool


def own_resolver(threads: int) -> Callable[..., Sequence[tuple[Any, ...]]]:
    """As ``socket.getaddrinfo``, for as many at once as there are ``threads``."""
    resolve: Callable[..., Any] = get_original("socket", "getaddrinfo")
    pool = cache(lambda: ThreadPool(threads))

    def resolved(*asked: Any, **more: Any) -> Sequence[tuple[Any, ...]]:
        found: Sequence[tuple[Any, ...]] = pool().apply(resolve, asked, more)
        return found

    return resolved
