"""`…/owners/{key}`: who owns what of a document, as it is or was; and letting go of it."""

from __future__ import annotations

from flask import Flask
from msgspec.structs import replace

from gateway.decide.edits import KeyEdit
from gateway.decide.owning import LetGo
from gateway.http.context import this_request
from gateway.http.routes.documents import read_document
from gateway.http.wire.answers import Answer
from gateway.http.wire.headers import catalog_name, document_key
from gateway.http.wire.query import LET_GO_PARAMETERS, parameters
from gateway.http.write.answer import commit, document_answer
from gateway.http.write.ask import NOTHING_SENT, read_ask, request_of
from gateway.limits import RequestLimits
from gateway.service import Gateway


class OwnersRoutes:
    def __init__(self, gateway: Gateway, limits: RequestLimits) -> None:
        self._gateway = gateway
        self._limits = limits

    def register(self, app: Flask) -> None:
        rule = "/v1/catalogs/<segment:catalog>/owners/<rest:key>"
        app.add_url_rule(rule, "read_owners", self.read, methods=["GET"])
        app.add_url_rule(rule, "let_go", self.let_go, methods=["DELETE"])

    def read(self, catalog: str, key: str) -> Answer:
        """By pointer, the owners of each leaf that has any, now or as of another time."""
        catalog, key = self._names(catalog, key)
        return read_document(self._gateway, this_request(), catalog, key, "owners")

    def let_go(self, catalog: str, key: str) -> Answer:
        """A manager owns nothing of the document any more; what nobody else owns is removed."""
        context = this_request()
        asked = parameters(context.environ, LET_GO_PARAMETERS)
        ask = read_ask(context, *self._names(catalog, key), part="owners", asked=asked)
        edit = LetGo(asked.get("manager") or context.by.name, asked["prune"])
        sent = replace(NOTHING_SENT, terms=[edit.manager, edit.prune])
        request = request_of(self._gateway, ask, (KeyEdit(ask.key, edit),), sent)
        return document_answer(self._gateway, ask, commit(self._gateway, context, ask, request))

    def _names(self, catalog: str, key: str) -> tuple[str, str]:
        return catalog_name(catalog, self._limits), document_key(key, self._limits)
