"""The routes of the service itself: its files (console, `/docs`, contract), health, metrics.

Files are read once, when the app is made, and looked up by name: a path never reaches the file
system.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from werkzeug.http import unquote_etag

import gateway as package
from gateway.http.context import Context, Environ, HeaderList, Need, OpenContext
from gateway.http.routes import Routes, route
from gateway.http.wire.codes import RequestRefused, TryLater
from gateway.http.wire.query import NO_PARAMETERS, parameters
from gateway.http.wire.responses import NO_STORE, Answer, body_answer, empty_answer, encode, etag
from gateway.limits import RequestLimits
from gateway.service import GatewayService

_PACKAGE: Final = Path(package.__file__).parent
_INDEX: Final = "index.html"
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_NOTHING_ELSE: Final = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# A browser asks each time, so what it has is never older than the gateway that it speaks to.
_ASK_AGAIN: Final = ("Cache-Control", "no-cache")
_KEEP: Final = ("Cache-Control", "public, max-age=31536000, immutable")
_VERSION: Final = "v-"  # the beginning of a path's first segment if that is a version
_LINK_TO_FILE: Final = re.compile(rb'( (?:href|src)=")(?=[\w/]+\.\w+")')
_DOCS_HEADERS: Final = (
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'self'; script-src 'self'; {_NOTHING_ELSE}",
    ),
    ("Referrer-Policy", "no-referrer"),
)
_CONSOLE_HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        f"img-src 'self'; {_NOTHING_ELSE}",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class StaticFile(NamedTuple):
    """A file as it is sent; ``tag``, a hash of the content, is the ETag without quotes."""

    body: bytes
    media_type: str
    tag: str


class StaticFolder:
    """The files of ``folder`` by their names in it, each sent with ``headers``. A browser asks each
    time whether a file is still the same."""

    def __init__(self, folder: Path, headers: tuple[tuple[str, str], ...]) -> None:
        self._headers = headers
        self._files = {
            path.relative_to(folder).as_posix(): _file(path.suffix, path.read_bytes())
            for path in sorted(folder.rglob("*"))
            if path.suffix in _MEDIA_TYPES
        }

    def answer(self, environ: Environ, name: str, *, takes_any: bool = False) -> Answer:
        """The file ``name``. ``takes_any``: any parameters are allowed; the page may read them.

        Raises RequestRefused ``route_not_found`` for a name that no file has."""
        if not takes_any:
            parameters(environ, NO_PARAMETERS)
        return self._answer(environ, name, _ASK_AGAIN)

    def _answer(self, environ: Environ, name: str, caching: tuple[str, str]) -> Answer:
        found = self._files.get(name)
        if found is None:
            raise RequestRefused("route_not_found", "there is no such file")
        headers: HeaderList = [caching, *self._headers, etag(found.tag)]
        if _holds(environ.get("HTTP_IF_NONE_MATCH", ""), found.tag):
            return empty_answer(headers, 304)
        return body_answer(found.body, headers, media_type=found.media_type)


class PageFolder(StaticFolder):
    """A folder with a page, whose links to the other files begin with a version, a hash of all.

    A browser asks for the page each time, but keeps the files of a version without asking: sixty
    requests were most of the time that it took to open the page again. Modules import each other by
    relative names, so they stay within the version.
    """

    def __init__(self, folder: Path, headers: tuple[tuple[str, str], ...]) -> None:
        super().__init__(folder, headers)
        tags = "".join(f"{name} {file.tag}\n" for name, file in self._files.items())
        self._version = _VERSION + _tag(tags.encode())
        start = rb"\1" + self._version.encode() + b"/"
        page = self._files[_INDEX]
        self._files[_INDEX] = _file(".html", _LINK_TO_FILE.sub(start, page.body))

    def _answer(self, environ: Environ, name: str, caching: tuple[str, str]) -> Answer:
        version, _, rest = name.partition("/")
        if not version.startswith(_VERSION):
            return super()._answer(environ, name, caching)
        # While gateways are upgraded one by one, the page may be of another gateway.
        keep = _KEEP if version == self._version else _ASK_AGAIN
        return super()._answer(environ, rest, keep)


def _file(suffix: str, body: bytes) -> StaticFile:
    return StaticFile(body, _MEDIA_TYPES[suffix], _tag(body))


def _tag(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]


def _holds(if_none_match: str, tag: str) -> bool:
    """Whether the client has the file already; a malformed header means that it hasn't."""
    given = (each.strip() for each in if_none_match.split(","))
    return any(each == "*" or unquote_etag(each)[0] == tag for each in given if each)


