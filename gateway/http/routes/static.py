"""`/console/`: the files of the console, as they lie in its package.

They are read once, when the application is made, and looked up by name: whatever else a path says,
it never reaches the file system.

`/docs`: the API for people, made from `openapi.yaml` when somebody first asks for it.

`GET /metrics`: what all workers have counted, in Prometheus's text format.

The routes about the service itself.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import flask
from flask import Flask
from werkzeug.http import unquote_etag

import gateway as package
import gateway.console
from gateway.docs_page import SEARCH, STYLE, render_page
from gateway.http.door.authorization import principal_of
from gateway.http.wire.answers import Answer, HeaderList, body_answer, empty_answer, encode
from gateway.http.wire.query import NoParameters, parameters
from gateway.http.wire.refusals import RequestRefused
from gateway.service import Gateway

_STATIC: Final = Path(gateway.console.__file__).parent / "static"
_INDEX: Final = "index.html"
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
# ETag and no-cache instead of names with hashes: modules import each other by plain names, and
# what a browser has is never older than the gateway that it speaks to.
_HEADERS: Final = (
    ("Cache-Control", "no-cache"),
    ("Content-Security-Policy", _POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_NO_PARAMETERS = NoParameters()


class ConsoleFile(NamedTuple):
    """A file as it is sent; ``tag`` is the ETag without quotes, by its content."""

    body: bytes
    media_type: str
    tag: str


class ConsoleRoutes:
    def __init__(self) -> None:
        self._files = console_files()

    def register(self, app: Flask) -> None:
        app.add_url_rule("/", "console_entry", self.entry, methods=["GET"])
        app.add_url_rule("/console", "console_entry", self.entry, methods=["GET"])
        app.add_url_rule("/console/", "console", self.file, methods=["GET"])
        app.add_url_rule("/console/<rest:name>", "console", self.file, methods=["GET"])

    def entry(self) -> Answer:
        """Leads there, from the root too. Names in the page are relative: it has to be asked for
        with the slash."""
        environ = flask.request.environ
        parameters(environ, _NO_PARAMETERS)
        # The root for now: browsers keep a 308 for whatever else this machine serves there one day.
        status = 307 if environ["PATH_INFO"] == "/" else 308
        return empty_answer([("Location", "console/"), ("Content-Length", "0")], status)

    def file(self, name: str = _INDEX) -> Answer:
        """Raises RequestRefused ``route_not_found`` for all but the names that there are."""
        environ = flask.request.environ
        parameters(environ, _NO_PARAMETERS)
        found = self._files.get(name)
        if found is None:
            raise RequestRefused("route_not_found", "the console has no such file")
        headers: HeaderList = [*_HEADERS, ("ETag", f'"{found.tag}"')]
        if _holds(environ.get("HTTP_IF_NONE_MATCH", ""), found.tag):
            return empty_answer(headers, 304)
        return body_answer(found.body, headers, media_type=found.media_type)


def console_files(static: Path = _STATIC) -> dict[str, ConsoleFile]:
    """Every file of the console by its name below ``/console/``."""
    return {
        path.relative_to(static).as_posix(): _read(path)
        for path in sorted(static.rglob("*"))
        if path.suffix in _MEDIA_TYPES
    }


def _read(path: Path) -> ConsoleFile:
    body = path.read_bytes()
    return ConsoleFile(body, _MEDIA_TYPES[path.suffix], sha256(body).hexdigest()[:32])


def _holds(if_none_match: str, tag: str) -> bool:
    """Whether the client has it already; a malformed header means that it hasn't."""
    given = (each.strip() for each in if_none_match.split(","))
    return any(each == "*" or unquote_etag(each)[0] == tag for each in given if each)


_PAGE_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_PAGE_HEADERS: Final = (
    ("Cache-Control", "no-cache"),
    ("Content-Security-Policy", _PAGE_POLICY),
    ("Referrer-Policy", "no-referrer"),
)
_NO_PARAMETERS = NoParameters()


