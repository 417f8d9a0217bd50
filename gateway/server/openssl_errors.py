"""A TLS connection that breaks spoils no other connection of its worker.

OpenSSL keeps the errors of a thread in a queue, which has to be empty when a connection is used.
With OpenSSL 3.4 or later, CPython leaves an error there if the other end reset the connection
(python/cpython#148594). All connections of a worker share a thread, those to MongoDB too: each of
them that waited for something to read would then fail with the error of the first.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from typing import Any, Final

import gevent.ssl

# The methods of a socket that call OpenSSL; all others, such as `recv`, call one of these.
_CALLS: Final = ("do_handshake", "read", "send", "unwrap", "write")


def clear_after_failures(kind: type[gevent.ssl.SSLSocket]) -> None:
    """Have calls of sockets of this kind that fail leave no errors in the queue of their thread."""

    def cleared(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def run(*given: Any, **named: Any) -> Any:
            try:
                return call(*given, **named)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except OSError:
                clear_errors()
                raise

        return run

    for name in _CALLS:
        setattr(kind, name, cleared(getattr(kind, name)))


def clear_errors() -> None:
    """Clear the queue of this thread, as OpenSSL does when a handshake begins."""
    with suppress(ssl.SSLWantReadError):
        _context().wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True).do_handshake()


@cache
def _context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
