"""`…/documents/{key}` and `…/attributes/{key}`: read, put, patch, delete.

A document has two parts under one version token: its content, and the attributes beside it, an
object that is {} where nobody gave any. Both are read and written the same way.
"""

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
from gateway.http.writes import NOTHING_SENT, Ask, Part, Sent, answer_write, read_ask

METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"


class DocumentRoutes:
    """The routes of one ``part`` of documents."""

    def __init__(self, gateway: Gateway, limits: RequestLimits, part: Part) -> None:
        self._gateway = gateway
        self._limits = limits
        self._part: Part = part

    def register(self, app: Flask) -> None:
        place, name = {
            "content": ("documents", "document"),
            "attributes": ("attributes", "attributes"),
        }[self._part]
        rule = f"/v1/catalogs/<segment:catalog>/{place}/<rest:key>"
        app.add_url_rule(rule, f"read_{name}", self.read, methods=["GET"])
        app.add_url_rule(rule, f"put_{name}", self.put, methods=["PUT"])
        app.add_url_rule(rule, f"patch_{name}", self.patch, methods=["PATCH"])
        app.add_url_rule(rule, f"delete_{name}", self.delete, methods=["DELETE"])
        app.add_url_rule(rule, f"{name}_options", self.options, methods=["OPTIONS"])

    def read(self, catalog: str, key: str) -> Answer:
        """The part as it is, or as it was at ``?revision=`` or ``?at=``."""
        catalog, key = self._names(catalog, key)
        return read_document(self._gateway, flask.request.environ, catalog, key, self._part)

    def put(self, catalog: str, key: str) -> Answer:
        """Create or replace the whole document, or replace the attributes of one that exists."""
        environ = flask.request.environ
        ask = self._ask(environ, catalog, key)
        media_types.require_json(environ)
        raw = read_body(environ, self._limits)
        value, size_bytes = decode_document(raw, self._limits)
        sent = Sent(value, media_types.JSON, len(raw))
        return answer_write(self._gateway, environ, ask, Put(value, size_bytes), sent)

    def patch(self, catalog: str, key: str) -> Answer:
        """Apply a JSON Patch, an extended one, or a merge patch to what exists."""
        environ = flask.request.environ
        ask = self._ask(environ, catalog, key)
        edit, sent = read_patch(environ, self._limits, self._gateway.limits.patch)
        return answer_write(self._gateway, environ, ask, edit, sent)

    def delete(self, catalog: str, key: str) -> Answer:
        """Leave a tombstone, or no attributes; of no document: nothing to do. A body isn't read."""
        environ = flask.request.environ
        ask = self._ask(environ, catalog, key)
        return answer_write(self._gateway, environ, ask, Delete(), NOTHING_SENT)

    def options(self, catalog: str, key: str) -> Answer:
        self._names(catalog, key)
        return empty_answer([("Allow", METHODS), media_types.ACCEPT_PATCH])

    def _ask(self, environ: Environ, catalog: str, key: str) -> Ask:
        return read_ask(environ, *self._names(catalog, key), part=self._part)

    def _names(self, catalog: str, key: str) -> tuple[str, str]:
        return names.catalog_name(catalog, self._limits), names.document_key(key, self._limits)
