"""A dry run of settings names the documents that their schemas would refuse, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import cpu
from tests.http.conftest import Catalog, problem

SCHEMAS = {
    "schemas": {"t/*": {"type": "object", "required": ["tier"]}, "t/x*": {"maxProperties": 1}}
}


def examine(catalog: Catalog, count: int, settings: Any = SCHEMAS) -> Any:
    path = f"{catalog.path}?dry_run=true&examine={count}"
    answer = catalog.client.put(path, json=settings)
    assert answer.status_code in (200, 201), answer.get_json()
    return answer.get_json()["examined"]


@pytest.fixture
def filled(catalog: Catalog) -> Catalog:
    """Of five documents under ``t/``, two lack a tier, and one has too much."""
    for number in range(3):
        catalog.put({"tier": number}, f"t/{number}")
    catalog.put({}, "t/1")
    catalog.put({"tier": 1, "more": 1}, "t/x")
    catalog.put([], "t/y")
    catalog.put({}, "a")
    return catalog


def test_documents_that_would_break_schemas_are_named_with_the_place(filled: Catalog) -> None:
    found = examine(filled, 100)
    assert (found["documents"], found["complete"]) == (5, True)
    assert [(each["key"], each["pointer"]) for each in found["broken"]] == [
        ("t/1", ""),
        ("t/x", ""),
        ("t/y", ""),
    ]
    assert "tier" in found["broken"][0]["message"]
    assert filled.client.get(filled.path).get_json()["settings"] is None, "nothing was set"


def test_only_documents_that_match_a_schema_are_examined(filled: Catalog) -> None:
    for patterns, count in {"t/x* t/y*": 2, "*y t/x": 2, "a t/1": 2, "z*": 0}.items():
        found = examine(filled, 100, {"schemas": dict.fromkeys(patterns.split(), False)})
        assert (found["documents"], len(found["broken"]), found["complete"]) == (count, count, True)


def test_at_most_the_requested_number_is_examined(filled: Catalog) -> None:
    found = examine(filled, 2)
    assert (found["documents"], found["complete"], len(found["broken"])) == (2, False, 1)
    assert examine(filled, 5)["complete"]
    assert examine(filled, 5, {}) == {"documents": 0, "complete": True, "broken": []}


def test_examination_stops_at_half_of_the_processor_time(
    filled: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert examine(filled, 5)["documents"] == 5
    monkeypatch.setattr(cpu, "is_half_used", lambda: True)
    assert examine(filled, 5) == {"documents": 0, "complete": False, "broken": []}


def test_only_a_dry_run_of_valid_settings_can_be_examined(filled: Catalog) -> None:
    path = f"{filled.path}?examine=10"
    told = problem(filled.client.put(path, json=SCHEMAS), 400, "invalid_parameter")
    assert told["parameter"] == "examine"
    path = f"{filled.path}?dry_run=true&examine=0"
    problem(filled.client.put(path, json=SCHEMAS), 400, "invalid_parameter")
    path = f"{filled.path}?dry_run=true&examine=10"
    problem(filled.client.put(path, json={"schemas": 1}), 422, "invalid_settings")


def test_an_absent_catalog_has_nothing_to_examine(catalog: Catalog) -> None:
    assert examine(catalog, 10) == {"documents": 0, "complete": True, "broken": []}
