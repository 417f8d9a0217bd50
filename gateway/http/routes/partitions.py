"""`GET /v1/catalogs/{catalog}/partitions`: where to cut keys, for readers who share them."""

from __future__ import annotations

from flask import Flask

from gateway.http.context import this_request
from gateway.http.routes.documents import asked_revision
from gateway.http.wire.answers import Answer, body_answer, encode
from gateway.http.wire.conditions import refuse_conditions
from gateway.http.wire.headers import catalog_name
from gateway.http.wire.query import PARTITIONS_PARAMETERS, parameters
from gateway.limits import RequestLimits
from gateway.read.partitions import KeySpan
from gateway.service import Gateway


class PartitionRoutes:
    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._gateway = gateway
        self._limits = limits

    def register(self, app: Flask) -> None:
        rule = "/v1/catalogs/<segment:catalog>/partitions"
        app.add_url_rule(rule, "plan_partitions", self.plan, methods=["GET"])

    def plan(self, catalog: str) -> Answer:
        """The revision that was asked for, and the keys that end its ranges."""
        context = this_request()
        catalog = catalog_name(catalog, self._limits)
        refuse_conditions(context.environ)
        asked = parameters(context.environ, PARTITIONS_PARAMETERS)
        revision = asked_revision(self._gateway, catalog, asked)
        span = KeySpan(asked["prefix"], asked["after"], asked["until"])
        sight = self._gateway.acls.sight(context.by, catalog)
        found = self._gateway.partitions.plan(
            catalog, asked["count"], span, revision=revision, sight=sight
        )
        content = {"catalog": catalog, "revision": found.revision, "bounds": found.bounds}
        return body_answer(encode(content), [("Catalog-Revision", str(found.revision))])
