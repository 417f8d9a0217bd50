"""`/v1/catalogs/{catalog}/documents/{key}`: read, put, patch, delete."""

from __future__ import annotations

from typing import Any

import flask
from flask import Flask

import patching
from gateway.commits.conditions import NO_CONDITIONS, Conditions
from gateway.commits.errors import (
    CommitError,
    DocumentNotFound,
    OutcomeUnknown,
    PreconditionFailed,
)
from gateway.commits.requests import ApplyPatch, Delete, Edit, Merge, Put
from gateway.commits.service import Gateway, Reading
from gateway.http import media_types, names
from gateway.http.answers import Answer, body_answer, empty_answer, encode, etag, last_modified
from gateway.http.bodies import decode_document, decode_patch, decode_value, read_body
from gateway.http.changes_since import changes_since
from gateway.http.conditions import read_conditions, refuse_composites
from gateway.http.limits import RequestLimits
from gateway.http.parameters import ReadParameters, parameters
from gateway.http.problems import problem_answer
from gateway.http.raw_path import Environ
from gateway.http.refusals import RequestRefused
from gateway.http.writes import NOTHING_SENT, Ask, Sent, read_ask, write
from gateway.model import Document

RULE = "/v1/catalogs/<segment:catalog>/documents/<rest:key>"
_METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"
_READ_PARAMETERS = ReadParameters()


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
        environ = flask.request.environ
        catalog, key = self._names(catalog, key)
        conditions = read_conditions(environ)
        reading = self._reading(environ, catalog, key)
        document = reading.document
        if document is None or not document.exists:
            raise DocumentNotFound(catalog, key)
        headers = [
            etag(document.token),
            last_modified(document.time_us // 1_000_000),
            ("Catalog-Revision", str(reading.catalog_revision)),
            ("Cache-Control", "no-cache"),
        ]
        if conditions is not NO_CONDITIONS:
            refuse_composites(conditions)
            _require(conditions, key, document)
            if conditions.not_modified(document):
                return empty_answer(headers, 304)
        return body_answer(encode(document.content), headers)

    def put(self, catalog: str, key: str) -> Answer:
        """Create or replace the whole document."""
        environ = flask.request.environ
        ask = self._ask(environ, catalog, key)
        media_types.require_json(environ)
        raw = read_body(environ, self._limits)
        value, size_bytes = decode_document(raw, self._limits)
        sent = Sent(value, media_types.JSON, len(raw))
        return self._write(environ, ask, Put(value, size_bytes), sent)

    def patch(self, catalog: str, key: str) -> Answer:
        """Apply a JSON Patch, or a merge patch to a document that exists."""
        environ = flask.request.environ
        ask = self._ask(environ, catalog, key)
        media_type = media_types.patch_type(environ)
        raw = read_body(environ, self._limits)
        if media_type == media_types.JSON_PATCH:
            body = decode_patch(raw)
            limits = self._gateway.limits.patch
            edit: Edit = ApplyPatch(patching.parse(body, limits=limits))
        else:
            body = decode_value(raw, self._limits)
            edit = Merge(body, len(encode(body)))
        return self._write(environ, ask, edit, Sent(body, media_type, len(raw)))

    def delete(self, catalog: str, key: str) -> Answer:
        """Leave a tombstone; nothing to do where there is no document. A body is not read."""
        environ = flask.request.environ
        return self._write(environ, self._ask(environ, catalog, key), Delete(), NOTHING_SENT)

    def options(self, catalog: str, key: str) -> Answer:
        self._names(catalog, key)
        return empty_answer([("Allow", _METHODS), media_types.ACCEPT_PATCH])

    def _write(self, environ: Environ, ask: Ask, edit: Edit, sent: Sent) -> Answer:
        try:
            return write(self._gateway, ask, edit, sent)
        except CommitError as error:
            return problem_answer(error, environ, self._what_helps(ask, error))

    def _what_helps(self, ask: Ask, error: CommitError) -> dict[str, Any]:
        """Members for the problem that the error itself doesn't know."""
        if isinstance(error, PreconditionFailed):
            changes = changes_since(self._gateway, ask.catalog, error)
            return {} if changes is None else {"changes_since": changes}
        if isinstance(error, OutcomeUnknown) and ask.idempotency_key is not None:
            return {"outcome": names.outcome_path(ask.catalog, ask.idempotency_key)}
        return {}

    def _reading(self, environ: Environ, catalog: str, key: str) -> Reading:
        if not environ.get("QUERY_STRING"):
            return self._gateway.read(catalog, key)
        asked = parameters(environ, _READ_PARAMETERS)
        if len(asked) > 1:
            detail = "parameters 'revision' and 'at' can't be given together"
            raise RequestRefused("invalid_parameter", detail, parameter="at")
        if "revision" in asked:
            return self._gateway.read_at_revision(catalog, key, asked["revision"])
        if "at" in asked:
            return self._gateway.read_at_time(catalog, key, asked["at"])
        return self._gateway.read(catalog, key)

    def _ask(self, environ: Environ, catalog: str, key: str) -> Ask:
        return read_ask(environ, *self._names(catalog, key))

    def _names(self, catalog: str, key: str) -> tuple[str, str]:
        return names.catalog_name(catalog, self._limits), names.document_key(key, self._limits)


def _require(conditions: Conditions, key: str, document: Document) -> None:
    """Raise PreconditionFailed where a read under these conditions has nothing to answer."""
    if conditions.if_match is None and conditions.if_unmodified_since is None:
        return
    Conditions(
        if_match=conditions.if_match, if_unmodified_since=conditions.if_unmodified_since
    ).check(key, lambda _: document, document.revision)
