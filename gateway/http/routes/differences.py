"""`GET /v1/catalogs/{catalog}/differences`: per document, what two revisions have otherwise."""

from __future__ import annotations

import msgspec
from flask import Flask

from gateway.http.context import this_request
from gateway.http.wire.answers import Answer, body_answer, encode
from gateway.http.wire.conditions import refuse_conditions
from gateway.http.wire.headers import catalog_name
from gateway.http.wire.query import DIFFERENCES_PARAMETERS, parameters
from gateway.http.wire.shapes import difference_shape
from gateway.limits import RequestLimits
from gateway.read.differences import Difference
from gateway.service import Gateway


def _told(difference: Difference) -> msgspec.Raw:
    return msgspec.Raw(encode(difference_shape(difference)))


class DifferenceRoutes:
    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._gateway = gateway
        self._limits = limits

    def register(self, app: Flask) -> None:
        rule = "/v1/catalogs/<segment:catalog>/differences"
        app.add_url_rule(rule, "list_differences", self.page, methods=["GET"])

    def page(self, catalog: str) -> Answer:
        """Differences by key; ``next`` has the next page's parameters, of the same revisions."""
        context = this_request()
        catalog = catalog_name(catalog, self._limits)
        refuse_conditions(context.environ)
        asked = parameters(context.environ, DIFFERENCES_PARAMETERS)
        reading = self._gateway.differences
        span = reading.span(catalog, asked["from"], asked["to"], asked["prefix"])
        sight = self._gateway.acls.sight(context.by, catalog)
        page = reading.page(span, _told, after=asked["after"], limit=asked["limit"], sight=sight)
        more = page.next_after
        content = {
            "catalog": catalog,
            "from": page.before,
            "to": page.after,
            "differences": page.documents,
            "next": None if more is None else {"after": more, "to": page.after},
        }
        return body_answer(encode(content), [("Catalog-Revision", str(page.after))])
