"""Whether the gateway of this machine is alive, for the image's HEALTHCHECK: ``python -m
gateway.cli.liveness``. The exit code is 0 or 1.

It asks where the variables ``GATEWAY_BIND`` and ``GATEWAY_TLS_CERTIFICATE`` say that it serves. The
certificate isn't verified: it is for a name that clients use, and nothing is sent that is secret.
"""

from __future__ import annotations

import socket
import ssl
import sys
from typing import Final

from gateway.settings import SettingError, Settings, resolve

_TIMEOUT_S: Final = 2.0
# The address to ask if the gateway serves at all addresses.
_OWN: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_REQUEST: Final = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def is_alive(settings: Settings) -> bool:
    """Whether `/livez` answers. A gateway that asks for a client's certificate is alive if it
    refuses the connection for the lack of one."""
    host = _OWN.get(settings.bind.host, settings.bind.host)
    try:
        with socket.create_connection((host, settings.bind.port), _TIMEOUT_S) as connection:
            if settings.tls_certificate is None:
                return _answers(connection)
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            with context.wrap_socket(connection) as secured:
                try:
                    return _answers(secured)
                except OSError:  # the refusal comes after the client's half of TLS 1.3
                    return settings.tls_client_ca is not None
    except ssl.SSLError as error:
        return settings.tls_client_ca is not None and "ALERT" in str(error.reason)
    except OSError:
        return False


def _answers(connection: socket.socket) -> bool:
    connection.sendall(_REQUEST)
    return connection.recv(64).startswith(b"HTTP/1.1 200 ")


def main() -> int:
    try:
        settings = resolve({}).settings
    except SettingError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1
    return 0 if is_alive(settings) else 1


if __name__ == "__main__":
    sys.exit(main())
