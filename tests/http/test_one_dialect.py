"""All routes that write speak one dialect: equal outcomes have equal statuses, codes and headers.

A route's own form has exceptions, and each is written down here, at its route: a bulk line is a
line and no response, a transaction is about several documents, settings have the catalog's tag.
The audit line and the metric of a write have the code that the wire has.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

import patching
from gateway.http import create_app
from gateway.limits import ServiceLimits
from gateway.meters import NO_METERS, WriteEnded
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.http.dialects import (
    ROUTES,
    STALE,
    Attributes,
    BulkLines,
    Route,
    Settings,
    Transactions,
    Uploads,
    WriteAnswer,
)
from tests.memory_store import MemoryStore

LIMITS = ServiceLimits(patch=replace(patching.DEFAULT_LIMITS, depth_max=6, result_bytes_max=300))


class LastWriteMeters:
    """The last write that the commit loop reported to its meters."""

    last: WriteEnded

    def __getattr__(self, name: str) -> Any:
        return getattr(NO_METERS, name)

    def writes_ended(self, ended: Sequence[WriteEnded]) -> None:
        self.last = ended[-1]


def those_that(*abilities: str, but: frozenset[type[Route]] = frozenset()) -> Any:
    found = [each for each in ROUTES if each.can & set(abilities) and each not in but]
    return pytest.mark.parametrize("kind", found, ids=lambda each: each.__name__)


every_route = those_that("set", "touch")


@pytest.fixture(scope="module")
def meters() -> LastWriteMeters:
    return LastWriteMeters()


@pytest.fixture(scope="module")
def client(meters: LastWriteMeters) -> FlaskClient:
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), LIMITS, meters=meters)  # type: ignore[arg-type]
    return create_app(gateway).test_client()


@pytest.fixture
def route(kind: type[Route], client: FlaskClient) -> Route:
    made = kind(client)
    made.begin()
    return made


def headers_of(route: Route, **expected: str | None) -> dict[str, str]:
    """``expected`` by name, without what is None, and without what the route's form can't say."""
    named = {name.replace("_", "-"): value for name, value in expected.items()}
    named = {"ETag" if name == "etag" else name: value for name, value in named.items()}
    return {n: v for n, v in named.items() if v is not None and n not in route.silent}


def shown(route: Route, found: WriteAnswer) -> dict[str, str | None]:
    """The headers that a standing document has, by reading it."""
    now = route.now().headers
    tag = now["ETag"].strip('"')
    return {
        "etag": route.tag(tag),
        "Last_Modified": now.get("Last-Modified"),
        "Catalog_Revision": now["Catalog-Revision"],
        "Attempts": found.headers["Attempts"],
    }


def last_commit(route: Route) -> dict[str, Any]:
    answer = route.client.get(f"{route.path}/commits?limit=1000")
    commit: dict[str, Any] = answer.get_json()["commits"][-1]
    return commit


def location(route: Route) -> str | None:
    return f"{route.path}/documents/k" if route.creates == 201 else None


# --- Applied


@every_route
def test_a_creation_is_201_with_a_location(route: Route) -> None:
    found = route.put({"v": 1})
    commit = last_commit(route)["commit_id"]
    assert found.status == route.creates
    assert found.headers == headers_of(
        route, **shown(route, found), Commit_Id=commit, Location=location(route)
    )


@every_route
def test_a_change_is_answered_with_the_new_tag(route: Route) -> None:
    route.put({"v": 1})
    found = route.put({"v": 2})
    commit = last_commit(route)["commit_id"]
    assert found.status == 200
    assert found.headers == headers_of(route, **shown(route, found), Commit_Id=commit)
    assert found.content["changed"] is True


@those_that("delete")
def test_a_deletion_has_a_commit_and_no_tag(route: Route) -> None:
    route.put({"v": 1})
    found = route.delete()
    assert found.status == route.deletes
    if isinstance(route, Attributes | Settings):  # what they belong to stays, or has ended
        return
    commit = last_commit(route)
    assert found.headers == headers_of(
        route, Commit_Id=commit["commit_id"], Catalog_Revision=str(commit["revision"]), Attempts="1"
    )


@those_that("delete", but=frozenset((Attributes, Settings)))
def test_deleting_something_absent_succeeds_without_a_commit(route: Route) -> None:
    found = route.delete()
    assert found.status == route.deletes
    assert found.headers == headers_of(route, Catalog_Revision="0", Attempts="1")


@those_that("set")
def test_a_write_that_changes_nothing_shows_the_current_tag(route: Route) -> None:
    first = route.put({"v": 1})
    found = route.put({"v": 1})
    assert found.status == 200
    assert found.content["changed"] is False
    # A commit that it didn't make is named where it is that of the one document there is.
    commit = None if isinstance(route, Transactions | Settings) else first.headers["Commit-Id"]
    assert found.headers == headers_of(route, **shown(route, found), Commit_Id=commit)


@every_route
def test_a_commit_shows_author_and_message(route: Route) -> None:
    route.put({"v": 1}, Commit_Message="why", Commit_Author="ann")
    commit = last_commit(route)
    assert (commit["message"], commit["author"]) == ("why", "ann")


# --- Under an idempotency key


@those_that("set", "touch", but=frozenset((Uploads,)))  # an upload is its own key
def test_a_replay_is_answered_like_the_first_time(route: Route) -> None:
    first = route.put({"v": 1}, Idempotency_Key="key")
    route.put({"v": 2})
    again = route.put({"v": 1}, Idempotency_Key="key")
    assert again.status == first.status
    assert again.headers == first.headers | {"Idempotency-Replayed": "true"}
    assert again.content["changed"] is True


@those_that("set", but=frozenset((Uploads,)))
def test_a_key_that_was_used_for_something_else_is_refused(
    route: Route, meters: LastWriteMeters, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.audit")
    route.put({"v": 1}, Idempotency_Key="key")
    is_refused(route.put({"v": 2}, Idempotency_Key="key"), 422, "idempotency_key_reused")
    require_same_code("idempotency_key_reused", meters, caplog)


@those_that("set", but=frozenset((Uploads,)))
def test_an_idempotency_key_covers_conditions(route: Route) -> None:
    for name, value in (("If_Match", '"@1"'), ("query", "?resource_version=0")):
        key = quote(name)
        route.put({"v": 1}, Idempotency_Key=key)
        route.put({"v": 2})
        is_refused(
            route.put({"v": 1}, Idempotency_Key=key, **{name: value}), 422, "idempotency_key_reused"
        )


@those_that("set", but=frozenset((Uploads,)))
def test_an_idempotency_key_does_not_cover_preferences_message_and_author(route: Route) -> None:
    """A job that is repeated may say so in its message, or run in another's name."""
    route.put({"v": 1}, Idempotency_Key="key")
    for name, value in (
        ("Prefer", "wait=7, return=representation"),
        ("Commit_Message", "another"),
        ("Commit_Author", "ann"),
    ):
        again = route.put({"v": 1}, Idempotency_Key="key", **{name: value})
        assert again.headers["Idempotency-Replayed"] == "true"
    assert (last_commit(route)["author"], last_commit(route)["message"]) == ("anonymous", None)


