"""`/console/`: the files of the console, as they lie in its package.

They are read once, when the application is made, and looked up by name: whatever else a path says,
it never reaches the file system.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import flask
from flask import Flask
from werkzeug.http import unquote_etag

import gateway.console
from gateway.http.answers import Answer, HeaderList, body_answer, empty_answer
from gateway.http.parameters import NoParameters, parameters
from gateway.http.refusals import RequestRefused

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