# Retry-After if no more files can be opened; nobody knows how long that lasts.
_AGAIN_S: Final = 5.0
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def nothing_measured() -> bytes:
    """The exposition of a service that measures nothing."""
    return b""


# In an installation the file is in the package, in a checkout next to it.
_OPENAPI_PLACES: Final = (_PACKAGE / "openapi.yaml", _PACKAGE.parent / "openapi.yaml")


class ServiceRoutes(Routes):
    """The routes of the service; ``exposition`` makes the answer of ``/metrics``."""

    def __init__(
        self, gateway: GatewayService, limits: RequestLimits, exposition: Callable[[], bytes]
    ) -> None:
        super().__init__(gateway, limits)
        self._exposition = exposition
        # None if the installation has no such file.
        self._openapi = next((e.read_bytes() for e in _OPENAPI_PLACES if e.is_file()), None)
        self._console = PageFolder(_PACKAGE / "console" / "static", _CONSOLE_HEADERS)
        # The page is made from `openapi.yaml` when the package is built.
        self._docs = StaticFolder(_PACKAGE / "docs_page", _DOCS_HEADERS)

    @route("GET", "/livez", "livez", Need.NOTHING)
    def livez(self, _: OpenContext) -> Answer:
        """The process answers; nothing else is checked."""
        return body_answer(encode({"status": "alive"}), [NO_STORE])

    @route("GET", "/readyz", "readyz", Need.NOTHING)
    def readyz(self, _: OpenContext) -> Answer:
        """The database answers and takes writes. Raises StoreUnavailable."""
        self._gateway.check_ready()
        return body_answer(encode({"status": "ready"}), [NO_STORE])

    @route("GET", "/v1/principal", "read_principal", Need.TOKEN)
    def principal(self, context: Context) -> Answer:
        """The principal of the request, and its grants."""
        parameters(context.environ, NO_PARAMETERS)
        by = context.by
        grants = [{"role": each.role.name.lower(), "pattern": each.pattern} for each in by.grants]
        content = {"name": by.name, "grants": grants}
        return body_answer(encode(content), [NO_STORE])

    @route("GET", "/metrics", "metrics", Need.TOKEN)
    def metrics(self, _: OpenContext) -> Answer:
        try:
            exposition = self._exposition()
        except OSError as error:  # no more files can be opened
            detail = f"the metrics can't be read now: {error.strerror}"
            raise TryLater("overloaded", detail, _AGAIN_S) from error
        return body_answer(exposition, [NO_STORE], media_type=_METRICS_TYPE)

    @route("GET", "/openapi.yaml", "openapi", Need.NOTHING)
    def openapi(self, _: OpenContext) -> Answer:
        if self._openapi is None:
            raise RequestRefused("route_not_found", "this installation has no OpenAPI document")
        return body_answer(self._openapi, [], media_type="application/yaml")

    @route("GET", "/docs", "docs", Need.NOTHING)
    def docs(self, context: OpenContext) -> Answer:
        return self._docs.answer(context.environ, _INDEX)

    @route("GET", "/docs/style.css", "docs_style", Need.NOTHING)
    def docs_style(self, context: OpenContext) -> Answer:
        return self._docs.answer(context.environ, "style.css")

    @route("GET", "/docs/search.js", "docs_search", Need.NOTHING)
    def docs_search(self, context: OpenContext) -> Answer:
        return self._docs.answer(context.environ, "search.js")

    @route("GET", "/", "console_entry", Need.NOTHING)
    @route("GET", "/console", "console_entry", Need.NOTHING)
    def console_entry(self, context: OpenContext) -> Answer:
        """A redirect to ``/console/``; the slash is needed, as names in the page are relative."""
        environ = context.environ
        parameters(environ, NO_PARAMETERS)
        # The root's is temporary: a browser would keep a 308 for any later service at this address.
        status = 307 if environ["PATH_INFO"] in ("", "/") else 308
        return empty_answer([("Location", "console/"), ("Content-Length", "0")], status)

    @route("GET", "/console/", "console", Need.NOTHING)
    @route("GET", "/console/<rest:name>", "console", Need.NOTHING)
    def console(self, context: OpenContext, name: str = _INDEX) -> Answer:
        # An issuer sends people back to the page, with a code.
        return self._console.answer(context.environ, name, takes_any=name == _INDEX)
