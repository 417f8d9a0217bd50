"""`…/documents/{key}` and `…/attributes/{key}`: read, put, patch, delete.

A document has two parts under one version token: its content, and its attributes, an object that is
{} if nobody set any. Both are read and written in the same way, and can be read as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from marshmallow import fields
from msgspec.structs import replace

from gateway.access import Role
from gateway.decide.conditions import NO_CONDITIONS, Preconditions
from gateway.decide.edits import ContentEdit, Delete, EditAttributes, KeyEdit, Put, operations_in
from gateway.errors import DocumentNotFound
from gateway.http.context import Context
from gateway.http.door.admission import take_body
from gateway.http.door.rate_limits import spend_operations
from gateway.http.routes import CATALOG, RouteRule, Routes, route
from gateway.http.wire import headers as media_types
from gateway.http.wire import query
from gateway.http.wire.apply_terms import (
    apply_parameters,
    owners_parameters,
    owning_terms,
    require_wanted,
)
from gateway.http.wire.body import decode_document, read_patch
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import (
    read_conditions,
    refuse_composites,
    refuse_conditions,
)
from gateway.http.wire.headers import document_key
from gateway.http.wire.responses import (
    Answer,
    body_answer,
    empty_answer,
    encode,
    last_modified,
    state_headers,
)
from gateway.http.wire.shapes import loss_shape
from gateway.http.write.answer import commit, document_answer, shown_part
from gateway.http.write.ask import NOTHING_SENT, Ask, Part, Sent, read_ask, request_of
from gateway.limits import RequestLimits
from gateway.model import DocumentRecord
from gateway.read.current import DocumentReading
from gateway.read.losses import LossQuery
from gateway.service import GatewayService
from patching.ownership import CONFLICTS

METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"


# A document, as it is or as it was (``revision`` or ``at``).
_DOCUMENT_PARAMETERS: Final = query.takes(**query.READ_AS_OF)
# For an apply; and to let go or give back. See ``wire.apply_terms``.
_APPLY_PARAMETERS: Final = query.takes(
    **query.WRITE_PARAMETERS.fields,
    manager=query.Parameter(query.manager_name),
    conflict=query.Parameter(query.one_of(CONFLICTS)),
    force=fields.List(fields.String()),
)
_LET_GO_PARAMETERS: Final = query.takes(
    **query.WRITE_PARAMETERS.fields,
    manager=query.Parameter(query.manager_name),
    prune=query.Parameter(query.switch, load_default=False),
    pointer=fields.List(fields.String()),
)
# Losses of manager ``lost_by`` above revision ``after`` and below ``before``; of commit ``before``
# - 1, only keys above ``after_key``.
_LOSSES_PARAMETERS: Final = query.takes(
    lost_by=query.Parameter(query.manager_name, required=True),
    after=query.AFTER,
    before=query.number(1, load_default=None),
    after_key=query.TEXT,
    limit=query.LIMIT,
)


class DocumentRoutes(Routes):
    """The routes of one ``part`` of documents."""

    def __init__(self, gateway: GatewayService, limits: RequestLimits, part: Part) -> None:
        super().__init__(gateway, limits)
        self._part: Part = part

    def views(self) -> Iterator[tuple[RouteRule, Callable[..., Answer]]]:
        place, name = {
            "content": ("documents", "document"),
            "attributes": ("attributes", "attributes"),
        }[self._part]
        rule = f"{CATALOG}/{place}/<rest:key>"
        yield RouteRule("GET", rule, f"read_{name}", Role.READ), self.read
        yield RouteRule("PUT", rule, f"put_{name}", Role.WRITE), self.put
        yield RouteRule("PATCH", rule, f"patch_{name}", Role.WRITE), self.patch
        yield RouteRule("DELETE", rule, f"delete_{name}", Role.WRITE), self.delete
        yield RouteRule("OPTIONS", rule, f"{name}_options", Role.READ), self.options

    def read(self, context: Context, catalog: str, key: str) -> Answer:
        """The part as it is, or as it was at ``?revision=`` or ``?at=``."""
        key = document_key(key, self._limits)
        return read_document(self._gateway, context, catalog, key, self._part)

    def put(self, context: Context, catalog: str, key: str) -> Answer:
        """Create or replace the whole document, or replace the attributes of one that exists."""
        ask = self._ask(context, catalog, key)
        media_types.require_json(context.environ)
        raw = take_body(context, self._limits)
        value, size_bytes = decode_document(raw, self._limits)
        return self._write(
            context, ask, Put(value, size_bytes), Sent(value, media_types.JSON, len(raw))
        )

    def patch(self, context: Context, catalog: str, key: str) -> Answer:
        """Apply a JSON Patch, an extended patch or a merge patch to what exists; or make an apply,
        which creates the document if there is none."""
        applies = self._part == "content"
        media_type = media_types.patch_type(context.environ, applies=applies)
        key = document_key(key, self._limits)
        if media_type == media_types.APPLY:
            return self._apply(context, catalog, key)
        ask = read_ask(context, catalog, key, part=self._part)
        raw = take_body(context, self._limits)
        edit, body = read_patch(media_type, raw, self._limits, self._gateway.limits.patch)
        if context.spending is not None:
            spend_operations(context, operations_in(edit))
        return self._write(context, ask, edit, Sent(body, media_type, len(raw)))

    def _apply(self, context: Context, catalog: str, key: str) -> Answer:
        params = query.parameters(context.environ, _APPLY_PARAMETERS)
        ask = read_ask(context, catalog, key, params=params)
        terms = apply_parameters(params, context.by.name)
        raw = take_body(context, self._limits)
        wanted, size_bytes = decode_document(raw, self._limits)
        require_wanted(wanted)
        sent = Sent(wanted, media_types.APPLY, len(raw), terms=terms.as_json())
        return self._write(context, ask, terms.edit(wanted, size_bytes), sent)

    def delete(self, context: Context, catalog: str, key: str) -> Answer:
        """Delete the document, or clear its attributes; no document: nothing to do. A body isn't
        read."""
        ask = self._ask(context, catalog, key)
        return self._write(context, ask, Delete(), NOTHING_SENT)

    def options(self, _: Context, catalog: str, key: str) -> Answer:  # noqa: ARG002 - any
        document_key(key, self._limits)
        of_content = self._part == "content"
        accepted = media_types.ACCEPT_PATCH if of_content else media_types.ACCEPT_ATTRIBUTES_PATCH
        return empty_answer([("Allow", METHODS), accepted])

    def _write(self, context: Context, ask: Ask, edit: ContentEdit, sent: Sent) -> Answer:
        edits = (KeyEdit(ask.key, EditAttributes(edit) if ask.part == "attributes" else edit),)
        request = request_of(self._gateway, ask, edits, sent)
        return document_answer(self._gateway, ask, commit(self._gateway, context, ask, request))

    def _ask(self, context: Context, catalog: str, key: str) -> Ask:
        return read_ask(context, catalog, document_key(key, self._limits), part=self._part)


def read_document(
    gateway: GatewayService, context: Context, catalog: str, key: str, part: Part
) -> Answer:
    """One ``part`` of the document. The tag and the date are the whole document's.

    Raises DocumentNotFound, DocumentForbidden, ConditionFailed, and whatever reading an earlier
    revision raises.
    """
    environ = context.environ
    conditions = read_conditions(environ)
    reading = _reading(gateway, context, catalog, key)
    document = reading.document
    if document is None or not document.exists:
        raise DocumentNotFound(catalog, key).at(reading.catalog_revision)
    _require_seen(gateway, context, catalog, document)
    headers = state_headers(document.token, reading.catalog_revision)
    headers.append(last_modified(document.time_us // 1_000_000))
    if conditions is not NO_CONDITIONS:
        refuse_composites(conditions)
        _require(conditions, key, document)
        if conditions.not_modified(document):
            return empty_answer(headers, 304)
    return body_answer(encode(shown_part(document, part)), headers)


def _reading(gateway: GatewayService, context: Context, catalog: str, key: str) -> DocumentReading:
    environ = context.environ
    if not environ.get("QUERY_STRING"):
        return gateway.read(catalog, key)
    params = query.parameters(environ, _DOCUMENT_PARAMETERS)
    revision = requested_revision(gateway, context, catalog, params)
    if revision is None:
        return gateway.read(catalog, key)
    return gateway.read_at_revision(catalog, key, revision)


def requested_revision(
    gateway: GatewayService, context: Context, catalog: str, params: dict[str, Any]
) -> int | None:
    """The revision asked for by ``revision`` or ``at``, which are removed from ``params``; None:
    the newest. If a commit may yet get a time at or before ``at``, the answer will say so.
    """
    revision: int | None = params.pop("revision", None)
    time_us: int | None = params.pop("at", None)
    if time_us is None:
        return revision
    if revision is not None:
        detail = "parameters 'revision' and 'at' can't be given together"
        raise RequestRefused("invalid_parameter", detail, parameter="at")
    found = gateway.revision_at(catalog, time_us)
    if not found.is_final:
        context.observed.is_provisional = True
    return found.revision


def _require_seen(
    gateway: GatewayService, context: Context, catalog: str, document: DocumentRecord
) -> None:
    """Raise DocumentForbidden if the document may not be read; one read as of another time is
    checked as a past state (``Viewer.require_past``)."""
    as_of_then = context.environ.get("QUERY_STRING")
    if document.attributes is None and not as_of_then:
        return
    viewer = gateway.acls.viewer(context.by, catalog)
    if viewer is None:
        return
    if as_of_then:
        viewer.require_past(document)
    else:
        viewer.require(document)


def _require(conditions: Preconditions, key: str, document: DocumentRecord) -> None:
    """Raise ConditionFailed if If-Match or If-Unmodified-Since is false."""
    if conditions.if_match is None and conditions.if_unmodified_since is None:
        return
    Preconditions(
        if_match=conditions.if_match, if_unmodified_since=conditions.if_unmodified_since
    ).check(key, lambda _: document, document.revision)


class OwnersRoutes(Routes):
    @route("GET", f"{CATALOG}/owners", "list_losses", Role.READ)
    def losses(self, context: Context, catalog: str) -> Answer:
        """A manager's losses, the newest first; ``next`` has the next page's parameters."""
        refuse_conditions(context.environ)
        params = query.parameters(context.environ, _LOSSES_PARAMETERS)
        if params["after_key"] and params["before"] is None:
            query.refuse_parameter("after_key", "it needs 'before'")
        manager = params.pop("lost_by")
        viewer = self._gateway.acls.viewer(context.by, catalog)
        page = self._gateway.losses.page(LossQuery(catalog, manager, viewer=viewer, **params))
        more: dict[str, Any] | None = None
        if page.before is not None:
            more = {"before": page.before}
            if page.after_key:
                more["after_key"] = page.after_key
        content = {
            "manager": manager,
            "losses": [loss_shape(each) for each in page.losses],
            "next": more,
        }
        return body_answer(encode(content), [("Catalog-Revision", str(page.head_revision))])

    @route("GET", f"{CATALOG}/owners/<rest:key>", "read_owners", Role.READ)
    def read(self, context: Context, catalog: str, key: str) -> Answer:
        """The leaves that have owners, by pointer, with their owners; now or as of another time."""
        key = document_key(key, self._limits)
        return read_document(self._gateway, context, catalog, key, "owners")

    @route("DELETE", f"{CATALOG}/owners/<rest:key>", "let_go", Role.WRITE)
    def let_go(self, context: Context, catalog: str, key: str) -> Answer:
        """Let go: the manager owns nothing of the document any more, and what nobody else owns is
        removed. With ``pointer``: give back what plain writes own there."""
        params = query.parameters(context.environ, _LET_GO_PARAMETERS)
        key = document_key(key, self._limits)
        ask = read_ask(context, catalog, key, part="owners", params=params)
        edit = owners_parameters(params, context.by.name)
        sent = replace(NOTHING_SENT, terms=owning_terms(edit))
        request = request_of(self._gateway, ask, (KeyEdit(ask.key, edit),), sent)
        return document_answer(self._gateway, ask, commit(self._gateway, context, ask, request))
