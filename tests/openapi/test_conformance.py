"""The running service, driven by requests that are generated from the file: valid and invalid.

All checks of schemathesis are on. Those that need more than one request or a login (use after free,
availability, authorization) find nothing to check here; `test_session.py` has the sequences.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from schemathesis import Case, HookContext
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.meta import CoveragePhaseData
from schemathesis.pytest.lazy import get_all_tests
from werkzeug.http import http_date

from tests.openapi.cases import CATALOG, Given, adjust, prepare
from tests.openapi.checks import DOCUMENT, call_and_validate
from tests.openapi.choices import chance
from tests.openapi.document import Object, Operation, examples, operations, parameters
from tests.patience import WAIT_S
from tests.service import RunningGateway

Answered = dict[str, set[int]]

# Of a transaction's members there are too many for each to be tried at each of its bounds, those of
# a revert take half as long to be generated as all others (tests/http/test_reverts.py has their
# bounds), writes of attributes take what writes of documents take, and this file takes long to be
# parsed.
CONFIG = SchemathesisConfig.from_dict(
    {
        "operations": [
            {"include-operation-id": name, "phases": {"coverage": {"enabled": False}}}
            for name in (
                "run_transaction",
                "revert",
                "put_attributes",
                "patch_attributes",
                "delete_attributes",
                "let_go",
                "read_openapi",
            )
        ]
    }
)
schemathesis.openapi.format("http-date", st.integers(0, 4_000_000_000).map(http_date))
# Lines are no type that schemathesis could make, and a stream isn't one answer to be checked:
# `test_streams.py` holds the bulk route and the event stream to their schemas.
_EXCLUDED = "run_bulk"
OPERATIONS = [
    name for each in operations(DOCUMENT) if (name := each.content["operationId"]) != _EXCLUDED
]


def _asked(operation: Operation) -> list[Object]:
    return [each for each in parameters(DOCUMENT, operation) if each["in"] == "query"]


@pytest.fixture(scope="module")
def tests() -> dict[str, Callable[..., None]]:
    """By operation. They are made when the first is run: by `schema.parametrize()` each process
    would make them that looks which tests there are, and be as long about it as about all others.
    """
    schema = schemathesis.openapi.from_dict(DOCUMENT, config=CONFIG)
    schema = schema.exclude(operation_id=_EXCLUDED)
    schema.hook(_each_fault_once())
    checks = schema.config.checks
    checks.positive_data_acceptance.expected_statuses += [
        "412",  # whether a condition holds is a matter of the document, not of the request
        "410",  # what is compacted is a matter of the catalog
        "413",  # how many there may be, or how long, are settings
        "414",  # names are limited in bytes, and a schema counts characters
        "422",  # what can't be stored, and used idempotency keys: neither is in the schema
    ]
    checks.negative_data_rejection.expected_statuses += [
        "413",  # longer than a setting allows
        "414",  # names longer than the schema allows
    ]
    made = get_all_tests(
        schema=schema,
        test_func=require_documented_answer,
        settings=settings(
            max_examples=8,
            derandomize=True,
            deadline=None,
            suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
        ),
        given_kwargs={},
    )
    each_made = (each.ok() for each in made)  # raises what is wrong with an operation
    return {of.definition.raw["operationId"]: test for of, test in each_made}


def _each_fault_once() -> Callable[[HookContext, Case[Any]], bool]:
    """Of what breaks one word of the file at one place of an operation, one request, and a few of
    the others: for one number there are ten values that are none, and each is refused where the
    first one is. Which others, is another choice at each operation.

    Where it stands alone has no place: it is another fault than among all other parameters, some of
    which may be refused before it.
    """
    met: set[object] = set()

    def filter_case(_: HookContext, case: Case[Any]) -> bool:
        assert case.meta is not None
        how = case.meta.phase.data
        if not case.meta.generation.mode.is_negative or not isinstance(how, CoveragePhaseData):
            return True
        fault = (how.parameter_location, how.parameter, how.scenario, how.location)
        is_first = (case.operation.label, fault) not in met
        met.add((case.operation.label, fault))
        sent = (case.operation.label, case.query, case.headers, case.body)
        return is_first or chance(sent, of=8) == 0

    return filter_case


@pytest.fixture(scope="module")
def given(service: RunningGateway) -> Given:
    return prepare(service.url)


@pytest.fixture(scope="module")
def answered() -> Answered:
    """The statuses that each operation was answered with."""
    return defaultdict(set)


def require_documented_answer(
    case: Case[Any], service: RunningGateway, given: Given, answered: Answered
) -> None:
    adjust(case, given)
    answer = call_and_validate(case, service.url)
    answered[case.operation.definition.raw["operationId"]].add(answer.status_code)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_answer_matches_the_file(
    operation: str,
    tests: dict[str, Callable[..., None]],
    service: RunningGateway,
    given: Given,
    answered: Answered,
) -> None:
    tests[operation](service=service, given=given, answered=answered)


@pytest.mark.usefixtures("given")
def test_the_generated_requests_reached_more_than_refusals(answered: Answered) -> None:
    """Only of operations that were run: after all of them, or after those that were selected."""
    for name, statuses in answered.items():
        assert min(statuses) < 300, name
    for name in ("put_document", "patch_document"):
        assert not answered[name] or answered[name] >= {200, 400, 412}, name


DEFAULTED = [
    each
    for each in operations(DOCUMENT)
    if each.method == "get" and any("default" in one["schema"] for one in _asked(each))
]


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("operation", DEFAULTED, ids=lambda each: each.content["operationId"])
def test_a_parameter_at_its_default_changes_nothing(
    operation: Operation, service: RunningGateway
) -> None:
    """Generated clients send every parameter that has a default."""
    asked = _asked(operation)
    needed = {each["name"]: examples(each)[0] for each in asked if each.get("required")}
    defaults = {
        one["name"]: one["schema"]["default"] for one in asked if "default" in one["schema"]
    }
    if "timeout" in defaults:
        needed["timeout"] = 0
    for each in asked:
        is_flag = each["schema"].get("type") == "boolean"
        for value in (True, False) if is_flag else examples(each):
            alone = needed | {each["name"]: value}
            told = _answer(service, operation, alone)
            assert _answer(service, operation, defaults | alone) == told, alone


def _answer(service: RunningGateway, operation: Operation, query: Object) -> tuple[int, str]:
    """The status, and the code of a refusal."""
    path = operation.path.replace("{catalog}", CATALOG).replace("{key}", "plain")
    text = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
    }
    url = f"{service.url}{quote(path)}?{urlencode(text, doseq=True)}"
    try:
        with urlopen(Request(url), timeout=WAIT_S) as answer:
            return answer.status, ""
    except HTTPError as error:
        return error.code, json.load(error)["code"]
