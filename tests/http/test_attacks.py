"""What a hostile or careless client sends is answered, and costs others little."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from gateway.decide import compares, draft
from gateway.decide.edits import Put
from gateway.http import create_app
from gateway.http.wire import conditions
from gateway.http.wire.codes import RequestRefused
from gateway.limits import ServiceLimits
from gateway.model import PinRecord
from gateway.read import listing
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.http.conftest import Catalog, problem
from tests.memory_store import MemoryStore


def transact(catalog: Catalog, **body: Any) -> TestResponse:
    return catalog.client.post(f"{catalog.path}/transactions", json=body)


@pytest.mark.parametrize("operation", [[], {}, None, 1])
@pytest.mark.parametrize("action", ["patch", "attributes"])
def test_an_operation_whose_name_is_not_a_string_is_refused(
    catalog: Catalog, action: str, operation: Any
) -> None:
    catalog.put({})
    step = {"action": action, "key": "k", "patch": [{"op": operation, "path": "/a"}]}
    refused = problem(transact(catalog, then=[step]), 400, "invalid_patch")
    assert refused["pointer"] == "/then/0/patch/0/op"


def test_the_items_that_the_patches_of_a_transaction_compare_are_bounded_together(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft, "_PATCHED_BYTES_MAX", 1_000_000)
    catalog.put([0] * 2000)
    step = {"action": "patch", "key": "k", "patch": [{"op": "pull", "path": "", "value": 9}] * 15}
    assert transact(catalog, then=[step]).status_code == 200
    refused = problem(transact(catalog, then=[step] * 8), 413, "over_limit")
    assert (refused["limit"], refused["action"]) == ("patched_bytes_max", 2)
    catalog.client.put(f"{catalog.path}/attributes/k", json={"a": [0] * 2000})
    step = {
        **step,
        "action": "attributes",
        "patch": [{"op": "pull", "path": "/a", "value": 9}] * 15,
    }
    refused = problem(transact(catalog, then=[step] * 8), 413, "over_limit")
    assert (refused["limit"], refused["action"]) == ("patched_bytes_max", 2)


def test_each_move_within_a_large_array_counts_as_work(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft, "_PATCHED_BYTES_MAX", 300_000)
    catalog.put([0] * 40_000)
    moves = [{"op": "move", "from": "/0", "path": "/39999"}] * 100
    refused = problem(
        transact(catalog, then=[{"action": "patch", "key": "k", "patch": moves}] * 3),
        413,
        "over_limit",
    )
    assert (refused["limit"], refused["action"]) == ("patched_bytes_max", 1)
    replaced = [{"op": "replace", "path": "/0", "value": 1}] * 100
    steps = [{"action": "patch", "key": "k", "patch": replaced}] * 3
    assert transact(catalog, then=steps).status_code == 200


def test_the_items_that_the_tests_of_a_transaction_compare_are_bounded_even_if_the_tests_fail(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compares, "_TESTED_BYTES_MAX", 50_000)
    catalog.put(0)
    among = {"key": "k", "test": [{"op": "in", "path": "", "value": list(range(1, 1001))}]}
    problem(transact(catalog, compare=[among] * 2), 412, "precondition_failed")
    refused = problem(transact(catalog, compare=[among] * 4), 413, "over_limit")
    assert refused["limit"] == "tested_bytes_max"


def test_the_number_of_tokens_in_a_condition_is_bounded(catalog: Catalog) -> None:
    composite = ";".join(f"{number}=absent" for number in range(4097))
    for condition in (composite, [f"{number}-a" for number in range(4097)]):
        line = {"catalog": catalog.name, "key": "k", "op": "put", "value": 1, "if_match": condition}
        answer = catalog.client.post(
            "/v1/bulk", data=json.dumps(line), content_type="application/x-ndjson"
        )
        refused = json.loads(answer.data)["problem"]
        assert (refused["code"], refused["pointer"]) == ("over_limit", "/if_match")
        upload = {"key": "k", "if_match": condition}
        answer = catalog.client.post(f"{catalog.path}/uploads", json=upload)
        assert problem(answer, 413, "over_limit")["actual"] == 4097


def test_spaces_in_a_list_of_tags_are_passed_once() -> None:
    """Otherwise, this takes an hour; and the 32 KiB that a header may have, half a minute, in which
    the worker does nothing else."""
    for after in ('"', "x", "W/", '"b" x'):
        with pytest.raises(RequestRefused):
            conditions.read_conditions({"HTTP_IF_MATCH": f'"a",{" " * 2_000_000}{after}'})


def test_spaces_in_accept_are_passed_once(catalog: Catalog) -> None:
    catalog.put(1)
    accept = f"text/event-stream;q=0,x{' ' * 2_000_000}y,application/json"
    got = catalog.client.get(f"{catalog.path}/changes?after=0", headers={"Accept": accept})
    assert got.content_type == "application/json"


def test_long_conditions_are_not_cached(catalog: Catalog) -> None:
    held = conditions._parsed_tags.cache_info().currsize
    answer = catalog.client.post(
        f"{catalog.path}/uploads", json={"key": "k", "if_match": "x" * 2000}
    )
    problem(answer, 412, "precondition_failed")
    assert conditions._parsed_tags.cache_info().currsize == held


class _CompactedMeanwhile(MemoryStore):
    """Whoever pins a revision finds that it was compacted between; the first time alone."""

    def __init__(self) -> None:
        super().__init__()
        self.gateway: GatewayService | None = None

    def set_pin(self, catalog: str, pin: PinRecord, held: PinRecord | None = None) -> bool:
        gateway, self.gateway = self.gateway, None
        if gateway is not None:
            gateway.write(catalog, "k0000", Put("newer", 7))
            gateway.retention.compact(catalog, 601)
        return super().set_pin(catalog, pin, held)


@pytest.fixture
def overtaken() -> tuple[_CompactedMeanwhile, FlaskClient]:
    store = _CompactedMeanwhile()
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits())
    for number in range(600):
        gateway.write("big", f"k{number:04}", Put(number, 3))
    store.gateway = gateway
    return store, create_app(gateway).test_client()


def test_an_export_overtaken_by_compaction_is_of_a_newer_head(
    overtaken: tuple[_CompactedMeanwhile, FlaskClient],
) -> None:
    exported = json.loads(overtaken[1].get("/v1/catalogs/big/export").data)
    assert (exported["resource_version"], exported["metadata"]["k0000"]) == (601, "newer")
    assert len(exported["metadata"]) == 600


def test_an_export_of_a_compacted_revision_is_refused_before_it_begins(
    overtaken: tuple[_CompactedMeanwhile, FlaskClient],
) -> None:
    refused = overtaken[1].get("/v1/catalogs/big/export?revision=600")
    assert problem(refused, 410, "revision_compacted")["oldest_revision"] == 601


@pytest.mark.parametrize(
    ("method", "header", "status"),
    [
        ("HEAD", {}, 200),
        ("GET", {"If-None-Match": "*"}, 304),
        ("GET", {"If-Match": '"@1"'}, 412),
        ("GET", {"If-Match": '"'}, 400),
        ("GET", {}, 200),
    ],
)
def test_an_export_pins_its_revision_only_while_it_is_sent(
    overtaken: tuple[_CompactedMeanwhile, FlaskClient],
    method: str,
    header: dict[str, str],
    status: int,
) -> None:
    store, client = overtaken
    answer = client.open("/v1/catalogs/big/export", method=method, headers=header)
    assert (answer.status_code, b"k0599" in answer.data) == (
        status,
        method == "GET" and status == 200,
    )
    retention = store.retention("big")
    assert retention is not None
    assert retention.pins == ()


def test_a_schema_that_doubles_with_each_level_is_refused_with_its_place(catalog: Catalog) -> None:
    again = {"properties": {"a": {"$ref": "#"}}}
    settings = {"schemas": {"some/*": {"allOf": [again, again]}}}
    answer = catalog.client.put(catalog.path, json=settings)
    assert problem(answer, 422, "invalid_settings")["pointer"] == "/schemas/some~1*"


def test_a_document_that_takes_too_many_schema_steps_is_refused(catalog: Catalog) -> None:
    settings = {"schemas": {"k": {"items": {"allOf": [{"type": "integer"}] * 20_000}}}}
    assert catalog.client.put(catalog.path, json=settings).status_code == 201
    assert catalog.put([1] * 100).status_code == 201
    refused = problem(catalog.put([1] * 16_000), 413, "over_limit")
    assert refused["limit"] == "schema_steps_max"
    grown = catalog.patch({"op": "replace", "path": "", "value": [1] * 16_000})
    assert problem(grown, 413, "over_limit")["limit"] == "schema_steps_max"


def test_reading_several_large_documents_is_bounded(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_SMALL_BYTES", 1_000)
    monkeypatch.setattr(listing, "SEVERAL_BYTES_MAX", 5_000)
    for number in range(8):
        catalog.client.put(f"{catalog.path}/documents/{number}", json="x" * 1_000)
    keys = [f"key={number}" for number in range(8)]
    answer = catalog.client.get(f"{catalog.path}/documents?{'&'.join(keys[:4])}&key=none")
    values = [each.get("value") for each in answer.get_json()["documents"]]
    assert values == ["x" * 1_000] * 4 + [None]
    refused = problem(
        catalog.client.get(f"{catalog.path}/documents?{'&'.join(keys)}"), 413, "over_limit"
    )
    assert refused["limit"] == "several_bytes_max"
    # As they were, they may have been larger than they are.
    for number in range(8):
        catalog.client.put(f"{catalog.path}/documents/{number}", json="")
    refused = problem(
        catalog.client.get(f"{catalog.path}/documents?{'&'.join(keys)}&revision=8"),
        413,
        "over_limit",
    )
    assert refused["limit"] == "several_bytes_max"
