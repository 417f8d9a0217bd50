"""The service over the in-memory store, in this process; each test has a catalog of its own."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from gateway.http import create_app
from gateway.http.wire.problems import encode_refusal
from gateway.limits import RequestLimits, ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.memory_store import MemoryStore
from tests.patience import WAIT_S

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


_NO_BODY = object()


class Catalog:
    """The routes of one catalog, as a client calls them."""

    def __init__(self, client: FlaskClient, name: str) -> None:
        self.client = client
        self.name = name
        self.path = f"/v1/catalogs/{quote(name, safe='')}"

    def document(self, key: str) -> str:
        return f"{self.path}/documents/{quote(key, safe='')}"

    def get(self, key: str = "k", query: str = "", **headers: str) -> TestResponse:
        return self._open("GET", key, query, headers)

    def head(self, key: str = "k", query: str = "", **headers: str) -> TestResponse:
        return self._open("HEAD", key, query, headers)

    def put(self, value: Any, key: str = "k", query: str = "", **headers: str) -> TestResponse:
        return self._open("PUT", key, query, headers, value)

    def patch(self, *operations: Any, key: str = "k", query: str = "", **headers: str) -> Any:
        return self._open("PATCH", key, query, headers, operations, JSON_PATCH)

    def merge(self, value: Any, key: str = "k", query: str = "", **headers: str) -> TestResponse:
        return self._open("PATCH", key, query, headers, value, MERGE_PATCH)

    def delete(self, key: str = "k", query: str = "", **headers: str) -> TestResponse:
        return self._open("DELETE", key, query, headers)

    def send(self, method: str, raw: bytes, content_type: str, **headers: str) -> TestResponse:
        """A body as it is given; ``content_type`` "" leaves the header out."""
        return self.client.open(
            self.document("k"),
            method=method,
            data=raw,
            content_type=content_type or None,
            headers=_named(headers),
        )

    def head_revision(self) -> int:
        answer = self.client.get(f"{self.path}/commits")
        return int(answer.headers["Catalog-Revision"])

    def _open(
        self,
        method: str,
        key: str,
        query: str,
        headers: dict[str, str],
        body: Any = _NO_BODY,
        content_type: str = "application/json",
    ) -> TestResponse:
        sent: dict[str, Any] = {}
        if body is not _NO_BODY:
            sent = {"data": json.dumps(body), "content_type": content_type}
        path = self.document(key) + query
        return self.client.open(path, method=method, headers=_named(headers), **sent)


def _named(headers: dict[str, str]) -> dict[str, str]:
    """Keyword arguments can't hold dashes: If_Match stands for If-Match."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture(scope="session")
def memory_gateway() -> GatewayService:
    limits = ServiceLimits()
    return GatewayService(MemoryStore(), ThreadRuntime(), limits, encode_refusal=encode_refusal)


@pytest.fixture(scope="session")
def client(memory_gateway: GatewayService) -> FlaskClient:
    return create_app(memory_gateway).test_client()


@pytest.fixture
def catalog(client: FlaskClient) -> Catalog:
    return Catalog(client, f"catalog-{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def small_client(memory_gateway: GatewayService) -> FlaskClient:
    """The same gateway behind limits that a test can reach."""
    limits = RequestLimits(
        body_bytes_max=200,
        document_bytes_max=100,
        depth_max=5,
        key_bytes_max=20,
        catalog_name_bytes_max=40,
    )
    return create_app(memory_gateway, limits).test_client()


@pytest.fixture
def small_catalog(small_client: FlaskClient) -> Catalog:
    return Catalog(small_client, f"small-{uuid.uuid4().hex}")


def problem(answer: TestResponse, status: int, code: str) -> dict[str, Any]:
    """The problem that ``answer`` holds, which must have this status and code."""
    content = answer.get_json(force=True)
    assert (answer.status_code, content["code"]) == (status, code), content
    assert answer.content_type == "application/problem+json"
    assert content["status"] == status
    assert content["request_id"] == answer.headers["X-Request-Id"]
    assert {"type", "title", "detail", "applied", "retryable"} <= content.keys()
    return dict(content)


@contextmanager
def held_up(
    monkeypatch: pytest.MonkeyPatch, gateway: GatewayService, name: str
) -> Iterator[list[int]]:
    """The method returns when this is left; grows by one for each call that is in it."""
    go_on = threading.Event()
    method = getattr(gateway, name)
    held: list[int] = []

    def wait(*arguments: Any, **named: Any) -> Any:
        held.append(1)
        assert go_on.wait(WAIT_S)
        return method(*arguments, **named)

    monkeypatch.setattr(gateway, name, wait)
    try:
        yield held
    finally:
        go_on.set()
