"""Requests over one kept connection: what a client in any language would send."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


class Connection:
    """A client's connection to the gateway. Raises OSError and http.client.HTTPException."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        encoded = None if body is None else json.dumps(body)
        self._http.request(method, path, encoded, headers or {})
        response = self._http.getresponse()
        content = response.read()
        return Answer(
            response.status,
            dict(response.getheaders()),
            json.loads(content) if content.startswith((b"{", b"[")) else None,
        )


def document_path(catalog: str, key: str) -> str:
    return f"/v1/catalogs/{quote(catalog, safe='')}/documents/{quote(key)}"
