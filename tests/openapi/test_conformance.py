"""The running service, driven by requests that are generated from the file: valid and invalid.

All checks of schemathesis are on. Those that need more than one request or a login (use after free,
availability, authorization) find nothing to check here; `test_session.py` has the sequences.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.config import SchemathesisConfig
from werkzeug.http import http_date

from tests.openapi.cases import Given, adjust, prepare
from tests.openapi.checks import DOCUMENT, call_and_validate
from tests.service import RunningGateway

Answered = dict[str, set[int]]

# Of a transaction's members there are too many for each to be tried at each of its bounds, writes
# of attributes take what writes of documents take, and this file takes long to be parsed.
CONFIG = SchemathesisConfig.from_dict(
    {
        "operations": [
            {"include-operation-id": name, "phases": {"coverage": {"enabled": False}}}
            for name in (
                "run_transaction",
                "put_attributes",
                "patch_attributes",
                "delete_attributes",
                "read_openapi",
            )
        ]
    }
)
schemathesis.openapi.format("http-date", st.integers(0, 4_000_000_000).map(http_date))
# Lines are no type that schemathesis could make, and a stream isn't one answer to be checked:
# `test_streams.py` holds the bulk route and the event stream to their schemas.
schema = schemathesis.openapi.from_dict(DOCUMENT, config=CONFIG).exclude(operation_id="run_bulk")
schema.config.checks.positive_data_acceptance.expected_statuses += [
    "412",  # whether a condition holds is a matter of the document, not of the request
    "410",  # what is compacted is a matter of the catalog
    "413",  # how many there may be, or how long, are settings
    "414",  # names are limited in bytes, and a schema counts characters
    "422",  # what can't be stored, and idempotency keys that were used: neither is in the schema
]
schema.config.checks.negative_data_rejection.expected_statuses += [
    "413",  # longer than a setting allows
    "414",  # names longer than the schema allows
]


@pytest.fixture(scope="module")
def given(service: RunningGateway) -> Given:
    return prepare(service.url)


@pytest.fixture(scope="module")
def answered() -> Answered:
    """The statuses that each operation was answered with."""
    return defaultdict(set)


@schema.parametrize()
@settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
def test_every_answer_is_as_the_file_says(
    case: Case[Any], service: RunningGateway, given: Given, answered: Answered
) -> None:
    adjust(case, given)
    answer = call_and_validate(case, service.url)
    answered[case.operation.definition.raw["operationId"]].add(answer.status_code)


@pytest.mark.usefixtures("given")
def test_the_generated_requests_reached_more_than_refusals(answered: Answered) -> None:
    """Only of operations that were run: after all of them, or after those that were selected."""
    for name, statuses in answered.items():
        assert min(statuses) < 300, name
    for name in ("put_document", "patch_document"):
        assert not answered[name] or answered[name] >= {200, 400, 412}, name
