"""Every route for every role in every kind of catalog: let in or refused, and nothing between."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from gateway.access import Role
from gateway.http.context import Need
from tests.access.service import Caller, Service
from tests.http.conftest import problem

MINE, OTHERS = "team a/shop", "team b/shop"
CALLERS: dict[str, tuple[str, ...]] = {
    "stranger": (),
    "nothing": (),
    "reader": ("read:team a/*",),
    "writer": ("write:team a/*",),
    "admin": ("admin:team a/*",),
    "reads others', writes its own": ("read:*", "write:team a/*"),
}


class Call(NamedTuple):
    """What is sent; ``{c}`` stands for the catalog."""

    path: str
    body: Any = None
    content_type: str = "application/json"


PATCH = "application/json-patch+json"
OCTETS = "application/octet-stream"
LINES = "application/x-ndjson"
# By endpoint and method; a request that would succeed, or be refused for other reasons than access.
CALLS: dict[tuple[str, str], Call] = {
    ("livez", "GET"): Call("/livez"),
    ("readyz", "GET"): Call("/readyz"),
    ("openapi", "GET"): Call("/openapi.yaml"),
    ("docs", "GET"): Call("/docs"),
    ("docs_style", "GET"): Call("/docs/style.css"),
    ("docs_search", "GET"): Call("/docs/search.js"),
    ("console_entry", "GET"): Call("/console"),
    ("console", "GET"): Call("/console/"),
    ("read_sign_in", "GET"): Call("/console/sign-in"),
    ("sign_in", "POST"): Call("/console/sign-in", {}),
    ("metrics", "GET"): Call("/metrics"),
    ("read_document", "GET"): Call("{c}/documents/k"),
    ("put_document", "PUT"): Call("{c}/documents/k", {"a": 1}),
    ("patch_document", "PATCH"): Call(
        "{c}/documents/k", [{"op": "add", "path": "/b", "value": 1}], PATCH
    ),
    ("delete_document", "DELETE"): Call("{c}/documents/gone"),
    ("document_options", "OPTIONS"): Call("{c}/documents/k"),
    ("read_attributes", "GET"): Call("{c}/attributes/k"),
    ("put_attributes", "PUT"): Call("{c}/attributes/k", {"a": 1}),
    ("patch_attributes", "PATCH"): Call(
        "{c}/attributes/k", [{"op": "add", "path": "/b", "value": 1}], PATCH
    ),
    ("delete_attributes", "DELETE"): Call("{c}/attributes/k"),
    ("attributes_options", "OPTIONS"): Call("{c}/attributes/k"),
    ("read_owners", "GET"): Call("{c}/owners/k"),
    ("let_go", "DELETE"): Call("{c}/owners/k"),
    ("list_losses", "GET"): Call("{c}/owners?lost_by=x"),
    ("read_principal", "GET"): Call("/v1/principal"),
    ("create_token", "POST"): Call("/v1/tokens", {"name": "x", "grants": ["read:*"]}),
    ("list_tokens", "GET"): Call("/v1/tokens"),
    ("revoke_token", "DELETE"): Call("/v1/tokens/0123456789abcdef"),
    ("list_catalogs", "GET"): Call("/v1/catalogs"),
    ("read_catalog", "GET"): Call("{c}"),
    ("put_catalog", "PUT"): Call("{c}", {}),
    ("delete_catalog", "DELETE"): Call("{c}?resource_version=0"),
    ("touch_catalog", "POST"): Call("{c}/touch"),
    ("list_applications", "GET"): Call("{c}/applications"),
    # None that somebody else shares.
    ("put_application", "PUT"): Call("{c}/applications/of%20nobody", {"version": -1}),
    ("delete_application", "DELETE"): Call("{c}/applications/x"),
    ("list_documents", "GET"): Call("{c}/documents"),
    ("export", "GET"): Call("{c}/export"),
    ("plan_partitions", "GET"): Call("{c}/partitions?count=4"),
    ("transaction", "POST"): Call("{c}/transactions", {"then": [{"action": "get", "key": "k"}]}),
    ("revert", "POST"): Call("{c}/reverts", {"revisions": [1]}),
    ("bulk", "POST"): Call("/v1/bulk", b"", LINES),
    ("open_upload", "POST"): Call("{c}/uploads", {"key": "k"}),
    ("read_upload", "GET"): Call("{c}/uploads/x"),
    ("drop_upload", "DELETE"): Call("{c}/uploads/x"),
    ("put_part", "PUT"): Call("{c}/uploads/x/parts/1", b"1", OCTETS),
    ("commit_upload", "POST"): Call("{c}/uploads/x/commit"),
    ("list_commits", "GET"): Call("{c}/commits"),
    ("read_commit", "GET"): Call("{c}/commits/1"),
    ("outcome", "GET"): Call("{c}/outcomes/x"),
    ("list_differences", "GET"): Call("{c}/differences?from=0"),
    ("changes", "GET"): Call("{c}/changes?timeout=0"),
    ("create_pin", "POST"): Call("{c}/pins", {"seconds": 1}),
    ("list_pins", "GET"): Call("{c}/pins"),
    ("read_pin", "GET"): Call("{c}/pins/x"),
    ("renew_pin", "PUT"): Call("{c}/pins/x", {"seconds": 1}),
    ("delete_pin", "DELETE"): Call("{c}/pins/x"),
    ("compact", "POST"): Call("{c}/compactions", {"revision": 0}),
    ("list_subscriptions", "GET"): Call("{c}/subscriptions"),
    ("read_subscription", "GET"): Call("{c}/subscriptions/x"),
    ("put_subscription", "PUT"): Call("{c}/subscriptions/x", {"to": "nowhere"}),
    ("delete_subscription", "DELETE"): Call("{c}/subscriptions/x"),
    ("pause_subscription", "POST"): Call("{c}/subscriptions/x/pause"),
    ("resume_subscription", "POST"): Call("{c}/subscriptions/x/resume"),
    ("replay_subscription", "POST"): Call("{c}/subscriptions/x/replay", {"from": 0}),
}


@pytest.fixture(scope="module")
def service() -> Service:
    made = Service()
    root = made.caller("root", "admin:*")
    for catalog in (MINE, OTHERS, "Team A/shop", "team a"):
        for _ in range(3):
            path = f"/v1/catalogs/{catalog.replace(' ', '%20').replace('/', '%2F')}/documents/k"
            assert root.send("PUT", path, {"a": 1}).status_code < 300
    return made


@pytest.fixture(scope="module")
def callers(service: Service) -> dict[str, Caller]:
    known = {name: service.caller(name, *grants) for name, grants in CALLERS.items()}
    return known | {"stranger": service.stranger()}


def test_every_route_is_called(service: Service) -> None:
    assert service.app.needs.keys() == CALLS.keys()


@pytest.mark.parametrize("catalog", [MINE, OTHERS, "Team A/shop", "team a"])
@pytest.mark.parametrize("who", CALLERS)
def test_a_caller_is_allowed_exactly_what_its_role_says(
    who: str, catalog: str, service: Service, callers: dict[str, Caller]
) -> None:
    mine = catalog == MINE
    held = {
        "reader": Role.READ if mine else None,
        "writer": Role.WRITE if mine else None,
        "admin": Role.ADMIN if mine else None,
        "reads others', writes its own": Role.WRITE if mine else Role.READ,
    }.get(who)
    for (endpoint, method), need in service.app.needs.items():
        call = CALLS[endpoint, method]
        path = f"/v1/catalogs/{catalog.replace(' ', '%20').replace('/', '%2F')}"
        answer = callers[who].send(
            method, call.path.replace("{c}", path), call.body, Content_Type=call.content_type
        )
        where = (endpoint, who, catalog)
        if need is Need.NOTHING:
            assert answer.status_code not in (401, 403), where
        elif who == "stranger":
            problem(answer, 401, "unauthenticated")
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="metadata-gateway"', where
        elif need is Need.EVERYTHING:
            content = problem(answer, 403, "forbidden")
            assert (content["role"], content["catalog"]) == ("admin", "*"), where
        elif isinstance(need, Role) and (held is None or held < need):
            content = problem(answer, 403, "forbidden")
            assert (content["role"], content["catalog"]) == (need.name.lower(), catalog), where
        else:
            assert answer.status_code not in (401, 403), where
            assert answer.status_code < 500, where


def test_every_principal_can_read_its_own_name_and_grants(callers: dict[str, Caller]) -> None:
    for who, grants in CALLERS.items():
        if who == "stranger":
            continue
        answer = callers[who].send("GET", "/v1/principal")
        told = answer.get_json()
        assert told["grants"] == [
            {"role": role, "pattern": pattern}
            for role, _, pattern in (grant.partition(":") for grant in grants)
        ]
        assert told["name"] == who
        assert answer.headers["Cache-Control"] == "no-store"
    problem(callers["stranger"].send("GET", "/v1/principal"), 401, "unauthenticated")


@pytest.mark.parametrize("who", ["nothing", "reader", "reads others', writes its own"])
def test_a_refused_request_has_changed_nothing(
    who: str, service: Service, callers: dict[str, Caller]
) -> None:
    path = "/v1/catalogs/team%20b%2Fshop"
    root = service.caller("root", "admin:*")
    before = root.send("GET", path).get_json()
    for (_, method), call in CALLS.items():
        if method not in ("GET", "OPTIONS") and "pins" not in call.path:
            callers[who].send(
                method, call.path.replace("{c}", path), call.body, Content_Type=call.content_type
            )
    assert root.send("GET", path).get_json() == before


def test_only_readers_learn_whether_a_catalog_exists(callers: dict[str, Caller]) -> None:
    for path in ("/v1/catalogs/team%20b%2Fshop", "/v1/catalogs/team%20b%2Fnothing"):
        problem(callers["admin"].send("GET", path), 403, "forbidden")
    problem(callers["admin"].send("GET", "/v1/catalogs/team%20a%2Fno"), 404, "catalog_not_found")


@pytest.mark.parametrize("path", ["/v2", "/v1/catalogs/a/b/c", "/v1", "/livez/", "/LIVEZ"])
def test_an_unknown_route_is_404_only_for_authenticated_callers(
    path: str, callers: dict[str, Caller]
) -> None:
    problem(callers["stranger"].send("GET", path), 401, "unauthenticated")
    problem(callers["nothing"].send("GET", path), 404, "route_not_found")


def test_an_unsupported_method_is_405_only_for_authenticated_callers(
    callers: dict[str, Caller],
) -> None:
    path = "/v1/catalogs"
    problem(callers["stranger"].send("DELETE", path), 401, "unauthenticated")
    problem(callers["nothing"].send("DELETE", path), 405, "method_not_allowed")


def test_head_needs_the_same_role_as_get(callers: dict[str, Caller]) -> None:
    path = "/v1/catalogs/team%20a%2Fshop/documents/k"
    statuses = [
        callers[who].send("HEAD", path).status_code for who in ("stranger", "nothing", "reader")
    ]
    assert statuses == [401, 403, 200]


class TestBulk:
    def test_each_line_is_authorized_separately(self, callers: dict[str, Caller]) -> None:
        lines = [
            {"catalog": catalog, "op": "put", "key": "bulk", "value": 1}
            for catalog in (MINE, OTHERS, "team a", MINE)
        ]
        answers = callers["writer"].bulk(*lines)
        assert [each["status"] for each in answers] == [201, 403, 403, 200]
        for answer, catalog in zip(answers[1:3], (OTHERS, "team a"), strict=True):
            refused = answer["problem"]
            assert (refused["code"], refused["applied"]) == ("forbidden", "no")
            assert (refused["role"], refused["catalog"]) == ("write", catalog)

    @pytest.mark.parametrize("op", ["put", "patch", "merge", "delete", "touch"])
    def test_no_line_is_allowed_with_read_access_only(
        self, op: str, callers: dict[str, Caller]
    ) -> None:
        line: dict[str, Any] = {"catalog": MINE, "op": op, "key": "k"}
        line |= {"put": {"value": 1}, "merge": {"value": {}}, "patch": {"patch": []}}.get(op, {})
        (answer,) = callers["reader"].bulk(line)
        assert answer["problem"]["code"] == "forbidden"
        (answer,) = callers["writer"].bulk({**line, "dry_run": True})
        assert answer["status"] < 300

    def test_a_bulk_request_needs_a_token(self, callers: dict[str, Caller]) -> None:
        answer = callers["stranger"].send("POST", "/v1/bulk", b"{}", Content_Type=LINES)
        problem(answer, 401, "unauthenticated")


class TestOwnership:
    """What belongs to a principal belongs to nobody else, whatever the other's role."""

    def test_an_idempotency_key_belongs_to_its_principal(self, service: Service) -> None:
        ann, bob = (service.caller(name, "write:own") for name in ("ann", "bob"))
        path = "/v1/catalogs/own/documents/k"
        first = ann.send("PUT", path, 1, Idempotency_Key="key")
        second = bob.send("PUT", path, 2, Idempotency_Key="key")
        assert (first.status_code, second.status_code) == (201, 200)
        assert "Idempotency-Replayed" not in second.headers
        for who, answer in ((ann, first), (bob, second)):
            outcome = who.send("GET", "/v1/catalogs/own/outcomes/key").get_json()
            assert outcome["commit_id"] == answer.headers["Commit-Id"]
        commits = ann.send("GET", "/v1/catalogs/own/commits").get_json()["commits"]
        assert [each["author"] for each in commits] == ["ann", "bob"]

    def test_an_upload_belongs_to_its_principal(self, service: Service) -> None:
        ann = service.caller("ann", "write:own")
        opened = ann.send("POST", "/v1/catalogs/own/uploads", {"key": "up"})
        place = opened.headers["Location"]
        for other in (service.caller("bob", "admin:*"), service.caller("root", "admin:*")):
            problem(other.send("GET", place), 404, "upload_not_found")
            part = other.send("PUT", f"{place}/parts/1", b"1", Content_Type=OCTETS)
            problem(part, 404, "upload_not_found")
            problem(other.send("POST", f"{place}/commit"), 404, "upload_not_found")
            assert other.send("DELETE", place).status_code == 204
        assert ann.send("GET", place).status_code == 200

    def test_another_token_of_the_principal_works_too(self, service: Service) -> None:
        place = (
            service.caller("cid", "write:own")
            .send("POST", "/v1/catalogs/own/uploads", {"key": "up"})
            .headers["Location"]
        )
        assert service.caller("cid", "write:own").send("GET", place).status_code == 200
        problem(service.caller("cid", "read:own").send("GET", place), 403, "forbidden")
