"""`Prefer: rebase`: reported whenever it was applied, refused with the overlap."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.decide import rebase
from tests.http.conftest import JSON_PATCH, Catalog, problem

REBASE = {"Prefer": "rebase"}


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


@pytest.fixture
def stale(catalog: Catalog) -> str:
    """The token of {"a": 1, "b": 1, "list": [1]}, whose ``a`` is 2 by now."""
    token = catalog.put({"a": 1, "b": 1, "list": [1]}).headers["ETag"]
    catalog.patch(replace("/a", 2))
    return str(token)


def test_a_rebase_is_applied_and_reported(catalog: Catalog, stale: str) -> None:
    answer = catalog.patch(replace("/b", 5), If_Match=stale, Prefer="rebase, return=minimal")
    assert answer.status_code == 204
    assert answer.headers["Preference-Applied"] == "return=minimal, rebase"
    assert catalog.get().get_json() == {"a": 2, "b": 5, "list": [1]}
    answer = catalog.merge({"list": None}, If_Match=stale, **REBASE)
    assert answer.get_json()["rebased_from"] == stale.strip('"')
    assert answer.headers["Preference-Applied"] == "rebase"
    commits = catalog.client.get(f"{catalog.path}/commits").get_json()["commits"]
    token = stale.strip('"')
    assert [each["rebased_from"] for each in commits] == [None, None, token, token]


def test_a_rebase_that_was_not_needed_is_not_reported(catalog: Catalog, stale: str) -> None:
    answers = [
        catalog.patch(replace("/b", 5), **REBASE),
        catalog.patch(replace("/b", 6), If_Match=catalog.get().headers["ETag"], **REBASE),
        catalog.patch(replace("/b", 7), If_Match="*", **REBASE),
    ]
    for answer in answers:
        assert answer.get_json()["rebased_from"] is None
        assert "Preference-Applied" not in answer.headers
    assert stale


def test_a_replay_reports_the_rebase_again(catalog: Catalog, stale: str) -> None:
    headers = {"If_Match": stale, "Idempotency_Key": "i", **REBASE}
    first = catalog.patch(replace("/b", 5), **headers)
    again = catalog.patch(replace("/b", 5), **headers)
    assert again.get_json() == first.get_json()
    assert again.headers["Preference-Applied"] == "rebase"


def test_a_rebased_patch_that_changes_nothing_reports_its_base(
    catalog: Catalog, stale: str
) -> None:
    answer = catalog.patch(replace("/b", 1), If_Match=stale, **REBASE)
    content = answer.get_json()
    assert (content["changed"], content["rebased_from"]) == (False, stale.strip('"'))


def test_a_dry_run_reports_the_rebase(catalog: Catalog, stale: str) -> None:
    answer = catalog.patch(replace("/b", 5), query="?dry_run=true", If_Match=stale, **REBASE)
    assert answer.get_json()["rebased_from"] == stale.strip('"')
    assert catalog.get().get_json()["b"] == 1


def test_long_pointers_are_shortened_in_the_refusal(catalog: Catalog) -> None:
    name = "x" * 50_000
    token = catalog.put({name: 1}).headers["ETag"]
    catalog.put({name: 2})
    answer = catalog.patch(replace(f"/{name}", 5), If_Match=token, **REBASE)
    problem(answer, 412, "precondition_failed")
    assert len(answer.data) < 5000


def test_the_number_of_tokens_to_rebase_from_is_bounded(catalog: Catalog, stale: str) -> None:
    tags = [stale, *(f'"{number:x}-00000000"' for number in range(1, 9))]
    allowed = catalog.patch(replace("/b", 5), If_Match=", ".join(tags[:8]), **REBASE)
    assert allowed.get_json()["rebased_from"] == stale.strip('"')
    for part in ("documents", "attributes"):
        answer = catalog.client.patch(
            f"{catalog.path}/{part}/k",
            json=[replace("/b", 5)],
            headers={"Content-Type": JSON_PATCH, "If-Match": ", ".join(tags), **REBASE},
        )
        refused = problem(answer, 400, "invalid_condition")
        assert (refused["header"], "9 tags" in refused["detail"]) == ("If-Match", True)
    line = {
        "catalog": catalog.name,
        "key": "k",
        "op": "patch",
        "patch": [replace("/b", 6)],
        "if_match": [tag.strip('"') for tag in tags],
        "rebase": True,
    }
    answer = catalog.client.post(
        "/v1/bulk", data=json.dumps(line), content_type="application/x-ndjson"
    )
    assert json.loads(answer.data)["problem"]["code"] == "invalid_condition"
    without = catalog.patch(replace("/b", 6), If_Match=", ".join(tags))
    problem(without, 412, "precondition_failed")


def test_a_change_too_large_to_compare_is_not_rebased(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebase, "EXAMINED_MAX", 10_000)
    for before, after, rebased in (
        ({"n": [0] * 4_000}, {"n": [1] * 4_000}, False),
        ({"n": {str(number): 0 for number in range(4_000)}}, {"n": {}, "b": 2}, True),
        ({"n": {str(number): 0 for number in range(6_000)}}, {"n": {}, "b": 2}, False),
        ({"n": {str(n): 0 for n in range(6_000)}}, {"n": {str(n): 1 for n in range(6_000)}}, False),
        ({"n": [[[0] * 30_000]]}, {"n": [[[0] * 29_999 + [1]]]}, False),
        ({"n": [[n] for n in range(250)]}, {"n": [[-n] for n in range(250)]}, False),
        ({"n": [[n] for n in range(900)]}, {"n": [[n] for n in range(899)]}, True),
    ):
        token = catalog.put(before).headers["ETag"]
        catalog.put(after)
        answer = catalog.patch({"op": "add", "path": "/a", "value": 1}, If_Match=token, **REBASE)
        if rebased:
            assert answer.status_code == 200, answer.get_json(force=True)
            assert answer.get_json()["rebased_from"] == token.strip('"')
        else:
            refused = problem(answer, 412, "precondition_failed")
            assert "too large" in refused["not_rebased"]
