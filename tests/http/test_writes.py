"""Prefer, Idempotency-Key, Commit-Message and dry runs."""

from __future__ import annotations

import pytest
from werkzeug.test import TestResponse

from gateway.http.wire.query import timestamp_us
from tests.http.conftest import Catalog, problem

ADD_B = {"op": "add", "path": "/b", "value": 2}


class TestPrefer:
    def test_representation_answers_the_document(self, catalog: Catalog) -> None:
        created = catalog.put({"a": 1}, Prefer="return=representation")
        assert (created.status_code, created.get_json()) == (201, {"a": 1})
        patched = catalog.patch(ADD_B, Prefer="return=representation")
        assert (patched.status_code, patched.get_json()) == (200, {"a": 1, "b": 2})
        assert patched.headers["Preference-Applied"] == "return=representation"
        assert patched.headers["ETag"] == catalog.get().headers["ETag"]
        unchanged = catalog.patch(ADD_B, Prefer="return=representation")
        assert unchanged.get_json() == {"a": 1, "b": 2}

    def test_representation_of_a_deleted_document_is_not_applied(self, catalog: Catalog) -> None:
        catalog.put(1)
        answer = catalog.patch({"op": "remove", "path": ""}, Prefer="return=representation")
        assert answer.get_json()["changed"] is True
        assert "Preference-Applied" not in answer.headers

    def test_wait_limits_the_time_of_a_write(self, catalog: Catalog) -> None:
        answer = catalog.put(1, Prefer='wait="9", return=minimal')
        assert answer.headers["Preference-Applied"] == "return=minimal, wait=9"
        content = problem(catalog.put(2, Prefer="wait=0"), 503, "deadline_exceeded")
        assert (content["applied"], content["retryable"]) == ("no", True)
        longest = catalog.put(2, Prefer="wait=000999999999")
        assert longest.headers["Preference-Applied"] == "wait=999999999"

    @pytest.mark.parametrize("text", ["", "respond-async", "return=other", ",;=", "RETURN=x; y=1"])
    def test_an_unknown_preference_is_ignored(self, catalog: Catalog, text: str) -> None:
        answer = catalog.put(1, Prefer=text)
        assert answer.status_code == 201
        assert "Preference-Applied" not in answer.headers

    def test_the_first_of_two_values_counts(self, catalog: Catalog) -> None:
        answer = catalog.put(1, Prefer="Return=minimal; foo=bar, return=representation")
        assert answer.headers["Preference-Applied"] == "return=minimal"

    @pytest.mark.parametrize(
        "text",
        [
            'foo="wait=bad, wait=x"',
            'foo="return=minimal, return=minimal"; bar="wait=x, wait=x", other',
            'foo="\\", wait=x, \\""',
            'foo=", wait=x',
            'foo; bar="a;b, wait=x"',
        ],
    )
    def test_quoted_text_is_not_a_preference(self, catalog: Catalog, text: str) -> None:
        answer = catalog.put(1, Prefer=text)
        assert (answer.status_code, "Preference-Applied" in answer.headers) == (201, False)

    def test_preferences_after_a_quoted_comma_count(self, catalog: Catalog) -> None:
        answer = catalog.put(1, Prefer='foo="a, \\"b"; c=",", wait=9; d="x, y", return=minimal')
        assert answer.headers["Preference-Applied"] == "return=minimal, wait=9"

    @pytest.mark.parametrize(
        "text",
        ["wait", "wait=", "wait=soon", "wait=-1", "wait=1.", "wait=²", "wait=1000000000"],
    )
    def test_a_wait_out_of_its_range_is_400(self, catalog: Catalog, text: str) -> None:
        problem(catalog.put(1, Prefer=text), 400, "invalid_header")
        assert catalog.get().status_code == 404


class TestDryRun:
    QUERY = "?dry_run=true"

    def test_a_dry_run_shows_the_result_and_writes_nothing(self, catalog: Catalog) -> None:
        catalog.put({"a": 1})
        for answer in (
            catalog.put({"a": 2}, query=self.QUERY),
            catalog.patch(ADD_B, query=self.QUERY),
            catalog.merge({"a": None}, query=self.QUERY),
            catalog.delete(query=self.QUERY),
        ):
            assert answer.status_code == 200
            content = answer.get_json()
            assert (content["dry_run"], content["changed"]) == (True, True)
            assert [each["key"] for each in content["changes"]] == ["k"]
            assert content["etag"] is None
            assert "ETag" not in answer.headers
            assert "Commit-Id" not in answer.headers
        assert catalog.head_revision() == 1
        assert catalog.get().get_json() == {"a": 1}

    def test_a_dry_run_can_show_the_resulting_document(self, catalog: Catalog) -> None:
        catalog.put({"a": 1})
        answer = catalog.patch(ADD_B, query=self.QUERY, Prefer="return=representation")
        assert answer.get_json() == {"a": 1, "b": 2}
        assert "ETag" not in answer.headers

    def test_dry_run_false_writes(self, catalog: Catalog) -> None:
        answer = catalog.put(1, query="?dry_run=false")
        assert (answer.status_code, "dry_run" in answer.get_json()) == (201, False)

    @pytest.mark.parametrize(
        "query",
        [
            *("?dryrun=true", "?dry-run=true", "?Dry_Run=true", "?dry_run=1", "?dry_run=True"),
            *("?dry_run=", "?dry_run", "?dry_run=true&dry_run=true", "?dry_run=true%00"),
            *("?dry_run=false&dry_run=true", "?revision=1", "?at=2026-01-01T00:00:00Z", "?="),
        ],
    )
    @pytest.mark.parametrize("method", ["put", "patch", "merge", "delete"])
    def test_a_misspelt_dry_run_is_refused(self, catalog: Catalog, method: str, query: str) -> None:
        catalog.put({"a": 1})
        body = {"put": [2], "patch": [ADD_B], "merge": [{"a": 2}]}.get(method, [])
        problem(getattr(catalog, method)(*body, query=query), 400, "invalid_parameter")
        assert catalog.head_revision() == 1


