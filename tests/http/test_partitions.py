"""Where to cut the keys, as readers ask for it who share a catalog at one revision."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Catalog, problem


def planned(catalog: Catalog, query: str) -> dict[str, Any]:
    answer = catalog.client.get(f"{catalog.path}/partitions?{query}")
    assert answer.status_code == 200, answer.get_json()
    content: dict[str, Any] = answer.get_json()
    assert content.pop("catalog") == catalog.name
    assert answer.headers["Catalog-Revision"] == str(content["revision"])
    return content


def test_the_ranges_together_cover_every_document_once(catalog: Catalog) -> None:
    keys = ["a", "a/b", "a b", "b%2F", "é", "漢字", "🎉", "\uffff", "z" * 200]
    for key in keys:
        catalog.put(1, key=key)
    plan = planned(catalog, "count=4")
    catalog.put(1, key="later")
    read: list[list[str]] = []
    for after, until in zip(["", *plan["bounds"]], [*plan["bounds"], None], strict=True):
        query = {"after": after, "revision": plan["revision"]}
        page = catalog.client.get(f"{catalog.path}/documents", query_string=query).get_json()
        found = [each["key"] for each in page["documents"]]
        read.append([key for key in found if until is None or key <= until])
    assert [key for piece in read for key in piece] == sorted(keys)
    assert sorted(map(len, read)) == [2, 2, 2, 3]


def test_keys_can_be_partitioned_at_a_revision(catalog: Catalog) -> None:
    for number in range(10):
        catalog.put(1, key=f"{'ab'[number % 2]}/{number}")
    assert planned(catalog, "") == {"revision": 10, "bounds": []}
    assert planned(catalog, "count=1&revision=3") == {"revision": 3, "bounds": []}
    assert planned(catalog, "count=2&prefix=a/") == {"revision": 10, "bounds": ["a/2"]}
    assert planned(catalog, "count=2&after=a/4&until=b/5")["bounds"] == ["a/8"]
    assert planned(catalog, "count=9&after=a/4&until=a/6&revision=9")["bounds"] == []
    assert planned(catalog, "count=9&after=b&until=a")["bounds"] == []
    time = catalog.client.get(f"{catalog.path}/commits?after=6&limit=1").get_json()["commits"]
    assert planned(catalog, f"count=2&at={time[0]['time']}")["revision"] == 7


@pytest.mark.parametrize("query", ["count=0", "count=1001", "count=x", "limit=3", "at=2"])
def test_invalid_parameters_are_refused(catalog: Catalog, query: str) -> None:
    catalog.put(1)
    problem(catalog.client.get(f"{catalog.path}/partitions?{query}"), 400, "invalid_parameter")


def test_an_unreadable_revision_cannot_be_partitioned(catalog: Catalog) -> None:
    problem(catalog.client.get(f"{catalog.path}/partitions"), 404, "catalog_not_found")
    catalog.put(1)
    path = f"{catalog.path}/partitions?count=3&revision=2"
    problem(catalog.client.get(path), 404, "revision_not_found")
    answer = catalog.client.get(f"{catalog.path}/partitions", headers={"If-Match": '"1"'})
    assert answer.status_code == 400
