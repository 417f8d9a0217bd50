"""What two revisions have otherwise: whole documents and patches, held to plain reads of both."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import patching
from tests.http.conftest import Catalog, problem

State = dict[str, tuple[Any, dict[str, Any]]]


def differences(catalog: Catalog, query: str) -> Any:
    answer = catalog.client.get(f"{catalog.path}/differences?{query}")
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()


def every(catalog: Catalog, query: str) -> list[dict[str, Any]]:
    """Of all pages."""
    found: list[dict[str, Any]] = []
    more = ""
    while True:
        page = differences(catalog, query + more)
        found += page["differences"]
        if page["next"] is None:
            return found
        assert page["next"]["to"] == page["to"]
        more = f"&after={page['next']['after']}"


def attributes(catalog: Catalog, key: str, value: dict[str, Any]) -> None:
    answer = catalog.client.put(f"{catalog.path}/attributes/{key}", json=value)
    assert answer.status_code == 200


def transact(catalog: Catalog, *then: dict[str, Any]) -> int:
    answer = catalog.client.post(f"{catalog.path}/transactions", json={"then": then})
    assert answer.status_code == 200, answer.get_json()
    return int(answer.get_json()["revision"])


def test_each_difference_is_a_whole_document_or_a_patch(catalog: Catalog) -> None:
    catalog.put({"n": 1, "s": "x"}, key="a")
    catalog.put([1], key="gone")
    attributes(catalog, "gone", {"team": "x"})
    catalog.put(0, key="same")
    catalog.put({"n": 2, "s": "x"}, key="a")
    attributes(catalog, "a", {"team": "y"})
    catalog.delete(key="gone")
    catalog.put({"new": True}, key="made")
    page = differences(catalog, "from=4")
    assert (page["from"], page["to"], page["next"]) == (4, 8, None)
    changed, gone, made = page["differences"]
    token = catalog.get("a").headers["ETag"].strip('"')
    assert changed == {
        "key": "a",
        "change": "changed",
        "patch": [{"op": "replace", "path": "/n", "value": 2}],
        "attributes_patch": [{"op": "add", "path": "/team", "value": "y"}],
        "etag": token,
        "revision": 6,
    }
    assert gone == {
        "key": "gone",
        "change": "deleted",
        "value": [1],
        "attributes": {"team": "x"},
        "etag": None,
        "revision": None,
    }
    assert (made["change"], made["value"], made["revision"]) == ("created", {"new": True}, 8)
    backwards = differences(catalog, "from=8&to=4")["differences"]
    assert [(each["key"], each["change"]) for each in backwards] == [
        ("a", "changed"), ("gone", "created"), ("made", "deleted"),
    ]  # fmt: skip
    assert backwards[1]["attributes"] == {"team": "x"}


def test_a_document_that_is_equal_again_is_no_difference(catalog: Catalog) -> None:
    catalog.put(1, key="a")
    catalog.put(2, key="a")
    catalog.put(1, key="a")
    catalog.put(1, key="b")
    catalog.delete(key="b")
    assert differences(catalog, "from=1")["differences"] == []
    assert [each["key"] for each in differences(catalog, "from=2&to=4")["differences"]] == [
        "a", "b",
    ]  # fmt: skip


def test_the_settings_come_first_without_a_key(catalog: Catalog) -> None:
    catalog.put(1)
    catalog.client.put(catalog.path, json={"require_precondition": False})
    catalog.put(2)
    first, second = differences(catalog, "from=1&limit=1")["differences"]
    assert (first["key"], first["value"]) == (None, {"require_precondition": False})
    assert second["key"] == "k"
    under = differences(catalog, "from=1&prefix=k")["differences"]
    assert [each["key"] for each in under] == ["k"]


def test_pages_are_bounded_in_size_and_of_one_pair_of_revisions(catalog: Catalog) -> None:
    for number in range(7):
        catalog.put("x" * 1_500_000 if number == 2 else number, key=f"k{number}")
    catalog.put(["y" * 3_000_000], key="k3")
    first = differences(catalog, "from=0&limit=4")
    catalog.put("later", key="k5")
    assert [each["key"] for each in first["differences"]] == ["k0", "k1", "k2", "k3"]
    large = differences(catalog, "from=0&to=8")
    assert [each["key"] for each in large["differences"]] == ["k0", "k1", "k2", "k3"]
    told = every(catalog, "from=0&to=8&limit=4")
    assert [each["key"] for each in told] == [f"k{number}" for number in range(7)]
    assert told[5]["value"] == 5


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "invalid_parameter"),
        ("from=x", 400, "invalid_parameter"),
        ("from=1&to=-1", 400, "invalid_parameter"),
        ("from=1&limit=0", 400, "invalid_parameter"),
        ("from=1&key=k", 400, "invalid_parameter"),
        ("from=4", 404, "revision_not_found"),
        ("from=1&to=4", 404, "revision_not_found"),
    ],
)
def test_invalid_spans_are_refused(catalog: Catalog, query: str, status: int, code: str) -> None:
    for number in range(3):
        catalog.put(number)
    answer = catalog.client.get(f"{catalog.path}/differences?{query}")
    refused = problem(answer, status, code)
    if status == 404:
        assert refused["head_revision"] == 3


def test_differences_from_below_the_floor_are_gone(catalog: Catalog) -> None:
    for number in range(5):
        catalog.put(number)
    catalog.client.post(f"{catalog.path}/compactions", json={"revision": 3})
    for query in ("from=2", "from=5&to=2"):
        answer = catalog.client.get(f"{catalog.path}/differences?{query}")
        assert problem(answer, 410, "revision_compacted")["oldest_revision"] == 3
    assert differences(catalog, "from=3")["differences"][0]["patch"] == [
        {"op": "replace", "path": "", "value": 4}
    ]
    nowhere = Catalog(catalog.client, "never-written")
    answer = nowhere.client.get(f"{nowhere.path}/differences?from=0")
    problem(answer, 404, "catalog_not_found")


def random_write(rng: random.Random, catalog: Catalog) -> None:
    key = rng.choice("abc")
    value = {name: rng.randrange(3) for name in rng.sample("xyz", rng.randrange(4))}
    match rng.randrange(5):
        case 0:
            catalog.delete(key=key)
        case 1 if catalog.get(key).status_code == 200:
            attributes(catalog, key, value)
        case 2 if catalog.get(key).status_code == 200:
            catalog.merge({**value, "x": None}, key=key)
        case _:
            catalog.put(value, key=key)


def state_at(catalog: Catalog, revision: int) -> State:
    """By plain reads of single documents."""
    found: State = {}
    for key in "abc":
        read = catalog.get(key, query=f"?revision={revision}")
        if read.status_code == 200:
            beside = catalog.client.get(f"{catalog.path}/attributes/{key}?revision={revision}")
            found[key] = read.get_json(), beside.get_json()
    return found


def patched(state: State, told: list[dict[str, Any]]) -> State:
    """``state`` with the differences done to it."""
    after = dict(state)
    for each in told:
        key = each["key"]
        if each["change"] == "created":
            assert key not in after
            after[key] = each["value"], each["attributes"]
        elif each["change"] == "deleted":
            assert after.pop(key) == (each["value"], each["attributes"])
        else:
            content, beside = after[key]
            after[key] = (
                patching.apply(content, each["patch"]),
                patching.apply(beside, each["attributes_patch"]),  # type: ignore[assignment]
            )
    return after


@pytest.mark.parametrize("seed", range(6))
def test_applying_the_differences_to_one_state_gives_the_other(catalog: Catalog, seed: int) -> None:
    rng = random.Random(seed)
    while catalog.head_revision() < 25:
        random_write(rng, catalog)
    head = catalog.head_revision()
    states = {revision: state_at(catalog, revision) for revision in range(1, head + 1)}
    for _ in range(30):
        before, after = rng.randrange(1, head + 1), rng.randrange(1, head + 1)
        told = every(catalog, f"from={before}&to={after}&limit={rng.choice((1, 2, 100))}")
        assert patched(states[before], told) == states[after]
        named = {each["key"] for each in told}
        differing = {key for key in "abc" if states[before].get(key) != states[after].get(key)}
        assert named == differing, json.dumps(told)
