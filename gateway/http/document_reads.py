"""Reading one document, or its attributes: as they are, or as they were."""

from __future__ import annotations

from typing import Any, Final

import flask

from gateway.commits.conditions import NO_CONDITIONS, Conditions
from gateway.commits.errors import DocumentNotFound
from gateway.commits.service import Gateway, Reading
from gateway.http.answers import Answer, body_answer, empty_answer, encode, etag, last_modified
from gateway.http.conditions import read_conditions, refuse_composites
from gateway.http.parameters import ReadParameters, parameters
from gateway.http.principals import principal_of
from gateway.http.raw_path import Environ
from gateway.http.refusals import RequestRefused
from gateway.http.writes import Part
from gateway.model import Document

_PARAMETERS = ReadParameters()
# What is answered by what was there; other answers would be the same at any time.
_OF_THE_TIME: Final = (200, 304, 404, 412)


def read_document(gateway: Gateway, environ: Environ, catalog: str, key: str, part: Part) -> Answer:
    """One ``part`` of the document; the tag and the date are the document's, whichever part it is.

    Raises DocumentNotFound, DocumentForbidden, PreconditionFailed, and what reading an earlier
    revision raises.
    """
    conditions = read_conditions(environ)
    reading = _reading(gateway, environ, catalog, key)
    document = reading.document
    if document is None or not document.exists:
        raise DocumentNotFound(catalog, key).at(reading.catalog_revision)
    _require_seen(gateway, environ, catalog, document)
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
    shown = document.content if part == "content" else document.attributes or {}
    return body_answer(encode(shown), headers)


def _reading(gateway: Gateway, environ: Environ, catalog: str, key: str) -> Reading:
    if not environ.get("QUERY_STRING"):
        return gateway.read(catalog, key)
    revision = asked_revision(gateway, catalog, parameters(environ, _PARAMETERS))
    if revision is None:
        return gateway.read(catalog, key)
    return gateway.read_at_revision(catalog, key, revision)


def asked_revision(gateway: Gateway, catalog: str, asked: dict[str, Any]) -> int | None:
    """The revision asked for by number or time, which are taken out of ``asked``; None: the newest.

    Where a commit may yet be made at or before that time, the answer says so, whatever it is.
    """
    revision: int | None = asked.pop("revision", None)
    time_us: int | None = asked.pop("at", None)
    if time_us is None:
        return revision
    if revision is not None:
        detail = "parameters 'revision' and 'at' can't be given together"
        raise RequestRefused("invalid_parameter", detail, parameter="at")
    found = gateway.revision_at(catalog, time_us)
    if not found.is_final:
        flask.after_this_request(_provisional)
    return found.revision


def _provisional(answer: flask.Response) -> flask.Response:
    if answer.status_code in _OF_THE_TIME:
        answer.headers["Time-Provisional"] = "true"
    return answer


def _require_seen(gateway: Gateway, environ: Environ, catalog: str, document: Document) -> None:
    """Raise DocumentForbidden by the acl that the document has now, also where it was read as of
    another time."""
    if document.attributes is None and not environ.get("QUERY_STRING"):
        return
    sight = gateway.acls.sight(principal_of(environ), catalog)
    if sight is None:
        return
    if environ.get("QUERY_STRING"):
        sight.require_then(document)
    else:
        sight.require(document)


def _require(conditions: Conditions, key: str, document: Document) -> None:
    """Raise PreconditionFailed where a read under these conditions has nothing to answer."""
    if conditions.if_match is None and conditions.if_unmodified_since is None:
        return
    Conditions(
        if_match=conditions.if_match, if_unmodified_since=conditions.if_unmodified_since
    ).check(key, lambda _: document, document.revision)
