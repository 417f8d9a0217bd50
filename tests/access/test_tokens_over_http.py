"""Tokens that are made, listed and revoked over HTTP, on a real gateway."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gateway.access.principal import parse_grant
from gateway.store.mongodb import connect
from gateway.tokens.issued import Tokens
from tests.patience import WAIT_MS, WAIT_S
from tests.service import RunningGateway, own_database

NO_HEADERS: Mapping[str, str] = {}


class Served:
    def __init__(self, gateway: RunningGateway, root: str) -> None:
        self.gateway = gateway
        self.root = root

    def send(
        self,
        method: str,
        path: str,
        token: str,
        body: Any = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[int, Any]:
        request = urllib.request.Request(self.gateway.url + path, None, {**headers}, method=method)
        request.add_header("Authorization", f"Bearer {token}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request) as answer:
                raw = answer.read()
                return answer.status, json.loads(raw) if raw else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def create(self, token: str = "", **body: Any) -> tuple[int, Any]:
        return self.send("POST", "/v1/tokens", token or self.root, body)


@pytest.fixture(scope="module")
def served(mongodb_uri: str) -> Iterator[Served]:
    with own_database(mongodb_uri) as database:
        store = connect(mongodb_uri, database, timeout_ms=WAIT_MS)
        root = Tokens(store.tokens()).issue("root", [parse_grant("admin:*")], None)
        with RunningGateway(mongodb_uri, database, workers=1, access=True) as gateway:
            yield Served(gateway, root.text)
        store.close()


def test_a_token_is_made_used_listed_and_revoked(served: Served) -> None:
    status, made = served.create(name="shop-service", grants=["write:shop"], expires_in_s=3600)
    assert status == 201
    assert (made["name"], made["grants"], made["revoked"]) == ("shop-service", ["write:shop"], None)
    assert made["expires"] > made["created"]
    put = ("PUT", "/v1/catalogs/shop/documents/k", made["token"], {"n": 1})
    assert served.send(*put)[0] == 201
    assert served.send("PUT", "/v1/catalogs/other/documents/k", made["token"], 1)[0] == 403
    status, listed = served.send("GET", "/v1/tokens", served.root)
    assert [each["name"] for each in listed["tokens"]][:2] == ["root", "shop-service"]
    assert all("token" not in each for each in listed["tokens"])
    assert served.send("DELETE", f"/v1/tokens/{made['id']}", served.root) == (204, None)
    until = time.monotonic() + WAIT_S
    while served.send(*put)[0] != 401:
        assert time.monotonic() < until
    assert served.send("DELETE", f"/v1/tokens/{made['id']}", served.root)[0] == 204
    told = served.send("GET", "/v1/tokens", served.root)[1]["tokens"]
    assert next(each for each in told if each["id"] == made["id"])["revoked"]


def test_unknown_parameters_of_token_routes_change_nothing(served: Served) -> None:
    _, made = served.create(name="kept", grants=["read:*"])
    revoked = f"/v1/tokens/{made['id']}"
    for query, headers, code in (
        ("?dry_run=true", {}, "invalid_parameter"),
        ("", {"If-Match": '"1-aaaaaaaa"'}, "invalid_condition"),
        ("", {"If-None-Match": "*"}, "invalid_condition"),
    ):
        body = {"name": "more", "grants": ["read:*"]}
        for method, path, sent in (("DELETE", revoked, None), ("POST", "/v1/tokens", body)):
            status, told = served.send(method, path + query, served.root, sent, headers)
            assert (status, told["code"]) == (400, code)
    told = served.send("GET", "/v1/tokens", served.root)[1]["tokens"]
    assert next(each for each in told if each["id"] == made["id"])["revoked"] is None
    assert "more" not in [each["name"] for each in told]


def test_only_an_admin_of_every_catalog_can_manage_tokens(served: Served) -> None:
    for grants in (["write:*"], ["admin:shop/*"], ["admin:*x", "read:*"]):
        _, made = served.create(name="some", grants=grants)
        status, refused = served.create(made["token"], name="more", grants=["admin:*"])
        assert (status, refused["code"], refused["catalog"]) == (403, "forbidden", "*")
        assert served.send("GET", "/v1/tokens", made["token"])[0] == 403
        assert served.send("DELETE", f"/v1/tokens/{made['id']}", made["token"])[0] == 403


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"grants": ["read:*"]}, "/name"),
        ({"name": "x"}, "/grants"),
        ({"name": "x", "grants": []}, "/grants"),
        ({"name": "x", "grants": ["own:*"]}, "/grants/0"),
        ({"name": " x", "grants": ["read:*"]}, "/name"),
        ({"name": "anonymous", "grants": ["read:*"]}, "/name"),
        ({"name": "x", "grants": ["read:*"], "expires_in_s": 0}, "/expires_in_s"),
        ({"name": "x", "grants": ["read:*"], "role": "admin"}, "/role"),
    ],
)
def test_an_invalid_request_is_refused_with_its_pointer(
    served: Served, body: dict[str, Any], pointer: str
) -> None:
    status, refused = served.create(**body)
    assert (status, refused["code"], refused["pointer"]) == (400, "invalid_body", pointer)


def test_every_token_change_is_audited_and_no_secret_is_logged(served: Served) -> None:
    _, made = served.create(name="audited", grants=["read:*"])
    served.send("DELETE", f"/v1/tokens/{made['id']}", served.root)
    status, refused = served.send("DELETE", f"/v1/tokens/{made['token']}", served.root)
    assert (status, refused["code"]) == (404, "token_not_found")
    log = served.gateway.log()
    lines = [json.loads(line) for line in log.splitlines() if '"gateway.audit"' in line]
    told = [line for line in lines if line.get("token") == made["id"]]
    assert [line["action"] for line in told] == ["create_token", "revoke_token"]
    assert {(line["principal"], line["issued_to"]) for line in told} == {("root", "audited")}
    assert made["token"] not in log
