"""The floor of the web server: reads a request's body and returns a small JSON, without Flask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

_BODY = b'{"catalog": "catalog", "key": "key", "operations": 1}'
_HEADERS = [("Content-Type", "application/json"), ("Content-Length", str(len(_BODY)))]


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    environ["wsgi.input"].read()
    start_response("200 OK", _HEADERS)
    return (_BODY,)
