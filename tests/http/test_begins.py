"""A bulk line that begins the version that it belongs to, so that no request does before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.commit.series import Series
from gateway.decide.request import Refused, Unknown, WriteOutcome
from gateway.errors import DeadlineExceeded
from gateway.http.routes import bulk
from gateway.http.wire.problems import encode_refusal
from gateway.http.write.bulk_lines import LineTerms
from gateway.limits import ServiceLimits
from gateway.service import GatewayService
from tests.access.service import Caller, Service, catalog_path, document_path
from tests.memory_store import MemoryStore
from tests.without_http import SetClock

ETL = f"{catalog_path('c')}/applications/etl"
SEVEN = {"application": "etl", "version": 7, "keys": "content", "principals": ["bob"]}


@pytest.fixture
def service() -> Service:
    limits = ServiceLimits()
    gateway = GatewayService(MemoryStore(), SetClock(), limits, encode_refusal=encode_refusal)
    return Service(gateway=gateway)


@pytest.fixture
def ann(service: Service) -> Caller:
    return service.caller("ann", "write:c")


@pytest.fixture
def bob(service: Service) -> Caller:
    return service.caller("bob", "write:c")


def put(key: str, value: Any = 1, **members: Any) -> dict[str, Any]:
    line = {
        "catalog": "c",
        "key": key,
        "op": "put",
        "value": value,
        "idempotency_key": f"row-{key}",
    }
    return line | members


def commits(caller: Caller) -> list[str | None]:
    """The messages of all."""
    told = caller.send("GET", f"{catalog_path('c')}/commits").get_json()["commits"]
    return [each.get("message") for each in told]


def refused(answer: dict[str, Any]) -> tuple[str, str]:
    """By which code, and how its detail begins."""
    problem = answer["problem"]
    assert problem["pointer"] == "/begin"
    assert problem["applied"] == "no"
    return problem["code"], problem["detail"][:32]


def test_lines_begin_their_version_once_and_are_written_under_its_fence(
    ann: Caller, bob: Caller
) -> None:
    answers = ann.bulk(*(put(key, begin=SEVEN) for key in "abc"))
    assert [each["status"] for each in answers] == [201] * 3
    (fence,) = {each["fence"] for each in answers}
    told = ann.send("PUT", ETL, {"version": 7, "principals": ["bob"]}).get_json()
    assert (told["fence"], told["keys"]) == (fence, "content")
    assert commits(ann) == ["version 7 of application etl begun", None, None, None]
    # Whoever shares it begins it again, which changes nothing, and its keys are the application's.
    (again,) = bob.bulk(put("a", begin=SEVEN | {"principals": ["ann"]}))
    assert (again["replayed"], again["fence"]) == (True, fence)
    (plain,) = ann.bulk(put("a", fence=fence))
    assert plain["replayed"]
    assert "fence" not in plain, "who sent it knows it"
    assert len(commits(ann)) == 4


def test_lines_before_a_begin_are_decided_before_it(ann: Caller) -> None:
    (first,) = ann.bulk(put("a", begin=SEVEN))
    answers = ann.bulk(
        put("b", fence=first["fence"]),
        put("c", begin=SEVEN | {"version": 8}),
        put("d", fence=first["fence"]),
    )
    assert [each["status"] for each in answers] == [201, 201, 409]
    assert answers[1]["fence"].startswith("8.")


def test_a_run_and_an_open_application_have_their_own_fences(ann: Caller, bob: Caller) -> None:
    def touch(run: str) -> dict[str, Any]:
        """Of a document that isn't there."""
        line = put("a", begin=SEVEN | {"run": run}, op="touch", if_match="*")
        del line["value"]
        (answer,) = ann.bulk(line)
        return dict(answer)

    assert [touch(run).get("replayed") for run in ("1f", "1f", "2f")] == [None, True, None]
    everybodys = {"application": "sync", "version": 1, "open": True}
    bare = put("b", begin=everybodys)
    del bare["idempotency_key"]
    (answer,) = bob.bulk(bare)
    assert answer["fence"].startswith("1*.")


