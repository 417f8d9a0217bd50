"""People with different rights in every catalog, and requests to the service as one of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from gateway.access import Grant, Principal, Role
from gateway.http import create_app
from gateway.limits import RetentionLimits, ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.mongodb import connect
from tests.patience import WAIT_MS
from tests.service import own_database

# Tests list ann, and wes to write alone; nobody lists bob and eve.
PEOPLE: Final = {
    "root": Role.ADMIN,
    "ann": Role.WRITE,
    "bob": Role.WRITE,
    "wes": Role.WRITE,
    "eve": Role.READ,
}
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
EXTENDED_PATCH: Final = "application/vnd.metadata.patch+json"
APPLY: Final = "application/vnd.metadata.apply+json"


class Person:
    """Speaks to one catalog at a time: paths begin behind its name."""

    def __init__(self, client: FlaskClient, name: str, catalog: str) -> None:
        self.client = client
        self.name = name
        self.path = f"/v1/catalogs/{quote(catalog, safe='')}"

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> TestResponse:
        sent: dict[str, Any] = {}
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body)
            sent = {"data": data, "content_type": content_type}
        named = {"Authorization": f"Bearer {self.name}", **(headers or {})}
        whole = path if path.startswith("/v1/") else self.path + path
        return self.client.open(whole, method=method, headers=named, **sent)

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.send("GET", path, headers=_named(headers))

    def put(self, key: str, value: Any, **headers: str) -> TestResponse:
        return self.send("PUT", f"/documents/{key}", value, headers=_named(headers))

    def patch(self, key: str, *operations: Any, **headers: str) -> TestResponse:
        path = f"/documents/{key}"
        return self.send("PATCH", path, list(operations), JSON_PATCH, _named(headers))

    def delete(self, key: str) -> TestResponse:
        return self.send("DELETE", f"/documents/{key}")

    def put_attributes(self, key: str, value: Any) -> TestResponse:
        return self.send("PUT", f"/attributes/{key}", value)

    def transaction(self, **body: Any) -> TestResponse:
        return self.send("POST", "/transactions", body)

    def bulk(self, *lines: dict[str, Any], **headers: str) -> list[Any]:
        raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        answer = self.send("POST", "/v1/bulk", raw, "application/x-ndjson", headers)
        return [json.loads(line) for line in answer.get_data().splitlines()]

    def commits(self, query: str = "") -> list[Any]:
        answer = self.get(f"/commits{query}")
        assert answer.status_code == 200, answer.get_data()
        return list(answer.get_json()["commits"])


class People:
    """``catalog`` is a fresh one for each test; ``people(name)`` speaks to it."""

    def __init__(self, app: Flask, gateway: GatewayService) -> None:
        self.app = app
        self.gateway = gateway
        self.catalog = ""
        self.begin()

    def begin(self) -> None:
        self.catalog = f"c/{uuid.uuid4().hex}"

    def __call__(self, name: str) -> Person:
        return Person(self.app.test_client(), name, self.catalog)

    def principal(self, name: str) -> Principal:
        return Principal(name, (Grant(PEOPLE[name], "*"),))


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def authenticate(authorization: str | None) -> Principal:
    name = (authorization or "").removeprefix("Bearer ")
    return Principal(name, (Grant(PEOPLE[name], "*"),))


@contextmanager
def people_on(mongodb_uri: str) -> Iterator[People]:
    """The service over a database of its own, in this process."""
    with own_database(mongodb_uri) as database:
        store = connect(mongodb_uri, database, timeout_ms=WAIT_MS)
        limits = ServiceLimits(retention=RetentionLimits(pause_ms=0, tombstone_grace_s=0))
        gateway = GatewayService(store, ThreadRuntime(), limits)
        app = create_app(gateway, authenticate=authenticate)
        yield People(app, gateway)
        app.begin_stop()  # type: ignore[attr-defined]
        store.close()


Check = Callable[[TestResponse], bool]
