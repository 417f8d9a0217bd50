"""Every error has its problem, every code its status, and none is a 500 by a client's doing."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from werkzeug.exceptions import ClientDisconnected, RequestTimeout
from werkzeug.test import TestResponse

from gateway import cpu, errors
from gateway import uploads as upload_errors
from gateway.access import Principal
from gateway.conflict import Disputed, Required, StateConflict
from gateway.decide.request import Refused, Unknown
from gateway.errors import (
    ChangedSince,
    DocumentsBreakSettings,
    ItemsCollide,
    KeysUnavailable,
    ListsUnchecked,
    OvertakenRead,
    Unauthenticated,
)
from gateway.http import create_app
from gateway.http.wire.codes import KINDS, RequestRefused, TryLater
from gateway.http.wire.problems import problem_of
from gateway.limits import ServiceLimits
from gateway.model import DocumentRecord
from gateway.runtime import ThreadRuntime
from gateway.service import DocumentReading, GatewayService, WriteOutcome
from patching import (
    DocumentAbsent,
    InvalidPatch,
    Json,
    LimitExceeded,
    PatchConflict,
    PatchError,
    PathMissing,
    TestFailed,
)
from patching.errors import IndexNeedsTest, ListViolation
from patching.owners import Ownership
from patching.ownership import Contested, OwnedByOthers
from tests.http.conftest import JSON_PATCH, Catalog, problem
from tests.memory_store import MemoryStore

# One of each class, with the code and status that the contract gives it.
CONFLICT = StateConflict(Required.IF_MATCH, ("1-a",), "k")
DOCUMENT = DocumentRecord("k", {"n": 1}, 1, 1, "a", 0)
EXAMPLES: list[tuple[Exception, str, int]] = [
    (errors.DocumentNotFound("c", "k"), "document_not_found", 404),
    (errors.RevisionNotFound("x", 1), "revision_not_found", 404),
    (errors.RevisionCompacted(1, 5), "revision_compacted", 410),
    (errors.PatchDoesNotFit(PathMissing("x"), "k", DOCUMENT), "path_missing", 409),
    (OwnedByOthers((Contested("/a", (Ownership("b", 1),), 1, 2, "/a"),)), "owned_by_others", 409),
    (errors.ConditionFailed(CONFLICT), "precondition_failed", 412),
    (upload_errors.UploadConflict(CONFLICT), "upload_conflict", 409),
    (upload_errors.UploadNotFound("x"), "upload_not_found", 404),
    (upload_errors.UploadIncomplete(2), "upload_incomplete", 409),
    (upload_errors.UploadCommitted("x"), "upload_committed", 409),
    (errors.ConditionRequired("c"), "precondition_required", 428),
    (errors.TargetExists("k"), "target_exists", 409),
    (ChangedSince([Disputed("k", False, "/a", 3, 1, 2)]), "changed_since", 409),
    (errors.RevertForbidden("x"), "forbidden", 403),
    (
        errors.SchemaViolation("k", "*", [{"pointer": "/a", "message": "x"}]),
        "schema_violation",
        422,
    ),
    (ItemsCollide("k", ListViolation("x", pointer="/a/1", other="/a/0")), "list_violation", 422),
    (ListsUnchecked(), "invalid_settings", 422),
    (DocumentsBreakSettings([{"key": "k"}], complete=True), "documents_break_settings", 422),
    (ListViolation("x", pointer="/a/1", other="/a/0"), "list_violation", 422),
    (IndexNeedsTest("x", operation=0, pointer="/a/1", tests=["/a/1"]), "index_needs_test", 422),
    (errors.SettingsInvalid("/a", "x"), "invalid_settings", 422),
    (errors.AttributesInvalid("k"), "invalid_attributes", 422),
    (errors.AttributesInvalid("k", "/acl/read", "x"), "invalid_attributes", 422),
    (errors.DocumentForbidden("ann", "read", "k"), "forbidden", 403),
    (errors.OfAnother("x"), "forbidden", 403),
    (errors.ApplicationConflict("x"), "application_conflict", 409),
    (errors.CatalogNotFound("c", 0), "catalog_not_found", 404),
    (errors.PinNotFound("x"), "pin_not_found", 404),
    (errors.SubscriptionNotFound("x"), "subscription_not_found", 404),
    (errors.PinHolds(3, 2), "pin_holds", 409),
    (errors.SnapshotExists(3, 3), "snapshot_exists", 409),
    (errors.Unstorable("x", "/a", 0), "unstorable_value", 422),
    (errors.AboveLimit("x", limit="y", maximum=1, actual=2), "over_limit", 413),
    (errors.IdempotencyMismatch("k", 1), "idempotency_key_reused", 422),
    (cpu.TooMuchWork(2_000), "too_much_work", 422),
    (errors.RefusedBefore("over_limit", "x", {"limit": "y"}), "over_limit", 413),
    (errors.QueueFull("x"), "queue_full", 429),
    (errors.MemoryFull("x"), "overloaded", 429),
    (errors.TooManyWatchers(5), "too_many_watchers", 429),
    (upload_errors.TooManyUploads("uploads_max", 5), "too_many_uploads", 429),
    (OvertakenRead(1, 2), "deadline_exceeded", 503),
    (errors.DeadlineExceeded("x"), "deadline_exceeded", 503),
    (errors.HeldBack("x"), "held_back", 503),
    (errors.StoreUnavailable("x"), "store_unavailable", 503),
    (errors.CatalogRestored("c"), "catalog_being_restored", 503),
    (errors.UnknownOutcome("id"), "outcome_unknown", 504),
    (InvalidPatch("x"), "invalid_patch", 400),
    (InvalidPatch("x", code="unknown_operation"), "unknown_operation", 400),
    (InvalidPatch("x", code="invalid_pointer"), "invalid_pointer", 400),
    (PatchConflict("x"), "patch_does_not_fit", 409),
    (TestFailed(1, 2, operation=0, pointer="/a"), "test_failed", 409),
    (PathMissing("x"), "path_missing", 409),
    (DocumentAbsent("x"), "document_not_found", 404),
    (LimitExceeded("operations_max", 1, 2), "over_limit", 413),
    (LimitExceeded("depth_max", 1, 2), "nesting_too_deep", 422),
]


def subclasses(base: type[Exception]) -> Iterator[type[Exception]]:
    for child in base.__subclasses__():
        yield child
        yield from subclasses(child)


@pytest.mark.parametrize("tree", [errors.CommitError, PatchError])
def test_every_class_of_error_has_an_example(tree: type[Exception]) -> None:
    assert set(subclasses(tree)) <= {type(error) for error, _, _ in EXAMPLES}


@pytest.mark.parametrize(("error", "code", "status"), EXAMPLES)
def test_every_error_has_its_problem(error: Exception, code: str, status: int) -> None:
    made = problem_of(error)
    assert made is not None
    assert (made.code, KINDS[made.code].status) == (code, status)
    if isinstance(error, errors.CommitError):
        assert (made.applied, made.retryable) == (error.applied, error.retryable)
    json.dumps(made.members)


@pytest.mark.parametrize(
    "error", [error for error, _, _ in EXAMPLES if isinstance(error, PatchError)]
)
def test_a_conflict_inside_a_commit_error_keeps_its_code(error: PatchError) -> None:
    inside = problem_of(errors.PatchDoesNotFit(error, "k", DOCUMENT))
    alone = problem_of(error)
    assert inside is not None
    assert alone is not None
    assert inside.code == alone.code
    assert inside.members["current"] == {"etag": "1-a", "revision": 1}
    assert inside.members["key"] == "k"


class Scripted(GatewayService):
    """Answers with the last error that it was given, as the layers below would raise it."""

    error: Exception = RuntimeError("not set")

    def commit(self, *_: Any, **__: Any) -> WriteOutcome:
        if isinstance(self.error, errors.UnknownOutcome):
            return WriteOutcome(Unknown(self.error.commit_id), self.error.commit_id, 1)
        if isinstance(self.error, errors.CommitError) and not isinstance(
            self.error, errors.QueueFull
        ):
            return WriteOutcome(Refused(self.error), "id", 1)
        raise self.error

    def read(self, *_: Any) -> DocumentReading:
        raise self.error

    read_at_revision = read


@pytest.fixture
def scripted() -> Scripted:
    return Scripted(MemoryStore(), ThreadRuntime(), ServiceLimits())


@pytest.fixture
def fails_with(scripted: Scripted) -> Callable[[Exception], Catalog]:
    def script(error: Exception) -> Catalog:
        scripted.error = error
        return Catalog(create_app(scripted).test_client(), "c")

    return script


def _by_error(error: Exception) -> Callable[[Catalog, Callable[..., Catalog]], TestResponse]:
    return lambda _, fails_with: fails_with(error).put(1)


def _by(call: Callable[[Catalog], TestResponse]) -> Callable[..., TestResponse]:
    return lambda catalog, _: call(catalog)


def _operation(**members: Any) -> Callable[..., TestResponse]:
    return _by(lambda c: c.patch({"path": "/a", **members}))


def _upload(catalog: Catalog) -> str:
    """The path of an upload for "k" as it is, with one part."""
    opened = catalog.client.post(f"{catalog.path}/uploads", json={"key": "k", "if_match": "*"})
    path = str(opened.headers["Location"])
    _put_part(catalog, path)
    return path


def _put_part(catalog: Catalog, path: str) -> TestResponse:
    kind = "application/octet-stream"
    return catalog.client.put(f"{path}/parts/1", data=b"2", content_type=kind)


def _upload_after(catalog: Catalog, between: Callable[[str], object]) -> TestResponse:
    path = _upload(catalog)
    between(path)
    return catalog.client.post(f"{path}/commit")


def _part_after_commit(catalog: Catalog) -> TestResponse:
    path = _upload(catalog)
    catalog.client.post(f"{path}/commit")
    return _put_part(catalog, path)


def _reused(catalog: Catalog) -> TestResponse:
    catalog.put(2, Idempotency_Key="reused")
    return catalog.put(3, Idempotency_Key="reused")


def _transaction(*actions: Any) -> Callable[..., TestResponse]:
    """Of ``actions``; without any: something else than a list of them."""
    body: dict[str, Any] = {"then": actions or {}}
    return _by(lambda c: c.client.post(f"{c.path}/transactions", json=body))


_A_SET: Json = {"arrays": [{"keys": "k", "pointer": "", "set": True}]}


def _by_index(catalog: Catalog) -> TestResponse:
    catalog.client.put(catalog.path, json=_A_SET)
    catalog.put([1, 2])
    answer: TestResponse = catalog.patch({"op": "remove", "path": "/1"})
    return answer


def _breaking(catalog: Catalog) -> TestResponse:
    catalog.put([1, 1])
    return catalog.client.put(catalog.path, json=_A_SET)


def _under(settings: Json, value: Json = 2) -> Callable[..., TestResponse]:
    """A write to a catalog that has ``settings``."""

    def provoke(catalog: Catalog) -> TestResponse:
        assert catalog.client.put(catalog.path, json=settings).status_code in (200, 201)
        return catalog.put(value)

    return _by(provoke)


def _compact(catalog: Catalog, revision: int) -> TestResponse:
    return catalog.client.post(f"{catalog.path}/compactions", json={"revision": revision})


def _begun_before_another(catalog: Catalog) -> TestResponse:
    path = f"{catalog.path}/applications/nightly"
    catalog.client.put(path, json={"version": 2})
    return catalog.client.put(path, json={"version": 1})


def _applied_by_two(catalog: Catalog, _: Callable[..., Catalog]) -> TestResponse:
    def apply(manager: str, wanted: object) -> TestResponse:
        return catalog.client.patch(
            f"{catalog.document('k')}?manager={manager}",
            data=json.dumps(wanted),
            content_type="application/vnd.metadata.apply+json",
        )

    apply("a", {"a": 1})
    return apply("b", {"a": 2})


def _compacted_under_a_pin(catalog: Catalog) -> TestResponse:
    pinned = catalog.client.post(f"{catalog.path}/pins", json={"seconds": 60})
    assert pinned.status_code == 201
    return _compact(catalog, catalog.put(2).get_json()["revision"])


def _read_below_the_floor(catalog: Catalog) -> TestResponse:
    assert _compact(catalog, catalog.put(2).get_json()["revision"]).status_code == 200
    return catalog.get(query="?revision=1")


def _closed(catalog: Catalog) -> Catalog:
    """The catalog of a service that knows ann, who may do nothing."""

    def authenticate(authorization: str | None) -> Principal:
        if authorization is None:
            raise Unauthenticated("no token", presented=False)
        if authorization != "Bearer ann":
            raise KeysUnavailable("unreachable")
        return Principal("ann", ())

    closed = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    return Catalog(create_app(closed, authenticate=authenticate).test_client(), catalog.name)


def _reverted_late(catalog: Catalog) -> TestResponse:
    for number in (2, 3):
        catalog.put(number)
    last = catalog.head_revision()
    return catalog.client.post(f"{catalog.path}/reverts", json={"revisions": [last - 1]})


# How a client meets each code; the catalog has {"a": 1} under "k", and small limits.
PROVOKED: dict[str, Callable[[Catalog, Callable[..., Catalog]], TestResponse]] = {
    "malformed_request": _by_error(ClientDisconnected()),
    "request_timeout": _by_error(RequestTimeout()),
    "malformed_json": _by(lambda c: c.send("PUT", b"{", "application/json")),
    "invalid_name": _by(lambda c: c.client.get("/v1/catalogs//documents/k")),
    "invalid_parameter": _by(lambda c: c.get(query="?x=1")),
    "invalid_header": _by(lambda c: c.put(1, Prefer="wait=x")),
    "invalid_condition": _by(lambda c: c.put(1, If_Match="x")),
    "invalid_patch": _by(lambda c: c.send("PATCH", b"{}", JSON_PATCH)),
    "invalid_pointer": _operation(op="remove", path="a"),
    "unknown_operation": _operation(op="append"),
    "too_many_refused": _by_error(RequestRefused("too_many_refused", "x")),
    "unauthenticated": _by(lambda c: _closed(c).get()),
    "forbidden": _by(lambda c: _closed(c).get(Authorization="Bearer ann")),
    "foreign_page": _by(lambda c: c.get(Origin="https://other.example")),
    "keys_unavailable": _by(lambda c: _closed(c).get(Authorization="Bearer unverifiable")),
    "route_not_found": _by(lambda c: c.client.get("/v2")),
    "method_not_allowed": _by(lambda c: c.client.post(c.document("k"))),
    "document_not_found": _by(lambda c: c.get("absent")),
    "revision_not_found": _by(lambda c: c.get(query="?revision=99")),
    "outcome_not_found": _by(lambda c: c.client.get(f"{c.path}/outcomes/never")),
    "catalog_not_found": _by(lambda c: c.client.get("/v1/catalogs/never%20written")),
    "pin_not_found": _by(lambda c: c.client.get(f"{c.path}/pins/x")),
    "token_not_found": _by(lambda c: c.client.delete("/v1/tokens/x")),
    "subscription_not_found": _by(lambda c: c.client.get(f"{c.path}/subscriptions/x")),
    "revision_compacted": _by(_read_below_the_floor),
    "application_conflict": _by(_begun_before_another),
    "pin_holds": _by(_compacted_under_a_pin),
    "snapshot_exists": _by(lambda c: _compact(c, 0)),
    "test_failed": _operation(op="test", value=2),
    "path_missing": _operation(op="remove", path="/b"),
    "patch_does_not_fit": _by_error(errors.PatchDoesNotFit(PatchConflict("x"), "k", None)),
    "owned_by_others": _applied_by_two,
    "precondition_failed": _by(lambda c: c.put(1, If_Match='"x"')),
    "name_too_long": _by(lambda c: c.get("k" * 21)),
    "body_too_large": _by(lambda c: c.put("x" * 300)),
    "over_limit": _by(lambda c: c.put("x" * 150)),
    "upload_not_found": _by(lambda c: c.client.get(f"{c.path}/uploads/x")),
    "upload_conflict": _by(lambda c: _upload_after(c, lambda _: c.put(3))),
    "upload_committed": _by(_part_after_commit),
    "upload_incomplete": _by(
        lambda c: c.client.post(f"{_upload(c)}/commit", json={"parts": [1, 2]})
    ),
    "invalid_body": _transaction(),
    "target_exists": _transaction({"action": "move", "from": "k", "to": "k"}),
    "changed_since": _by(_reverted_late),
    "precondition_required": _under({"require_precondition": True}),
    "schema_violation": _under({"schemas": {"k": False}}),
    "list_violation": _under(_A_SET, [1, 1]),
    "index_needs_test": _by(_by_index),
    "documents_break_settings": _by(_breaking),
    "invalid_settings": _by(lambda c: c.client.put(c.path, json={"a": 1})),
    "invalid_attributes": _by(lambda c: c.client.put(f"{c.path}/attributes/k", json=[])),
    "unsupported_media_type": _by(lambda c: c.send("PUT", b"1", "text/plain")),
    "unsupported_content_encoding": _by(
        lambda c: c.send("PUT", b"1", "application/json", Content_Encoding="br")
    ),
    "nesting_too_deep": _by(lambda c: c.put([[[[[[]]]]]])),
    "unstorable_value": _by(lambda c: c.put(2**64)),
    "idempotency_key_reused": _by(_reused),
    "too_much_work": _by_error(cpu.TooMuchWork(2_000)),
    "queue_full": _by_error(errors.QueueFull("x")),
    "overloaded": _by_error(TryLater("overloaded", "x", 2)),
    "rate_limited": _by_error(TryLater("rate_limited", "x", 2)),
    "too_many_watchers": _by_error(errors.TooManyWatchers(5)),
    "too_many_uploads": _by_error(upload_errors.TooManyUploads("uploads_max", 5)),
    "internal_error": _by_error(RuntimeError("a defect")),
    "deadline_exceeded": _by(lambda c: c.put(1, Prefer="wait=0")),
    "held_back": _by_error(errors.HeldBack("x")),
    "store_unavailable": _by_error(errors.StoreUnavailable("x")),
    "catalog_being_restored": _by_error(errors.CatalogRestored("c")),
    "outcome_unknown": _by_error(errors.UnknownOutcome("id")),
}


def test_every_code_can_be_provoked() -> None:
    assert PROVOKED.keys() == KINDS.keys()


@pytest.mark.parametrize("code", KINDS)
def test_every_code_has_its_status_and_members(
    code: str, small_catalog: Catalog, fails_with: Callable[..., Catalog]
) -> None:
    small_catalog.put({"a": 1})
    answer = PROVOKED[code](small_catalog, fails_with)
    content = problem(answer, KINDS[code].status, code)
    assert content["type"] == f"urn:metadata-gateway:problem:{code}"
    assert content["title"] == KINDS[code].title
    assert content["detail"]
    unknown = code in ("internal_error", "outcome_unknown")
    assert content["applied"] == ("unknown" if unknown else "no")
    assert content["retryable"] is (KINDS[code].status in (408, 429, 503))
    assert ("Retry-After" in answer.headers) == (KINDS[code].status in (429, 503))


ALLOWED_STATUSES = {400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 414, 415, 422, 428}
ALLOWED_STATUSES |= {429, 500, 503, 504}


def test_codes_are_words_and_statuses_are_allowed_ones() -> None:
    for code, kind in KINDS.items():
        assert re.fullmatch("[a-z]+(_[a-z]+)*", code)
        assert kind.status in ALLOWED_STATUSES
        assert (kind.status == 500) == (code == "internal_error")


class TestHelpfulMembers:
    def test_a_failed_test_names_operation_pointer_and_values(self, catalog: Catalog) -> None:
        token = catalog.put({"a": 1, "b": 2}).get_json()["etag"]
        operations = [{"op": "test", "path": f"/{m}", "value": 1} for m in ("a", "b")]
        content = problem(catalog.patch(*operations), 409, "test_failed")
        assert (content["operation"], content["pointer"]) == (1, "/b")
        assert (content["expected"], content["actual"]) == (1, 2)
        assert content["current"] == {"etag": token, "revision": 1}

    def test_an_absent_value_is_omitted(self, catalog: Catalog) -> None:
        catalog.put({})
        content = problem(
            catalog.patch({"op": "test", "path": "/a", "value": None}), 409, "test_failed"
        )
        assert content["expected"] is None
        assert "actual" not in content

    def test_large_values_are_not_sent_back(self, catalog: Catalog) -> None:
        catalog.put({"a": "x" * 100_000})
        operation = {"op": "test", "path": "/a", "value": "y" * 100_000}
        answer = catalog.patch(operation)
        content = problem(answer, 409, "test_failed")
        assert not {"expected", "actual"} & content.keys()
        assert len(answer.data) < 2000

    @pytest.mark.parametrize("value", ["x" * 990, [1] * 490, {"a": [{"b": "x"}] * 80}])
    def test_small_values_are_sent_back(self, catalog: Catalog, value: Json) -> None:
        catalog.put({"a": value})
        answer = catalog.patch({"op": "test", "path": "/a", "value": 1})
        assert problem(answer, 409, "test_failed")["actual"] == value

    def test_deeply_nested_values_are_omitted(self, catalog: Catalog) -> None:
        """Each move puts a member under the bottom of the next one."""
        members, depth = 14, 99
        nested = json.loads('{"x":' * depth + "0" + "}" * depth)
        catalog.put({f"m{n}": nested for n in range(members)})
        bottom = "/x" * depth
        moves = [
            {"op": "move", "from": f"/m{n}", "path": f"/m{n + 1}{bottom}"}
            for n in range(members - 1)
        ]
        path = f"/m{members - 1}"
        answer = catalog.patch(*moves, {"op": "test", "path": path, "value": 1})
        content = problem(answer, 409, "test_failed")
        assert (content["expected"], "actual" in content) == (1, False)

    @pytest.mark.parametrize(
        "send",
        [
            lambda c, text: c.get(query=f"?{text}=1"),
            lambda c, text: c.get(query=f"?revision={text}"),
            lambda c, text: c.put(1, If_Match=text),
            lambda c, text: c.put(1, If_Match=f'"{text}"'),
            lambda c, text: c.put(1, If_Unmodified_Since=text),
            lambda c, text: c.put(1, Prefer=f"wait={text}"),
            lambda c, text: c.send("PUT", b"1", text),
            lambda c, text: c.send("PUT", text.encode(), "application/json"),
            lambda c, text: c.patch({"op": text, "path": "/a"}),
            lambda c, text: c.patch({"op": "remove", "path": "/" + text}),
            lambda c, text: c.patch({"op": "remove", "path": text}),
            lambda c, text: c.put({text: {"\0": 1}}),
        ],
    )
    def test_long_input_is_not_echoed(
        self, catalog: Catalog, send: Callable[[Catalog, str], TestResponse]
    ) -> None:
        catalog.put({})
        answer = send(catalog, "é" * 30_000)
        assert answer.status_code in (400, 409, 412, 415, 422)
        assert len(answer.data) < 5000

    def test_an_unknown_outcome_links_to_its_outcome_route(
        self, fails_with: Callable[..., Catalog]
    ) -> None:
        catalog = fails_with(errors.UnknownOutcome("the-id"))
        content = problem(catalog.put(1, Idempotency_Key="a/b"), 504, "outcome_unknown")
        assert content["outcome"] == "/v1/catalogs/c/outcomes/a%2Fb"
        assert content["commit_id"] == "the-id"
        assert "outcome" not in problem(catalog.put(1), 504, "outcome_unknown")

    def test_a_precondition_failure_is_answered_even_if_history_cannot_be_read(
        self, scripted: Scripted, fails_with: Callable[..., Catalog], monkeypatch: Any
    ) -> None:
        def unreachable(*_: Any, **__: Any) -> None:
            raise errors.StoreUnavailable("x")

        monkeypatch.setattr(scripted, "encoded_commits", unreachable)
        failed = errors.ConditionFailed(replace(CONFLICT, document=DOCUMENT, since_revision=1))
        content = problem(fails_with(failed).put(1), 412, "precondition_failed")
        assert "changes_since" not in content


class TestDefects:
    def test_a_defect_is_logged_with_the_request_id(
        self, fails_with: Callable[..., Catalog], caplog: pytest.LogCaptureFixture
    ) -> None:
        catalog = fails_with(RuntimeError("secret of the defect"))
        with caplog.at_level(logging.ERROR):
            answer = catalog.put(1, X_Request_Id="request-7")
        content = problem(answer, 500, "internal_error")
        assert content["request_id"] == "request-7"
        assert "secret" not in answer.get_data(as_text=True)
        assert "request-7" in caplog.text
        assert "secret of the defect" in caplog.text

    def test_a_defect_in_a_read_is_reported_as_not_applied(
        self, fails_with: Callable[..., Catalog]
    ) -> None:
        content = problem(fails_with(RuntimeError("x")).get(), 500, "internal_error")
        assert content["applied"] == "no"
