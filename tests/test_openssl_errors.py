"""The queue of OpenSSL's errors is empty after a call that failed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import gevent.ssl
import pytest

from gateway.server.openssl_errors import clear_after_failures, clear_errors

_ssl: Any = pytest.importorskip("_ssl")
OPENSSL = ctypes.CDLL(getattr(_ssl, "__file__", None))  # with the libraries that it was linked to
if not hasattr(OPENSSL, "ERR_set_error"):
    pytest.skip("this Python hides its OpenSSL", allow_module_level=True)

ERR_LIB_SYS = 2


def leave_an_error() -> None:
    """As CPython does after a reset."""
    OPENSSL.ERR_new()
    OPENSSL.ERR_set_error(ERR_LIB_SYS, 104, None)
    assert OPENSSL.ERR_peek_error() != 0


def test_clearing_empties_the_queue() -> None:
    leave_an_error()
    clear_errors()
    assert OPENSSL.ERR_peek_error() == 0


CALLS: list[Callable[[gevent.ssl.SSLSocket], Any]] = [
    lambda it: it.do_handshake(),
    lambda it: it.read(1),
    lambda it: it.recv(1),
    lambda it: it.recv_into(bytearray(1)),
    lambda it: it.send(b"x"),
    lambda it: it.unwrap(),
    lambda it: it.write(b"x"),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_leaves_no_error(call: Callable[[gevent.ssl.SSLSocket], Any]) -> None:
    class Broken:
        """The C object below a socket whose other end has reset the connection."""

        def _break(self, *_: Any) -> Any:
            leave_an_error()
            raise ConnectionResetError(104, "Connection reset by peer")

        do_handshake = read = shutdown = write = _break

    class Socket(gevent.ssl.SSLSocket):
        def __init__(self) -> None:
            self._sslobj = Broken()
            self._sock = None
            self.timeout = None

        def _checkClosed(self, msg: Any = None) -> None: ...  # noqa: N802

        _check_connected = _checkClosed

        def __del__(self) -> None: ...

    clear_after_failures(Socket)
    with pytest.raises(ConnectionResetError):
        call(Socket())
    assert OPENSSL.ERR_peek_error() == 0