class DocsPageRoutes:
    """Nothing is made before it is asked for: most workers never are, and it takes 0.2 s."""

    def __init__(self) -> None:
        self._openapi = openapi_document()
        self._page: bytes | None = None

    def register(self, app: Flask) -> None:
        app.add_url_rule("/docs", "docs", self.page, methods=["GET"])
        app.add_url_rule("/docs/style.css", "docs_style", self.style, methods=["GET"])
        app.add_url_rule("/docs/search.js", "docs_search", self.search, methods=["GET"])

    def page(self) -> Answer:
        """RequestRefused ``route_not_found`` where the installation lacks the document."""
        parameters(flask.request.environ, _NO_PARAMETERS)
        if self._page is None:
            if self._openapi is None:
                raise RequestRefused("route_not_found", "this installation has no OpenAPI document")
            self._page = render_page(self._openapi)
        return _answer(self._page, "text/html; charset=utf-8")

    def style(self) -> Answer:
        parameters(flask.request.environ, _NO_PARAMETERS)
        return _answer(STYLE, "text/css; charset=utf-8")

    def search(self) -> Answer:
        parameters(flask.request.environ, _NO_PARAMETERS)
        return _answer(SEARCH, "text/javascript; charset=utf-8")


def _answer(body: bytes, media_type: str) -> Answer:
    headers: HeaderList = list(_PAGE_HEADERS)
    return body_answer(body, headers, media_type=media_type)


_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def nothing_measured() -> bytes:
    """The exposition of a service that measures nothing."""
    return b""


class MetricsRoutes:
    def __init__(self, exposition: Callable[[], bytes]) -> None:
        self._exposition = exposition

    def register(self, app: Flask) -> None:
        app.add_url_rule("/metrics", "metrics", self.metrics, methods=["GET"])

    def metrics(self) -> Answer:
        return body_answer(
            self._exposition(), [("Cache-Control", "no-store")], media_type=_MEDIA_TYPE
        )


_PACKAGE: Final = Path(package.__file__).parent
# Installed, it lies in the package; in a checkout, beside it.
_OPENAPI_PLACES: Final = (_PACKAGE / "openapi.yaml", _PACKAGE.parent / "openapi.yaml")
_NO_PARAMETERS = NoParameters()


class ServiceRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._openapi = openapi_document()

    def register(self, app: Flask) -> None:
        app.add_url_rule("/livez", "livez", self.livez, methods=["GET"])
        app.add_url_rule("/readyz", "readyz", self.readyz, methods=["GET"])
        app.add_url_rule("/v1/principal", "read_principal", self.principal, methods=["GET"])
        app.add_url_rule("/openapi.yaml", "openapi", self.openapi, methods=["GET"])

    def livez(self) -> Answer:
        """The process answers; it touches nothing else."""
        return body_answer(encode({"status": "alive"}), [("Cache-Control", "no-store")])

    def readyz(self) -> Answer:
        """The database answers. Raises StoreUnavailable."""
        self._gateway.check_ready()
        return body_answer(encode({"status": "ready"}), [("Cache-Control", "no-store")])

    def principal(self) -> Answer:
        """Who the request is from, and what it may do."""
        environ = flask.request.environ
        parameters(environ, _NO_PARAMETERS)
        by = principal_of(environ)
        grants = [{"role": each.role.name.lower(), "pattern": each.pattern} for each in by.grants]
        content = {"name": by.name, "grants": grants}
        return body_answer(encode(content), [("Cache-Control", "no-store")])

    def openapi(self) -> Answer:
        if self._openapi is None:
            raise RequestRefused("route_not_found", "this installation has no OpenAPI document")
        return body_answer(self._openapi, [], media_type="application/yaml")


def openapi_document() -> bytes | None:
    """The contract as text; None where it was left out of the installation."""
    for place in _OPENAPI_PLACES:
        if place.is_file():
            return place.read_bytes()
    return None
