"""A seeded session on the running service: sequences that depend on what was answered before."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any
from urllib.parse import unquote

import schemathesis
from schemathesis import Case
from schemathesis.core.transport import Response

from tests.openapi.checks import DOCUMENT, call_and_validate
from tests.openapi.document import Object, Operation, operations, resolve
from tests.service import RunningGateway

OPERATIONS = {each.content["operationId"]: each for each in operations(DOCUMENT)}
STEPS_MIN, STEPS_MAX = 200, 3000
KEYS = ("tables/orders", "größe/a%2Fb", "urn:li:(x,y)", "n")
VALUES: tuple[Any, ...] = ({"name": "orders", "fields": [1]}, {"name": None}, [{}], "text", 1.5)
PATCHES: tuple[list[Object], ...] = (
    [{"op": "add", "path": "/fields/-", "value": {"$x.y": 2**62}}],
    [{"op": "test", "path": "/name", "value": "orders"}, {"op": "remove", "path": "/name"}],
    [{"op": "copy", "from": "/fields", "path": "/name"}],
    [{"op": "add", "path": "", "value": {"name": "orders"}}],
    [{"op": "add", "path": "", "value": {"fields": []}}],
    [{"op": "remove", "path": ""}],
    [{"op": "replace", "path": "/name", "value": 2**64}],
    [],
)
# With what follows from a request being well formed, each operation is answered in all these ways.
REACHED = {
    "read_document": {200, 304, 404, 412},
    "head_document": {200, 304, 404, 412},
    "put_document": {200, 201, 204, 412, 422},
    "patch_document": {200, 201, 204, 404, 409, 412, 422},
    "delete_document": {200, 204, 412},
    "list_commits": {200},
    "read_commit": {200, 404},
    "read_outcome": {200, 404},
    "read_attributes": {200, 304, 404},
    "put_attributes": {200, 404, 412},
    "patch_attributes": {200, 404, 409, 412},
    "delete_attributes": {200, 204, 412},
    "list_documents": {200, 304, 412},
    "export_catalog": {200, 304, 412},
    "read_catalog": {200, 304, 412},
    "touch_catalog": {200, 204, 412},
    "run_transaction": {200, 404, 409, 412, 422},
    "watch_changes": {200},
}
TRANSACTIONS: tuple[Object, ...] = (
    {"then": [{"action": "get", "key": KEYS[0]}, {"action": "touch"}]},
    {
        "compare": [{"key": KEYS[1], "absent": True}],
        "then": [{"action": "put", "key": KEYS[1], "value": {"name": "made", "fields": []}}],
        "else": [{"action": "merge", "key": KEYS[1], "value": {"name": None}}],
    },
    {
        "compare": [{"key": KEYS[0], "test": [{"op": "defined", "path": "/fields"}]}],
        "then": [
            {"action": "attributes", "key": KEYS[0], "value": {"n": 1}},
            {"action": "move", "from": KEYS[0], "to": KEYS[2]},
            {"action": "delete", "key": KEYS[3]},
        ],
    },
    {"then": [{"action": "patch", "key": "never", "patch": [{"op": "increment", "path": "/n"}]}]},
    {"then": [{"action": "move", "from": KEYS[1], "to": KEYS[1]}]},
    {"then": [{"action": "put", "key": KEYS[0], "value": 2**64}]},
    {"compare": [{"resource_version": 3}], "then": []},
)
ATTRIBUTES: tuple[Object, ...] = ({"name": "sales", "fields": []}, {})
BODIES: dict[str, tuple[Any, ...]] = {
    "put_document": VALUES,
    "patch_document": PATCHES,
    "put_attributes": ATTRIBUTES,
    "patch_attributes": PATCHES[:3],
    "run_transaction": TRANSACTIONS,
}
LINKS = {
    name
    for operation in OPERATIONS.values()
    for response in operation.content["responses"].values()
    for name in resolve(DOCUMENT, response).get("links", {})
}

_READ, _WRITTEN = ("If-Match", "If-None-Match"), ("If-Match",)
TAGGED = {
    "list_documents": _READ,
    "export_catalog": _READ,
    "read_catalog": _READ,
    "touch_catalog": _WRITTEN,
}

schema = schemathesis.openapi.from_dict(DOCUMENT)


class Session:
    """One client, which remembers the tokens that it was given."""

    def __init__(self, url: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.url = url
        self.catalog = f"session {seed}"
        self.tokens: dict[str, list[str]] = defaultdict(list)
        self.catalog_tag = '"@0"'
        self.answered: dict[str, set[int]] = defaultdict(set)
        self.followed: set[str] = set()

    def step(self) -> None:
        # Half of the steps are of what was not answered in all its ways yet.
        lacking = [each for each, ways in REACHED.items() if ways - self.answered[each]]
        hurries = lacking and self.random.random() < 0.5
        name = self.random.choice(lacking if hurries else tuple(REACHED))
        case, answer = self.send(name, *self.request(OPERATIONS[name]))
        links = _links(OPERATIONS[name], answer)
        if links and self.random.random() < 0.5:
            link = self.random.choice(sorted(links))
            self.follow(link, links[link], case, answer)

    def request(self, operation: Operation) -> tuple[Object, Object, Object, Any]:
        """Path, query, headers and body."""
        key = self.random.choice(KEYS)
        path: Object = {"catalog": self.catalog}
        query: Object = {}
        headers: Object = {}
        if "{key}" in operation.path:
            path["key"] = key
            headers = self.conditions(key)
        elif "{revision}" in operation.path:
            path["revision"] = self.random.randint(0, STEPS_MIN)
        elif "{idempotency_key}" in operation.path:
            path["idempotency_key"] = self.idempotency_key()
        else:
            query, headers = self.about_the_catalog(operation.content["operationId"])
        if operation.method in ("put", "patch", "delete", "post"):
            headers |= self.preferences()
            query = self.maybe({"dry_run": "true"}, 0.1)
        bodies = BODIES.get(operation.content["operationId"])
        return path, query, headers, self.random.choice(bodies) if bodies else None

    def about_the_catalog(self, name: str) -> tuple[Object, Object]:
        """Query and headers."""
        if name in ("list_commits", "watch_changes"):
            return {"limit": self.random.randint(1, 5), "after": self.random.randint(0, 20)}, {}
        tag = self.random.choice([self.catalog_tag] * 3 + ['"@1"', '"n=1-0"'])
        header = "If-Match" if name == "run_transaction" else self.random.choice(TAGGED[name])
        query: Object = {}
        if name == "list_documents":
            query = self.random.choice([{"limit": 2}, {"key": [*KEYS, "never"]}])
        return query, self.maybe({header: tag}, 0.5)

    def conditions(self, key: str) -> Object:
        known = self.tokens[key][-3:] or ['"1-00000000"']
        chosen = self.random.choice(["If-Match", "If-None-Match", "", ""])
        return {chosen: self.random.choice([*known, known[-1], known[-1], "*"])} if chosen else {}

    def preferences(self) -> Object:
        prefer = self.random.choice(["return=minimal", "return=representation", "wait=5"])
        return {
            **self.maybe({"Prefer": prefer}, 0.6),
            **self.maybe({"Idempotency-Key": self.idempotency_key()}, 0.2),
            **self.maybe({"Commit-Message": "gr%C3%B6%C3%9Fe"}, 0.2),
        }

    def maybe(self, given: Object, chance: float) -> Object:
        return given if self.random.random() < chance else {}

    def idempotency_key(self) -> str:
        return f"key/{self.random.randint(1, 9)}"

    def send(
        self, name: str, path: Object, query: Object, headers: Object, body: Any = None
    ) -> tuple[Case[Any], Response]:
        sent = {"body": body} if body is not None else {}
        if name == "patch_document":
            sent["media_type"] = "application/json-patch+json"
        if name == "watch_changes":
            query = {**query, "timeout": 0}
        operation = schema.find_operation_by_id(name)
        case = operation.Case(path_parameters=path, query=query, headers=headers, **sent)
        answer = call_and_validate(case, self.url)
        # All that is sent is well formed.
        assert answer.status_code != 400, answer.text
        self.answered[name].add(answer.status_code)
        tag = answer.headers.get("etag")
        if tag and "key" in path:
            self.tokens[unquote(path["key"])].append(tag[0])
        for revision in answer.headers.get("catalog-revision", ()):
            self.catalog_tag = f'"@{int(revision):x}"'
        return case, answer

    def follow(self, name: str, link: Object, case: Case[Any], answer: Response) -> None:
        """Send the request that a link of the file describes, if the answer says enough for it."""
        operation = OPERATIONS[link["operationId"]]
        values = {
            parameter: _evaluate(expression, case, answer)
            for parameter, expression in link["parameters"].items()
        }
        if None in values.values():
            return
        self.followed.add(name)
        path = {part: value for part, value in values.items() if f"{{{part}}}" in operation.path}
        headers = {part: value for part, value in values.items() if part.startswith("If-")}
        query = {part: values[part] for part in values.keys() - path.keys() - headers.keys()}
        body = {"put_document": VALUES[0], "patch_document": PATCHES[-1]}.get(link["operationId"])
        _, followed = self.send(link["operationId"], path, query, headers, body)
        if "If-Match" in headers and "idempotency-replayed" not in answer.headers:
            assert followed.status_code != 412, "the token was given just now"

    def missing(self) -> list[Any]:
        """What the session hasn't come to yet: statuses of operations, and links."""
        statuses = [
            (name, statuses - self.answered[name])
            for name, statuses in REACHED.items()
            if statuses - self.answered[name]
        ]
        return [*statuses, *sorted(LINKS - self.followed)]


def _links(operation: Operation, answer: Response) -> Object:
    described = resolve(DOCUMENT, operation.content["responses"][str(answer.status_code)])
    links: Object = described.get("links", {})
    return links


def _evaluate(expression: str, case: Case[Any], answer: Response) -> Any:
    """A runtime expression of OpenAPI, of the kinds that the file has."""
    source, _, name = expression.rpartition(".")
    if source == "$request.path":
        return (case.path_parameters or {})[name]
    if source == "$response.header":
        return answer.headers.get(name.lower(), [None])[0]
    assert expression.startswith("$response.body#/")
    found = answer.json()
    for step in expression.removeprefix("$response.body#/").split("/"):
        found = None if found is None else found[step]
    return found


def test_every_answer_of_a_session_matches_the_file(service: RunningGateway) -> None:
    session = Session(service.url, seed=0)
    for steps in range(STEPS_MAX):
        if steps > STEPS_MIN and not session.missing():
            break
        session.step()
    assert not session.missing()
