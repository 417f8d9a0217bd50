"""The routes about the service itself."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import flask
from flask import Flask

import gateway as package
from gateway.commits.service import Gateway
from gateway.http.answers import Answer, body_answer, encode
from gateway.http.parameters import NoParameters, parameters
from gateway.http.principals import principal_of
from gateway.http.refusals import RequestRefused

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
