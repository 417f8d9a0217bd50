"""What the file says of answers in words, beside what schemathesis reads out of its schemas."""

from __future__ import annotations

from typing import Any

from openapi_schema_validator import OAS31Validator
from schemathesis import Case
from schemathesis.checks import CheckContext
from schemathesis.core.transport import Response

from gateway.http.problem_kinds import KINDS
from gateway.server import requests as server_requests
from tests.openapi.document import Object, load

_WRITES = ("PUT", "PATCH", "DELETE")
# Open to members of later versions, but the service sends none that the file doesn't name.
_SENT = (
    "Change",
    "Commit",
    "CommitPage",
    "CommitSummary",
    "CurrentVersion",
    "Outcome",
    "Problem",
    "WriteAnswer",
)


def closed_document() -> Object:
    """The file, whose answers may have no members but those that it names."""
    document = load()
    for name in _SENT:
        document["components"]["schemas"][name]["additionalProperties"] = False
    return document


def problem_statuses() -> dict[str, int]:
    """Of every code that the service can answer with, by itself or from its request parser."""
    parsing = {code: int(status) for status, code in server_requests._REFUSALS.values()}
    return {**{code: kind.status for code, kind in KINDS.items()}, **parsing}


DOCUMENT = closed_document()
_statuses = problem_statuses()
_write_answer = OAS31Validator(
    {"$ref": "#/components/schemas/WriteAnswer", "components": DOCUMENT["components"]}
)


def a_problem_fits_its_code(_: CheckContext, response: Response, case: Case[Any]) -> None:
    if response.status_code < 400 or case.method == "HEAD":
        return
    problem = response.json()
    assert problem["status"] == response.status_code == _statuses[problem["code"]], problem


def a_write_says_what_became_of_it(_: CheckContext, response: Response, case: Case[Any]) -> None:
    """The schema allows any document in place of the answer; this doesn't."""
    if case.method not in _WRITES or response.status_code not in (200, 201):
        return
    if "return=representation" not in response.headers.get("preference-applied", [""])[0]:
        _write_answer.validate(response.json())


CHECKS: list[Any] = [a_problem_fits_its_code, a_write_says_what_became_of_it]
