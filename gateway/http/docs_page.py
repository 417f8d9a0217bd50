"""`/docs`: the API for people, made from `openapi.yaml` when somebody first asks for it."""

from __future__ import annotations

from typing import Final

import flask
from flask import Flask

from gateway.docs_page import SEARCH, STYLE, render_page
from gateway.http.answers import Answer, HeaderList, body_answer
from gateway.http.parameters import NoParameters, parameters
from gateway.http.refusals import RequestRefused
from gateway.http.service import openapi_document

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