# --- Dry runs and preferences


@every_route
def test_a_dry_run_makes_no_tag_and_no_commit(route: Route) -> None:
    found = route.put({"v": 1}, query="?dry_run=true")
    assert (found.status, found.content["changed"], found.content["dry_run"]) == (200, True, True)
    found.headers.pop("ETag", None) if isinstance(route, Settings) else None  # the catalog's
    before = route.client.get(f"{route.path}/commits").headers["Catalog-Revision"]
    assert found.headers == headers_of(route, Catalog_Revision=before, Attempts="1")


@those_that("set")
def test_a_dry_run_that_changes_nothing_shows_the_current_tag(route: Route) -> None:
    first = route.put({"v": 1})
    found = route.put({"v": 1}, query="?dry_run=true")
    assert (found.status, found.content["changed"], found.content["dry_run"]) == (200, False, True)
    commit = None if isinstance(route, Transactions | Settings) else first.headers["Commit-Id"]
    assert found.headers == headers_of(route, **shown(route, found), Commit_Id=commit)


@those_that("set", "touch", but=frozenset((Uploads,)))
def test_a_dry_run_of_a_write_already_done_shows_the_replay(route: Route) -> None:
    first = route.put({"v": 1}, Idempotency_Key="key")
    found = route.put({"v": 1}, query="?dry_run=true", Idempotency_Key="key")
    assert (found.status, found.content["changed"], found.content["dry_run"]) == (200, False, True)
    first.headers.pop("Location", None)
    assert found.headers == first.headers | {"Idempotency-Replayed": "true"}


