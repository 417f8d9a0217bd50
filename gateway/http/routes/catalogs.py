"""Catalogs as a whole: listed, read, set up, deleted, touched; and how much history they keep.

* `/v1/catalogs`: the catalogs that the principal may read; others aren't shown.
* `/v1/catalogs/{catalog}`, `…/touch`: a catalog's revision and settings; a commit without changes.
* `…/pins`: revisions that are held for a time, so that compaction stays below them.
* `…/compactions`: make a revision the oldest one that can be read.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from gateway.access import Role
from gateway.decide.conditions import CatalogTag
from gateway.decide.edits import KeyEdit, Put, Touch
from gateway.decide.settings import parse_settings
from gateway.decide.strict import integer, strict, text
from gateway.errors import CatalogNotFound
from gateway.http.context import Context, Need
from gateway.http.door.admission import take_body, take_members
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire import headers as media_types
from gateway.http.wire import query
from gateway.http.wire.body import REVISION, decode_document
from gateway.http.wire.conditions import is_not_modified, refuse_conditions, refuse_terms
from gateway.http.wire.headers import catalog_path
from gateway.http.wire.responses import Answer, body_answer, empty_answer, encode, state_headers
from gateway.http.write.answer import carried_out, catalog_answer, commit
from gateway.http.write.ask import NOTHING_SENT, Sent, read_ask, request_of
from gateway.model import SETTINGS_KEY, PinRecord
from gateway.read.listing import readable_catalogs
from patching.values import rfc3339

# A page of catalogs with names above ``after``.
_CATALOGS_PARAMETERS: Final = query.takes(prefix=query.TEXT, after=query.TEXT, limit=query.LIMIT)
# For new settings. ``check_documents``: refuse lists that documents break. ``examine``: how many
# documents a dry run checks against their schemas.
_SETTINGS_PARAMETERS: Final = query.takes(
    resource_version=query.number(),
    dry_run=query.DRY_RUN,
    check_documents=query.Parameter(query.switch, load_default=True),
    examine=query.number(1, 10_000, load_default=None),
)
_READ_PARAMETERS: Final = query.takes(**query.READ)


class WholeCatalogRoutes(Routes):
    @route("GET", "/v1/catalogs", "list_catalogs", Need.TOKEN)
    def list(self, context: Context) -> Answer:
        """The catalogs that the principal may read, by name. A page may hold fewer than params."""
        refuse_conditions(context.environ)
        params = query.parameters(context.environ, _CATALOGS_PARAMETERS)
        heads, more = readable_catalogs(self._gateway.listing, context.by, **params)
        content = {
            "catalogs": [
                {
                    "catalog": head.catalog,
                    "revision": head.revision,
                    "time": rfc3339(head.time_us),
                    "floor": head.floor,
                }
                for head in heads
            ],
            "next": more,
        }
        return body_answer(encode(content), [("Cache-Control", "no-cache")])

    @route("GET", CATALOG, "read_catalog", Role.READ)
    def read(self, context: Context, catalog: str) -> Answer:
        """The catalog's revision, floor and settings."""
        environ = context.environ
        query.parameters(environ, _READ_PARAMETERS)
        state = self._gateway.catalogs.read(catalog)
        tag = CatalogTag(state.revision)
        headers = state_headers(tag, state.revision)
        if is_not_modified(environ, tag, "the catalog"):
            return empty_answer(headers, 304)
        settings = state.settings
        content = {
            "catalog": catalog,
            "revision": state.revision,
            "time": rfc3339(state.time_us),
            "floor": state.floor,
            "settings": None if settings is None else settings.content,
            "settings_etag": None if settings is None else settings.token,
        }
        return body_answer(encode(content), headers)

    @route("PUT", CATALOG, "put_catalog", Role.ADMIN)
    def put(self, context: Context, catalog: str) -> Answer:
        """Replace the catalog's settings; create the catalog if there is none."""
        params = query.parameters(context.environ, _SETTINGS_PARAMETERS)
        checks_lists, examined = params["check_documents"], params["examine"]
        if examined is not None and not params["dry_run"]:
            query.refuse_parameter("examine", "it needs dry_run=true")
        ask = read_ask(context, catalog, params=params)
        media_types.require_json(context.environ)
        raw = take_body(context, self._limits)
        value, size_bytes = decode_document(raw, self._limits)
        settings = parse_settings(value)
        edits = (KeyEdit(SETTINGS_KEY, Put(value, size_bytes)),)
        terms = None if checks_lists else {"check_documents": False}
        sent = Sent(value, media_types.JSON, len(raw), terms=terms)
        request = request_of(self._gateway, ask, edits, sent, checks_lists=checks_lists)
        result = carried_out(
            self._gateway, context, ask, lambda: self._gateway.catalogs.set_up(request)
        )
        more = {}
        if examined is not None:
            found = self._gateway.catalogs.examine(request, settings, examined)
            more = {"examined": asdict(found)}
        return catalog_answer(ask, result, with_settings=True, more=more)

    @route("DELETE", CATALOG, "delete_catalog", Role.ADMIN)
    def delete(self, context: Context, catalog: str) -> Answer:
        """Delete every document and the settings in one commit; no catalog: nothing to do."""
        ask = read_ask(context, catalog)
        request = request_of(self._gateway, ask, (), NOTHING_SENT)
        try:
            result = carried_out(
                self._gateway, context, ask, lambda: self._gateway.catalogs.delete(request)
            )
        except CatalogNotFound as error:
            return empty_answer([("Catalog-Revision", str(error.head_revision))])
        return catalog_answer(ask, result)

    @route("POST", f"{CATALOG}/touch", "touch_catalog", Role.WRITE)
    def touch(self, context: Context, catalog: str) -> Answer:
        """Make a commit that changes nothing, so that followers see a new revision."""
        ask = read_ask(context, catalog)
        request = request_of(self._gateway, ask, (KeyEdit(SETTINGS_KEY, Touch()),), NOTHING_SENT)
        return catalog_answer(ask, commit(self._gateway, context, ask, request))


