"""A fake gateway whose documents can be read and written, with tokens and idempotency keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

import patching
from patching.client import Catalog, Gateway, Retry
from tests.client.fake_gateway import FakeGateway, Refused, Reply

Mishap = Callable[[], object]
Opens = Callable[..., Gateway]


def lose() -> None:
    """The connection breaks."""
    raise ConnectionResetError


def refuse(status: int, code: str, **members: Any) -> Mishap:
    def raise_it() -> None:
        raise Refused(status, code, **members)

    return raise_it


def fine() -> None:
    """Nothing happens."""


BUSY = refuse(429, "queue_full", retryable=True, retry_after_s=2)
AWAY = refuse(503, "store_unavailable", retryable=True)
UNKNOWN = refuse(504, "outcome_unknown", applied="unknown")


class FakeDocuments(FakeGateway):
    """``unsent`` happens, one for each request, before anything is done; ``lost`` after it was done
    and before it is answered. Requests on ``outcomes`` take none of them. ``opens``: makes the
    client."""

    def __init__(self, opens: Opens = Gateway) -> None:
        super().__init__()
        self.opens = opens
        self.unsent: deque[Mishap] = deque()
        self.lost: deque[Mishap] = deque()
        self.sent: list[tuple[str, dict[str, str]]] = []  # method and headers
        self.done: dict[str, tuple[Any, Reply]] = {}
        self.pauses: list[float] = []
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Takes no time but on ``clock``."""
        self.pauses.append(seconds)
        self.now += seconds

    def answer(self, method: str, url: str, headers: Message, body: Any) -> Any:
        route = urlsplit(url).path.removeprefix("/v1/catalogs/c/")
        if route.startswith("outcomes/"):
            self.sent.append((f"{method} outcomes", dict(headers.items())))
            return self._outcome(route.removeprefix("outcomes/"))
        self.sent.append((method, dict(headers.items())))
        if self.unsent:
            self.unsent.popleft()()
        if not route.startswith("documents/"):
            return super().answer(method, url, headers, body)
        key = route.removeprefix("documents/")
        if method == "GET":
            return self._get(key)
        reply = self._replayed(headers.get("Idempotency-Key"), method, key, headers, body)
        if self.lost:
            self.lost.popleft()()
        return reply

    def _outcome(self, key: str) -> Any:
        if key not in self.done:
            raise Refused(404, "outcome_not_found")
        return {"applied": True, **self.commits[0]}

    def _get(self, key: str) -> Reply:
        if key not in self.states[-1]:
            raise Refused(404, "document_not_found")
        return Reply(200, self.states[-1][key], {"ETag": f'"{self._token(key)}"'})

    def _token(self, key: str) -> str:
        """The revision that changed it last."""
        told = [c["revision"] for c in self.commits for each in c["changes"] if each["key"] == key]
        return str(told[-1])

    def _shown(self, key: str, headers: Message) -> dict[str, Any]:
        if key not in self.states[-1] or "refusal=representation" not in headers.get("Prefer", ""):
            return {}
        token = self._token(key)
        value = self.states[-1][key]
        return {"current": {"etag": token, "revision": int(token), "value": value}}

    def _replayed(
        self, name: str | None, method: str, key: str, headers: Message, body: Any
    ) -> Reply:
        asked = (method, key, headers.get("If-Match"), body)
        if name is not None and name in self.done:
            before, reply = self.done[name]
            if asked != before:
                raise Refused(422, "idempotency_key_reused")
            return Reply(
                reply.status, reply.content, {**reply.headers, "Idempotency-Replayed": "true"}
            )
        reply = self._write(method, key, headers, body)
        if name is not None:
            self.done[name] = (asked, reply)
        return reply

    def _write(self, method: str, key: str, headers: Message, body: Any) -> Reply:
        before = self.states[-1].get(key, patching.ABSENT)
        wanted = headers.get("If-Match")
        if wanted is not None and (before is patching.ABSENT or wanted != f'"{self._token(key)}"'):
            raise Refused(412, "precondition_failed", **self._shown(key, headers))
        after = body if method == "PUT" else patching.apply(before, body)
        revision = self.commit({key: after})
        content = {
            "etag": str(revision),
            "revision": revision,
            "create_revision": revision,
            "changed": True,
            "attempts": 1,
            "rebased_from": None,
        }
        told = {"Commit-Id": f"id-{revision}", "Attempts": "1", "Catalog-Revision": str(revision)}
        return Reply(200, content, told)


def retry(fake: FakeDocuments, **options: Any) -> Retry:
    """Pauses take no time, and each is the longest that it can be."""
    return Retry(**{"luck": lambda: 1.0, "clock": fake.clock, "sleep": fake.sleep, **options})


def with_retry(fake: FakeDocuments, **options: Any) -> Catalog:
    return fake.opens(fake.url, retry=retry(fake, **options)).catalog("c")


def writes(fake: FakeDocuments) -> list[dict[str, str]]:
    """The headers of each."""
    return [headers for method, headers in fake.sent if not method.startswith("GET")]