@those_that("set", "touch", but=frozenset((BulkLines, Uploads)))
def test_a_dry_run_shows_its_result_even_with_return_minimal(route: Route) -> None:
    found = route.put({"v": 1}, query="?dry_run=true", Prefer="return=minimal")
    assert (found.status, found.content["changed"], found.content["dry_run"]) == (200, True, True)
    assert "Preference-Applied" not in found.headers


@those_that("delete", but=frozenset((BulkLines,)))
def test_a_deletion_names_the_applied_preferences(route: Route) -> None:
    route.put({"v": 1})
    found = route.delete(Prefer="return=minimal, wait=7")
    assert found.headers["Preference-Applied"] == "return=minimal, wait=7"


@those_that("delete", but=frozenset((Attributes,)))  # where they are deleted, {} stays
def test_a_dry_run_of_a_deletion_shows_its_result(route: Route) -> None:
    route.put({"v": 1})
    found = route.delete(query="?dry_run=true")
    assert (found.status, found.content["changed"], found.content["dry_run"]) == (200, True, True)


@every_route
def test_preferences_that_are_followed_are_named(route: Route) -> None:
    found = route.put({"v": 1}, Prefer="wait=7")
    expected = None if "Preference-Applied" in route.silent else "wait=7"
    assert found.headers.get("Preference-Applied") == expected


@those_that("set", "touch", but=frozenset((BulkLines, Uploads)))
def test_a_minimal_answer_has_headers_only(route: Route) -> None:
    for value in (1, 2):
        found = route.put({"v": value}, Prefer="return=minimal")
        makes_it = value == 1 and route.creates == 201
        assert found.status == (201 if makes_it else route.minimal)
        assert not found.content or isinstance(route, Transactions)
        assert "results" not in found.content
        assert found.headers == headers_of(
            route,
            **shown(route, found),
            Commit_Id=last_commit(route)["commit_id"],
            Location=location(route) if makes_it else None,
            Preference_Applied="return=minimal",
        )


# --- Refused by what it meets


def is_refused(found: WriteAnswer, status: int, code: str) -> None:
    assert (found.status, found.code) == (status, code), found
    assert (found.content["status"], found.content["applied"]) == (status, "no")
    assert found.content["retryable"] is False
    assert not found.headers


def require_same_code(code: str, meters: LastWriteMeters, caplog: pytest.LogCaptureFixture) -> None:
    """The audit line of the last write and its metric have the code that the wire has."""
    told = [vars(record) for record in caplog.records if record.name == "gateway.audit"]
    # A bulk request's last line is about the request.
    lines = [each for line in told for each in line.get("writes", [line]) if "lines" not in line]
    assert lines[-1]["outcome"] == "refused"
    assert lines[-1]["code"] == code
    assert meters.last.outcome == code


