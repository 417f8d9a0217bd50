"""`/v1/catalogs/{catalog}/compactions`: making a revision the oldest one that can be read."""

from __future__ import annotations

import flask
from flask import Flask

from gateway.commits.service import Gateway
from gateway.http import names
from gateway.http.answers import Answer, body_answer, encode
from gateway.http.conditions import refuse_conditions
from gateway.http.limits import RequestLimits
from gateway.http.parameters import NoParameters, parameters
from gateway.http.pins import json_object, whole

_NO_PARAMETERS = NoParameters()


class CompactionRoutes:
    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._retention = gateway.retention
        self._limits = limits

    def register(self, app: Flask) -> None:
        rule = "/v1/catalogs/<segment:catalog>/compactions"
        app.add_url_rule(rule, "compact", self.compact, methods=["POST"])

    def compact(self, catalog: str) -> Answer:
        """Drop the history below a revision; answered when it is gone."""
        environ = flask.request.environ
        catalog = names.catalog_name(catalog, self._limits)
        refuse_conditions(environ)
        parameters(environ, _NO_PARAMETERS)
        members = json_object(self._limits, ("revision",))
        done = self._retention.compact(catalog, whole(members, "revision", 0))
        content = {
            "catalog": catalog,
            "floor": done.floor,
            "head_revision": done.head_revision,
        }
        return body_answer(encode(content), [("Catalog-Revision", str(done.head_revision))])
