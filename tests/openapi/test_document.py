"""The file is valid, names what the service has and nothing else, and its examples are true."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast, get_args
from urllib.parse import quote

import pytest
from flask import Flask
from flask.testing import FlaskClient
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from werkzeug.test import TestResponse

from gateway import cpu
from gateway.http import create_app
from gateway.http.write import bulk_lines as bulk_requests
from gateway.http.write import transactions
from gateway.http.write.answer import WriteAnswer
from gateway.http.write.ask import VERBS
from gateway.http.write.bulk_lines import LineAnswer
from gateway.limits import ServiceLimits
from gateway.model import Action
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from gateway.tokens.issued import ServedTokens, Tokens
from tests.memory_store import MemoryStore, MemoryTokens
from tests.openapi.checks import problem_statuses
from tests.openapi.document import (
    Object,
    Operation,
    examples,
    load,
    operations,
    parameters,
    parts,
    resolve,
    response,
)

DOCUMENT = load()
OPERATIONS = list(operations(DOCUMENT))

# Of no operation in the file: they answer what none of them is.
_CODES_BESIDE_OPERATIONS = {"method_not_allowed"}
# Headers of HTTP itself, described by OpenAPI in other ways or not at all.
_HTTP_HEADERS = {"Content-Type", "Content-Length"}


@pytest.fixture(scope="module")
def app() -> Flask:
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    return create_app(gateway, tokens=ServedTokens(Tokens(MemoryTokens())))


def test_the_file_is_valid_openapi() -> None:
    validate(DOCUMENT)


def test_routes_and_file_name_the_same_methods_of_the_same_paths(app: Flask) -> None:
    routes = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
    }
    routes = {(path, method) for path, method in routes if not _is_page(path)}
    described = {(operation.path, operation.method) for operation in OPERATIONS}
    assert described <= routes
    # That HEAD is answered wherever GET is, the file says once.
    implied = {(path, "head") for path, method in described if method == "get"}
    assert routes <= described | implied


def _is_page(path: str) -> bool:
    """Whether it is one for people, which is no part of the contract."""
    return path == "/" or path.startswith(("/console", "/docs"))


def test_every_operation_and_parameter_is_described() -> None:
    names = [operation.content["operationId"] for operation in OPERATIONS]
    assert len(set(names)) == len(names)
    for operation in OPERATIONS:
        assert {"summary", "description", "tags", "responses"} <= operation.content.keys()
        for parameter in parameters(DOCUMENT, operation):
            assert parameter["description"], parameter
            assert examples(parameter), parameter


def test_no_description_is_cut_off_at_a_comma() -> None:
    """In YAML's `{description: this, or that}`, `or that` is a member of its own."""
    for part in parts(DOCUMENT):
        assert not [name for name, value in part.items() if value is None and " " in name], part


def test_the_codes_in_the_file_are_those_of_the_service() -> None:
    """Listed, but no enum: generated clients would fail on a code that is added later."""
    codes = DOCUMENT["components"]["schemas"]["ProblemCode"]
    assert sorted(codes["x-known-values"]) == sorted(problem_statuses())
    assert "enum" not in codes


def test_the_kinds_of_changes_in_the_file_are_those_of_the_service() -> None:
    kinds = DOCUMENT["components"]["schemas"]["Action"]
    assert sorted(kinds["x-known-values"]) == sorted([*get_args(Action), "settings"])
    assert "enum" not in kinds


def test_the_members_of_transactions_and_bulk_lines_are_those_of_the_service() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    actions = schemas["TransactionAction"]["discriminator"]["mapping"]
    assert list(actions) == list(VERBS)
    for name, verb in VERBS.items():
        action = resolve(DOCUMENT, {"$ref": actions[name]})["properties"]
        assert action["action"]["const"] == name
        assert action.keys() - {"action", "if"} == {*verb.place, *verb.members}, name
    compares = schemas["Compare"]["properties"].keys()
    assert compares == set(transactions._COMPARE_MEMBERS)
    line = schemas["BulkLine"]["properties"]
    assert schemas["BulkOperation"]["enum"] == list(bulk_requests._OPERATIONS)
    operations = {name for members in bulk_requests._OPERATIONS.values() for name in members}
    assert line.keys() == {*bulk_requests._COMMON, *operations}
    assert schemas["BulkResult"]["properties"].keys() == {*LineAnswer.__struct_fields__, "problem"}
    assert schemas["WriteAnswer"]["properties"].keys() == set(WriteAnswer.__struct_fields__)