@pytest.mark.parametrize(
    ("operation", "status", "code"),
    [
        ({"op": "test", "path": "/v", "value": 2}, 409, "test_failed"),
        ({"op": "remove", "path": "/x"}, 409, "path_missing"),
        ({"op": "copy", "from": "", "path": "/deep/a/b/c"}, 422, "nesting_too_deep"),
        ({"op": "add", "path": "/v", "value": "x" * 300}, 413, "over_limit"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
@those_that("patch")
def test_a_patch_that_does_not_fit_has_one_code(
    route: Route,
    operation: dict[str, Any],
    status: int,
    code: str,
    meters: LastWriteMeters,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "gateway.audit")
    route.put({"v": 1, "deep": {"a": {"b": {}}}})
    is_refused(route.patch(operation), status, code)
    require_same_code(code, meters, caplog)


@those_that("patch", but=frozenset((Attributes,)))
def test_a_patch_of_an_absent_document_is_404(
    route: Route, meters: LastWriteMeters, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.audit")
    is_refused(route.patch({"op": "add", "path": "/v", "value": 1}), 404, "document_not_found")
    require_same_code("document_not_found", meters, caplog)


@every_route
def test_a_stale_tag_is_refused(
    route: Route, meters: LastWriteMeters, caplog: pytest.LogCaptureFixture
) -> None:
    route.put({"v": 1})
    caplog.set_level(logging.INFO, "gateway.audit")
    found = route.put({"v": 2}, If_Match=route.tag(STALE))
    is_refused(found, 412, "precondition_failed")
    require_same_code("precondition_failed", meters, caplog)
    assert STALE in found.content["expected"] or isinstance(route, Settings)


@every_route
def test_a_range_that_changed_is_refused(
    route: Route, meters: LastWriteMeters, caplog: pytest.LogCaptureFixture
) -> None:
    def change(value: int) -> int:
        answer = route.client.put(f"{route.path}/documents/range%2F1", json=value)
        return int(answer.headers["Catalog-Revision"])

    first = change(1)
    found = route.put({"v": 1}, If_Unchanged_Under=f'"none/";revision=0, "range/";revision={first}')
    assert found.status in (200, 201), found
    second = change(2)
    caplog.set_level(logging.INFO, "gateway.audit")
    found = route.put({"v": 2}, If_Unchanged_Under=f'"range/";revision={first}')
    is_refused(found, 412, "precondition_failed")
    require_same_code("precondition_failed", meters, caplog)
    assert (found.content["prefix"], found.content["changed_at"]) == ("range/", second)
    if not isinstance(route, BulkLines):
        (since,) = found.content["changes_since"]
        assert since["changes"] == [{"key": "range/1", "action": "put"}]
    assert route.put({"v": 2}, If_Unchanged_Under=f'"range/";revision={second}').status == 200


@those_that("set", "touch", but=frozenset((Uploads,)))  # they have no such parameter
def test_a_catalog_that_has_moved_on_is_refused(route: Route) -> None:
    route.put({"v": 1})
    is_refused(route.put({"v": 2}, query="?resource_version=0"), 412, "precondition_failed")


@those_that("set", but=frozenset((Settings,)))
def test_create_only_refuses_an_existing_document(route: Route) -> None:
    route.put({"v": 1})
    is_refused(route.put({"v": 2}, If_None_Match="*"), 412, "precondition_failed")


@those_that("set", but=frozenset((Settings,)))
def test_a_write_without_a_condition_is_refused_where_one_is_required(
    route: Route, meters: LastWriteMeters, caplog: pytest.LogCaptureFixture
) -> None:
    route.client.put(route.path, json={"require_precondition": True})
    caplog.set_level(logging.INFO, "gateway.audit")
    is_refused(route.put({"v": 1}), 428, "precondition_required")
    require_same_code("precondition_required", meters, caplog)


@those_that("set", but=frozenset((Settings, Attributes)))
def test_a_value_that_breaks_the_schema_is_refused(
    route: Route, meters: LastWriteMeters, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"schemas": {"*": {"type": "string"}}}
    assert route.client.put(route.path, json=schema).status_code == 201
    caplog.set_level(logging.INFO, "gateway.audit")
    is_refused(route.put({"v": 1}), 422, "schema_violation")
    require_same_code("schema_violation", meters, caplog)


# --- Refused for its form


MALFORMED: list[tuple[dict[str, str], str]] = [
    ({"If_Match": '""', "If_None_Match": "*"}, "invalid_condition"),
    ({"If_Match": '"k=1;k=2"'}, "invalid_condition"),
    ({"Idempotency_Key": "two words"}, "invalid_header"),
    ({"Commit_Message": "x" * 1001}, "invalid_header"),
    ({"Commit_Author": "\u00a0"}, "invalid_header"),
]
# An upload is its own key, and a transaction asks by a compare whether there is nothing yet.
UNSAID: dict[type[Route], str] = {Uploads: "Idempotency_Key", Transactions: "If_None_Match"}


@pytest.mark.parametrize(
    ("kind", "headers", "code"),
    [
        pytest.param(kind, headers, code, id=f"{kind.__name__}-{'+'.join(headers)}")
        for kind in ROUTES
        for headers, code in MALFORMED
        if UNSAID.get(kind) not in headers
    ],
)
def test_a_malformed_header_is_refused(route: Route, headers: dict[str, str], code: str) -> None:
    named = {name: quote(value) if "Author" in name else value for name, value in headers.items()}
    if isinstance(route, BulkLines):
        named = headers
        code = code.replace("invalid_header", "invalid_body")
    is_refused(route.put({"v": 1}, **named), 400, code)
