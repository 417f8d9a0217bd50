"""What each line of a bulk request asks for and is answered."""

from __future__ import annotations

import io
import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flask.testing import FlaskClient
from werkzeug.exceptions import ClientDisconnected
from werkzeug.test import TestResponse

from gateway.commit.series import Series
from gateway.decide.request import Request
from gateway.http import create_app
from gateway.http.routes import bulk as bulk_route
from gateway.limits import RequestLimits, ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from tests.forced_outcomes import force_outcomes
from tests.http.conftest import JSON_PATCH, Catalog, problem
from tests.memory_store import MemoryStore
from tests.patience import WAIT_S
from tests.without_http import WatchedStore, once

NDJSON = "application/x-ndjson"


def send(client: FlaskClient, body: bytes, query: str = "", **headers: str) -> TestResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(f"/v1/bulk{query}", data=body, content_type=NDJSON, headers=named)


def answers(answer: TestResponse) -> list[dict[str, Any]]:
    assert (answer.status_code, answer.content_type) == (200, NDJSON), answer.data
    lines = [json.loads(line) for line in answer.data.splitlines()]
    assert [line["index"] for line in lines] == list(range(len(lines)))
    for line in lines:
        if "problem" in line:
            assert line["problem"]["status"] == line["status"]
            assert line["problem"]["request_id"] == answer.headers["X-Request-Id"]
    return lines


Bulk = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def bulk(client: FlaskClient, catalog: Catalog) -> Bulk:
    """Lines for key k of one catalog, unless they say otherwise; the answers to them."""

    def run(*lines: dict[str, Any], query: str = "", **headers: str) -> list[dict[str, Any]]:
        whole = [{"catalog": catalog.name, "key": "k", **line} for line in lines]
        body = b"".join(json.dumps(line).encode() + b"\n" for line in whole)
        return answers(send(client, body, query, **headers))

    return run


def put(value: Any, **members: Any) -> dict[str, Any]:
    return {"op": "put", "value": value, **members}


def test_lines_are_independent_writes_answered_in_order(bulk: Bulk, catalog: Catalog) -> None:
    other = f"other-{uuid.uuid4().hex}"
    lines = bulk(
        put({"a": 1}),
        put({"b": 1}, catalog=other),
        {"op": "patch", "patch": [{"op": "add", "path": "/a", "value": 2}]},
        {"op": "patch", "patch": [{"op": "test", "path": "/a", "value": 3}]},
        {"op": "merge", "value": {"c": None, "d": 4}},
        {"op": "delete", "catalog": other},
        {"op": "touch", "catalog": other},
    )
    assert [line["status"] for line in lines] == [201, 201, 200, 409, 200, 200, 200]
    assert [line.get("catalog_revision") for line in lines] == [1, 1, 2, None, 3, 2, 3]
    assert lines[3]["problem"]["code"] == "test_failed"
    read = catalog.get()
    assert read.json == {"a": 2, "d": 4}
    assert lines[4] == {
        "index": 4,
        "status": 200,
        "etag": read.headers["ETag"].strip('"'),
        "revision": 3,
        "create_revision": 1,
        "catalog_revision": 3,
        "commit_id": lines[4]["commit_id"],
        "changed": True,
        "attempts": 1,
    }
    assert [lines[place]["etag"] for place in (5, 6)] == [None, None]


def test_a_line_with_a_composite_needs_all_documents_unchanged(
    bulk: Bulk, catalog: Catalog
) -> None:
    token = catalog.put(1, key="other").json["etag"]
    stale = bulk(put(1, if_match=f"other={token};k=absent"), put(2, if_match="other=0-x"))
    assert [line["status"] for line in stale] == [201, 412]


def test_idempotency_keys_hold_for_each_line_and_across_routes(
    bulk: Bulk, catalog: Catalog
) -> None:
    line = put({"a": 1}, idempotency_key="one")
    first, again, other = bulk(line, line, put({"a": 2}, idempotency_key="one"))
    assert (again["etag"], again["replayed"]) == (first["etag"], True)
    assert (other["status"], other["problem"]["code"]) == (422, "idempotency_key_reused")
    single = catalog.put({"a": 1}, Idempotency_Key="one")
    assert single.headers["Idempotency-Replayed"] == "true"
    operation = {"op": "add", "path": "/b", "value": 1.0}
    written_otherwise = b'[{"path":"/b","op":"add","value":1.0}]'
    catalog.send("PATCH", written_otherwise, JSON_PATCH, Idempotency_Key="two")
    assert bulk({"op": "patch", "patch": [operation], "idempotency_key": "two"})[0]["replayed"]
    assert bulk(put({"a": 1}))[0]["changed"] is True


