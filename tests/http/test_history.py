"""Commits and outcomes: what was done, page by page, and whether a request was."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from gateway.read import history
from tests.http.conftest import Catalog, problem


def page(catalog: Catalog, query: str = "") -> Any:
    answer = catalog.client.get(f"{catalog.path}/commits{query}")
    assert answer.status_code == 200, answer.data
    return answer.get_json()


@pytest.fixture
def busy(catalog: Catalog) -> Catalog:
    catalog.put({"a": 1}, Commit_Message="first", Idempotency_Key="i-1")
    catalog.patch({"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"})
    catalog.put([], "other")
    catalog.merge({"b": 2})
    catalog.delete()
    return catalog


def test_a_commit_shows_author_time_and_changes(busy: Catalog) -> None:
    first, second, *_ = page(busy)["commits"]
    assert first.pop("time").endswith("Z")
    assert second["parent"] == first.pop("commit_id")
    assert len(second["parent"]) == 32
    assert first == {
        "revision": 1,
        "parent": None,
        "author": "anonymous",
        "message": "first",
        "idempotency_key": "i-1",
        "attempts": 1,
        "succeeded": True,
        "rebased_from": None,
        "deletes_catalog": False,
        "changes": [
            {
                "key": "k",
                "action": "put",
                "create_revision": 1,
                "patch": [{"op": "add", "path": "", "value": {"a": 1}}],
                "attributes": {},
            }
        ],
    }


def test_pages_have_no_gap_and_no_overlap(busy: Catalog) -> None:
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        content = page(busy, f"?after={after}&limit=2")
        assert len(content["commits"]) <= 2
        seen += [commit["revision"] for commit in content["commits"]]
        after = content["next"]
    assert seen == [1, 2, 3, 4, 5]


def test_a_page_can_be_of_one_key(busy: Catalog) -> None:
    content = page(busy, "?key=k&after=1&limit=2")
    assert [commit["revision"] for commit in content["commits"]] == [2, 4]
    assert content["next"] == 4
    assert page(busy, "?key=k&after=4")["next"] is None
    assert page(busy, "?key=never")["commits"] == []


def revisions(content: Any) -> list[int]:
    return [commit["revision"] for commit in content["commits"]]


def test_the_newest_commits_can_come_first(busy: Catalog) -> None:
    """Page by page down to the first; `next` is the `before` of the next page."""
    seen: list[int] = []
    asked = ""
    while True:
        content = page(busy, f"?newest_first=true&limit=2{asked}")
        seen += revisions(content)
        if content["next"] is None:
            break
        asked = f"&before={content['next']}"
    assert seen == [5, 4, 3, 2, 1]
    assert revisions(page(busy, "?newest_first=true&key=k&before=4&after=1")) == [2]
    assert revisions(page(busy, "?before=3")) == [1, 2]
    assert page(busy, "?newest_first=true&before=1") == {"commits": [], "next": None}
    for wrong in ("before=0", "newest_first=yes", "since=monday", "until=2026-11-21"):
        refused = busy.client.get(f"{busy.path}/commits?{wrong}")
        name = wrong.partition("=")[0]
        assert problem(refused, 400, "invalid_parameter")["parameter"] == name


def test_commits_can_be_selected_by_time(busy: Catalog) -> None:
    """Since and until a commit's own time are with it, a microsecond beyond without it."""
    times = [commit["time"] for commit in page(busy)["commits"]]
    assert revisions(page(busy, f"?since={times[1]}&until={times[3]}")) == [2, 3, 4]
    between = [(datetime.fromisoformat(times[1]) + timedelta(microseconds=1)).isoformat()]
    between.append((datetime.fromisoformat(times[3]) - timedelta(microseconds=1)).isoformat())
    first, last = map(quote, between)
    assert revisions(page(busy, f"?since={first}&until={last}")) == [3]
    assert revisions(page(busy, f"?since={first}&until={last}&newest_first=true&key=k")) == []
    assert revisions(page(busy, f"?until={times[2]}&after=1&newest_first=true")) == [3, 2]
    for never in ("since=2999-01-01T00:00:00Z", "until=2001-01-01T00:00:00Z"):
        for order in ("", "&newest_first=true"):
            assert page(busy, f"?{never}{order}") == {"commits": [], "next": None}


