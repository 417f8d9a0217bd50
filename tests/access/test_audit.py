"""A line for each write and each refusal: who, what, where, and what became of it; no secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from gateway.decide.request import Request, Unknown, WriteOutcome
from gateway.store.contract import StoreUnreachable
from tests.access.service import Caller, Service
from tests.forced_outcomes import force_outcomes
from tests.memory_store import MemoryStore

PATH = "/v1/catalogs/team%2Fc"
Lines = Callable[[], list[dict[str, Any]]]
FIELDS = (
    *("action", "principal", "catalog", "key", "outcome", "code", "commit_id", "author"),
    *("status", "writes", "request_id", "dry_run", "path", "method", "revision"),
    *("lines", "refused", "left_out", "client"),
)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def ann(service: Service) -> Caller:
    return service.caller("ann", "write:team/*")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, "gateway.audit")

    def told() -> list[dict[str, Any]]:
        found = [vars(r) for r in caplog.records if r.name == "gateway.audit"]
        caplog.clear()
        return [{n: line[n] for n in FIELDS if line.get(n) is not None} for line in found]

    return told


def test_a_write_is_audited_with_its_commit(ann: Caller, lines: Lines) -> None:
    path = f"{PATH}/documents/a%2Fb"
    answer = ann.send("PUT", path, 1, X_Request_Id="r-1", Idempotency_Key="x")
    (line,) = lines()
    assert line == {
        "action": "put_document",
        "method": "PUT",
        "principal": "ann",
        "author": "ann",
        "catalog": "team/c",
        "key": "a/b",
        "outcome": "applied",
        "status": 201,
        "commit_id": answer.headers["Commit-Id"],
        "revision": 1,
        "request_id": "r-1",
        "client": "127.0.0.1",
    }
    for sent, outcome in (
        ({"Idempotency_Key": "x"}, "replayed"),
        ({}, "unchanged"),
        ({"If_Match": '"9-x"'}, "refused"),
    ):
        ann.send("PUT", path, 1, **sent)
        (line,) = lines()
        assert line["outcome"] == outcome
        assert line.get("code") == ("precondition_failed" if outcome == "refused" else None)
    ann.send("PUT", f"{path}?dry_run=true", 2)
    (line,) = lines()
    assert (line["dry_run"], line["outcome"], "commit_id" in line) == (True, "unchanged", False)


@pytest.mark.parametrize(
    ("method", "path", "body", "action"),
    [
        ("POST", "/transactions", {"then": [{"action": "touch"}]}, "transaction"),
        ("POST", "/touch", None, "touch_catalog"),
        ("DELETE", "/documents/k", None, "delete_document"),
        ("PUT", "/attributes/k", {"a": 1}, "put_attributes"),
        ("POST", "/uploads", {"key": "k"}, "open_upload"),
        ("POST", "/pins", {"seconds": 1}, "create_pin"),
    ],
)
def test_every_kind_of_change_is_audited(
    method: str, path: str, body: Any, action: str, ann: Caller, lines: Lines
) -> None:
    ann.send("PUT", f"{PATH}/documents/k", 1)
    lines()
    answer = ann.send(method, PATH + path, body)
    assert answer.status_code < 300, answer.text
    (line,) = lines()
    assert (line["action"], line["principal"], line["catalog"]) == (action, "ann", "team/c")
    commits = "pin" not in action and "upload" not in action
    assert line["outcome"] == ("applied" if commits else "done")
    assert ("commit_id" in line) == commits


def test_reads_are_audited_only_if_they_are_refused(
    service: Service, ann: Caller, lines: Lines
) -> None:
    ann.send("GET", f"{PATH}/documents")
    service.stranger().send("GET", "/livez")
    assert lines() == []
    ann.send("GET", "/v1/catalogs/other/documents/k")
    service.stranger().send("GET", "/v1/catalogs/other")
    service.stranger().send("GET", "/v2")
    told = [(e["outcome"], e["code"], e.get("principal"), e.get("catalog")) for e in lines()]
    assert told == [
        ("refused", "forbidden", "ann", "other"),
        ("refused", "unauthenticated", None, "other"),
        ("refused", "unauthenticated", None, None),
    ]


def test_another_author_is_audited_besides_the_principal(service: Service, lines: Lines) -> None:
    service.caller("job", "admin:*").send("POST", f"{PATH}/touch", Commit_Author="eve")
    (line,) = lines()
    assert (line["principal"], line["author"]) == ("job", "eve")


def test_bulk_writes_are_audited_by_catalog(service: Service, lines: Lines) -> None:
    job = service.caller("job", "write:team/*")
    wanted = [
        {"catalog": f"team/{index % 2}", "op": "put", "key": f"k{index}", "value": 1}
        for index in range(300)
    ]
    answers = job.bulk(*wanted, {**wanted[0], "catalog": "other"}, {**wanted[0], "if_match": "9-x"})
    *told, end = lines()
    assert (end["outcome"], end["lines"], end["refused"]) == ("done", 302, 1)
    assert all(
        (e["action"], e["principal"], e["request_id"] != "") == ("bulk", "job", True) for e in told
    )
    assert all(len(each["writes"]) <= 100 for each in told)
    writes = [(each["catalog"], write) for each in told for write in each["writes"]]
    by_key = {
        (catalog, w["key"]): (w["outcome"], w.get("commit_id"))
        for catalog, w in writes
        if "code" not in w
    }
    assert by_key == {
        (line["catalog"], line["key"]): ("applied", answer["commit_id"])
        for line, answer in zip(wanted, answers[:300], strict=True)
    }
    assert {(e["client"], e.get("author")) for e in told} == {
        ("127.0.0.1", "job"),
        ("127.0.0.1", None),  # of the line that wasn't let in
    }
    refused = [(catalog, w["outcome"], w["code"]) for catalog, w in writes if "code" in w]
    assert sorted(refused) == [
        ("other", "refused", "forbidden"),
        ("team/0", "refused", "precondition_failed"),
    ]


def test_the_author_of_a_bulk_line_is_audited(service: Service, lines: Lines) -> None:
    boss = service.caller("boss", "admin:*")
    line = {"catalog": "c", "op": "put", "value": 1}
    boss.bulk({**line, "key": "a"}, {**line, "key": "b", "author": "eve"}, {**line, "key": "c"})
    *told, _ = lines()
    assert [(e["author"], [w["key"] for w in e["writes"]]) for e in told] == [
        ("boss", ["a", "c"]),
        ("eve", ["b"]),
    ]


def test_a_bulk_line_with_an_unknown_outcome_is_audited_as_unknown(
    service: Service, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []
    force_outcomes(monkeypatch, lambda request: asked.append(request) or "unknown")
    (answer,) = service.caller("ann", "write:*").bulk(
        {"catalog": "c", "key": "k", "op": "put", "value": 1}
    )
    ((write,), *_) = [each["writes"] for each in lines() if "writes" in each]
    assert write["code"] == answer["problem"]["code"] == "outcome_unknown"
    assert write["commit_id"] == asked[0].commit_id


def test_a_bulk_request_with_only_refused_lines_is_audited(service: Service, lines: Lines) -> None:
    nobody = service.caller("nobody")
    answer = nobody.send("POST", "/v1/bulk", b"1\n" * 2000, Content_Type="application/x-ndjson")
    assert len(answer.data.splitlines()) == 1001
    (told,) = lines()
    assert (told["action"], told["principal"], told["client"]) == ("bulk", "nobody", "127.0.0.1")
    assert (told["outcome"], told["code"]) == ("refused", "too_many_refused")
    assert (told["lines"], told["refused"]) == (1000, 1000)


@pytest.mark.parametrize("who", ["ann", None])
def test_repeated_refusals_are_logged_in_summary(
    service: Service, who: str | None, lines: Lines
) -> None:
    """All clients without a valid token count as one. The next line counts what was left out."""
    caller = service.stranger() if who is None else service.caller(f"{who}-{id(lines)}")
    wanted = {401} if who is None else {403, 429}
    sent, told = 0, []
    # Until one was left out, and the next one is logged.
    while not told or "left_out" not in told[-1]:
        assert caller.send("PUT", f"{PATH}/documents/k", 1).status_code in wanted
        sent += 1
        told += lines()
        assert sent < 1_000_000
    assert sum(1 + each.get("left_out", 0) for each in told) == sent
    assert len(told) < sent


def test_a_client_that_is_refused_repeatedly_is_slowed_down(service: Service, ann: Caller) -> None:
    stranger = service.caller("somebody")
    answer = stranger.send("GET", "/v1/catalogs/team%2Fc")
    for _ in range(100_000):
        if answer.status_code != 403:
            break
        answer = stranger.send("GET", "/v1/catalogs/team%2Fc")
    content = answer.get_json()
    assert (answer.status_code, content["code"]) == (429, "rate_limited")
    assert content["violated_policies"] == ["refusals"]
    assert int(answer.headers["Retry-After"]) >= 1
    # Others aren't, nor is what it may do.
    assert ann.send("PUT", f"{PATH}/documents/k", 1).status_code == 201
    assert stranger.send("GET", "/v1/catalogs").status_code == 200


def test_an_unknown_outcome_is_audited_with_its_commit_id(
    service: Service, ann: Caller, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        service.gateway, "commit", lambda _: WriteOutcome(Unknown("the-id"), "the-id", 1)
    )
    ann.send("PUT", f"{PATH}/documents/k", 1)
    (line,) = lines()
    assert (line["outcome"], line["commit_id"], line["code"]) == (
        "unknown",
        "the-id",
        "outcome_unknown",
    )


def test_a_change_without_a_commit_whose_answer_was_lost_is_audited_as_unknown(
    lines: Lines,
) -> None:
    class Lossy(MemoryStore):
        def set_pin(self, *given: Any) -> bool:
            super().set_pin(*given)
            raise StoreUnreachable("the answer got lost")

    ann = Service(Lossy()).caller("ann", "write:team/*")
    ann.send("PUT", f"{PATH}/documents/k", 1)
    lines()
    assert ann.send("POST", f"{PATH}/pins", {"seconds": 1}).status_code == 504
    (line,) = lines()
    assert (line["outcome"], line["code"]) == ("unknown", "outcome_unknown")


def test_a_database_outage_is_not_audited_as_a_refusal(lines: Lines) -> None:
    class Away(MemoryStore):
        def heads(self, *_: Any) -> Any:
            raise StoreUnreachable("x")

        tails = heads

    ann = Service(Away()).caller("ann", "read:*")
    assert ann.send("GET", "/v1/catalogs/c/documents/k").status_code == 503
    assert lines() == []


def test_audit_lines_contain_names_only_and_nothing_else_that_was_sent(
    service: Service, ann: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert ann.token is not None
    secret = ann.token.rsplit("_", 1)[1]
    for token in (ann.token, f"gwt_{'0' * 16}_{secret}", f"{ann.token}x", f"x{secret}"):
        caller = Caller(service.app.test_client(), token)
        for method, path, body in (
            ("PUT", f"{PATH}/documents/k", {"password": "hunter2"}),
            ("GET", f"{PATH}/documents/none", None),
            ("GET", "/v1/catalogs/other", None),
            ("PATCH", f"{PATH}/documents/k", [{"op": "test", "path": "/x", "value": "hunter2"}]),
        ):
            answer = caller.send(method, path, body)
            assert secret not in answer.text
            assert secret not in str(answer.headers)
    told = [record for record in caplog.records if record.name == "gateway.audit"]
    assert told
    for record in told:
        shown = repr(vars(record))
        assert secret not in shown
        assert "hunter2" not in shown
