"""What the file says of answers in words, beside what schemathesis reads out of its schemas."""

from __future__ import annotations

from functools import cache
from typing import Any

import requests
import schemathesis
from openapi_schema_validator import OAS31Validator
from schemathesis import Case
from schemathesis.checks import CheckContext
from schemathesis.core.deserialization import DeserializationContext, deserialize_yaml
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from gateway.http.wire.codes import KINDS
from gateway.server import broken_requests as server_requests
from tests.openapi.document import Object, load, operations
from tests.patience import WAIT_S

# A type of patch that the file has in words only: some generators choke on a second type.
APPLY = "application/vnd.metadata.apply+json"
_WRITES = ("PUT", "PATCH", "DELETE")
# Open to members of later versions, but the service sends none that the file doesn't name.
_SENT = (
    *("ActionResult", "BulkResult", "CatalogAnswer", "CatalogHead", "CatalogPage", "CatalogState"),
    *("DocumentChange", "ChangeSummary", "ChangesPage", "Commit", "CommitPage", "CommitSummary"),
    *("Compaction", "CurrentVersion", "Difference", "DifferencePage", "DocumentPage", "Export"),
    *("FailedCompare", "ListedDocument", "NextDifferences", "NextDocuments", "Outcome"),
    *("UploadPart", "Pin", "PinList", "Problem", "RevertAnswer", "SchemaError", "SettingsAnswer"),
    *("StaleDocument", "TransactionAnswer", "Upload"),
    "WriteAnswer",
)


def closed_document() -> Object:
    """The file, whose answers may have no members but those that it names; with applies.

    Without tokens, which would be generated and left out as parameters are: the service lets
    everybody do everything here. What tokens are for, tests/access prove.
    """
    document = load()
    document["security"] = []
    for operation in operations(document):
        operation.content.pop("security", None)
    for name in _SENT:
        document["components"]["schemas"][name]["additionalProperties"] = False
    patch = document["paths"]["/v1/catalogs/{catalog}/documents/{key}"]["patch"]
    patch["requestBody"]["content"][APPLY] = {"schema": {"type": "object"}}
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


def a_write_is_answered_with_its_outcome(
    _: CheckContext, response: Response, case: Case[Any]
) -> None:
    """The schema allows any document in place of the answer; this doesn't."""
    if case.method not in _WRITES or response.status_code not in (200, 201):
        return
    if "{key}" not in case.path:  # the answers of others have no second form
        return
    applied = response.headers.get("preference-applied", [""])[0]
    if "return=minimal" in applied:
        assert (response.status_code, response.content) == (201, b"")
    elif "return=representation" not in applied:
        _write_answer.validate(response.json())


_yaml = cache(deserialize_yaml)  # the same file all the time


@schemathesis.deserializer("application/yaml")
def _parse_yaml(_: DeserializationContext, response: Response) -> Any:
    return _yaml(response.content.decode())


def _session() -> requests.Session:
    """A session that keeps its connections and ignores proxies, which halves the time of a
    request."""
    session = requests.Session()
    session.trust_env = False
    return session


_SESSION = _session()
_CHECKS: list[Any] = [a_problem_fits_its_code, a_write_is_answered_with_its_outcome]


def call_and_validate(case: Case[Any], url: str) -> Response:
    """With all checks, but for those of a body where a creation was asked to have none.

    OpenAPI has no words for a response that has a body or not; the file says it in prose, and
    `a_write_says_what_became_of_it` checks it.
    """
    answer = case.call(base_url=url, session=_SESSION, timeout=WAIT_S)
    empty = answer.status_code == 201 and not answer.content
    body_checks: list[Any] = [content_type_conformance, response_schema_conformance]
    case.validate_response(
        answer, additional_checks=_CHECKS, excluded_checks=body_checks if empty else None
    )
    return answer
