"""Several documents at one revision: pages, named documents, exports."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from gateway.http import create_app
from gateway.http.routes.listing import _export_lines
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from patching import digest
from tests.http.conftest import Catalog, problem
from tests.memory_store import MemoryStore


def page(catalog: Catalog, query: str = "", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return catalog.client.get(f"{catalog.path}/documents{query}", headers=named)


def export(catalog: Catalog, query: str = "") -> Any:
    return catalog.client.get(f"{catalog.path}/export{query}")


def keys(answer: Any) -> list[str]:
    return [document["key"] for document in answer.get_json()["documents"]]


def test_documents_are_sorted_by_the_bytes_of_their_keys(catalog: Catalog) -> None:
    for key in ("b", "a/2", "a/10", "é", "😀", "Z", "￿"):
        catalog.put({"name": key}, key)
    catalog.delete("b")
    answer = page(catalog)
    assert keys(answer) == ["Z", "a/10", "a/2", "é", "￿", "😀"]
    assert answer.get_json()["next"] is None
    first = answer.get_json()["documents"][0]
    assert first["value"] == {"name": "Z"}
    assert f'"{first["etag"]}"' == catalog.get("Z").headers["ETag"]


def test_a_prefix_and_after_are_texts_not_patterns(catalog: Catalog) -> None:
    for key in ("a", "a%", "a%b", "ab", "b"):
        catalog.put(1, key)
    assert keys(page(catalog, f"?prefix={quote('a%')}")) == ["a%", "a%b"]
    assert keys(page(catalog, f"?prefix=a&after={quote('a%')}")) == ["a%b", "ab"]
    assert keys(page(catalog, f"?prefix={quote('a%')}&after=a")) == ["a%", "a%b"]


def test_named_documents_have_one_composite_tag(catalog: Catalog) -> None:
    catalog.put(1, "a;b")
    catalog.put(2, "c")
    answer = page(catalog, f"?key={quote('a;b')}&key=c&key=none")
    assert [d["etag"] is None for d in answer.get_json()["documents"]] == [False, False, True]
    tag = answer.headers["ETag"]
    assert tag.startswith('"a%3Bb=1-')
    assert tag.endswith(';none=absent"')
    assert (
        page(catalog, f"?key={quote('a;b')}&key=c&key=none", If_None_Match=tag).status_code == 304
    )
    assert catalog.put(3, "c", If_Match=tag).status_code == 200
    problem(catalog.put(3, "none", If_Match=tag), 412, "precondition_failed")


def test_missing_catalogs_and_revisions_are_404(catalog: Catalog) -> None:
    problem(page(catalog), 404, "catalog_not_found")
    problem(export(catalog), 404, "catalog_not_found")
    catalog.put(1)
    problem(page(catalog, "?revision=2"), 404, "revision_not_found")
    problem(page(catalog, "?at=2001-01-01T00:00:00Z"), 404, "revision_not_found")
    problem(page(catalog, "?revision=1&at=2001-01-01T00:00:00Z"), 400, "invalid_parameter")
    problem(page(catalog, "?limit=0"), 400, "invalid_parameter")
    problem(page(catalog, "?limit=1001"), 400, "invalid_parameter")
    problem(page(catalog, "?key=k&prefix=k"), 400, "invalid_parameter")
    problem(page(catalog, "?key="), 400, "invalid_name")
    problem(page(catalog, "?keys=k"), 400, "invalid_parameter")
    problem(
        page(catalog, If_Modified_Since="Sun, 06 Nov 1994 08:49:37 GMT"), 400, "invalid_condition"
    )


def test_reads_ignore_the_resource_version(catalog: Catalog) -> None:
    catalog.put(1)
    assert export(catalog, "?resource_version=77").status_code == 200
    assert page(catalog, "?resource_version=77").status_code == 200
    assert catalog.get("k", "?resource_version=77").status_code == 200


def test_an_export_has_a_prefix_and_the_tag_of_its_revision(catalog: Catalog) -> None:
    for number in range(3):
        catalog.put({"n": number}, f"k{number}")
    answer = export(catalog, "?prefix=k2&revision=3")
    assert answer.get_json() == {"resource_version": 3, "metadata": {"k2": {"n": 2}}}
    assert answer.headers["ETag"] == '"@3"'


def test_an_export_of_an_empty_catalog_is_empty(catalog: Catalog) -> None:
    catalog.put(1)
    catalog.delete()
    assert export(catalog).get_json() == {"resource_version": 2, "metadata": {}}


def big_catalog(documents: int) -> tuple[MemoryStore, FlaskClient]:
    store = MemoryStore()
    client = create_app(GatewayService(store, ThreadRuntime(), ServiceLimits())).test_client()
    for number in range(documents):
        client.put(f"/v1/catalogs/big/documents/k{number:04}", json=number)
    return store, client


def test_an_export_over_pages_isnt_moved_by_writes_between_them() -> None:
    _, client = big_catalog(1_200)
    stream = client.get("/v1/catalogs/big/export", buffered=False)
    assert client.put("/v1/catalogs/big/documents/k1199", json="new").status_code == 200
    assert client.delete("/v1/catalogs/big/documents/k1198").status_code == 204
    assert client.put("/v1/catalogs/big/documents/k9999", json="made").status_code == 201
    exported = json.loads(stream.get_data())
    assert exported["resource_version"] == 1_200
    assert exported["metadata"] == {f"k{n:04}": n for n in range(1_200)}


READS_AT = {
    "/documents/k": 200,
    "/attributes/k": 200,
    "/documents/none": 404,
    "/documents": 200,
    "/documents?key=k&key=none": 200,
    "/export": 200,
}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", READS_AT)
def test_a_time_above_the_newest_commit_is_marked_provisional(
    catalog: Catalog, path: str, method: str
) -> None:
    catalog.put(1)
    catalog.put(2)
    commits = catalog.client.get(f"{catalog.path}/commits").get_json()["commits"]
    first, last = (commit["time"] for commit in commits)
    above = quote((datetime.fromisoformat(last) + timedelta(microseconds=1)).isoformat())

    def ask(at: str, **headers: str) -> TestResponse:
        between = "&" if "?" in path else "?"
        url = f"{catalog.path}{path}{between}at={at}"
        return catalog.client.open(url, method=method, headers=headers)

    for at, provisional in ((first, None), (last, None), (above, "true")):
        answer = ask(at)
        assert answer.status_code == READS_AT[path]
        assert answer.headers.get("Time-Provisional") == provisional
        if answer.status_code == 200:
            again = ask(at, **{"If-None-Match": answer.headers["ETag"]})
            assert again.status_code == 304
            assert again.headers.get("Time-Provisional") == provisional
            stale = ask(at, **{"If-Match": '"1-00000000"'})
            assert stale.headers.get("Time-Provisional") == provisional
    catalog.put(3)
    assert "Time-Provisional" not in ask(above).headers
    assert "Time-Provisional" not in ask("2999-01-01T00:00:00Z").headers


def digests(catalog: Catalog, query: str = "") -> dict[str, str]:
    answer = page(catalog, f"?select=digest{query}")
    assert answer.status_code == 200, answer.get_json()
    for document in answer.get_json()["documents"]:
        assert set(document) == {"key", "etag", "revision", "digest"}
    return {each["key"]: each["digest"] for each in answer.get_json()["documents"]}


def test_digests_are_listed_with_key_and_token_and_without_content(catalog: Catalog) -> None:
    values = {"a": {"n": 1.0, "m": None}, "b": ["é", 10**18], "c": 0}
    for key, value in values.items():
        catalog.put(value, key)
    catalog.put(1, "gone")
    catalog.delete("gone")
    listed = page(catalog).get_json()["documents"]
    found = page(catalog, "?select=digest").get_json()
    assert [each["etag"] for each in found["documents"]] == [each["etag"] for each in listed]
    assert digests(catalog) == {key: digest(value) for key, value in values.items()}
    assert digests(catalog, "&prefix=b") == {"b": digest(values["b"])}
    first = page(catalog, "?select=digest&limit=2").get_json()
    assert first["next"] == {"after": "b", "revision": 5}
    assert digests(catalog, "&limit=2&after=b&revision=5") == {"c": digest(0)}
    named = page(catalog, "?select=digest&key=c&key=none").get_json()["documents"]
    assert named == [
        {"key": "c", "etag": listed[2]["etag"], "revision": 3, "digest": digest(0)},
        {"key": "none", "etag": None},
    ]


def test_keys_are_found_by_a_part_of_them_and_as_folders(catalog: Catalog) -> None:
    for key in ("Tables/a", "tables/b", "tables/x/c", "top"):
        catalog.put(1, key)
    assert keys(page(catalog, "?select=digest&contains=ABLES/")) == [
        "Tables/a",
        "tables/b",
        "tables/x/c",
    ]
    assert keys(page(catalog, "?select=digest&contains=x&prefix=tables/")) == ["tables/x/c"]
    assert "folders" not in page(catalog, "?select=digest").get_json()
    folders = page(catalog, "?select=digest&delimiter=/").get_json()
    assert folders["folders"] == ["Tables/", "tables/"]
    assert [each["key"] for each in folders["documents"]] == ["top"]
    inside = page(catalog, "?select=digest&delimiter=/&prefix=tables/&limit=1")
    assert (keys(inside), inside.get_json()["folders"]) == (["tables/b"], [])
    more = page(catalog, f"?select=digest&delimiter=/&prefix=tables/&after={quote('tables/b')}")
    assert (keys(more), more.get_json()["folders"]) == ([], ["tables/x/"])
    for wrong in ("key=top&contains=a", "delimiter=/", "select=digest&key=top&contains=a"):
        problem(page(catalog, f"?{wrong}"), 400, "invalid_parameter")
    both = problem(page(catalog, "?select=digest&contains=a&delimiter=/"), 400, "invalid_parameter")
    assert both["parameter"] == "delimiter"


def test_keys_can_be_listed_alone(catalog: Catalog) -> None:
    for key in ("tables/b", "tables/x/c", "top"):
        catalog.put(1, key)
    listed = page(catalog, "?select=key").get_json()["documents"]
    assert [each["key"] for each in listed] == ["tables/b", "tables/x/c", "top"]
    assert all(each.keys() == {"key", "etag", "revision"} for each in listed)
    assert page(catalog, "?select=key&delimiter=/").get_json()["folders"] == ["tables/"]
    assert keys(page(catalog, "?select=key&contains=T&limit=10000")) == [
        "tables/b", "tables/x/c", "top",
    ]  # fmt: skip
    assert page(catalog, "?select=key&key=top&key=none").get_json()["documents"] == [
        {"key": "top", "etag": listed[2]["etag"], "revision": 3},
        {"key": "none", "etag": None},
    ]
    problem(page(catalog, "?select=key&manager=nightly"), 400, "invalid_parameter")
    problem(page(catalog, "?select=keys"), 400, "invalid_parameter")


def test_documents_are_found_by_a_part_of_their_keys(catalog: Catalog) -> None:
    for number, key in enumerate(("Tables/a", "tables/b", "tables/x/c", "top")):
        catalog.put({"n": number}, key)
    found = page(catalog, "?contains=ABLES/").get_json()
    assert [each["value"] for each in found["documents"]] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert found["next"] is None
    first = page(catalog, "?contains=ables/&limit=1").get_json()
    assert ([each["key"] for each in first["documents"]], first["next"]) == (
        ["Tables/a"],
        {"after": "Tables/a", "revision": 4},
    )
    catalog.put({"n": 9}, "Tables/a")
    then = page(catalog, "?contains=ables/&revision=4&prefix=T").get_json()
    assert [each["value"] for each in then["documents"]] == [{"n": 0}]


def test_large_documents_that_are_found_by_a_part_of_their_keys_fill_several_pages(
    catalog: Catalog,
) -> None:
    for number in range(9):
        catalog.put("x" * 3_000_000, f"large/{number}")
    found, query, pages = [], "?contains=ARGE", 0
    while True:
        told = page(catalog, query).get_json()
        found += [each["key"] for each in told["documents"]]
        pages += 1
        if told["next"] is None:
            break
        query = f"?contains=ARGE&after={quote(told['next']['after'])}"
    assert found == [f"large/{number}" for number in range(9)]
    assert pages > 1


def test_digests_are_those_of_the_requested_revision(catalog: Catalog) -> None:
    states: list[dict[str, Any]] = [{}]
    for number in range(4):
        for key in ("a", "b"):
            catalog.put({"number": number}, key)
            states.append({**states[-1], key: {"number": number}})
    catalog.delete("a")
    states.append({"b": {"number": 3}})
    for revision, state in enumerate(states[1:], 1):
        expected = {key: digest(value) for key, value in state.items()}
        assert digests(catalog, f"&revision={revision}") == expected
        assert digests(catalog, f"&revision={revision}&limit=1&after=a") == {
            key: value for key, value in expected.items() if key > "a"
        }
    told = catalog.client.get(f"{catalog.path}/commits").get_json()["commits"]
    assert digests(catalog, f"&at={quote(told[2]['time'])}") == digests(catalog, "&revision=3")


def test_select_is_validated_and_a_page_of_digests_may_be_longer(catalog: Catalog) -> None:
    problem(page(catalog, "?select=digest"), 404, "catalog_not_found")
    catalog.put(1)
    problem(page(catalog, "?select=value"), 400, "invalid_parameter")
    problem(page(catalog, "?select=digest&limit=10001"), 400, "invalid_parameter")
    problem(page(catalog, "?limit=10000"), 400, "invalid_parameter")
    problem(page(catalog, "?select=digest&revision=2"), 404, "revision_not_found")
    assert page(catalog, "?select=digest&limit=10000").status_code == 200


def test_an_export_may_have_empty_pages() -> None:
    pages = iter([[], [b',\n"a":1'], [], [b',\n"b":2'], []])
    assert json.loads(b"".join(_export_lines(7, pages))) == {
        "resource_version": 7,
        "metadata": {"a": 1, "b": 2},
    }
