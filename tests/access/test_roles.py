"""Every route says what it needs; one that doesn't is open to nobody."""

from __future__ import annotations

import logging
import re

import pytest
from werkzeug.routing import Rule

from gateway.access import Role
from gateway.assembly import create_application
from gateway.http import create_app
from gateway.http.app import GatewayFlask
from gateway.http.context import Need
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.settings import Settings
from tests.access.service import Caller, Service, catalog_path
from tests.http.conftest import problem
from tests.memory_store import MemoryStore
from tests.openapi.document import load, operations


@pytest.fixture
def app() -> GatewayFlask:
    return create_app(GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits()))


def test_every_route_says_what_each_of_its_methods_needs(app: GatewayFlask) -> None:
    methods = {
        (rule.endpoint, method)
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD"}
    }
    assert methods == app.needs.keys()


def test_public_routes_name_no_catalog(app: GatewayFlask) -> None:
    for rule in app.url_map.iter_rules():
        needs = {need for (endpoint, _), need in app.needs.items() if endpoint == rule.endpoint}
        assert (not needs & set(Role)) == ("/{catalog}" not in _shown(rule.rule)), rule
        if Need.NOTHING in needs:
            assert needs == {Need.NOTHING}
            # Whoever signs in is somebody only afterwards.
            assert rule.endpoint == "sign_in" or rule.methods == {"GET", "HEAD"}


def _shown(rule: str) -> str:
    return rule.replace("<segment:catalog>", "{catalog}")


def test_a_route_without_a_need_is_refused(
    app: GatewayFlask, caplog: pytest.LogCaptureFixture
) -> None:
    app.add_url_rule("/v1/new", "new", lambda: "secret", methods=["GET"])
    with caplog.at_level(logging.ERROR):
        problem(app.test_client().get("/v1/new"), 403, "forbidden")
    assert "new" in caplog.text


def test_a_method_without_a_need_is_refused(app: GatewayFlask) -> None:
    app.url_map.add(Rule("/v1/catalogs", endpoint="list_catalogs", methods=["POST"]))
    problem(app.test_client().post("/v1/catalogs"), 403, "forbidden")


def test_reads_need_the_role_read_and_writes_a_higher_one(app: GatewayFlask) -> None:
    """By the methods: what changes nothing of a catalog needs the least role, and nothing else."""
    for (endpoint, method), need in app.needs.items():
        if endpoint.endswith(("_pin", "_upload")) or not isinstance(need, Role):
            continue
        if "_subscription" in endpoint:  # of which also to read tells where all goes
            assert need is Role.ADMIN
            continue
        assert (need is Role.READ) == (method in ("GET", "OPTIONS")), endpoint


def test_openapi_lists_401_and_403_exactly_where_they_can_occur(app: GatewayFlask) -> None:
    """401 and 403 where they can be, and no token where none is needed."""
    endpoints = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method): rule.endpoint
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
    }
    document = load()
    assert document["security"] == [{"token": []}]
    for operation in operations(document):
        method = operation.method.upper().replace("HEAD", "GET")
        need = app.needs[endpoints[operation.path, method], method]
        refusals = {"401", "403"} & operation.content["responses"].keys()
        if need is Need.NOTHING:
            assert (operation.content.get("security"), refusals) == ([], set()), operation.path
        else:
            wanted = {"401"} if need is Need.TOKEN else {"401", "403"}
            assert ("security" in operation.content, refusals) == (False, wanted), operation.path


def test_only_an_admin_of_every_catalog_has_deliveries_to_the_gateways_own_machine() -> None:
    """Its services may do whatever somebody who reaches them posts."""
    service = Service()
    ann, ops = service.caller("ann", "admin:shop"), service.caller("ops", "admin:*")

    def put(caller: Caller, to: str) -> int:
        path = f"{catalog_path('shop')}/subscriptions/s"
        return int(caller.send("PUT", path, {"to": to}).status_code)

    for to in ("http://localhost:15000/quit", "https://LOCALHOST/", "http://[::1]:1/"):
        assert put(ann, to) == 403
        assert put(ops, to) in (200, 201)
    assert put(ann, "http://127.9.9.9/") == 403
    assert put(ann, "https://receiver.example/in") == 200


@pytest.mark.parametrize(("given", "status"), [({}, 401), ({"access": False}, 503)])
def test_access_control_is_on_by_default(given: dict[str, bool], status: int) -> None:
    """There is no database, so a request with a token gets a 503."""
    nowhere = "mongodb://127.0.0.1:9/?replicaSet=none"
    settings = Settings(mongodb_uri=nowhere, store_timeout_ms=100, **given)
    client = create_application(settings).test_client()
    assert client.get("/v1/catalogs").status_code == status
    assert client.get("/livez").status_code == 200
    known = client.get(
        "/v1/catalogs", headers={"Authorization": f"Bearer gwt_{'0' * 16}_{'0' * 64}"}
    )
    problem(known, 503, "store_unavailable")
