"""An idempotency key covers the request, however it is written, and through upgrades."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.access import ANONYMOUS
from gateway.decide.request import Fence, Request
from gateway.http import create_app
from gateway.http.wire.headers import APPLY, EXTENDED_PATCH, Preferences
from gateway.http.wire.problems import encode_refusal
from gateway.http.write.bulk_lines import BodyLine, LineTerms, line_request
from gateway.limits import RequestLimits, ServiceLimits
from gateway.model import Idempotency
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.memory_store import MemoryStore


def idempotency_of(gateway: GatewayService, text: str) -> Idempotency:
    raw = text.encode()
    terms = LineTerms(ANONYMOUS, RequestLimits(), False, Preferences(None, None, False))
    request = line_request(gateway, BodyLine(0, len(raw), raw), terms)
    assert isinstance(request, Request)
    assert request.idempotency is not None
    return request.idempotency


def line(**members: Any) -> str:
    return json.dumps({"catalog": "c", "key": "k", "idempotency_key": "7", **members})


PUT = line(op="put", value={"a": [1, 2.5, None], "b": "é"}, if_match="7-5b1f0c7e")
PATCH = line(op="patch", patch=[{"op": "add", "path": "/log/-", "value": 7}])
EXTENDED = line(
    op="patch",
    patch=[{"op": "add", "path": "/items/7/x", "value": 1}],
    array_primary_keys={"/items": ["id"]},
)
MERGE = line(op="merge", value={"a": None})
DELETE = line(op="delete")
ATTRIBUTES = line(op="put", value=1, attributes={"mode": "replace", "value": {"team": "x"}})


@pytest.mark.parametrize(
    ("text", "fingerprint"),
    [
        (PUT, "bb6a01e385d33b538b511e3f5d2d0748615cd5c5414908cd2c6aa477103deb82"),
        (PATCH, "4a95dcd56f0395b78e1690c2e809d638fe434d49abd6c1aa9e3a59c13c750c3c"),
        (EXTENDED, "c368d2fa457936d39ae3d52c0f41ee032468d450e56e5639e38c4c361459f607"),
        (MERGE, "e1742de0425bcffd5acb369036c50a85c1b41b8ec4b79c8b1661f540237ba240"),
        (DELETE, "b517f2f5434ea9eb897ef651c50df3e7f40e5a94b23a7df5c0e2401bde6cd4ac"),
        (ATTRIBUTES, "13eeea14bdcf0551f84c5cc07f746c58e1443cae404b9e4a2846549c70f475bf"),
    ],
    ids=["put", "patch", "extended", "merge", "delete", "attributes"],
)
def test_fingerprints_are_stable_across_releases(
    memory_gateway: GatewayService, text: str, fingerprint: str
) -> None:
    """A request that was sent before an upgrade and is sent again after it is the same one."""
    assert idempotency_of(memory_gateway, text).fingerprint == fingerprint


def test_the_fingerprint_does_not_depend_on_spelling(memory_gateway: GatewayService) -> None:
    told = {
        idempotency_of(memory_gateway, text).fingerprint
        for text in (
            PUT,
            line(op="put", message="x", value={"b": "é", "a": [1.0, 25e-1, None]})[:-1]
            + ', "if_match": ["7-5b1f0c7e"]}',
            '{"op":"put","value":{"a":[1e0,2.50,null],"b":"\\u00e9"},"if_match":"7-5b1f0c7e",'
            '"key":"k","catalog":"c","author":"ann","idempotency_key":"8"}',
        )
    }
    assert len(told) == 1
    others = {
        idempotency_of(memory_gateway, text).fingerprint
        for text in (
            PUT,
            PUT.replace("2.5", "2"),
            PUT.replace('"1"', "1").replace("[1,", '["1",'),
            PUT.replace("null", "false"),
            PUT.replace('"k"', '"l"'),
            PUT.replace("7-5b1f0c7e", "8-5b1f0c7e"),
        )
    }
    assert len(others) == 6


def test_the_spelling_of_an_apply_is_not_in_its_fingerprint(memory_gateway: GatewayService) -> None:
    terms = {"op": "apply", "manager": "nightly", "force": ["/a"]}
    told = {
        idempotency_of(memory_gateway, line(value={"a": value}, **{**terms, **more})).fingerprint
        for value, more in ((1, {}), (1.0, {}), (1, {"force": []}), (2.0, {}))
    }
    assert len(told) == 3


def test_a_fenced_line_has_the_scope_of_its_application(memory_gateway: GatewayService) -> None:
    fenced = idempotency_of(memory_gateway, line(op="delete", fence="7.5f0c.nightly"))
    plain = idempotency_of(memory_gateway, DELETE)
    assert (fenced.principal, plain.principal) == ("\n5f0c", "anonymous")
    assert fenced.fingerprint == plain.fingerprint
    assert Fence(7, "5f0c", "nightly").scope == "5f0c"


DOCUMENT = "/v1/catalogs/c/documents/k"
OWNERS = "/v1/catalogs/c/owners/k"
ADD = [{"op": "add", "path": "/x", "value": 1}]
INCREMENT = {"patch": [{"op": "increment", "path": "/n"}], "array_primary_keys": {}}


@pytest.mark.parametrize(
    ("method", "path", "media_type", "body", "members"),
    [
        ("PUT", DOCUMENT, "application/json", {"n": 2}, {"op": "put", "value": {"n": 2}}),
        (
            "PATCH",
            DOCUMENT,
            "application/json-patch+json",
            ADD,
            {"op": "patch", "patch": ADD},
        ),
        (
            "PATCH",
            DOCUMENT,
            "application/merge-patch+json",
            {"y": 1},
            {"op": "merge", "value": {"y": 1}},
        ),
        ("PATCH", DOCUMENT, EXTENDED_PATCH, INCREMENT, {"op": "patch", **INCREMENT}),
        (
            "PATCH",
            f"{DOCUMENT}?manager=m",
            APPLY,
            {"z": 1},
            {"op": "apply", "manager": "m", "value": {"z": 1}, "conflict": "refuse", "force": []},
        ),
        ("DELETE", DOCUMENT, None, None, {"op": "delete"}),
        (
            "DELETE",
            f"{OWNERS}?manager=first&prune=true",
            None,
            None,
            {"op": "let_go", "manager": "first", "prune": True},
        ),
    ],
    ids=["put", "patch", "merge", "extended", "apply", "delete", "let_go"],
)
@pytest.mark.parametrize("by_line_first", [False, True])
def test_a_key_decides_once_whether_by_a_request_or_by_a_line(
    method: str,
    path: str,
    media_type: str | None,
    body: Any,
    members: dict[str, Any],
    by_line_first: bool,
) -> None:
    """What a client sends as a line of many may be sent again by itself."""
    limits = ServiceLimits()
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), limits, encode_refusal=encode_refusal)
    client = create_app(gateway).test_client()
    first = f"{DOCUMENT}?manager=first"
    assert client.patch(first, json={"n": 1}, content_type=APPLY).status_code == 201

    def request() -> str | None:
        sent = client.open(
            path,
            method=method,
            data=None if body is None else json.dumps(body),
            content_type=media_type,
            headers={"Idempotency-Key": "7"},
        )
        assert sent.status_code < 300, sent.text
        return sent.headers["Commit-Id"]

    def by_line() -> str | None:
        sent = client.post(
            "/v1/bulk", data=line(**members) + "\n", content_type="application/x-ndjson"
        )
        told = json.loads(sent.text)
        assert told["status"] < 300, told
        return str(told["commit_id"])

    ways = (by_line, request) if by_line_first else (request, by_line)
    assert ways[0]() == ways[1]()
    assert client.get("/v1/catalogs/c").get_json()["revision"] == 2