@pytest.mark.parametrize("looked_at", [1, 3, 100])
@pytest.mark.parametrize("order", ["", "&newest_first=true"])
def test_all_commits_of_an_author_are_found_through_empty_pages(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, looked_at: int, order: str
) -> None:
    """A page may be empty with a `next`; none is left out, none comes twice."""
    monkeypatch.setattr(history, "COUNTED_MAX", looked_at)
    authors = "aabbbbbaabbbbba"
    for number, author in enumerate(authors):
        catalog.put(number, "k" if number % 2 else "other", Commit_Author=author)
    expected = {
        "author=a": [n for n, author in enumerate(authors, 1) if author == "a"],
        "author=a&key=k": [2, 8],
        "author=nobody": [],
    }
    for asked, found in expected.items():
        seen: list[int] = []
        where: str | None = ""
        while where is not None:
            content = page(catalog, f"?{asked}&limit=2{order}{where}")
            assert len(content["commits"]) <= 2
            seen += revisions(content)
            on = content["next"]
            where = None if on is None else f"&{'before' if order else 'after'}={on}"
        assert seen == (found[::-1] if order else found)


def test_a_catalog_that_was_never_written_has_no_commits(catalog: Catalog) -> None:
    assert page(catalog) == {"commits": [], "next": None}


def test_a_single_commit(busy: Catalog) -> None:
    answer = busy.client.get(f"{busy.path}/commits/3")
    assert answer.get_json() == page(busy)["commits"][2]
    for revision in ("0", "6", str(2**63 - 1)):
        problem(busy.client.get(f"{busy.path}/commits/{revision}"), 404, "revision_not_found")
    for revision in ("", "x", "-1", "1.0", str(2**63), "%31%zz"):
        answer = busy.client.get(f"{busy.path}/commits/{revision}")
        assert answer.status_code in (400, 404)


@pytest.mark.parametrize(
    "query",
    ["?limit=0", "?limit=1001", "?limit=x", "?after=-1", "?after=1.5", "?page=2", "?key=%ff"],
)
def test_bad_parameters_are_400(busy: Catalog, query: str) -> None:
    problem(busy.client.get(f"{busy.path}/commits{query}"), 400, "invalid_parameter")
    problem(busy.client.get(f"{busy.path}/commits/1?x=1"), 400, "invalid_parameter")


@pytest.mark.parametrize("route", ["commits", "commits/1", "outcomes/i-1"])
@pytest.mark.parametrize(
    "header", ["If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"]
)
def test_conditions_are_refused_not_ignored(busy: Catalog, route: str, header: str) -> None:
    answer = busy.client.get(f"{busy.path}/{route}", headers={header: "*"})
    assert problem(answer, 400, "invalid_condition")["header"] == header


class TestOutcomes:
    def test_the_outcome_of_an_applied_request_is_its_commit(self, busy: Catalog) -> None:
        content = busy.client.get(f"{busy.path}/outcomes/i-1").get_json()
        assert content.pop("applied") is True
        assert content == page(busy)["commits"][0]

    def test_the_outcome_of_a_request_that_was_not_applied_is_404(self, busy: Catalog) -> None:
        content = problem(busy.client.get(f"{busy.path}/outcomes/i-2"), 404, "outcome_not_found")
        assert content["applied"] == "no"

    @pytest.mark.parametrize("encoded", ["a%2Fb%25", "a/b%25"])
    def test_an_outcome_can_be_read_for_any_key(self, catalog: Catalog, encoded: str) -> None:
        catalog.put(1, Idempotency_Key="a/b%")
        answer = catalog.client.get(f"{catalog.path}/outcomes/{encoded}")
        assert answer.get_json()["idempotency_key"] == "a/b%"

    @pytest.mark.parametrize("encoded", ["", "a%20b", "%C3%A9", "%ff", "x" * 256])
    def test_an_invalid_key_is_400(self, catalog: Catalog, encoded: str) -> None:
        problem(catalog.client.get(f"{catalog.path}/outcomes/{encoded}"), 400, "invalid_name")
