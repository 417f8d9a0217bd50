"""The bulk client against a server that follows a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from patching.client import BulkAnswer, BulkLine, BulkTerms, Retry
from patching.client.bulk_writer import BulkWriter
from patching.client.transport import Transport
from tests.client.fake_bulk import (
    APPLIED,
    BUSY,
    CUT,
    FALSE,
    LATE,
    LOST,
    Scripted,
    by_key,
    problem,
)


@pytest.fixture
def server() -> Iterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.server.shutdown()
    scripted.server.server_close()


class Clock:
    """It is as late as the pauses say."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


Run = Callable[..., list[BulkAnswer]]


@pytest.fixture
def run(server: Scripted, clock: Clock) -> Iterator[Run]:
    """`run("a b", keyed=…, **terms)`: the answers to lines with these keys. Of the `terms`,
    `retries_max` and `on_retry` are those of `retry`."""

    def write(keys: str, *, keyed: bool = True, **terms: Any) -> list[BulkAnswer]:
        policy = {name: terms.pop(name, None) for name in ("retries_max", "on_retry")}
        retry = Retry(1.0, 8.0, lambda: 1.0, clock=lambda: clock.now, sleep=clock.sleep, **policy)
        lines = [BulkLine(json.dumps({"key": key}).encode(), keyed, key[0]) for key in keys.split()]
        return list(BulkWriter(transport, BulkTerms(**{"retry": retry} | terms)).write(lines))

    with Transport(f"http://127.0.0.1:{server.server.server_port}") as transport:
        yield write


def test_lines_are_sent_in_requests_and_answers_come_in_order(server: Scripted, run: Run) -> None:
    answers = run("a b c d e", lines_max=2)
    assert server.requests == [["a", "b"], ["c", "d"], ["e"]]
    assert [answer.line.subject for answer in answers] == ["a", "b", "c", "d", "e"]
    assert all(answer.changed and answer.sends == 1 for answer in answers)


def test_requests_of_large_lines_have_fewer_lines(server: Scripted, run: Run) -> None:
    run("a " + "b" * 100 + " c d", bytes_max=50)
    assert [[key[0] for key in lines] for lines in server.requests] == [["a"], ["b"], ["c", "d"]]


def test_only_lines_refused_for_the_moment_are_sent_again(
    server: Scripted, run: Run, clock: Clock
) -> None:
    server.script = [by_key(b=problem(BUSY), c=problem(FALSE), d=problem(LATE))]
    answers = run("a b c d")
    assert server.requests == [["a", "b", "c", "d"], ["b", "d"]]
    assert [answer.sends for answer in answers] == [1, 2, 1, 2]
    assert [answer.error and answer.error.code for answer in answers] == [
        None,
        None,
        "test_failed",
        None,
    ]
    assert clock.pauses == [1.0]


def test_later_lines_wait_for_lines_that_are_sent_again(server: Scripted, run: Run) -> None:
    server.script = [by_key(b=problem(BUSY))]
    run("a b c d", lines_max=2)
    assert server.requests == [["a", "b"], ["b"], ["c", "d"]]


def test_a_busy_gateway_gets_fewer_lines_per_request(server: Scripted, run: Run) -> None:
    keys = " ".join(f"k{n}" for n in range(64))
    server.script = [lambda lines: [problem(BUSY)] * len(lines)]
    run(keys, lines_max=64)
    assert [len(lines) for lines in server.requests] == [64, 32, 32]


def test_a_request_refused_for_the_moment_is_sent_again_after_more_than_retry_after(
    server: Scripted, run: Run, clock: Clock
) -> None:
    server.script = [(503, {"Retry-After": "7"}, {"code": "x", "retryable": True, "applied": "no"})]
    assert all(answer.changed for answer in run("a b"))
    assert clock.pauses == [7.0 + 1.0]


def test_a_line_without_an_answer_is_sent_again_with_its_key(server: Scripted, run: Run) -> None:
    replayed = {**APPLIED, "replayed": True}
    server.script = [by_key(b=None), by_key(b=replayed)]
    answers = run("a b c")
    assert server.requests == [["a", "b", "c"], ["b", "c"]]
    assert [answer.replayed for answer in answers] == [False, True, False]


def test_without_a_key_nothing_is_sent_again_that_may_have_been_applied(
    server: Scripted, run: Run
) -> None:
    server.script = [by_key(b=None)]
    answers = run("a b c d e", keyed=False, lines_max=4)
    assert server.requests == [["a", "b", "c", "d"]]
    assert [(answer.decided, answer.applied) for answer in answers] == [
        (True, "yes"),
        (False, "unknown"),
        (False, "unknown"),
        (False, "unknown"),
    ]


def test_at_least_once_can_be_chosen(server: Scripted, run: Run) -> None:
    server.script = [by_key(b=None)]
    assert all(a.decided for a in run("a b", keyed=False, resend_unknown=True))
    assert server.requests == [["a", "b"], ["b"]]


