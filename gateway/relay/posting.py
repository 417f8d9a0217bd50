"""One delivery: a POST to an allowed address. Of the answer, only the status counts.

It follows no redirect, uses no proxy, and is bounded as a whole, in time and in bytes: a receiver
that sends its answer byte by byte, or without an end, holds up only this delivery, and no longer
than any other.

It is signed by Standard Webhooks (version 1), which libraries in many languages can verify: the
message's id, the time in seconds and the body, with a full stop between them, by HMAC-SHA256. After
a secret was changed, a message has signatures of both for a while.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from gateway.cpu import yield_if_over
from gateway.outgoing import BoundedAnswer
from gateway.relay.addresses import AddressRefused, Network, Resolve, Target, connect, target_of
from gateway.runtime import Runtime

SECRET_PREFIX: Final = "whsec_"
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
SECRET_RULE: Final = (
    f"it must be '{SECRET_PREFIX}' and base64 of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
)


def secret_bytes(secret: str) -> bytes:
    """The key in a secret. Raises ValueError if it is no secret."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError(SECRET_RULE) from error
    is_long_enough = SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX
    if not secret.startswith(SECRET_PREFIX) or not is_long_enough:
        raise ValueError(SECRET_RULE)
    return key


def secret_of(key: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(key).decode()


def signed(secrets: Sequence[str], message_id: str, time_s: int, body: bytes) -> dict[str, str]:
    """The headers of a message. Its id must not contain a full stop."""
    signatures = []
    for secret in secrets:
        signing = hmac.new(secret_bytes(secret), f"{message_id}.{time_s}.".encode(), hashlib.sha256)
        yield_if_over()
        signing.update(body)  # a large one isn't copied
        signatures.append("v1," + base64.b64encode(signing.digest()).decode())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(time_s),
        "webhook-signature": " ".join(signatures),
    }


# The longest pause, in seconds, that a receiver may ask for.
RETRY_AFTER_S_MAX: Final = 3600


class Outrun(Exception):
    """Another worker has claimed the subscription meanwhile, or somebody has changed it."""


class Undelivered(Exception):
    """A delivery failed. ``code``: ``address_refused``, ``unreachable``, ``timed_out``,
    ``answered_`` with the status, or ``internal_error`` if the data to be sent can't be read.
    ``is_gone``: the receiver wants no more deliveries."""

    def __init__(
        self, code: str, detail: str, *, retry_after_s: float = 0.0, is_gone: bool = False
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail[:500]
        self.retry_after_s = retry_after_s
        self.is_gone = is_gone


class Deliverer:
    """Sends deliveries. Thread-safe."""

    def __init__(
        self,
        runtime: Runtime,
        networks: Sequence[Network] = (),
        deadline_s: float = 10.0,
        resolve: Resolve | None = None,
    ) -> None:
        """``networks`` are allowed in addition to the public internet. ``resolve`` None: names are
        resolved by this machine."""
        self.networks = networks
        self.deadline_s = deadline_s
        self._runtime = runtime
        self._resolve = resolve
        self._tls: ssl.SSLContext | None = None

    def post(
        self, url: str, body: bytes, headers: Mapping[str, str], may_send: Callable[[], bool]
    ) -> None:
        """Deliver ``body``. Returns when the receiver has taken it (2xx); raises Undelivered.

        ``may_send`` is called after connecting, which may have taken long; if it returns False,
        nothing is sent, and this raises Outrun.
        """
        try:
            target = target_of(url)
            status, reason, retry_after = self._answer(target, body, headers, may_send)
        except AddressRefused as error:
            raise Undelivered("address_refused", str(error)) from error
        except TimeoutError as error:
            raise Undelivered("timed_out", f"no answer in {self.deadline_s:g} s") from error
        except (OSError, UnicodeError) as error:
            raise Undelivered("unreachable", _reason(error)) from error
        if not 200 <= status < 300:
            raise Undelivered(
                f"answered_{status}",
                f"the receiver answered {status} {_plain(reason)}"[:200],
                retry_after_s=_seconds(retry_after),
                is_gone=status == 410,
            )

    def _answer(
        self,
        target: Target,
        body: bytes,
        headers: Mapping[str, str],
        may_send: Callable[[], bool],
    ) -> tuple[int, str, str]:
        is_over, done = False, self._runtime.event()
        resolve = self._resolve or socket.getaddrinfo
        sock = connect(target, self.networks, self.deadline_s, resolve)

        def watch() -> None:
            nonlocal is_over
            if not done.wait(self.deadline_s):
                is_over = True
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

        self._runtime.spawn(watch, "relay-deadline")
        try:
            if target.secure:
                sock = self._secured().wrap_socket(
                    sock, server_hostname=target.host, do_handshake_on_connect=False
                )
                sock.do_handshake()
            if not may_send():
                raise Outrun
            connection = http.client.HTTPConnection(target.host, target.port)
            connection.response_class = BoundedAnswer
            connection.sock = sock
            sent = {"Host": target.authority, "Connection": "close", **headers}
            connection.putrequest("POST", target.path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            return _send(connection, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if is_over or isinstance(error, TimeoutError):
                raise TimeoutError from error
            raise OSError(_reason(error)) from error
        finally:
            done.set()
            sock.close()

    def _secured(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def _send(connection: http.client.HTTPConnection, body: bytes) -> tuple[int, str, str]:
    """Send ``body``; the status and reason of the answer, and its ``Retry-After``."""
    try:
        connection.endheaders(body)
    except OSError:
        # The receiver may have refused it before it took all of it.
        with suppress(OSError, http.client.HTTPException):
            refused = _read_answer(connection)
            if not 200 <= refused[0] < 300:
                return refused
        raise
    return _read_answer(connection)


def _read_answer(connection: http.client.HTTPConnection) -> tuple[int, str, str]:
    response = connection.getresponse()
    return response.status, response.reason, response.headers.get("Retry-After", "")


def _reason(error: Exception) -> str:
    """The error's text, without the system's error number."""
    if isinstance(error, http.client.HTTPException):
        # The library's text quotes the answer, which may come from a service that isn't meant.
        return "the answer isn't HTTP"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _plain(text: str) -> str:
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)


def _seconds(retry_after: str) -> float:
    """The seconds of a ``Retry-After``; 0 for a date, since clocks differ."""
    digits = retry_after.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        return 0.0
    return float(min(int(digits), RETRY_AFTER_S_MAX))
