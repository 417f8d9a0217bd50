"""A catalog as a whole: its settings, where it is, and deleting it."""

from __future__ import annotations

import uuid
from typing import Any

from flask.testing import FlaskClient

from tests.http.conftest import Catalog, problem


def call(
    catalog: Catalog, method: str, place: str = "", settings: Any = None, **headers: str
) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"json": settings} if method == "PUT" else {}
    return catalog.client.open(catalog.path + place, method=method, headers=named, **sent)


def put(catalog: Catalog, settings: Any, query: str = "", **headers: str) -> Any:
    return call(catalog, "PUT", query, settings, **headers)


def get(catalog: Catalog, **headers: str) -> Any:
    return call(catalog, "GET", **headers)


def delete(catalog: Catalog, query: str = "", **headers: str) -> Any:
    return call(catalog, "DELETE", query, **headers)


def touch(catalog: Catalog, query: str = "") -> Any:
    return call(catalog, "POST", f"/touch{query}")


def test_a_catalog_is_made_by_its_first_write(catalog: Catalog) -> None:
    problem(get(catalog), 404, "catalog_not_found")
    catalog.put(1)
    answer = get(catalog)
    content = answer.get_json()
    assert (content["revision"], content["floor"], content["settings"]) == (1, 0, None)
    assert answer.headers["ETag"] == '"@1"'
    assert get(catalog, If_None_Match='"@1"').status_code == 304
    assert get(catalog, If_None_Match='"@2"').status_code == 200
    problem(get(catalog, If_Match='"@2"'), 412, "precondition_failed")


def test_settings_are_commits_and_no_documents(catalog: Catalog) -> None:
    made = put(catalog, {"require_precondition": True})
    assert made.status_code == 201
    assert made.get_json()["revision"] == 1
    again = put(catalog, {"require_precondition": True})
    assert (again.status_code, again.get_json()["changed"]) == (200, False)
    content = get(catalog).get_json()
    assert content["settings"] == {"require_precondition": True}
    listed = catalog.client.get(f"{catalog.path}/documents").get_json()
    assert (listed["revision"], listed["documents"]) == (1, [])
    assert catalog.client.get(f"{catalog.path}/export").get_json()["metadata"] == {}


def test_settings_have_a_tag_of_their_own(catalog: Catalog) -> None:
    token = put(catalog, {}).get_json()["settings_etag"]
    catalog.put(1)
    problem(put(catalog, {}, If_None_Match="*"), 412, "precondition_failed")
    changed = put(catalog, {"require_precondition": True}, If_Match=f'"{token}"')
    assert changed.status_code == 200
    stale = problem(
        put(catalog, {"require_precondition": False}, If_Match=f'"{token}"'),
        412,
        "precondition_failed",
    )
    assert stale["current"]["etag"] == changed.get_json()["settings_etag"]
    problem(put(catalog, {}, If_Match='"@1"'), 412, "precondition_failed")
    assert put(catalog, {}, If_Match='"@3"').status_code == 200
    problem(put(catalog, {}, "?resource_version=1"), 412, "precondition_failed")


def test_no_key_pattern_takes_long_to_match(catalog: Catalog) -> None:
    pattern = "*a" * 200 + "*b"
    put(catalog, {"schemas": {pattern: False}})
    assert catalog.put(1, "a" * 1_000).status_code == 201
    problem(catalog.put(1, "a" * 900 + "b"), 422, "schema_violation")


def test_a_touch_has_the_same_fingerprint_however_its_path_is_written(client: FlaskClient) -> None:
    name = uuid.uuid4().hex
    headers = {"Idempotency-Key": "once"}
    first = client.post(f"/v1/catalogs/{name}%2fb/touch", headers=headers)
    again = client.post(f"/v1/catalogs/{name}%2Fb/touch", headers=headers)
    assert (again.status_code, again.get_json()) == (200, first.get_json())
    assert again.headers["Idempotency-Replayed"] == "true"
    other = client.delete(f"/v1/catalogs/{name}%2Fb", headers=headers)
    problem(other, 422, "idempotency_key_reused")


def test_deleting_a_catalog_is_one_commit(catalog: Catalog) -> None:
    put(catalog, {"require_precondition": True})
    for number in range(3):
        catalog.put(number, f"k{number}", If_None_Match="*")
    stale = problem(delete(catalog, "?resource_version=1"), 412, "precondition_failed")
    assert stale["resource_version"] == 4
    assert delete(catalog, "?resource_version=4").status_code == 204
    problem(get(catalog), 404, "catalog_not_found")
    assert catalog.get("k0").status_code == 404
    assert delete(catalog).status_code == 204
    problem(delete(catalog, If_Match="*"), 412, "precondition_failed")
    assert catalog.name not in catalogs(catalog.client)
    revived = catalog.put("again", "k0")
    assert revived.get_json()["revision"] == 6
    assert revived.get_json()["create_revision"] == 6
    assert get(catalog).get_json()["settings"] is None
    assert catalog.get("k0", "?revision=4").get_json() == 0


def test_a_refused_write_shows_the_commits_since(catalog: Catalog) -> None:
    token = put(catalog, {}).get_json()["settings_etag"]
    catalog.put(1)
    put(catalog, {"require_precondition": True})
    stale = problem(put(catalog, {}, If_Match=f'"{token}"'), 412, "precondition_failed")
    assert [each["changes"] for each in stale["changes_since"]] == [
        [{"key": "k", "action": "put"}],
        [{"key": None, "action": "settings"}],
    ]
    for refused in (delete(catalog, If_Match='"@1"'), touch(catalog, "?resource_version=1")):
        since = problem(refused, 412, "precondition_failed")["changes_since"]
        assert [each["revision"] for each in since] == [2, 3]


def test_a_deletion_repeated_under_its_key_is_done_once(catalog: Catalog) -> None:
    catalog.put(1)
    first = delete(catalog, Idempotency_Key="gone")
    again = delete(catalog, Idempotency_Key="gone")
    assert (first.status_code, again.status_code) == (204, 204)
    assert again.headers["Catalog-Revision"] == first.headers["Catalog-Revision"] == "2"
    assert again.headers["Idempotency-Replayed"] == "true"
    catalog.put(1)
    assert delete(catalog, Idempotency_Key="gone").headers["Catalog-Revision"] == "2"
    assert catalog.get().status_code == 200


def catalogs(client: FlaskClient) -> list[str]:
    found: list[str] = []
    after = ""
    while True:
        page = client.get("/v1/catalogs", query_string={"after": after, "limit": 50}).get_json()
        found += [each["catalog"] for each in page["catalogs"]]
        if page["next"] is None:
            return found
        after = page["next"]


def test_catalogs_are_listed_by_name(client: FlaskClient) -> None:
    prefix = uuid.uuid4().hex
    for name in ("b", "a", "a/2"):
        Catalog(client, prefix + name).put(1)
    answer = client.get("/v1/catalogs", query_string={"prefix": prefix, "limit": 2}).get_json()
    assert [each["catalog"] for each in answer["catalogs"]] == [prefix + "a", prefix + "a/2"]
    assert answer["next"] == prefix + "a/2"
    rest = client.get("/v1/catalogs", query_string={"prefix": prefix, "after": answer["next"]})
    assert [each["catalog"] for each in rest.get_json()["catalogs"]] == [prefix + "b"]
