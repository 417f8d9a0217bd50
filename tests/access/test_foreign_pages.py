"""With access control off, web pages of other sites reach no route: neither by forms and scripts
that a visitor's browser sends across sites, nor by a name that they point to this machine (DNS
rebinding)."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.access.service import Service, document_path
from tests.memory_store import MemoryStore
from tests.patience import WAIT_S
from tests.service import RunningGateway

FOREIGN_HOSTS = (
    *("attacker.example", "attacker.example:8080", "127.0.0.1.attacker.example"),
    *("localhost.attacker.example", "attacker.example@127.0.0.1", "0.0.0.0:8080"),
    *("192.168.0.7:8080", "[::]:8080", "[fe80::1]", "127.0.0.1, attacker.example", ""),
)
OWN_HOSTS = ("localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080", "[::1]")
FOREIGN_SENDERS = (
    {"Origin": "https://attacker.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},  # another service of this machine is another site
    {"Origin": "http://localhost:8080.attacker.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:8080"},
)


@pytest.fixture
def open_service() -> FlaskClient:
    return create_app(GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())).test_client()


def paths(client: FlaskClient) -> Iterator[tuple[str, str]]:
    """Every method and path that there is, as a client may ask for it; and one that there isn't."""
    application: Any = client.application
    for rule in application.url_map.iter_rules():
        values = dict.fromkeys(rule.arguments, "1")
        path = application.url_map.bind("localhost").build(rule.endpoint, values)
        yield from ((method, path) for method in sorted(rule.methods))
    yield "GET", "/nothing"


def refused(answer: Any) -> bool:
    if answer.status_code == 403 and answer.request.method != "HEAD":
        problem = answer.get_json()
        assert (problem["code"], problem["applied"]) == ("foreign_page", "no")
    return bool(answer.status_code == 403)


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_no_route_is_served_under_a_foreign_host_name(open_service: FlaskClient, host: str) -> None:
    for method, path in paths(open_service):
        answer = open_service.open(path, method=method, headers={"Host": host})
        assert refused(answer), (method, path)


@pytest.mark.parametrize("sender", FOREIGN_SENDERS, ids=str)
def test_no_route_is_served_to_a_page_of_another_site(
    open_service: FlaskClient, sender: dict[str, str]
) -> None:
    headers = {"Host": "localhost:8080", **sender}
    for method, path in paths(open_service):
        assert refused(open_service.open(path, method=method, headers=headers)), (method, path)


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_pages_of_its_own_are_served(open_service: FlaskClient, host: str) -> None:
    path = document_path("own")
    own = {"Host": host, "Origin": f"http://{host.lower()}", "Sec-Fetch-Site": "same-origin"}
    assert open_service.put(path, json=1, headers=own).status_code in (200, 201)
    typed = {"Host": host, "Sec-Fetch-Site": "none"}
    assert open_service.get("/console/", headers=typed).status_code == 200
    assert open_service.get(path, headers={"Host": host}).status_code == 200


def test_with_tokens_any_host_name_and_site_is_accepted() -> None:
    """A page of another site has no token, and browsers send none by themselves."""
    ann = Service().caller("ann", "admin:*")
    path = document_path("c")
    assert ann.send("PUT", path, 1, Host="gateway.example").status_code == 201
    assert ann.send("GET", path, Sec_Fetch_Site="cross-site").status_code == 200


def test_a_running_gateway_refuses_them(mongodb_uri: str, database_name: str) -> None:
    with RunningGateway(mongodb_uri, database_name, workers=1) as gateway:

        def ask(method: str, path: str, **headers: str) -> tuple[int, Any]:
            connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
            connection.close()
            return status, json.loads(body)

        rebound = f"attacker.example:{gateway.port}"
        touch = "/v1/catalogs/made/touch"
        for status, problem in (
            ask("GET", "/v1/catalogs", Host=rebound),
            ask("POST", touch, Host=rebound, Content_Length="0"),
            ask("POST", touch, Origin="https://attacker.example", Content_Length="0"),
            ask("POST", touch, Sec_Fetch_Site="cross-site", Content_Length="0"),
        ):
            assert (status, problem["code"]) == (403, "foreign_page")
        assert ask("GET", "/v1/catalogs/made")[0] == 404
        own = f"http://127.0.0.1:{gateway.port}"
        assert ask("POST", touch, Origin=own, Content_Length="0")[0] in (200, 201)
