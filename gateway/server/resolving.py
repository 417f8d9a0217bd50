"""Host names are resolved by separate threads, so that names whose servers don't answer hold up no
others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gevent.monkey import get_original
from gevent.threadpool import ThreadPool


def own_resolver(threads: int) -> Callable[..., Sequence[tuple[Any, ...]]]:
    """A ``socket.getaddrinfo`` with ``threads`` of its own, each for one name at a time.

    Under gevent, ten threads of the process resolve all names. A name whose server doesn't answer
    occupies its thread for half a minute; a few of these, and nothing finds MongoDB any more.
    """
    resolve: Callable[..., Any] = get_original("socket", "getaddrinfo")
    pool = cache(lambda: ThreadPool(threads))

    def resolved(*asked: Any, **more: Any) -> Sequence[tuple[Any, ...]]:
        found: Sequence[tuple[Any, ...]] = pool().apply(resolve, asked, more)
        return found

    return resolved