_SECONDS: Final = integer(1, required=True)
PIN_REQUEST: Final = strict(revision=REVISION, seconds=_SECONDS, note=text(255, load_default=""))
PIN_RENEWAL: Final = strict(seconds=_SECONDS)
COMPACTION_REQUEST: Final = strict(revision=integer(required=True))


class RetentionRoutes(Routes):
    @route("POST", f"{CATALOG}/pins", "create_pin", Role.READ)
    def create(self, context: Context, catalog: str) -> Answer:
        """Hold a revision, by default the head's."""
        refuse_terms(context.environ)
        members = take_members(context, self._limits, PIN_REQUEST)
        pin = self._gateway.retention.pin(catalog, owner=context.by.name, **members)
        location = f"{catalog_path(catalog)}/pins/{pin.id}"
        return body_answer(encode(_pin_shape(pin)), [("Location", location)], 201)

    @route("GET", f"{CATALOG}/pins", "list_pins", Role.READ)
    def page(self, context: Context, catalog: str) -> Answer:
        """The pins that hold now, by revision."""
        refuse_terms(context.environ)
        pins = self._gateway.retention.pins(catalog)
        return body_answer(encode({"pins": [_pin_shape(pin) for pin in pins]}), [])

    @route("GET", f"{CATALOG}/pins/<segment:pin>", "read_pin", Role.READ)
    def read(self, context: Context, catalog: str, pin: str) -> Answer:
        refuse_terms(context.environ)
        held = self._gateway.retention.read_pin(catalog, pin)
        return body_answer(encode(_pin_shape(held)), [])

    @route("PUT", f"{CATALOG}/pins/<segment:pin>", "renew_pin", Role.READ)
    def renew(self, context: Context, catalog: str, pin: str) -> Answer:
        """Hold the same revision for ``seconds`` from now. Only the pin's principal may."""
        refuse_terms(context.environ)
        members = take_members(context, self._limits, PIN_RENEWAL)
        renewed = self._gateway.retention.renew(catalog, pin, members["seconds"], context.by.name)
        return body_answer(encode(_pin_shape(renewed)), [])

    @route("DELETE", f"{CATALOG}/pins/<segment:pin>", "delete_pin", Role.READ)
    def delete(self, context: Context, catalog: str, pin: str) -> Answer:
        """End the pin. Its principal may, and whoever is admin in the catalog."""
        refuse_terms(context.environ)
        by = context.by
        self._gateway.retention.unpin(catalog, pin, by.name, anyones=by.may(Role.ADMIN, catalog))
        return empty_answer([])

    @route("POST", f"{CATALOG}/compactions", "compact", Role.ADMIN)
    def compact(self, context: Context, catalog: str) -> Answer:
        """Drop the history below a revision; answer when nobody can read it any more."""
        refuse_terms(context.environ)
        members = take_members(context, self._limits, COMPACTION_REQUEST)
        done = self._gateway.retention.compact(catalog, members["revision"])
        content = {
            "catalog": catalog,
            "floor": done.floor,
            "head_revision": done.head_revision,
        }
        return body_answer(encode(content), [("Catalog-Revision", str(done.head_revision))])


def _pin_shape(pin: PinRecord) -> dict[str, Any]:
    return {
        "pin": pin.id,
        "revision": pin.revision,
        "expires": rfc3339(pin.expires_us),
        "owner": pin.owner,
        "note": pin.note,
    }