def test_every_status_of_a_code_is_listed_on_an_operation_that_names_the_code() -> None:
    described: dict[str, set[int]] = {}
    for operation in OPERATIONS:
        for status in operation.content["responses"]:
            text = response(DOCUMENT, operation, int(status))["description"]
            for code in re.findall(r"`(\w+)`", text):
                described.setdefault(code, set()).add(int(status))
    for code, status in problem_statuses().items():
        if code not in _CODES_BESIDE_OPERATIONS:
            assert described.get(code) == {status}, code


def test_every_write_takes_an_idempotency_key_or_refuses_it(app: Flask) -> None:
    for operation in OPERATIONS:
        if operation.method in ("get", "head", "options"):
            continue
        taken = {each["name"] for each in parameters(DOCUMENT, operation) if each["in"] == "header"}
        answer = app.test_client().open(
            re.sub(r"{\w+}", "1", operation.path),
            method=operation.method.upper(),
            headers={"Idempotency-Key": "k"},
        )
        content = answer.get_json(silent=True) or {}
        refused = content.get("header") == "Idempotency-Key"
        assert refused == ("Idempotency-Key" not in taken), operation
        assert not refused or content["code"] == "invalid_header"


def test_every_component_is_used() -> None:
    used = {part["$ref"] for part in parts(DOCUMENT) if isinstance(part.get("$ref"), str)}
    # Of bodies that are described by words: OpenAPI knows no lines, generators no second type.
    said = " ".join(each.content["description"] for each in OPERATIONS)
    used |= {f"#/components/schemas/{name}" for name in re.findall(r"`([A-Z]\w+)`", said)}
    used |= {
        f"#/components/securitySchemes/{name}" for each in DOCUMENT["security"] for name in each
    }
    unused = [
        reference
        for kind, components in DOCUMENT["components"].items()
        for name in components
        if (reference := f"#/components/{kind}/{name}") not in used
    ]
    assert not unused


def test_every_example_is_valid() -> None:
    checked = 0
    for part in parts(DOCUMENT):
        if "schema" not in part:
            continue
        schema = {**part["schema"], "components": DOCUMENT["components"]}
        validator = OAS31Validator(schema, format_checker=OAS31Validator.FORMAT_CHECKER)
        assert examples(part), part
        for example in examples(part):
            validator.validate(example)
            checked += 1
    assert checked > 80


def test_an_example_of_a_problem_has_a_code_with_its_status() -> None:
    statuses = problem_statuses()
    for operation in OPERATIONS:
        for status in operation.content["responses"]:
            content = response(DOCUMENT, operation, int(status)).get("content", {})
            for example in examples(content.get("application/problem+json", {})):
                assert example["status"] == int(status) == statuses[example["code"]]
                known = DOCUMENT["components"]["schemas"]["Problem"]["properties"]
                assert example.keys() <= known.keys()


def test_examples_are_answered_with_documented_statuses_and_headers(app: Flask) -> None:
    """Each operation with each of its examples, without and with the document it is about."""
    client = app.test_client()
    answered: dict[str, set[int]] = {}
    for there in (False, True):
        for operation in OPERATIONS:
            names = _make_document(client) if there else {}
            for answer in _answers(client, operation, names):
                _check_documented(operation, answer)
                name = operation.content["operationId"]
                answered.setdefault(name, set()).add(answer.status_code)
    successes = {name for name, statuses in answered.items() if min(statuses) < 400}
    assert successes == {operation.content["operationId"] for operation in OPERATIONS}
    assert answered["put_document"] >= {200, 201, 204, 412}
    assert answered["patch_document"] >= {200, 204, 409, 412}
    assert answered["run_transaction"] >= {200, 412}


