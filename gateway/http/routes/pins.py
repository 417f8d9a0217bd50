"""`/v1/catalogs/{catalog}/pins`: holding a revision for a time, so that compaction stays below.

`/v1/catalogs/{catalog}/compactions`: making a revision the oldest one that can be read.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from flask import Flask

from gateway.access import Role
from gateway.decide.strict import strict, text, whole
from gateway.http.context import this_request
from gateway.http.door.admission import take_members
from gateway.http.wire.conditions import catalog_alone
from gateway.http.wire.members import REVISION
from gateway.http.wire.responses import Answer, body_answer, empty_answer, encode
from gateway.http.wire.shapes import rfc3339
from gateway.limits import RequestLimits
from gateway.model import PinRecord
from gateway.service import GatewayService

_SECONDS: Final = whole(1, required=True)
PIN_REQUEST: Final = strict(revision=REVISION, seconds=_SECONDS, note=text(255, load_default=""))
PIN_RENEWAL: Final = strict(seconds=_SECONDS)
COMPACTION_REQUEST: Final = strict(revision=whole(required=True))


class RetentionRoutes:
    def __init__(self, gateway: GatewayService, limits: RequestLimits) -> None:
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
        compactions = "/v1/catalogs/<segment:catalog>/compactions"
        app.add_url_rule(compactions, "compact", self.compact, methods=["POST"])

    def create(self, catalog: str) -> Answer:
        """Hold a revision, by default the head's."""
        catalog = self._catalog(catalog)
        asked = take_members(this_request(), self._limits, PIN_REQUEST)
        pin = self._retention.pin(catalog, owner=this_request().by.name, **asked)
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
        asked = take_members(this_request(), self._limits, PIN_RENEWAL)
        renewed = self._retention.renew(catalog, pin, asked["seconds"], this_request().by.name)
        return body_answer(encode(_shape(renewed)), [])

    def delete(self, catalog: str, pin: str) -> Answer:
        """For its owner, and for those who are admin in the catalog."""
        catalog = self._catalog(catalog)
        by = this_request().by
        self._retention.unpin(catalog, pin, by.name, anyones=by.may(Role.ADMIN, catalog))
        return empty_answer([])

    def compact(self, catalog: str) -> Answer:
        """Drop the history below a revision; answered when it is gone."""
        catalog = self._catalog(catalog)
        asked = take_members(this_request(), self._limits, COMPACTION_REQUEST)
        done = self._retention.compact(catalog, asked["revision"])
        content = {
            "catalog": catalog,
            "floor": done.floor,
            "head_revision": done.head_revision,
        }
        return body_answer(encode(content), [("Catalog-Revision", str(done.head_revision))])

    def _catalog(self, encoded: str) -> str:
        return catalog_alone(this_request().environ, encoded, self._limits)


def _shape(pin: PinRecord) -> dict[str, Any]:
    return {
        "pin": pin.id,
        "revision": pin.revision,
        "expires": rfc3339(pin.expires_us),
        "owner": pin.owner,
        "note": pin.note,
    }