@pytest.mark.parametrize(
    ("code", "keyed", "applied"),
    [
        ("test_failed", True, "no"),
        ("test_failed", False, "unknown"),
        ("too_much_work", True, "unknown"),
        ("application_conflict", True, "unknown"),
        ("over_limit", True, "unknown"),
        ("route_not_found", True, "unknown"),
    ],
)
def test_a_refusal_after_a_lost_answer_is_about_both_only_if_their_key_decided_it(
    server: Scripted, run: Run, code: str, keyed: bool, applied: str
) -> None:
    server.script = [by_key(a=None), by_key(a=problem({**FALSE, "code": code}))]
    (answer,) = run("a", keyed=keyed, resend_unknown=True)
    assert answer.error is not None
    assert (answer.error.code, answer.applied, answer.sends) == (code, applied, 2)
    assert answer.error.applied == applied


def test_an_unknown_outcome_is_resolved_by_sending_the_line_again(
    server: Scripted, run: Run
) -> None:
    server.script = [by_key(a=problem(LOST))]
    (answer,) = run("a")
    assert answer.decided
    assert answer.sends == 2
    (answer,) = run("a", keyed=False)
    assert answer.decided


def test_a_truncated_answer_leaves_the_remaining_lines_unknown(server: Scripted, run: Run) -> None:
    server.script = [lambda lines: [APPLIED] * (len(lines) - 1)]
    assert [answer.sends for answer in run("a b c")] == [1, 1, 2]


def test_a_problem_with_the_body_is_not_taken_for_the_answer_of_a_line(
    server: Scripted, run: Run
) -> None:
    server.script = [lambda _: [APPLIED, problem(CUT)]]
    answers = run("a b c")
    assert [answer.sends for answer in answers] == [1, 2, 2]
    assert all(answer.changed for answer in answers)


def test_lines_after_the_end_of_a_request_are_sent_again_with_or_without_a_key(
    server: Scripted, run: Run
) -> None:
    server.script = [lambda _: [problem(FALSE), problem({**CUT, "code": "too_many_refused"})]]
    answers = run("a b c", keyed=False)
    assert [answer.sends for answer in answers] == [1, 2, 2]
    assert [answer.changed for answer in answers] == [False, True, True]


def test_retries_end_at_the_timeout(server: Scripted, run: Run, clock: Clock) -> None:
    server.script = [lambda lines: [problem(LATE)] * len(lines)] * 100
    answers = run("a b c", lines_max=2, retry_timeout_s=20)
    assert clock.now == 20
    assert len(answers) == 2  # and the third line was never sent
    assert [(a.decided, a.applied, a.error and a.error.code) for a in answers] == [
        (False, "no", "deadline_exceeded")
    ] * 2


def test_the_timeout_restarts_with_each_decided_line(
    server: Scripted, run: Run, clock: Clock
) -> None:
    """A busy gateway lets one line in at a time; each would have waited for too long by itself."""

    def nobody(lines: list[str]) -> list[Any]:
        return [problem(BUSY)] * len(lines)

    def the_first(lines: list[str]) -> list[Any]:
        return [APPLIED, *nobody(lines[1:])]

    server.script = [nobody, nobody, nobody, the_first] * 8
    answers = run("a b c d e f g h", retry_timeout_s=20)
    assert all(answer.changed for answer in answers)
    assert clock.now > 20


def test_retries_end_after_the_maximum_number(server: Scripted, run: Run) -> None:
    server.script = [by_key(a=problem(BUSY))] * 100
    answers = run("a b", retries_max=2)
    assert [(answer.decided, answer.sends) for answer in answers] == [(False, 3), (True, 1)]


@pytest.mark.parametrize("status", [401, 403, 413, 415])
def test_a_request_refused_as_a_whole_does_not_decide_its_lines(
    server: Scripted, run: Run, status: int
) -> None:
    server.script = [(status, {}, {"code": "not_allowed", "retryable": False, "applied": "no"})]
    answers = run("a b")
    assert len(server.requests) == 1
    assert [(answer.decided, answer.applied) for answer in answers] == [(False, "no")] * 2


def test_a_token_that_expires_does_not_decide_the_lines(server: Scripted, run: Run) -> None:
    """One that lacks a right is: it is about the catalog of its line."""
    ended = {"code": "unauthenticated", "status": 401, "applied": "no", "retryable": False}
    denied = {**ended, "code": "forbidden", "status": 403}
    server.script = [by_key(b=problem(denied), c=problem(ended), d=problem(ended))]
    answers = run("a b c d")
    assert len(server.requests) == 1
    assert [answer.decided for answer in answers] == [True, True, False, False]
    assert [answer.applied for answer in answers] == ["yes", "no", "no", "no"]


def test_a_refused_connection_means_not_applied(clock: Clock) -> None:
    with Transport("http://127.0.0.1:9") as transport:
        retry = Retry(retries_max=None, clock=lambda: clock.now, sleep=clock.sleep)
        terms = BulkTerms(retry_timeout_s=5, retry=retry)
        (answer,) = BulkWriter(transport, terms).write([BulkLine(b"{}", keyed=False)])
    assert (answer.decided, answer.applied) == (False, "no")
    assert answer.error is not None
    assert answer.error.code == "unreachable"
    assert clock.now >= 5


def test_an_answer_for_another_line_is_ignored(server: Scripted, run: Run) -> None:
    server.script = [lambda _: [{"index": 7, **APPLIED}]]
    (answer,) = run("a")
    assert (answer.decided, answer.applied) == (False, "unknown")