class _CountingStore:
    """Asks before each call, as MongoDB's does, whether the request may compute any more."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*given: Any, **named: Any) -> Any:
            cpu.require_some_left()
            return method(*given, **named)

        if name in ("subscriptions", "uploads"):
            return lambda: type(self)(method())
        return call if callable(method) else method


def test_every_operation_that_may_take_too_much_work_lists_that_code() -> None:
    """Each operation, sent by who has used up all that a request may compute."""
    store, tokens = MemoryStore(), MemoryTokens()
    issuer = ServedTokens(Tokens(tokens))
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits())
    filling = create_app(gateway, tokens=issuer).test_client()
    counting = cast(Store, _CountingStore(store))
    busy = GatewayService(counting, ThreadRuntime(), ServiceLimits(request_cpu_ms=-1))
    issuer = ServedTokens(Tokens(cast(Any, _CountingStore(tokens))))
    client = create_app(busy, tokens=issuer).test_client()
    refused: dict[str, bool] = {}
    for operation in OPERATIONS:
        names = _make_document(filling)
        for answer in _answers(client, operation, names):
            _check_documented(operation, answer)
            told = answer.status_code == 422 and "too_much_work" in (answer.text or "too_much_work")
            name = operation.content["operationId"]
            refused[name] = refused.get(name, False) or told
    listed = {
        operation.content["operationId"]
        for operation in OPERATIONS
        if "422" in operation.content["responses"]
        and "`too_much_work`" in response(DOCUMENT, operation, 422)["description"]
    }
    assert listed == {name for name, was in refused.items() if was}


def _make_document(client: FlaskClient) -> dict[str, str]:
    """The one that the examples of names and bodies speak of, by the write they speak of.

    Returned are names that the service gave: of a pin, and of an upload with a part.
    """
    components = DOCUMENT["components"]["parameters"]
    catalog, key = (quote(examples(components[name])[0], safe="") for name in ("Catalog", "Key"))
    path = f"/v1/catalogs/{catalog}/documents/{key}"
    headers = {"Idempotency-Key": examples(components["IdempotencyKey"])[0]}
    client.put(path, json={"name": "orders"}, headers=headers)
    client.put(path, json={"name": "orders", "fields": [], "owner": None})
    pins, uploads = f"/v1/catalogs/{catalog}/pins", f"/v1/catalogs/{catalog}/uploads"
    for old in _json(client.get(pins))["pins"]:
        client.delete(f"{pins}/{old['pin']}")  # it would hold what an example compacts
    pin = _json(client.post(pins, json={"seconds": 60}))["pin"]
    upload = _json(client.post(uploads, json={"key": "uploaded"}))["upload"]
    staged = {"data": b"{}", "content_type": "application/octet-stream"}
    client.put(f"{uploads}/{upload}/parts/1", **staged)
    client.put(
        f"/v1/catalogs/{catalog}/subscriptions/search", json={"to": "https://search.example.com/in"}
    )
    token = _json(client.post("/v1/tokens", json={"name": "x", "grants": ["read:x"]}))["id"]
    return {"pin": pin, "upload": upload, "token_id": token}


def _json(answer: TestResponse) -> Any:
    assert answer.status_code < 300, answer.text
    return answer.get_json()


def _answers(
    client: FlaskClient, operation: Operation, names: dict[str, str]
) -> Iterator[TestResponse]:
    """To requests with at most one optional parameter each, for every body."""
    known = parameters(DOCUMENT, operation)
    path = operation.path
    for parameter in known:
        if parameter["in"] == "path":
            example = names.get(parameter["name"], examples(parameter)[0])
            value = quote(str(example), safe="")
            path = path.replace(f"{{{parameter['name']}}}", value)
    content = resolve(DOCUMENT, operation.content.get("requestBody", {})).get("content", {})
    bodies = [(name, body) for name, media in content.items() for body in examples(media)]
    for media_type, body in bodies or [(None, None)]:
        sent: dict[str, Any] = {"method": operation.method.upper()}
        if media_type is not None:
            # Of types that aren't JSON, an example is the body as it is.
            is_json = media_type.endswith(("/json", "+json"))
            raw = json.dumps(body) if is_json else body
            sent |= {"data": raw, "content_type": media_type}
        yield client.open(path, **sent)
        for parameter in known:
            for value in examples(parameter):
                text = json.dumps(value) if isinstance(value, bool) else value
                if parameter["in"] == "query":
                    yield client.open(path, query_string={parameter["name"]: text}, **sent)
                elif parameter["in"] == "header":
                    yield client.open(path, headers={parameter["name"]: str(text)}, **sent)


def _check_documented(operation: Operation, answer: TestResponse) -> None:
    where = (operation.content["operationId"], answer.status_code)
    described = response(DOCUMENT, operation, answer.status_code)
    headers: dict[str, Object] = described.get("headers", {})
    undocumented = set(answer.headers.keys()) - headers.keys() - _HTTP_HEADERS
    assert not undocumented, where
    for name, header in headers.items():
        required = resolve(DOCUMENT, header).get("required", False)
        assert name in answer.headers or not required, (*where, name)
    if answer.data:
        assert answer.mimetype in described["content"], where
