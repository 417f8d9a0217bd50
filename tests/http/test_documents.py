"""Reading and writing documents: status, headers and body of each answer."""

from __future__ import annotations

import time

import pytest

from tests.http.conftest import Catalog, problem

REMOVE_ALL = {"op": "remove", "path": ""}


def test_a_write_is_answered_with_its_outcome(catalog: Catalog) -> None:
    answer = catalog.put({"a": 1})
    assert (answer.status_code, answer.content_type) == (201, "application/json")
    assert answer.get_json() == {
        "catalog": catalog.name,
        "key": "k",
        "etag": answer.headers["ETag"].strip('"'),
        "revision": 1,
        "create_revision": 1,
        "changed": True,
        "attempts": 1,
        "rebased_from": None,
    }
    assert len(answer.headers["Commit-Id"]) == 32


@pytest.mark.parametrize("value", [None, True, 0, -(2**63), 1.5, "", "é😀", [], {}, {"$a.b": 1}])
def test_a_document_may_be_any_json_value(catalog: Catalog, value: object) -> None:
    assert catalog.put(value).status_code == 201
    answer = catalog.get()
    assert (answer.status_code, answer.get_json()) == (200, value)


def test_get_returns_the_document_itself(catalog: Catalog) -> None:
    written = catalog.put({"a": 1})
    answer = catalog.get()
    assert answer.data == b'{"a":1}\n'
    assert answer.headers["ETag"] == written.headers["ETag"]
    assert answer.headers["Last-Modified"] == written.headers["Last-Modified"]
    assert answer.headers["Catalog-Revision"] == "1"
    assert answer.headers["Cache-Control"] == "no-cache"


def test_catalog_revision_of_a_read_counts_changes_of_other_documents(catalog: Catalog) -> None:
    token = catalog.put(1, "k").headers["ETag"]
    catalog.put(1, "other")
    answer = catalog.get("k")
    assert (answer.headers["Catalog-Revision"], answer.headers["ETag"]) == ("2", token)


def test_head_is_get_without_a_body(catalog: Catalog) -> None:
    catalog.put({"a": 1})
    whole, head = catalog.get(), catalog.head()
    assert head.data == b""
    for answer in (whole, head):
        answer.headers.remove("X-Request-Id")
    assert list(head.headers) == list(whole.headers)
    assert catalog.head("absent").status_code == 404
    assert catalog.head("absent").data == b""


def test_patch_that_removes_the_root_deletes(catalog: Catalog) -> None:
    catalog.put(1)
    answer = catalog.patch(REMOVE_ALL)
    assert answer.status_code == 200
    assert "ETag" not in answer.headers
    content = answer.get_json()
    assert (content["etag"], content["revision"], content["changed"]) == (None, None, True)
    assert catalog.get().status_code == 404


def test_merge_patch_merges(catalog: Catalog) -> None:
    catalog.put({"a": 1, "b": {"c": 1, "d": 2}})
    assert catalog.merge({"a": None, "b": {"c": 5}}).status_code == 200
    assert catalog.get().get_json() == {"b": {"c": 5, "d": 2}}


def test_a_deleted_document_is_404(catalog: Catalog) -> None:
    catalog.put(1)
    answer = catalog.delete()
    assert (answer.status_code, answer.data, "Content-Type" in answer.headers) == (204, b"", False)
    problem(catalog.get(), 404, "document_not_found")


class TestTimeTravel:
    def test_a_read_of_the_past_may_be_conditional(self, catalog: Catalog) -> None:
        token = catalog.put({"a": 1}).headers["ETag"]
        catalog.put({"a": 2})
        query = "?revision=1"
        assert catalog.get(query=query, If_None_Match=token).status_code == 304
        problem(catalog.get(query=query, If_Match='"other"'), 412, "precondition_failed")

    @pytest.mark.parametrize(
        "query",
        [
            "?revision=",
            "?revision=-1",
            "?revision=1.0",
            "?revision=0x1",
            "?revision=%C2%B2",
            f"?revision={2**63}",
            "?revision=1&revision=1",
            "?revision=1&at=2026-01-01T00:00:00Z",
            "?at=now",
            "?at=2026-01-01",
            "?at=2026-13-01T00:00:00Z",
            "?at=2026-01-01T00:00:00",
            "?at=2026-01-01T00:00:00%2B25:00",
            "?version=1",
            "?revision=%zz",
            "?revision=%ff",
            "?dry_run=true",
        ],
    )
    def test_an_invalid_revision_or_time_is_400(self, catalog: Catalog, query: str) -> None:
        catalog.put(1)
        problem(catalog.get(query=query), 400, "invalid_parameter")


def test_last_modified_never_is_later_than_now(catalog: Catalog) -> None:
    stamp = catalog.put(1).headers["Last-Modified"]
    assert time.mktime(time.strptime(stamp, "%a, %d %b %Y %H:%M:%S GMT")) <= time.mktime(
        time.gmtime()
    )


def test_options_list_the_methods_and_patch_types(catalog: Catalog) -> None:
    answer = catalog.client.options(catalog.document("k"))
    assert answer.status_code == 204
    assert answer.headers["Allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"
    assert answer.headers["Accept-Patch"] == (
        "application/json-patch+json, application/merge-patch+json,"
        " application/vnd.metadata.patch+json, application/vnd.metadata.apply+json"
    )
