"""The exit code shows the outcome of a command, as docs/cli.md describes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gateway.cli import exit_codes as exit_codes
from patching.client import AppendFailed, Unreachable
from patching.client.errors import problem_of
from tests.commandline.canned import Asked, Canned, Reply, problem
from tests.commandline.conftest import Commands

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.parametrize(
    ("status", "applied", "retryable", "code"),
    [
        (400, "no", False, 1),
        (401, "no", False, 5),
        (403, "no", False, 5),
        (404, "no", False, 3),
        (409, "no", False, 4),
        (410, "no", False, 3),
        (412, "no", False, 4),
        (413, "no", False, 1),
        (422, "no", False, 1),
        (428, "no", False, 4),
        (429, "no", True, 6),
        (500, "no", False, 1),
        (500, "unknown", False, 7),
        (503, "no", True, 6),
        (504, "unknown", False, 7),
    ],
)
def test_the_kind_of_a_refusal_decides_the_exit_code(
    status: int, applied: str, retryable: bool, code: int
) -> None:
    error = problem_of(status, {"applied": applied, "retryable": retryable, "code": "x"})
    assert exit_codes.exit_code(error) == code


def test_a_connection_error_has_the_exit_code_unreachable_or_unknown() -> None:
    assert exit_codes.exit_code(Unreachable("x", applied="no")) == exit_codes.OUT_OF_REACH
    assert exit_codes.exit_code(Unreachable("x", applied="unknown")) == exit_codes.UNKNOWN
    failed = AppendFailed("x", attempts=1, last_head=1, applied="no")
    assert exit_codes.exit_code(failed) == exit_codes.FAILED


def test_the_documented_exit_codes_are_the_real_ones() -> None:
    section = DOCS.read_text().split("## Exit codes")[1].split("\n## ")[0]
    documented = {int(code) for code in re.findall(r"(?m)^\| (\d+) \|", section)}
    held = {value for name, value in vars(exit_codes).items() if name.isupper() and name[0] != "_"}
    assert documented == held
    rows = dict(re.findall(r"(?m)^\| (\d+) \|.*\| ([^|]*) \|$", section))
    for code, sources in rows.items():
        for status in re.findall(r"\b[45]\d\d\b", sources):
            error = problem_of(
                int(status),
                {
                    "applied": "unknown" if status == "504" else "no",
                    "retryable": status in ("429", "503"),
                },
            )
            assert exit_codes.exit_code(error) == int(code), status


@pytest.mark.parametrize(
    ("reply", "arguments", "code", "said"),
    [
        (problem(401, "unauthenticated"), ("get", "c", "k"), 5, "GATEWAY_TOKEN"),
        (problem(403, "forbidden"), ("put", "c", "k", "1"), 5, "about forbidden"),
        (problem(429, "rate_limited"), ("put", "c", "k", "1"), 6, "429 rate_limited"),
        (problem(503, "store_unavailable"), ("get", "c", "k"), 6, "503 store_unavailable"),
        (problem(504, "outcome_unknown"), ("put", "c", "k", "1"), 7, "--idempotency-key "),
        (None, ("put", "c", "k", "1"), 7, "--idempotency-key "),
        (None, ("get", "c", "k"), 6, "unreachable"),
        ((200, "no gateway"), ("get",), 1, "unexpected_answer"),
        (
            problem(412, "precondition_failed", current={"etag": "9-ff", "revision": 9}),
            ("put", "c", "k", "1"),
            4,
            "the current token is 9-ff",
        ),
        (
            problem(409, "test_failed", operation=1, pointer="/a/b"),
            ("patch", "c", "k", "[]"),
            4,
            "operation 1; pointer '/a/b'",
        ),
        (
            problem(412, "precondition_failed", overlap=["/x"]),
            ("patch", "c", "k", "[]", "--if-match", "1-a", "--rebase"),
            4,
            "overlapping pointers: '/x'",
        ),
        (
            problem(422, "schema_violation", errors=[{"pointer": "/n", "message": "is no text"}]),
            ("put", "c", "k", "1"),
            1,
            "'/n': is no text",
        ),
    ],
)
def test_an_error_is_one_line_with_its_code_and_a_remedy(
    reply: Reply, arguments: tuple[str, ...], code: int, said: str
) -> None:
    def answer(_: Asked) -> Reply:
        return reply

    with Canned(answer) as canned:
        ran = Commands(canned.url)(*arguments, "--timeout=0.2", code=code)
    assert ran.stdout == ""
    assert ran.error().startswith("gateway: ")
    assert said in ran.error()


def test_with_output_json_an_error_is_printed_as_the_problem() -> None:
    def forbid(_: Asked) -> Reply:
        return problem(403, "forbidden", extra={"kept": 1})

    with Canned(forbid) as canned:
        ran = Commands(canned.url)("get", "c", "k", "--output=json", code=5)
    told = json.loads(ran.error())
    assert (told["code"], told["status"], told["extra"]) == ("forbidden", 403, {"kept": 1})
    nowhere = Commands("http://127.0.0.1:1")
    told = json.loads(nowhere("get", "--output=json", "--timeout=0.1", code=6).error())
    assert (told["code"], told["applied"]) == ("unreachable", "no")


def test_control_characters_in_an_error_are_escaped() -> None:
    def attack(_: Asked) -> Reply:
        return problem(403, "forbidden", detail="red \x1b[31m\nand a second line \x9b")

    with Canned(attack) as canned:
        line = Commands(canned.url)("get", "c", "k", code=5).error()
    assert line.isprintable()
    assert r"red \x1b[31m\nand a second line \x9b" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("get", "c", "k", "--prefix", "x"), "--prefix"),
        (("get", "c", "--with-token"), "--with-token"),
        (("get", "--values"), "--values"),
        (("get", "c", "k", "--revision", "1", "--at", "2026-01-01T00:00:00Z"), "not both"),
        (("get", ""), "empty"),
        (("put", "c", "k", "orders"), "a string needs its quotes"),
        (("put", "c", "k", '{"a": 1'), "isn't JSON"),
        (("put", "c", "k", "1e400"), "isn't JSON"),
        (("put", "c", "k", '{"a": {"b": 1, "b": 2}}'), "the member '/a/b' twice"),
        (("patch", "c", "k", '[{"op": "test", "op": "remove", "path": ""}]'), "'/0/op' twice"),
        (("put", "c", "k", "@/does/not/exist"), "can't read '/does/not/exist'"),
        (("put", "c", "k", "1", "--if-absent", "--if-match", "1-a"), "can't be given together"),
        (("put", "c", "k", "1", "--if-match", ""), "version token"),
        (("put", "c", "k", "1", "--idempotency-key", "ü"), "idempotency key"),
        (("patch", "c", "k", "[1]"), "each operation must be an object"),
        (("patch", "c", "k", "{}"), "--merge"),
        (("patch", "c", "k", '{"patch": [], "else": 1}'), "'else'"),
        (("patch", "c", "k", "[]", "--rebase"), "--if-match"),
        (("patch", "c", "k", "{}", "--merge", "--test", "/a=1"), "--test"),
        (("patch", "c", "k", "[]", "--test", "a=1"), "POINTER=JSON"),
        (("diff", "c", "k", "@/does/not/exist"), "can't read"),
        (("diff", "c", "k", "one"), "one"),
        (("log", "c", "--last", "1", "--follow"), "--last"),
        (("transaction", "c", "[]"), "an object"),
        (("import", "c", "/does/not/exist"), "can't read"),
        (("import", "c", "-", "--if-absent", "--replace"), "can't be given together"),
        (("import", "c", "-", "--allow-empty"), "--delete-others"),
        (("get", "--url", "ftp://x"), "http or https"),
        (("get", "--url", "http://h/?a=1"), "can't have a query"),
        (("get", "--url", "http://h:port"), "this is not a URL"),
        (("get", "--output", "xml"), "xml"),
        (("gte",), "gte"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_sends_nothing(
    arguments: tuple[str, ...], said: str
) -> None:
    ran = Commands("http://127.0.0.1:1")(*arguments, code=2)
    assert ran.stdout == ""
    assert said in ran.error()


def test_a_timeout_that_is_not_a_number_is_wrong_usage(run: Commands) -> None:
    assert "'--timeout': this is not a number" in run("get", "--timeout", "nan", code=2).error()