def test_a_put_carries_attributes(bulk: Bulk, catalog: Catalog) -> None:
    def attributes() -> Any:
        return catalog.client.get(f"{catalog.path}/attributes/k").get_json()

    def replace(value: Any) -> dict[str, Any]:
        return {"attributes": {"mode": "replace", "value": value}}

    (made,) = bulk(put(1, **replace({"team": "a"})))
    assert (made["status"], made["catalog_revision"], attributes()) == (201, 1, {"team": "a"})
    assert bulk(put(1, **replace({"team": "a"})))[0]["changed"] is False
    for line, left in (
        (put(2), {"team": "a"}),
        (put(3, attributes={"mode": "keep"}), {"team": "a"}),
        (put(3, **replace({"team": "b"})), {"team": "b"}),
        (put(3, attributes={"mode": "clear"}), {}),
    ):
        assert bulk(line)[0]["changed"] is True or line.get("attributes") == {"mode": "keep"}
        assert attributes() == left


def test_invalid_attributes_refuse_their_line(bulk: Bulk) -> None:
    lines = bulk(
        put(1, attributes={"mode": "replace", "value": {"acl": 1}}),
        put(1, attributes={"mode": "replace", "value": {"a": "x" * 70_000}}),
        put(1),
    )
    assert [line.get("problem", {}).get("code") for line in lines] == [
        "invalid_attributes",
        "over_limit",
        None,
    ]


def test_an_idempotency_key_covers_attributes(bulk: Bulk) -> None:
    def line(**attributes: Any) -> dict[str, Any]:
        return put(1, idempotency_key="with", attributes=attributes)

    first, again, other, without = bulk(
        line(mode="replace", value={"a": 1}),
        line(mode="replace", value={"a": 1}),
        line(mode="replace", value={"a": 2}),
        put(1, idempotency_key="with"),
    )
    assert (again["etag"], again["replayed"]) == (first["etag"], True)
    assert [other["status"], without["status"]] == [422, 422]


def test_a_put_that_keeps_attributes_equals_the_one_of_the_documents_route(
    bulk: Bulk, catalog: Catalog
) -> None:
    catalog.put(1, Idempotency_Key="kept")
    assert bulk(put(1, idempotency_key="kept", attributes={"mode": "keep"}))[0]["replayed"]


def test_an_extended_patch_is_understood(bulk: Bulk, catalog: Catalog) -> None:
    catalog.put({"fields": [{"path": "a", "n": 1}]})
    lines = bulk(
        {
            "op": "patch",
            "patch": [{"op": "replace", "path": "/fields/a/n", "value": 2}],
            "array_primary_keys": {"/fields": ["path"]},
        },
        {"op": "patch", "patch": [{"op": "add_to_set", "path": "/fields", "value": 7}]},
        {"op": "patch", "patch": [{"op": "remove", "path": "/x", "if_exists": True}]},
    )
    assert [line["status"] for line in lines] == [200, 200, 200]
    assert catalog.get().json == {"fields": [{"path": "a", "n": 2}, 7]}


def test_a_line_can_ask_for_a_rebase(bulk: Bulk, catalog: Catalog) -> None:
    token = catalog.put({"a": 1, "b": 1}).json["etag"]
    catalog.patch({"op": "replace", "path": "/a", "value": 2})
    patch = [{"op": "replace", "path": "/b", "value": 2}]
    line = {"op": "patch", "patch": patch, "if_match": token}
    refused, rebased = bulk(line, {**line, "rebase": True})
    assert refused["status"] == 412
    assert (rebased["status"], rebased["rebased_from"]) == (200, token)


def test_a_line_or_the_whole_request_can_ask_for_a_dry_run(bulk: Bulk, catalog: Catalog) -> None:
    tried, written = bulk(put(1, dry_run=True), put(2))
    assert ("dry_run" in tried, "dry_run" in written) == (True, False)
    assert bulk(put(3), query="?dry_run=true")[0]["dry_run"] is True
    assert catalog.get().json == 2


