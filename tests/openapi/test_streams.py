"""What schemathesis can't drive: bulk lines and events are held to the schemas that describe them.

The file describes both bodies as bytes, since OpenAPI has no words for a sequence of values.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import Any
from urllib.request import Request, urlopen

import pytest
from openapi_schema_validator import OAS31Validator

from tests.http.event_stream import EventStream
from tests.openapi.checks import DOCUMENT, problem_statuses
from tests.openapi.document import Object, examples
from tests.patience import WAIT_S
from tests.service import RunningGateway

PATHS = DOCUMENT["paths"]
PUT: Object = {"catalog": "streams", "key": "k", "op": "put", "value": {"n": 1}}
PATCH: Object = {"catalog": "streams", "key": "k", "op": "patch"}
# Each with the status that it is answered with.
LINES: tuple[tuple[Object, int], ...] = (
    ({**PUT, "if_none_match": "*", "idempotency_key": "first"}, 201),
    ({**PUT, "if_none_match": "*", "idempotency_key": "first"}, 201),
    (PUT, 200),
    ({**PUT, "value": {"n": 2}, "dry_run": True}, 200),
    ({**PUT, "if_match": ["9-0", "@7"]}, 412),
    ({**PUT, "op": "merge", "resource_version": 1, "message": "merged"}, 200),
    ({"catalog": "streams", "op": "touch"}, 200),
    ({**PATCH, "patch": [{"op": "increment", "path": "/n"}]}, 200),
    ({**PATCH, "patch": [{"op": "remove", "path": "/x"}]}, 409),
    ({"catalog": "streams", "key": "k", "op": "delete"}, 200),
)
# What the schema forbids, and the service refuses.
FORBIDDEN: tuple[Object, ...] = (
    {**PUT, "op": "append"},
    {**PUT, "another": 1},
    {"catalog": "streams", "key": "k"},
    {**PUT, "if_match": []},
    {**PUT, "resource_version": -1},
    {**PUT, "idempotency_key": "with space"},
)


def validator(schema: str) -> Any:
    reference = {"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]}
    return OAS31Validator(reference, format_checker=OAS31Validator.FORMAT_CHECKER)


def bulk(url: str, lines: list[Object]) -> list[Object]:
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    request = Request(f"{url}/v1/bulk", body, {"Content-Type": "application/x-ndjson"})
    with urlopen(request, timeout=WAIT_S) as answer:
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer]


def test_lines_and_their_answers_match_the_file(service: RunningGateway) -> None:
    for line, _ in LINES:
        validator("BulkLine").validate(line)
    answers = bulk(service.url, [line for line, _ in LINES])
    assert [each["status"] for each in answers] == [status for _, status in LINES]
    assert answers[1]["replayed"] is True
    for each in answers:
        validator("BulkResult").validate(each)
        problem = each.get("problem")
        assert (problem is None) == (each["status"] < 300)
        if problem is not None:
            assert problem["status"] == each["status"] == problem_statuses()[problem["code"]]


@pytest.mark.parametrize("line", FORBIDDEN)
def test_a_line_that_the_file_forbids_is_refused(service: RunningGateway, line: Object) -> None:
    assert not validator("BulkLine").is_valid(line)
    (answer,) = bulk(service.url, [line])
    validator("BulkResult").validate(answer)
    assert answer["status"] == 400


def test_the_example_lines_are_valid_bulk_lines() -> None:
    operation = PATHS["/v1/bulk"]["post"]
    sent = operation["requestBody"]["content"]["application/x-ndjson"]
    answered = operation["responses"]["200"]["content"]["application/x-ndjson"]
    for content, schema in ((sent, "BulkLine"), (answered, "BulkResult")):
        lines = [line for text in examples(content) for line in text.splitlines()]
        assert lines
        for line in lines:
            validator(schema).validate(json.loads(line))


def test_events_match_the_file(service: RunningGateway) -> None:
    written = bulk(service.url, [{**PUT, "catalog": "events", "value": number} for number in "ab"])
    path = "/v1/catalogs/events/changes?after=0"
    described = PATHS["/v1/catalogs/{catalog}/changes"]["get"]["responses"]["200"]
    with EventStream(service.port, path) as stream:
        media_type = stream.response.headers["Content-Type"]
        assert media_type in described["content"]
        assert stream.response.headers["Cache-Control"] == "no-store"
        events = iter(stream)
        for line in written:
            event = next(events)
            assert (event.name, event.id) == ("commit", line["catalog_revision"])
            validator("Commit").validate(event.data)
    with EventStream(service.port, path, Last_Event_ID="2") as stream:
        event = next(iter(stream))
        assert (event.name, event.id, event.data) == ("bookmark", 2, {"revision": 2})


def test_events_of_a_feed_from_the_state_match_the_file(service: RunningGateway) -> None:
    written = bulk(service.url, [{**PUT, "catalog": "states", "key": key} for key in "ab"])
    assert [line["status"] for line in written] == [201, 201]
    path = "/v1/catalogs/states/changes?initial=true"
    with EventStream(service.port, path) as stream:
        *documents, synced = list(islice(stream, 3))
    assert [event.name for event in documents] == ["document", "document"]
    for event in documents:
        validator("InitialDocument").validate(event.data)
    assert synced.name == "synced"
    validator("Synced").validate(synced.data)
