"""The service in this process, with access control on, and tokens for it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from gateway.access.principal import parse_grant
from gateway.http import create_app
from gateway.http.door.authorization import BearerTokens
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store, TokenStore
from gateway.tokens.issued import Tokens
from tests.memory_store import MemoryStore, MemoryTokens


class Service:
    def __init__(
        self,
        store: Store | None = None,
        tokens: TokenStore | None = None,
        gateway: GatewayService | None = None,
    ) -> None:
        self.gateway = gateway or GatewayService(
            store or MemoryStore(), ThreadRuntime(), ServiceLimits()
        )
        self.tokens = Tokens(tokens or MemoryTokens())
        self.app = create_app(self.gateway, authenticate=BearerTokens(self.tokens))

    def caller(self, name: str, *grants: str) -> Caller:
        """Somebody with a new token."""
        issued = self.tokens.issue(name, [parse_grant(each) for each in grants], None)
        return Caller(self.app.test_client(), issued.text)

    def stranger(self) -> Caller:
        return Caller(self.app.test_client(), None)


class Caller:
    def __init__(self, client: FlaskClient, token: str | None) -> None:
        self._client = client
        self.token = token

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> TestResponse:
        """``body`` goes as JSON, or as it is where it is bytes; If_Match stands for If-Match."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            named.setdefault("Authorization", f"Bearer {self.token}")
        sent: dict[str, Any] = {}
        if body is not None:
            named.setdefault("Content-Type", "application/json")
            sent["data"] = body if isinstance(body, bytes) else json.dumps(body)
        # As it goes over the wire: the test client would decode and encode it again.
        environ = {"REQUEST_URI": path}
        return self._client.open(
            path, method=method, headers=named, environ_overrides=environ, **sent
        )

    def bulk(self, *lines: Any) -> list[Any]:
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        answer = self.send("POST", "/v1/bulk", body, Content_Type="application/x-ndjson")
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


def catalog_path(name: str) -> str:
    return f"/v1/catalogs/{quote(name, safe='')}"


def document_path(catalog: str, key: str = "k") -> str:
    return f"{catalog_path(catalog)}/documents/{quote(key, safe='')}"
