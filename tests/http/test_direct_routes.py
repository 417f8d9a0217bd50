"""Documents, attributes, owners and outcomes are answered without Flask's request context: every
answer, byte by byte, is the one that Flask's way gives."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from gateway.access import Principal, Role
from gateway.access.principal import Grant
from gateway.errors import Unauthenticated
from gateway.http import create_app
from gateway.http.app import DirectRoute
from gateway.http.wire.problems import encode_refusal
from gateway.limits import RequestLimits, ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.memory_store import MemoryStore

REQUESTS: Final = 3000
METHODS: Final = ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "POST", "TRACE")
KINDS: Final = ("documents", "attributes", "owners", "outcomes", "nothing", "Documents", "")
CATALOGS: Final = ("c", "c%2Fd", "ä", "%C3%A4", "%zz", "", "x" * 300, "hidden")
NAMES: Final = ("k", "k/l", "k%2Fl", "%00", "", "/", "k?", "k" * 1100, ".", "%ff")
QUERIES: Final = (
    *("", "dry_run=true", "revision=1", "revision=99", "revision=x", "at=2001-01-01T00:00:00Z"),
    *("resource_version=1", "manager=nightly", "unknown=1", "revision=1&at=2001-01-01T00:00:00Z"),
)
HEADERS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"If-Match": "*"},
    {"If-None-Match": "*"},
    {"If-Match": '"no token"'},
    {"If-Unmodified-Since": "Tue, 01 Jan 2030 00:00:00 GMT"},
    {"Idempotency-Key": '"key-1"'},
    {"Prefer": "return=minimal"},
    {"Prefer": "return=representation, wait=60"},
    {"Commit-Author": "somebody", "Commit-Message": "why"},
    {"Authorization": "Bearer reader"},
    {"Authorization": "Bearer nobody"},
    {"Accept": "text/html", "Traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"},
)
BODIES: Final = (
    (b"", ""),
    (b'{"n": 1}', "application/json"),
    (b'{"n": 1, "n": 2}', "application/json"),
    (b"[1, 2", "application/json"),
    (b'{"n": 2}', "application/merge-patch+json"),
    (b'[{"op": "replace", "path": "/n", "value": 3}]', "application/json-patch+json"),
    (b'[{"op": "test", "path": "/n", "value": 4}]', "application/json-patch+json"),
    (b'[{"op": "replace", "path": "/m", "value": 3}]', "application/json-patch+json"),
    (b'{"n": 5}', "application/apply+json"),
    (b'{"n": 5}', "text/plain"),
    (b'"' + b"x" * 3000 + b'"', "application/json"),
)


class Repeatable(ThreadRuntime):
    """One clock and one series of ids for each request, whichever way it is answered."""

    def __init__(self) -> None:
        self._request = 0
        self._ids = itertools.count()

    def begin(self, request: int) -> None:
        self._request, self._ids = request, itertools.count()

    def now_us(self) -> int:
        return 1_700_000_000_000_000 + self._request * 1_000_000

    def new_id(self) -> str:
        return f"{self._request:016x}{next(self._ids):016x}"


class Way:
    """The application over a gateway of its own, which is asked one request after the other."""

    def __init__(self, *, direct: bool) -> None:
        self._runtime = Repeatable()
        store, limits = MemoryStore(), ServiceLimits()
        self._gateway = GatewayService(store, self._runtime, limits, encode_refusal=encode_refusal)
        bodies = RequestLimits(body_bytes_max=2000)
        self._app = create_app(self._gateway, bodies, authenticate=authenticate)
        if not direct:
            self._app.direct_routes = {}  # type: ignore[attr-defined]
        self._client = self._app.test_client()
        self._requests = itertools.count(1)

    def routes(self) -> Mapping[tuple[str, str], DirectRoute]:
        return self._app.direct_routes  # type: ignore[attr-defined, no-any-return]

    def answer(self, sent: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        number = next(self._requests)
        self._runtime.begin(number)
        headers = {"X-Request-Id": str(number), "Authorization": "Bearer writer", **sent["headers"]}
        done = self._client.open(**{**sent, "headers": headers})
        return done.status, list(done.headers), done.data


def authenticate(authorization: str | None) -> Principal:
    name = (authorization or "")[len("Bearer ") :]
    if name not in ("reader", "writer"):
        raise Unauthenticated("nobody has this token", presented=True)
    role = Role.READ if name == "reader" else Role.ADMIN
    return Principal(name, (Grant(role, "c*"), Grant(role, "ä"), Grant(Role.READ, "x*")))


def requests() -> Iterator[dict[str, Any]]:
    """Usual ones first, with what each has to find; then any, of which most are refused."""
    draw = random.Random(7)
    for number in range(REQUESTS):
        usual = number % 3 > 0
        body, media_type = draw.choice(BODIES)
        catalog = "c" if usual else draw.choice(CATALOGS)
        kind = draw.choice(KINDS[:4] if usual else KINDS)
        name = draw.choice(NAMES[:2] if usual else NAMES)
        query = draw.choice(QUERIES)
        yield {
            "method": draw.choice(METHODS[:6] if usual else METHODS),
            "path": f"/v1/catalogs/{catalog}/{kind}/{name}" + (f"?{query}" if query else ""),
            "headers": draw.choice(HEADERS),
            "data": body,
            "content_type": media_type or None,
        }


def test_both_ways_give_the_same_answers_to_the_byte() -> None:
    direct, by_flask = Way(direct=True), Way(direct=False)
    statuses = set()
    for sent in requests():
        status, headers, body = direct.answer(sent)
        assert (status, headers, body) == by_flask.answer(sent), sent
        statuses.add(int(status[:3]))
    seen = {200, 201, 204, 304, 400, 401, 403, 404, 405, 409, 412, 413, 415, 422}
    assert statuses >= seen, sorted(seen - statuses)


@pytest.mark.parametrize("kind", KINDS[:4])
def test_routes_inside_a_catalog_are_found_without_flask(kind: str) -> None:
    assert (kind, "GET") in Way(direct=True).routes()


def test_a_defect_before_or_after_the_route_is_a_500(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {"method": "GET", "path": "/v1/catalogs/c/documents/k", "headers": {}}
    for door in ("let_in", "let_out"):
        way = Way(direct=True)

        def fail(*_: object) -> None:
            raise LookupError("a defect")

        monkeypatch.setattr(way._app.doors, door, fail)  # type: ignore[attr-defined]
        status, _, body = way.answer(sent)
        assert (status[:3], json.loads(body)["code"]) == ("500", "internal_error")
        monkeypatch.undo()
