"""The routes about the service, request ids, and what isn't there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest
from flask import Flask, Response
from flask.testing import FlaskClient

from gateway.http import create_app
from gateway.http.context import Observed
from gateway.http.routes import static as service
from gateway.http.wire import problems
from gateway.limits import ServiceLimits
from gateway.model import Head, Retention
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable
from tests.http.conftest import Catalog, problem
from tests.memory_store import MemoryStore

DRIVER_SAYS = (
    "db1.internal.example:27017: [Errno 113] No route to host, Topology Description:"
    " <TopologyDescription topology_type: ReplicaSetNoPrimary>"
)


class DownStore(MemoryStore):
    """A database that nobody reaches."""

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:  # noqa: ARG002
        raise StoreUnreachable(DRIVER_SAYS)

    tails = heads

    def retention(self, catalog: str) -> Retention | None:  # noqa: ARG002
        raise StoreUnreachable(DRIVER_SAYS)

    def ping(self) -> None:
        raise StoreUnreachable(DRIVER_SAYS)


@pytest.fixture
def app_without_database() -> Flask:
    return create_app(GatewayService(DownStore(), ThreadRuntime(), ServiceLimits(deadline_ms=200)))


def test_livez_answers_without_a_database(app_without_database: Flask) -> None:
    answer = app_without_database.test_client().get("/livez")
    assert (answer.status_code, answer.get_json()) == (200, {"status": "alive"})


def test_readyz_checks_the_database(client: FlaskClient, app_without_database: Flask) -> None:
    assert client.get("/readyz").get_json() == {"status": "ready"}
    answer = app_without_database.test_client().get("/readyz")
    problem(answer, 503, "store_unavailable")
    assert answer.headers["Retry-After"]


def test_without_a_database_everything_is_503_and_not_applied(app_without_database: Flask) -> None:
    catalog = Catalog(app_without_database.test_client(), "c")
    for answer in (
        catalog.get(),
        catalog.put(1),
        catalog.delete(),
        catalog.get(query="?revision=1"),
    ):
        content = problem(answer, 503, "store_unavailable")
        assert (content["applied"], content["retryable"]) == ("no", True)


def test_openapi_yaml_is_served_if_it_exists(
    memory_gateway: GatewayService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "openapi.yaml"
    monkeypatch.setattr(service, "_OPENAPI_PLACES", (tmp_path / "absent", place))
    problem(create_app(memory_gateway).test_client().get("/openapi.yaml"), 404, "route_not_found")
    place.write_text("openapi: 3.1.0\n")
    answer = create_app(memory_gateway).test_client().get("/openapi.yaml")
    assert (answer.status_code, answer.data) == (200, b"openapi: 3.1.0\n")
    assert answer.content_type == "application/yaml"


def test_headers_can_be_added_to_an_answer(
    memory_gateway: GatewayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(memory_gateway)

    def mark(_: Observed, answer: Response) -> Response:
        answer.headers["Marked"] = str(answer.status_code)
        return answer

    monkeypatch.setattr(app.doors, "let_out", mark)
    answer = app.test_client().get("/livez")
    assert answer.headers["Marked"] == "200"
    assert answer.headers["Content-Length"] == str(len(answer.data))


@pytest.mark.parametrize("name", ["a", "trace:4bf92f35-77b3.4da6_a3/ce=", "x" * 128])
def test_a_valid_request_id_is_kept(client: FlaskClient, name: str) -> None:
    assert client.get("/livez", headers={"X-Request-Id": name}).headers["X-Request-Id"] == name


@pytest.mark.parametrize("name", [None, "", "a b", "x" * 129, "é", 'a"b', "<script>"])
def test_without_a_valid_request_id_one_is_generated(client: FlaskClient, name: str | None) -> None:
    headers = {} if name is None else {"X-Request-Id": name}
    made = [client.get("/livez", headers=headers).headers["X-Request-Id"] for _ in range(2)]
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in made)
    assert made[0] != made[1]


@pytest.mark.parametrize(
    "path",
    [
        *("/v1", "/v1/catalogs/c/commits/1/2", "/V1/catalogs/c/documents/k", "/static/x"),
        *("/%2e%2e/livez", "/livez%00", "/livez/", "/v1//catalogs/c/documents/k"),
        "/v1/catalogs/c/commits/1/",
    ],
)
def test_an_unknown_route_is_a_404_problem(client: FlaskClient, path: str) -> None:
    told = problem(client.get(path), 404, "route_not_found")
    assert "/v1/catalogs/{catalog}/documents/{key}" in told["detail"], "where to look"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/catalogs/c/documents/k", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("TRACE", "/v1/catalogs/c/documents/k", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("DELETE", "/v1/catalogs/c/commits", "GET, HEAD"),
        ("PUT", "/livez", "GET, HEAD"),
    ],
)
def test_an_unsupported_method_is_405_with_the_allowed_ones(
    client: FlaskClient, method: str, path: str, allowed: str
) -> None:
    answer = client.open(path, method=method)
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["Allow"] == allowed


def calls(app: Flask) -> Iterator[tuple[str, str]]:
    """The methods and paths by which something is changed."""
    for rule in app.url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}):
            yield method, re.sub(r"<[^>]+>", "1", rule.rule)


def test_an_unknown_parameter_changes_nothing(client: FlaskClient) -> None:
    """Such as ``dry_run``, where there is none."""
    found = list(calls(client.application))
    assert ("DELETE", "/v1/tokens/1") in found
    for method, path in found:
        media_type = "application/json-patch+json" if method == "PATCH" else "application/json"
        answer = client.open(f"{path}?unknown=1", method=method, data="[]", content_type=media_type)
        assert problem(answer, 400, "invalid_parameter")["parameter"] == "unknown", (method, path)


@pytest.mark.parametrize(
    "path",
    [
        *("/readyz", "/v1/catalogs/c", "/v1/catalogs/c/documents/k", "/v1/catalogs/c/documents"),
        *("/v1/catalogs/c/export", "/v1/catalogs/c/commits"),
    ],
)
def test_the_reason_for_a_database_outage_is_in_the_log_only(
    app_without_database: Flask, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver names hosts and their state, which is nothing for strangers."""
    problems._unreachable._next_at = 0.0
    answer = app_without_database.test_client().get(path)
    assert problem(answer, 503, "store_unavailable")
    assert "example" not in answer.text
    assert "Topology" not in answer.text
    assert DRIVER_SAYS in caplog.text


def test_writes_do_not_reveal_the_reason_either(app_without_database: Flask) -> None:
    client = app_without_database.test_client()
    line = b'{"catalog":"c","op":"put","key":"k","value":1}'
    for answer in (
        client.put("/v1/catalogs/c/documents/k", json=1),
        client.post("/v1/bulk", data=line, content_type="application/x-ndjson"),
        client.post("/v1/catalogs/c/pins", json={"seconds": 1}),
        client.post("/v1/catalogs/c/compactions", json={"revision": 1}),
    ):
        assert "store_unavailable" in answer.text or "deadline_exceeded" in answer.text
        assert "example" not in answer.text
