"""What a principal may ask for: refusals, fields, what counts; bulk requests, which slow down."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest
from werkzeug.test import TestResponse

from gateway.access import Grant, Principal, Role
from gateway.access.token_buckets import PrincipalLimits, Rate
from gateway.http import create_app
from gateway.http.door.rate_limits import BODY_BYTES, OPERATIONS, REQUESTS
from gateway.service import GatewayService
from tests.http.conftest import Catalog, problem
from tests.http.served import Server, serving

EVERYTHING = (Grant(Role.ADMIN, "*"),)
ADD = {"op": "add", "path": "/a", "value": 1}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


Limited = Callable[..., Catalog]


@pytest.fixture
def limited(memory_gateway: GatewayService, clock: Clock) -> Limited:
    """A catalog behind these rates, whose principal is named by the bearer token."""

    def make(*rates: Rate) -> Catalog:
        app = create_app(
            memory_gateway,
            authenticate=lambda header: Principal((header or "Bearer p")[7:], EVERYTHING),
            principal_limits=PrincipalLimits(rates, clock),
        )
        return Catalog(app.test_client(), f"limited-{uuid.uuid4().hex}")

    return make


def limit_of(answer: TestResponse) -> dict[str, tuple[int, int]]:
    """The field RateLimit: r and t by policy."""
    found = re.findall(r'"([a-z-]+)";r=(\d+);t=(\d+)(?:, |$)', answer.headers["RateLimit"])
    return {name: (int(r), int(t)) for name, r, t in found}


def refused(answer: TestResponse, *policies: str) -> dict[str, Any]:
    content = problem(answer, 429, "rate_limited")
    assert (content["applied"], content["retryable"]) == ("no", True)
    assert content["violated_policies"] == list(policies)
    limit = limit_of(answer)
    assert set(limit) == set(policies)
    # draft-ietf-httpapi-ratelimit-headers-11, section 6
    assert all(int(answer.headers["Retry-After"]) >= t for _, t in limit.values())
    return content


def test_every_answer_shows_the_remaining_rate(limited: Limited, clock: Clock) -> None:
    catalog = limited(Rate(REQUESTS, 2, 5), Rate(BODY_BYTES, 100, 5), Rate(OPERATIONS, 4, 5))
    policy = (
        '"requests";q=10;w=5, "body-bytes";q=500;qu="content-bytes";w=5,'
        ' "operations";q=20;qu="operations";w=5'
    )
    for answer, left in (
        (catalog.put({"a": 1}), (9, 492, 19)),
        (catalog.get(), (8, 492, 19)),
        (catalog.get("absent"), (7, 492, 19)),
        (catalog.delete(If_Match='"x"'), (6, 492, 18)),
    ):
        assert answer.headers["RateLimit-Policy"] == policy
        assert tuple(r for r, _ in limit_of(answer).values()) == left
    clock.now += 1
    assert limit_of(catalog.get())["requests"] == (7, 4)


def test_each_principal_has_its_own_rate(limited: Limited) -> None:
    catalog = limited(Rate(REQUESTS, 1, 1))
    assert catalog.put(1, Authorization="Bearer a").status_code == 201
    refused(catalog.get(Authorization="Bearer a"), "requests")
    assert catalog.get(Authorization="Bearer b").status_code == 200


def test_a_request_refused_by_access_control_counts_in_full(
    memory_gateway: GatewayService, clock: Clock
) -> None:
    app = create_app(
        memory_gateway,
        authenticate=lambda _: Principal("p", ()),
        principal_limits=PrincipalLimits((Rate(REQUESTS, 1, 2),), clock),
    )
    catalog = Catalog(app.test_client(), "other")
    assert [catalog.get().status_code for _ in range(2)] == [403, 403]
    refused(catalog.get(), "requests")


def test_public_routes_are_not_limited(limited: Limited) -> None:
    catalog = limited(Rate(REQUESTS, 1, 1))
    for _ in range(3):
        answer = catalog.client.get("/livez")
        assert answer.status_code == 200
        assert "RateLimit" not in answer.headers


def test_operations_of_a_patch_count_each(limited: Limited, clock: Clock) -> None:
    catalog = limited(Rate(OPERATIONS, 1, 10))
    catalog.put({})
    assert limit_of(catalog.patch(*[ADD] * 5))["operations"][0] == 4
    refused(catalog.patch(*[ADD] * 6), "operations")
    clock.now += 100
    # More than there can ever be at once: let through where nothing was asked for before.
    assert catalog.patch(*[ADD] * 30).status_code == 200
    refused(catalog.delete(), "operations")


def test_actions_of_a_transaction_count_and_the_operations_in_them(limited: Limited) -> None:
    catalog = limited(Rate(OPERATIONS, 1, 10))
    then = [
        {"action": "put", "key": "a", "value": {}},
        {"action": "patch", "key": "a", "patch": [ADD, ADD, ADD]},
        {"action": "get", "key": "a"},
    ]
    path = f"{catalog.path}/transactions"
    answer = catalog.client.post(path, json={"then": then})
    assert (answer.status_code, limit_of(answer)["operations"][0]) == (200, 5)
    again = [*then, {"action": "put", "key": "b", "value": 1}]
    refused(catalog.client.post(path, json={"then": again}), "operations")
    assert catalog.get("b").status_code == 404


def test_bytes_of_bodies_count(limited: Limited, clock: Clock) -> None:
    catalog = limited(Rate(BODY_BYTES, 10, 10))
    assert catalog.put("x" * 58).status_code == 201
    refused(catalog.put("x" * 58), "body-bytes")
    assert catalog.get().status_code == 200
    clock.now += 2
    assert catalog.put("x" * 58).status_code == 200


def test_a_body_of_unknown_length_is_charged_afterwards(limited: Limited) -> None:
    catalog = limited(Rate(BODY_BYTES, 10, 10))
    headers = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    raw = json.dumps("x" * 198).encode()
    environ = {"wsgi.input_terminated": True}
    for status in (201, 200):
        answer = catalog.client.put(
            catalog.document("k"),
            input_stream=BytesIO(raw),
            headers=headers,
            environ_overrides=environ,
        )
        assert answer.status_code == status
    refused(catalog.put("x"), "body-bytes")


@pytest.fixture(scope="module")
def slow_server(mongodb_uri: str) -> Iterator[Server]:
    """Each of the two workers lets 20 operations and 20,000 bytes a second through."""
    rates = {"principal_operations_per_s": 40, "principal_body_bytes_per_s": 40_000}
    with serving(mongodb_uri, f"test_{uuid.uuid4().hex}", principal_window_s=1, **rates) as server:
        yield server


def bulk(server: Server, lines: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], float]:
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    began = time.monotonic()
    answer = server.send("POST", "/v1/bulk", body, [("Content-Type", "application/x-ndjson")])
    assert (answer.status, answer.headers["RateLimit-Policy"][:12]) == (200, '"body-bytes"')
    return [json.loads(line) for line in answer.body.splitlines()], time.monotonic() - began


def line(number: int, **members: Any) -> dict[str, Any]:
    return {"catalog": "slow", "key": f"k{number}", "op": "put", "value": number, **members}


def test_lines_of_a_bulk_request_beyond_the_rate_are_slowed_down_not_refused(
    slow_server: Server,
) -> None:
    answers, took_s = bulk(slow_server, [line(n) for n in range(80)])
    assert [answer["status"] for answer in answers] == [201] * 80
    assert took_s >= 1.9  # 20 at once, and those of three seconds, the last of which is owed


def test_a_bulk_body_above_the_rate_is_read_slowly(slow_server: Server) -> None:
    answers, took_s = bulk(slow_server, [line(n, value="x" * 20_000) for n in range(6)])
    assert {answer["status"] for answer in answers} <= {200, 201}
    assert len(answers) == 6
    assert took_s >= 1.0