def test_wait_limits_the_time_of_each_line(bulk: Bulk) -> None:
    lines = bulk(put(1), put(2), Prefer="wait=0")
    assert [line["problem"]["code"] for line in lines] == ["deadline_exceeded"] * 2
    assert [line["problem"]["retryable"] for line in lines] == [True, True]


def test_later_lines_of_a_document_are_held_back_after_a_retryable_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in later windows, whether they were read before it was refused, or after."""
    monkeypatch.setattr(bulk_route, "_WINDOW_LINES_MAX", 2)
    failing = {"a": "away", "b": "unknown"}
    force_outcomes(monkeypatch, lambda request: failing.pop(request.key, "done"))
    client = create_app(GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits()))
    lines = [{"catalog": "c", "key": key, **put(n)} for n, key in enumerate("abcabdacb")]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    told = [
        each.get("problem", {}).get("code") for each in answers(send(client.test_client(), text))
    ]
    held = "held_back"
    assert told == [
        "store_unavailable",
        "outcome_unknown",
        None,
        held,
        held,
        None,
        held,
        None,
        held,
    ]


def test_the_next_window_waits_in_the_queue_while_one_is_moved(
    monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    """Read, parsed and in its place, and no third one."""
    monkeypatch.setattr(bulk_route, "_WINDOW_LINES_MAX", 2)
    store, go = WatchedStore(cast(Store, MemoryStore())), threading.Event()
    store.before["move_heads"] = once(lambda: go.wait(WAIT_S))
    gateway = GatewayService(cast(Store, store), ThreadRuntime(), ServiceLimits())
    client = create_app(gateway).test_client()
    lines = [{"catalog": "c", "key": f"k{n % 3}", **put(n)} for n in range(9)]
    lines[3]["op"] = "never heard of"
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    sent: list[TestResponse] = []
    sending = threading.Thread(target=lambda: sent.append(send(client, text)))
    sending.start()
    eventually(lambda: gateway.readings().queue_requests == 3)
    sending.join(0.1)
    assert gateway.readings().queue_requests == 3
    go.set()
    sending.join(WAIT_S)
    told = answers(sent[0])
    assert [line["status"] for line in told] == [201, 201, 201, 400, *[200] * 5]
    revisions = [line["revision"] for line in told if "revision" in line]
    assert revisions == list(range(1, 9))
    assert gateway.readings().queue_requests == 0


def test_a_touch_needs_no_key_unless_it_has_conditions(
    bulk: Bulk, client: FlaskClient, catalog: Catalog
) -> None:
    token = catalog.put(1).json["etag"]
    keyless = {"catalog": catalog.name, "op": "touch"}
    body = json.dumps(keyless) + "\n" + json.dumps({**keyless, "if_match": token})
    touched, refused = answers(send(client, body.encode()))
    assert (touched["catalog_revision"], touched["changed"], touched["etag"]) == (2, True, None)
    assert refused["problem"]["pointer"] == "/key"
    stale = bulk({"op": "touch", "if_match": token}, {"op": "touch", "if_match": "0-x"})
    assert [line["status"] for line in stale] == [200, 412]


MALFORMED: list[tuple[Any, int, str, str | None]] = [
    (b"{", 400, "malformed_json", None),
    (b"\xff", 400, "malformed_json", None),
    (b"[]", 400, "invalid_body", ""),
    (b"7", 400, "invalid_body", ""),
    (b"{}", 400, "invalid_body", "/op"),
    (b'{"op": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", 422, "nesting_too_deep", None),
    ({"op": "append"}, 400, "invalid_body", "/op"),
    ({"op": ["put"]}, 400, "invalid_body", "/op"),
    ({"op": "put"}, 400, "invalid_body", "/value"),
    ({"op": "patch"}, 400, "invalid_body", "/patch"),
    ({"op": "patch", "patch": {}}, 400, "invalid_patch", None),
    ({"op": "patch", "patch": [{"op": "zap", "path": ""}]}, 400, "unknown_operation", None),
    ({"op": "delete", "value": 1}, 400, "invalid_body", "/value"),
    ({"op": "delete", "rebase": True}, 400, "invalid_body", "/rebase"),
    (put(1, attributes={"a": 1}), 400, "invalid_body", None),
    (put(1, attributes={"mode": "replace"}), 400, "invalid_body", "/attributes/value"),
    (put(1, attributes={"mode": "replace", "value": {"a\0": 1}}), 422, "unstorable_value", None),
    ({"op": "delete", "attributes": {"mode": "clear"}}, 400, "invalid_body", "/attributes"),
    (put(1, dryrun=True), 400, "invalid_body", "/dryrun"),
    (put(1, dry_run="true"), 400, "invalid_body", "/dry_run"),
    (put(1, catalog=""), 400, "invalid_name", None),
    (put(1, catalog="a\0"), 400, "invalid_name", None),
    (put(1, catalog="c" * 600), 414, "name_too_long", None),
    (put(1, catalog=None), 400, "invalid_body", "/catalog"),
    (put(1, key=""), 400, "invalid_name", None),
    (put(1, key="k" * 1025), 414, "name_too_long", None),
    (put(1, if_match=[]), 400, "invalid_condition", "/if_match"),
    (put(1, if_match="*", if_none_match="*"), 400, "invalid_condition", "/if_none_match"),
    (put(1, resource_version="1"), 400, "invalid_body", "/resource_version"),
    (put(1, resource_version=True), 400, "invalid_body", "/resource_version"),
    (put(1, resource_version=-1), 400, "invalid_body", "/resource_version"),
    (put(1, resource_version=2**63), 400, "invalid_body", "/resource_version"),
    (put(1, idempotency_key="a b"), 400, "invalid_body", "/idempotency_key"),
    (put(1, message="x" * 1001), 400, "invalid_body", "/message"),
    (put(2**64), 422, "unstorable_value", ""),
    (put({"a": float("nan")}), 400, "malformed_json", None),
    (put("\ud800"), 422, "unstorable_value", "/value"),
    (put({"a\0": 1}), 422, "unstorable_value", ""),
    (put("x" * 4_200_000), 413, "over_limit", None),
    (b'{"op": "put", "resource_version": 1e999}', 400, "malformed_json", "/resource_version"),
]


@pytest.mark.parametrize(("given", "status", "code", "pointer"), MALFORMED)
def test_a_malformed_line_has_its_own_problem_and_later_lines_are_applied(
    client: FlaskClient, catalog: Catalog, given: Any, status: int, code: str, pointer: str | None
) -> None:
    if not isinstance(given, bytes):
        given = json.dumps({"catalog": catalog.name, "key": "k", **given}).encode()
    good = json.dumps({"catalog": catalog.name, "key": "k", **put(5)}).encode()
    before, bad, after = answers(send(client, good + b"\n" + given + b"\n" + good))
    assert (before["status"], after["status"]) == (201, 200)
    assert (bad["status"], bad["problem"]["code"]) == (status, code), bad
    assert bad["problem"]["offset"] == len(good) + 1
    assert bad["problem"]["applied"] == "no"
    if pointer is not None:
        assert bad["problem"]["pointer"] == pointer
    assert catalog.head_revision() == 1


@pytest.mark.parametrize(
    ("query", "content_type", "headers", "status", "code"),
    [
        ("", "application/json", {}, 415, "unsupported_media_type"),
        ("", "", {}, 415, "unsupported_media_type"),
        ("", NDJSON, {"Content-Encoding": "gzip"}, 415, "unsupported_content_encoding"),
        ("", NDJSON, {"Idempotency-Key": "x"}, 400, "invalid_header"),
        ("", NDJSON, {"Commit-Message": "x"}, 400, "invalid_header"),
        ("", NDJSON, {"If-Match": "*"}, 400, "invalid_condition"),
        ("", NDJSON, {"Prefer": "wait=x"}, 400, "invalid_header"),
        ("?resource_version=1", NDJSON, {}, 400, "invalid_parameter"),
        ("?dry_run=yes", NDJSON, {}, 400, "invalid_parameter"),
    ],
)
def test_unsupported_headers_and_parameters_refuse_the_whole_request(
    catalog: Catalog, query: str, content_type: str, headers: dict[str, str], status: int, code: str
) -> None:
    line = json.dumps({"catalog": catalog.name, "key": "k", **put(1)}).encode()
    answer = catalog.client.post(
        f"/v1/bulk{query}", data=line, content_type=content_type or None, headers=headers
    )
    problem(answer, status, code)
    assert catalog.get().status_code == 404


def test_jsonl_is_accepted_as_another_name(client: FlaskClient) -> None:
    answer = client.post("/v1/bulk", data=b"", content_type="application/jsonl; charset=utf-8")
    assert (answer.status_code, answer.data) == (200, b"")


def test_blank_lines_count_for_nothing(client: FlaskClient, catalog: Catalog) -> None:
    line = json.dumps({"catalog": catalog.name, "key": "k", **put(1)}).encode()
    assert len(answers(send(client, b"\n\r\n \n" + line + b"\r\n\n" + line + b"\n\n"))) == 2


def test_a_truncated_body_is_reported_after_its_complete_lines(
    client: FlaskClient, catalog: Catalog
) -> None:
    line = json.dumps({"catalog": catalog.name, "key": "k", **put(1)}).encode() + b"\n"

    class Breaking(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            data = super().read1(size)
            if not data:
                raise ClientDisconnected
            return data

    answer = client.post(
        "/v1/bulk",
        content_type=NDJSON,
        environ_overrides={"wsgi.input": Breaking(line + line[:-9]), "wsgi.input_terminated": True},
    )
    whole, broken = answers(answer)
    assert whole["status"] == 201
    assert (broken["status"], broken["problem"]["code"]) == (400, "malformed_request")


def test_a_line_over_its_bound_is_skipped(memory_gateway: GatewayService) -> None:
    client = create_app(memory_gateway, RequestLimits(bulk_line_bytes_max=200)).test_client()
    name = uuid.uuid4().hex
    good = json.dumps({"catalog": name, "key": "k", **put(1)}).encode()
    first, long, last = answers(send(client, good + b"\n" + b"x" * 300_000 + b"\n" + good))
    assert (first["status"], last["status"]) == (201, 200)
    assert (long["status"], long["problem"]["code"]) == (413, "body_too_large")
    assert long["problem"] | {"limit": "bulk_line_bytes_max", "actual": 300_000} == long["problem"]


def test_an_unknown_outcome_links_to_its_outcome_route(monkeypatch: pytest.MonkeyPatch) -> None:
    force_outcomes(monkeypatch, lambda _: "unknown")
    client = create_app(GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits()))
    line = {"catalog": "c", "key": "k", **put(1, idempotency_key="one")}
    (unknown,) = answers(send(client.test_client(), json.dumps(line).encode()))
    assert (unknown["status"], unknown["problem"]["applied"]) == (504, "unknown")
    assert unknown["problem"]["outcome"] == "/v1/catalogs/c/outcomes/one"


@pytest.mark.parametrize("step", ["put", "take"])
def test_a_defect_breaks_the_answer_off_instead_of_ending_it(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Series, step, broken)
    client = create_app(GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits()))
    line = {"catalog": "c", "key": "k", **put(1)}
    with pytest.raises(RuntimeError, match="broken off"):
        send(client.test_client(), json.dumps(line).encode())


def test_a_defect_in_one_line_affects_only_that_line() -> None:
    class Broken(GatewayService):
        def request(self, catalog: str, *_: Any, **asked: Any) -> Request:
            if catalog == "bad":
                raise RuntimeError("a defect")
            return super().request(catalog, *_, **asked)

    client = create_app(Broken(MemoryStore(), ThreadRuntime(), ServiceLimits())).test_client()
    lines = [{"catalog": name, "key": "k", **put(1)} for name in ("good", "bad", "good")]
    done = answers(send(client, "\n".join(map(json.dumps, lines)).encode()))
    assert [line["status"] for line in done] == [201, 500, 200]


class Pieces:
    """A body that always has its next piece at once."""

    def __init__(self, pieces: Sequence[bytes], done: list[str]) -> None:
        self._pieces, self._done = iter(pieces), done

    def read1(self, _size: int) -> bytes:
        self._done.append("piece")
        return next(self._pieces, b"")

    read = readline = read1


@pytest.mark.parametrize(
    "piece", [b"\n" * 65_536, b" \r\n" * 20_000, b"x" * 65_536], ids=["blank", "spaces", "no end"]
)
def test_a_fast_sender_without_line_breaks_yields_after_each_piece(
    memory_gateway: GatewayService, monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    done: list[str] = []

    def sleep(seconds: float) -> None:
        done.append("turn")
        time.sleep(seconds)

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(bulk_route, "time", clock)
    client = create_app(memory_gateway, RequestLimits(bulk_refused_lines_max=1 << 30)).test_client()
    answer = client.post(
        "/v1/bulk",
        content_type=NDJSON,
        environ_overrides={
            "wsgi.input": Pieces([piece] * 20, done),
            "wsgi.input_terminated": True,
        },
    )
    assert answer.get_data() is not None  # the body is read while the answer is
    assert done == ["piece", "turn"] * 20 + ["piece"]
