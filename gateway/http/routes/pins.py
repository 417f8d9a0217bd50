"""`/v1/catalogs/{catalog}/pins`: holding a revision for a time, so that compaction stays below.

`/v1/catalogs/{catalog}/compactions`: making a revision the oldest one that can be read.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from flask import Flask

from gateway.access import Role
from gateway.http.context import this_request
from gateway.http.door.admission import take_body
from gateway.http.wire import headers as media_types
from gateway.http.wire.answers import Answer, body_answer, empty_answer, encode
from gateway.http.wire.body import decode_value
from gateway.http.wire.conditions import catalog_alone
from gateway.http.wire.members import refuse_member, require_object, whole
from gateway.http.wire.shapes import rfc3339
from gateway.limits import RequestLimits
from gateway.model import Pin
from gateway.service import Gateway

_NOTE_CHARACTERS_MAX = 255


class PinRoutes:
    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._retention = gateway.retention
        self._limits = limits

    def register(self, app: Flask) -> None:
        pins = "/v1/catalogs/<segment:catalog>/pins"
        pin = f"{pins}/<segment:pin>"
        app.add_url_rule(pins, "create_pin", self.create, methods=["POST"])
        app.add_url_rule(pins, "list_pins", self.page, methods=["GET"])
        app.add_url_rule(pin, "read_pin", self.read, methods=["GET"])
        app.add_url_rule(pin, "renew_pin", self.renew, methods=["PUT"])
        app.add_url_rule(pin, "delete_pin", self.delete, methods=["DELETE"])

    def create(self, catalog: str) -> Answer:
        """Hold a revision, by default the head's."""
        catalog = self._catalog(catalog)
        members = json_object(self._limits, ("revision", "seconds", "note"))
        revision = whole(members, "revision") if "revision" in members else None
        note = members.get("note", "")
        if not isinstance(note, str) or len(note) > _NOTE_CHARACTERS_MAX:
            refuse_member("/note", f"it must be a text of at most {_NOTE_CHARACTERS_MAX}")
        owner = this_request().by.name
        pin = self._retention.pin(catalog, revision, whole(members, "seconds", 1), owner, note)
        location = f"/v1/catalogs/{quote(catalog, safe='')}/pins/{pin.id}"
        return body_answer(encode(_shape(pin)), [("Location", location)], 201)

    def page(self, catalog: str) -> Answer:
        """The pins that hold now, by revision."""
        pins = self._retention.pins(self._catalog(catalog))
        return body_answer(encode({"pins": [_shape(pin) for pin in pins]}), [])

    def read(self, catalog: str, pin: str) -> Answer:
        held = self._retention.read_pin(self._catalog(catalog), pin)
        return body_answer(encode(_shape(held)), [])

    def renew(self, catalog: str, pin: str) -> Answer:
        """Hold the same revision for so many seconds from now: for its owner alone."""
        catalog = self._catalog(catalog)
        members = json_object(self._limits, ("seconds",))
        by = this_request().by.name
        renewed = self._retention.renew(catalog, pin, whole(members, "seconds", 1), by)
        return body_answer(encode(_shape(renewed)), [])

    def delete(self, catalog: str, pin: str) -> Answer:
        """For its owner, and for those who are admin in the catalog."""
        catalog = self._catalog(catalog)
        by = this_request().by
        self._retention.unpin(catalog, pin, by.name, anyones=by.may(Role.ADMIN, catalog))
        return empty_answer([])

    def _catalog(self, encoded: str) -> str:
        return catalog_alone(this_request().environ, encoded, self._limits)


def json_object(limits: RequestLimits, known: tuple[str, ...]) -> dict[str, Any]:
    """The request's body, an object with ``known`` members alone."""
    context = this_request()
    media_types.require_json(context.environ)
    return require_object(decode_value(take_body(context, limits), limits), known)


def _shape(pin: Pin) -> dict[str, Any]:
    return {
        "pin": pin.id,
        "revision": pin.revision,
        "expires": rfc3339(pin.expires_us),
        "owner": pin.owner,
        "note": pin.note,
    }


class CompactionRoutes:
    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._retention = gateway.retention
        self._limits = limits

    def register(self, app: Flask) -> None:
        rule = "/v1/catalogs/<segment:catalog>/compactions"
        app.add_url_rule(rule, "compact", self.compact, methods=["POST"])

    def compact(self, catalog: str) -> Answer:
        """Drop the history below a revision; answered when it is gone."""
        catalog = catalog_alone(this_request().environ, catalog, self._limits)
        members = json_object(self._limits, ("revision",))
        done = self._retention.compact(catalog, whole(members, "revision"))
        content = {
            "catalog": catalog,
            "floor": done.floor,
            "head_revision": done.head_revision,
        }
        return body_answer(encode(content), [("Catalog-Revision", str(done.head_revision))])