def same(first: TestResponse, second: TestResponse) -> None:
    """The same answer, but for the request's own id and the word that it is a replay."""
    headers = dict(second.headers)
    assert headers.pop("Idempotency-Replayed") == "true"
    assert "Idempotency-Replayed" not in first.headers
    expected = dict(first.headers)
    for each in (headers, expected):
        del each["X-Request-Id"]
    assert headers == expected
    assert (second.status_code, second.data) == (first.status_code, first.data)


class TestIdempotency:
    @pytest.mark.parametrize(
        ("method", "body"),
        [("put", [{"a": 2}]), ("patch", [ADD_B]), ("merge", [{"a": 3}]), ("delete", [])],
    )
    @pytest.mark.parametrize("prefer", ["", "return=minimal", "return=representation"])
    def test_a_replay_gives_the_first_result(
        self, catalog: Catalog, method: str, body: list[object], prefer: str
    ) -> None:
        catalog.put({"a": 1})
        headers = {"Idempotency_Key": "key-1", "Prefer": prefer}
        first = getattr(catalog, method)(*body, **headers)
        assert first.status_code in (200, 204)
        catalog.put({"later": True})
        second = getattr(catalog, method)(*body, **headers)
        same(first, second)
        assert catalog.get().get_json() == {"later": True}

    def test_a_replay_ignores_that_its_condition_became_false(self, catalog: Catalog) -> None:
        etag = catalog.put(1).headers["ETag"]
        first = catalog.put(2, If_Match=etag, Idempotency_Key="cas")
        same(first, catalog.put(2, If_Match=etag, Idempotency_Key="cas"))

    def test_the_fingerprint_does_not_depend_on_the_spelling_of_the_json(
        self, catalog: Catalog
    ) -> None:
        headers = {"Idempotency_Key": "spaces"}
        json = "application/json"
        first = catalog.send("PUT", b'{"a":1,"b":2}', json, **headers)
        same(first, catalog.send("PUT", b'{ "b" : 2, "a" : 1 }', json, **headers))

    def test_another_request_under_the_same_key_is_422(self, catalog: Catalog) -> None:
        catalog.put({"a": 1}, Idempotency_Key="key-1")
        for answer in (
            catalog.put({"a": 1}, "other", Idempotency_Key="key-1"),
            catalog.merge({"a": 1}, Idempotency_Key="key-1"),
            catalog.delete(Idempotency_Key="key-1"),
        ):
            content = problem(answer, 422, "idempotency_key_reused")
            assert (content["applied"], content["revision"]) == ("no", 1)
        assert catalog.head_revision() == 1

    def test_the_scope_of_a_key_is_its_catalog(self, catalog: Catalog) -> None:
        other = Catalog(catalog.client, catalog.name + "-2")
        assert catalog.put(1, Idempotency_Key="key-1").status_code == 201
        assert other.put(2, Idempotency_Key="key-1").status_code == 201

    def test_a_dry_run_under_a_key_answers_like_the_request(self, catalog: Catalog) -> None:
        headers = {"Idempotency_Key": "key-1"}
        query = TestDryRun.QUERY
        assert catalog.put(1, query=query, **headers).get_json()["changed"] is True
        catalog.put(1, **headers)
        again = catalog.put(1, query=query, **headers)
        assert (again.status_code, again.get_json()["changed"]) == (200, False)
        assert again.headers["Idempotency-Replayed"] == "true"
        problem(catalog.put(2, query=query, **headers), 422, "idempotency_key_reused")

    @pytest.mark.parametrize("key", ["", "a b", "é", "\x7f", "x" * 256])
    def test_an_invalid_key_is_400(self, catalog: Catalog, key: str) -> None:
        content = problem(catalog.put(1, Idempotency_Key=key), 400, "invalid_header")
        assert content["header"] == "Idempotency-Key"
        assert catalog.get().status_code == 404

    @pytest.mark.parametrize("key", ["!", '"8e03978e-40d5"', "x" * 255, "a/b%2F?#"])
    def test_a_key_may_have_any_visible_ascii(self, catalog: Catalog, key: str) -> None:
        assert catalog.put(1, Idempotency_Key=key).status_code == 201


class TestCommitMessage:
    def test_a_message_is_percent_encoded(self, catalog: Catalog) -> None:
        catalog.put(1, Commit_Message="caf%C3%A9%0A%F0%9F%98%80 100%25")
        commit = catalog.client.get(f"{catalog.path}/commits/1").get_json()
        assert commit["message"] == "café\n😀 100%"

    @pytest.mark.parametrize("text", ["%", "%ff", "x" * 1001])
    def test_an_invalid_message_is_400(self, catalog: Catalog, text: str) -> None:
        problem(catalog.put(1, Commit_Message=text), 400, "invalid_header")

    def test_the_length_of_a_message_is_in_characters(self, catalog: Catalog) -> None:
        assert catalog.put(1, Commit_Message="%C3%A9" * 1000).status_code == 201


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1970-01-01T00:00:00.1234567Z", 123_456),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00 01:00", 0),
        ("1969-12-31T23:30:00-00:30", 0),
        ("1969-12-31T23:59:59.75Z", -250_000),
    ],
)
def test_timestamps_are_parsed(text: str, microseconds: int) -> None:
    assert timestamp_us(text) == microseconds
