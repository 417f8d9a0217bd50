"""What every answer has: a name, in logs and problems too, and that its media type is believed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from gateway.http.raw_path import Environ, WsgiApplication

# Documents hold what clients wrote: no browser may take one for a page or a script.
_NOSNIFF: Final = ("X-Content-Type-Options", "nosniff")
_KEY: Final = "gateway.request_id"
_is_sane = re.compile("[A-Za-z0-9._~:+/=@-]{1,128}").fullmatch


class RequestIds:
    """A WSGI middleware: keeps a sane X-Request-Id that came in, else makes one; sends it back."""

    def __init__(self, application: WsgiApplication) -> None:
        self._application = application

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        given = environ.get("HTTP_X_REQUEST_ID")
        name = given if given is not None and _is_sane(given) else os.urandom(8).hex()
        environ[_KEY] = name

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            headers.append(("X-Request-Id", name))
            headers.append(_NOSNIFF)
            return start_response(status, headers, exc_info)

        return self._application(environ, start)


def request_id(environ: Environ) -> str:
    name: str = environ[_KEY]
    return name
