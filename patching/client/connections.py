"""Connections that another thread can break off: what waits on them ends at once."""

from __future__ import annotations

import socket
import threading
import weakref
from contextlib import suppress
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


class Connections:
    """A urllib3 pool, and the connections that it has open, those in use among them.

    urllib3 itself can only forget about a connection in use: a long poll would sit on, with its
    thread here and its slot at the gateway, until the gateway answers.
    """

    def __init__(
        self,
        pool_size: int,
        *,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        self._open: weakref.WeakSet[HTTPConnection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False
        self.pool = urllib3.PoolManager(
            num_pools=2,
            maxsize=pool_size,
            block=False,
            retries=False,
            cert_reqs="CERT_REQUIRED",
            ca_certs=ca_file,
            cert_file=certificate_file,
            key_file=key_file,
        )
        self.pool.pool_classes_by_scheme = self._pool_classes()

    def close(self) -> None:
        """Break off what is under way. Nothing can be asked over it afterwards."""
        with self._lock:
            self._closed = True
            connections = list(self._open)
        for connection in connections:
            broken = connection.sock
            if broken is not None:
                with suppress(OSError):  # it has ended by itself
                    # of the plain socket: a TLS one would take its session apart under the reader
                    socket.socket.shutdown(broken, socket.SHUT_RDWR)
        self.pool.clear()

    def _connected(self, connection: HTTPConnection) -> None:
        with self._lock:
            if not self._closed:
                self._open.add(connection)
                return
        connection.close()
        raise ConnectionAbortedError("the client was closed")

    def _pool_classes(self) -> dict[str, Any]:
        connected = self._connected

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                connected(self)

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                connected(self)

        class PlainPool(urllib3.HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(urllib3.HTTPSConnectionPool):
            ConnectionCls = Secure

        return {"http": PlainPool, "https": SecurePool}
