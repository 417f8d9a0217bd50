"""`/v1/catalogs/{catalog}/documents/{key}`: read, put, patch, delete."""

from __future__ import annotations

import flask
from flask import Flask

from gateway.commits.requests import Delete, Put
from gateway.commits.service import Gateway
from gateway.http import media_types, names
from gateway.http.answers import Answer, empty_answer
from gateway.http.bodies import decode_document, read_body
from gateway.http.document_reads import read_document
from gateway.http.limits import RequestLimits
from gateway.http.patch_edits import read_patch
from gateway.http.raw_path import Environ
from gateway.http.writes import NOTHING_SENT, Ask, Sent, answer_write, read_ask

RULE = "/v1/catalogs/<segment:catalog>/documents/<rest:key>"
METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"


class DocumentRoutes:
    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._gateway = gateway
        self._limits = limits

    def register(self, app: Flask) -> None:
        app.add_url_rule(RULE, "read_document", self.read, methods=["GET"])
        app.add_url_rule(RULE, "put_document", self.put, methods=["PUT"])
        app.add_url_rule(RULE, "patch_document", self.patch, methods=["PATCH"])
        app.add_url_rule(RULE, "delete_document", self.delete, methods=["DELETE"])
        app.add_url_rule(RULE, "document_options", self.options, methods=["OPTIONS"])

    def read(self, catalog: str, key: str) -> Answer:
        """The document as it is, or as it was at ``?revision=`` or ``?at=``."""
        catalog, key = self._names(catalog, key)
        return read_document(self._gateway, flask.request.environ, catalog, key, "content")

    def put(self, catalog: str, key: str) -> Answer:
        """Create or replace the whole document."""
        environ = flask.request.environ
        ask = self._ask(environ, catalog, key)
        media_types.require_json(environ)
        raw = read_body(environ, self._limits)
        value, size_bytes = decode_document(raw, self._limits)
        sent = Sent(value, media_types.JSON, len(raw))
        return answer_write(self._gateway, environ, ask, Put(value, size_bytes), sent)

    def patch(self, catalog: str, key: str) -> Answer:
        """Apply a JSON Patch, an extended one, or a merge patch to a document that exists."""
        environ = flask.request.environ
        ask = self._ask(environ, catalog, key)
        edit, sent = read_patch(environ, self._limits, self._gateway.limits.patch)
        return answer_write(self._gateway, environ, ask, edit, sent)

    def delete(self, catalog: str, key: str) -> Answer:
        """Leave a tombstone; nothing to do where there is no document. A body is not read."""
        environ = flask.request.environ
        ask = self._ask(environ, catalog, key)
        return answer_write(self._gateway, environ, ask, Delete(), NOTHING_SENT)

    def options(self, catalog: str, key: str) -> Answer:
        self._names(catalog, key)
        return empty_answer([("Allow", METHODS), media_types.ACCEPT_PATCH])

    def _ask(self, environ: Environ, catalog: str, key: str) -> Ask:
        return read_ask(environ, *self._names(catalog, key))

    def _names(self, catalog: str, key: str) -> tuple[str, str]:
        return names.catalog_name(catalog, self._limits), names.document_key(key, self._limits)