def test_the_refusal_of_a_line_of_a_finished_version_points_to_its_begin(
    service: Service, ann: Caller, bob: Caller
) -> None:
    ann.send("PUT", ETL, {"version": 7, "keys": "content", "finished": True, "principals": ["bob"]})
    before = commits(ann)
    answers = ann.bulk(*(put(key, begin=SEVEN) for key in "ab"))
    assert {refused(each) for each in answers} == {
        ("application_conflict", "version 7 of application 'etl' i")
    }
    eight, strange = SEVEN | {"version": 8, "keys": "place"}, service.caller("eve", "write:c")
    assert ann.bulk(put("a", begin=eight))[0]["status"] == 201
    for caller, begin, code in (
        (ann, SEVEN, "application_conflict"),
        (ann, eight | {"keys": "content"}, "application_conflict"),  # others apply again
        (ann, eight | {"open": True}, "application_conflict"),
        (bob, eight, "application_conflict"),  # who doesn't name ann
        (strange, eight, "forbidden"),
    ):
        (answer,) = caller.bulk(put("b", begin=begin))
        assert refused(answer)[0] == code
    assert ann.send("GET", document_path("c", "b")).status_code == 404
    assert len(commits(ann)) == len(before) + 2


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"begin": 7}, "/begin"),
        ({"begin": {"version": 7}}, "/begin/application"),
        ({"begin": {"application": "etl"}}, "/begin/version"),
        ({"begin": SEVEN | {"version": -1}}, "/begin/version"),
        ({"begin": SEVEN | {"application": "a\0"}}, "/begin/application"),
        ({"begin": SEVEN | {"application": "a" * 256}}, "/begin/application"),
        ({"begin": SEVEN | {"finished": True}}, "/begin/finished"),
        ({"begin": SEVEN | {"run": "x"}}, "/begin/run"),
        ({"begin": SEVEN | {"principals": []}}, "/begin/principals"),
        ({"begin": SEVEN, "fence": "7.5f0c.etl"}, "/begin"),
        ({"begin": SEVEN, "dry_run": True}, "/begin"),
        ({"begin": SEVEN, "idempotency_key": None}, "/begin"),
    ],
)
def test_an_invalid_begin_is_refused(ann: Caller, members: dict[str, Any], pointer: str) -> None:
    line = {name: value for name, value in put("a", **members).items() if value is not None}
    (answer,) = ann.bulk(line)
    assert answer["problem"]["code"] == "invalid_body"
    assert answer["problem"]["pointer"] == pointer
    assert ann.send("GET", catalog_path("c")).status_code == 404


def test_repeated_members_of_a_begin_are_refused(ann: Caller) -> None:
    line = b'{"catalog":"c","key":"a","op":"delete","idempotency_key":"1","begin":%s}'
    twice = b'{"application":"etl","version":7,"version":8}'
    answer = ann.send("POST", "/v1/bulk", line % twice, Content_Type="application/x-ndjson")
    assert '"pointer":"/begin' in answer.text
    assert ann.send("GET", catalog_path("c")).status_code == 404


@pytest.mark.parametrize("unknown", [False, True])
def test_lines_after_a_begin_that_may_be_retried_are_held_back(
    service: Service, ann: Caller, monkeypatch: pytest.MonkeyPatch, *, unknown: bool
) -> None:
    """None of them is applied, and all may be sent again, in their order."""
    commit = service.gateway.commit
    outcomes = [Unknown("id")] if unknown else []

    def fails(request: Any) -> WriteOutcome:
        outcome = outcomes.pop() if outcomes else Refused(DeadlineExceeded("late"))
        return WriteOutcome(outcome, request.commit_id, 1)

    monkeypatch.setattr(service.gateway, "commit", fails)
    lines = [put("a", begin=SEVEN), put("b"), put("c", begin=SEVEN)]
    answers = ann.bulk(*lines)
    codes = [each["problem"]["code"] for each in answers]
    first = "held_back" if unknown else "deadline_exceeded"
    assert codes == [first, "held_back", first]
    assert {(each["problem"]["applied"], each["problem"]["retryable"]) for each in answers} == {
        ("no", True)
    }
    monkeypatch.setattr(service.gateway, "commit", commit)
    assert [each["status"] for each in ann.bulk(*lines)] == [201] * 3


def test_a_begin_needs_write_access_to_the_catalog_of_its_line(ann: Caller) -> None:
    (answer,) = ann.bulk(put("a", begin=SEVEN, catalog="d"))
    assert answer["problem"]["code"] == "forbidden"
    assert "pointer" not in answer["problem"]


def test_what_a_request_remembers_of_begins_is_small_and_bounded(
    ann: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A begin may be as long as a line, and a request may have any number of them."""
    made: list[LineTerms] = []

    class Seen(LineTerms):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    monkeypatch.setattr(bulk, "LineTerms", Seen)
    monkeypatch.setattr(bulk, "_BEGINS_MAX", 2)
    lines = [
        json.dumps(put(f"k{n}", begin=SEVEN | {"version": n})).replace("{", "{" + " " * 100_000)
        for n in range(5)
    ]
    body = "\n".join([*lines, *lines[-1:]]).encode()
    answer = ann.send("POST", "/v1/bulk", body, Content_Type="application/x-ndjson")
    answers = [json.loads(line) for line in answer.text.splitlines()]
    assert [each["status"] for each in answers] == [201] * 6
    assert answers[5]["replayed"]
    assert len({each["fence"] for each in answers}) == 5
    (terms,) = made
    assert 1 <= len(terms.begun) <= 2
    assert all(len(digest) < 100 for _, digest in terms.begun)


def test_lines_committed_before_a_defect_are_not_committed_twice(
    ann: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that needs a begin has the lines before it put, and fails in the midst of that."""
    ann.bulk(put("a", value=[], idempotency_key="first"))
    done, failed = Series.put, list[int]()

    def fail(self: Series, requests: Any) -> bool:
        is_put = done(self, requests)
        if not failed:
            failed.append(1)
            raise ZeroDivisionError
        return is_put

    monkeypatch.setattr(Series, "put", fail)
    added = {"catalog": "c", "key": "a", "op": "patch"}
    change = [{"op": "add", "path": "/-", "value": 1}]
    with pytest.raises(RuntimeError, match="broken off"):
        ann.bulk({**added, "patch": change}, put("b", begin=SEVEN))
    content = ann.send("GET", document_path("c", "a")).get_json()
    assert content in ([], [1])
