"""A refusal says what to do next, where that can be known."""

from __future__ import annotations

import pytest

from gateway.access import Grant, Principal, Role
from gateway.access.principal import forbidden
from gateway.http.wire.headers import EXTENDED_PATCH
from tests.http.conftest import JSON_PATCH, MERGE_PATCH, Catalog, problem


def test_a_refusal_explains_a_weak_tag_or_a_tag_with_a_suffix(catalog: Catalog) -> None:
    token = catalog.put(1).get_json()["etag"]
    for tag, why in (
        (f'W/"{token}"', f'; W/"{token}" is weak, and If-Match compares strongly: a proxy'),
        (f'"{token}-gzip"', f"; {token}-gzip has '-gzip' after that token: a proxy"),
        (f'"{token};br"', f"; {token};br has ';br' after that token: a proxy"),
    ):
        content = problem(catalog.put(2, If_Match=tag), 412, "precondition_failed")
        assert why in content["detail"]
    told = problem(catalog.put(2, If_Match='"1-00000000"'), 412, "precondition_failed")
    assert "proxy" not in told["detail"]
    assert catalog.get().get_json() == 1


def test_a_refusal_shows_how_to_quote_an_unquoted_token(catalog: Catalog) -> None:
    token = catalog.put(1).get_json()["etag"]
    for method in ("PUT", "GET"):
        answer = catalog.send(method, b"2", "application/json", If_Match=token)
        content = problem(answer, 400, "invalid_condition")
        assert f'If-Match: "{token}"' in content["detail"]
    composite = problem(catalog.put(2, If_Match="k=1-a;j=absent"), 400, "invalid_condition")
    assert 'If-Match: "k=1-a;j=absent"' in composite["detail"]


def test_a_404_says_whether_the_catalog_is_missing_too(catalog: Catalog) -> None:
    said = f"there is no catalog '{catalog.name}', and so no document 'k'"
    operation = {"op": "add", "path": "/a", "value": 1}
    for answer in (
        catalog.get(),
        catalog.patch(operation),
        catalog.send("PATCH", b"{}", MERGE_PATCH),
        catalog.client.get(f"{catalog.path}/attributes/k"),
        catalog.client.put(f"{catalog.path}/attributes/k", json={}),
    ):
        assert problem(answer, 404, "document_not_found")["detail"] == said
    catalog.put(1, key="another")
    told = problem(catalog.get(), 404, "document_not_found")["detail"]
    assert told == f"catalog '{catalog.name}' has no document 'k'"
    assert problem(catalog.patch(operation), 404, "document_not_found")["detail"] == told


@pytest.mark.parametrize("name", ["increment", "add_to_set", "pull", "contains", "less"])
def test_the_refusal_of_an_operation_names_the_media_type_it_needs(
    catalog: Catalog, name: str
) -> None:
    catalog.put({"n": 1})
    answer = catalog.patch({"op": "test", "path": "/n", "value": 1}, {"op": name, "path": "/n"})
    content = problem(answer, 400, "unknown_operation")
    assert content["detail"].endswith(f"; {name!r} needs Content-Type {EXTENDED_PATCH}")
    assert content["operation"] == 1


def test_an_unknown_operation_names_no_media_type(catalog: Catalog) -> None:
    catalog.put({"n": 1})
    for raw in (b'[{"op":"incr","path":"/n"}]', b'[{"op":7}]', b'[{"path":""}]'):
        answer = catalog.send("PATCH", raw, JSON_PATCH)
        assert EXTENDED_PATCH not in answer.get_json()["detail"]
        assert answer.status_code == 400


def test_a_403_names_the_callers_grants() -> None:
    grants = [Grant(Role.READ, "*"), Grant(Role.WRITE, "shop/*")]
    ann = Principal("ann", tuple(grants))
    assert forbidden(ann, Role.WRITE, "shop", "the request").detail == (
        "the request needs the role 'write' in catalog 'shop'; 'ann' has read:*, write:shop/*"
    )
    assert forbidden(Principal("ann", ()), Role.READ, "c").detail.endswith("; 'ann' has no grants")
    many = forbidden(Principal("ann", tuple(grants * 400)), Role.ADMIN, "c").detail
    assert many.endswith("read:*, and 795 more")
