"""`/v1/catalogs/{catalog}/pins`: holding a revision for a time, so that compaction stays below.

`/v1/catalogs/{catalog}/compactions`: making a revision the oldest one that can be read.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from gateway.access import Role
from gateway.decide.strict import strict, text, whole
from gateway.http.context import Context
from gateway.http.door.admission import take_members
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire.body import REVISION
from gateway.http.wire.conditions import catalog_alone
from gateway.http.wire.responses import Answer, body_answer, empty_answer, encode
from gateway.model import PinRecord
from patching.values import rfc3339

_SECONDS: Final = whole(1, required=True)
PIN_REQUEST: Final = strict(revision=REVISION, seconds=_SECONDS, note=text(255, load_default=""))
PIN_RENEWAL: Final = strict(seconds=_SECONDS)
COMPACTION_REQUEST: Final = strict(revision=whole(required=True))


class RetentionRoutes(Routes):
    @route("POST", f"{CATALOG}/pins", "create_pin")
    def create(self, context: Context, catalog: str) -> Answer:
        """Hold a revision, by default the head's."""
        catalog = self._catalog(context, catalog)
        asked = take_members(context, self._limits, PIN_REQUEST)
        pin = self._gateway.retention.pin(catalog, owner=context.by.name, **asked)
        location = f"/v1/catalogs/{quote(catalog, safe='')}/pins/{pin.id}"
        return body_answer(encode(_shape(pin)), [("Location", location)], 201)

    @route("GET", f"{CATALOG}/pins", "list_pins")
    def page(self, context: Context, catalog: str) -> Answer:
        """The pins that hold now, by revision."""
        pins = self._gateway.retention.pins(self._catalog(context, catalog))
        return body_answer(encode({"pins": [_shape(pin) for pin in pins]}), [])

    @route("GET", f"{CATALOG}/pins/<segment:pin>", "read_pin")
    def read(self, context: Context, catalog: str, pin: str) -> Answer:
        held = self._gateway.retention.read_pin(self._catalog(context, catalog), pin)
        return body_answer(encode(_shape(held)), [])

    @route("PUT", f"{CATALOG}/pins/<segment:pin>", "renew_pin")
    def renew(self, context: Context, catalog: str, pin: str) -> Answer:
        """Hold the same revision for so many seconds from now: for its owner alone."""
        catalog = self._catalog(context, catalog)
        asked = take_members(context, self._limits, PIN_RENEWAL)
        renewed = self._gateway.retention.renew(catalog, pin, asked["seconds"], context.by.name)
        return body_answer(encode(_shape(renewed)), [])

    @route("DELETE", f"{CATALOG}/pins/<segment:pin>", "delete_pin")
    def delete(self, context: Context, catalog: str, pin: str) -> Answer:
        """For its owner, and for those who are admin in the catalog."""
        catalog = self._catalog(context, catalog)
        by = context.by
        self._gateway.retention.unpin(catalog, pin, by.name, anyones=by.may(Role.ADMIN, catalog))
        return empty_answer([])

    @route("POST", f"{CATALOG}/compactions", "compact")
    def compact(self, context: Context, catalog: str) -> Answer:
        """Drop the history below a revision; answered when it is gone."""
        catalog = self._catalog(context, catalog)
        asked = take_members(context, self._limits, COMPACTION_REQUEST)
        done = self._gateway.retention.compact(catalog, asked["revision"])
        content = {
            "catalog": catalog,
            "floor": done.floor,
            "head_revision": done.head_revision,
        }
        return body_answer(encode(content), [("Catalog-Revision", str(done.head_revision))])

    def _catalog(self, context: Context, encoded: str) -> str:
        return catalog_alone(context.environ, encoded, self._limits)


def _shape(pin: PinRecord) -> dict[str, Any]:
    return {
        "pin": pin.id,
        "revision": pin.revision,
        "expires": rfc3339(pin.expires_us),
        "owner": pin.owner,
        "note": pin.note,
    }
