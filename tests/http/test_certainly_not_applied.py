"""A write that is answered with `applied: no` has changed nothing, wherever an answer of the
database got lost, and wherever it couldn't be asked any more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pytest
from werkzeug.test import TestResponse

from gateway.http import create_app
from gateway.http.wire.problems import encode_refusal
from gateway.limits import ServiceLimits
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable, Unsent
from gateway.tokens.issued import ServedTokens, Tokens
from tests.http.keyed_routes import APPLY, JSON_PATCH
from tests.memory_store import MemoryStore, MemoryTokens
from tests.openapi import document
from tests.without_http import SetClock

C: Final = "/v1/catalogs/c"
# A method, a path, and a body with its type; {pin}, {upload} and {token} are those that there are.
Ask = tuple[str, str] | tuple[str, str, Any] | tuple[str, str, Any, str]
PART: Final = "application/octet-stream"
RECEIVER: Final = {"to": "https://receiver.example/in"}
WRITES: Final[Mapping[str, Ask]] = {
    "create_token": ("POST", "/v1/tokens", {"name": "ann", "grants": ["read:*"]}),
    "revoke_token": ("DELETE", "/v1/tokens/{token}"),
    "put_catalog": ("PUT", C, {"schemas": {"z*": {}}}),
    "delete_catalog": ("DELETE", C),
    "touch_catalog": ("POST", f"{C}/touch"),
    "put_document": ("PUT", f"{C}/documents/k", 9),
    "put_document, new": ("PUT", f"{C}/documents/new", 9),
    "patch_document": (
        *("PATCH", f"{C}/documents/k", [{"op": "add", "path": "/n", "value": 9}], JSON_PATCH),
    ),
    "patch_document, apply": ("PATCH", f"{C}/documents/k?manager=m", {"n": 1, "o": 2}, APPLY),
    "delete_document": ("DELETE", f"{C}/documents/k"),
    "put_attributes": ("PUT", f"{C}/attributes/k", {"a": 9}),
    "patch_attributes": (
        *("PATCH", f"{C}/attributes/k", [{"op": "add", "path": "/a", "value": 9}], JSON_PATCH),
    ),
    "delete_attributes": ("DELETE", f"{C}/attributes/k"),
    "let_go": ("DELETE", f"{C}/owners/owned?manager=m"),
    "run_transaction": (
        *("POST", f"{C}/transactions", {"then": [{"action": "put", "key": "t", "value": 1}]}),
    ),
    "revert": ("POST", f"{C}/reverts", {"revisions": [2]}),
    "open_upload": ("POST", f"{C}/uploads", {"key": "k"}),
    "drop_upload": ("DELETE", f"{C}/uploads/{{upload}}"),
    "put_part": ("PUT", f"{C}/uploads/{{upload}}/parts/2", 5, PART),
    "commit_upload": ("POST", f"{C}/uploads/{{upload}}/commit", {"parts": [1]}),
    "put_application": ("PUT", f"{C}/applications/job", {"version": 2}),
    "delete_application": ("DELETE", f"{C}/applications/job"),
    "put_subscription": ("PUT", f"{C}/subscriptions/s", {"to": "https://other.example/in"}),
    "put_subscription, new": ("PUT", f"{C}/subscriptions/new", RECEIVER),
    "delete_subscription": ("DELETE", f"{C}/subscriptions/s"),
    "pause_subscription": ("POST", f"{C}/subscriptions/s/pause"),
    "resume_subscription": ("POST", f"{C}/subscriptions/s/resume"),
    "replay_subscription": ("POST", f"{C}/subscriptions/s/replay", {"from": 1}),
    "create_pin": ("POST", f"{C}/pins", {"seconds": 60}),
    "renew_pin": ("PUT", f"{C}/pins/{{pin}}", {"seconds": 3_000}),
    "delete_pin": ("DELETE", f"{C}/pins/{{pin}}"),
    "compact_catalog": ("POST", f"{C}/compactions", {"revision": 2}),
}
DEADLINE_S: Final = 60
# Each of its lines is a write as above.
OTHERS: Final = {"run_bulk"}


class Weather:
    """How calls of the database fail: number ``at`` alone, or all from it on. If that call is
    ``made``, only its answer gets lost; later ones aren't made.

    If they go on failing, each takes a third of a write's time.
    """

    def __init__(self, clock: SetClock) -> None:
        self.calls = 0
        self._clock = clock
        self._at, self._goes_on, self._made = -1, False, False

    @contextmanager
    def breaking(self, at: int, *, goes_on: bool, made: bool) -> Iterator[None]:
        self.calls, self._at, self._goes_on, self._made = 0, at, goes_on, made
        try:
            yield
        finally:
            self._at = -1

    def call(self, method: Callable[..., Any], *given: Any, **named: Any) -> Any:
        number, self.calls = self.calls, self.calls + 1
        if self._at < 0 or number < self._at or (number > self._at and not self._goes_on):
            return method(*given, **named)
        if self._goes_on:
            self._clock.passed_s += DEADLINE_S / 3
        if number > self._at or not self._made:
            raise Unsent("nobody is there")
        method(*given, **named)
        raise StoreUnreachable("the answer got lost")


class Stormy:
    """A store, or a part of it, whose calls fail as the weather says."""

    def __init__(self, inner: Any, weather: Weather) -> None:
        self._inner, self._weather = inner, weather

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in ("uploads", "subscriptions"):
            return lambda: Stormy(found(), self._weather)
        if name == "stored_bytes":
            return found
        return lambda *given, **named: self._weather.call(found, *given, **named)


class World:
    """A gateway with something of all that can be changed."""

    def __init__(self) -> None:
        clock = SetClock()
        self.weather = Weather(clock)
        store: Any = Stormy(MemoryStore(), self.weather)
        limits = ServiceLimits(deadline_ms=1000 * DEADLINE_S)
        gateway = GatewayService(store, clock, limits, encode_refusal=encode_refusal)
        tokens: Any = Stormy(MemoryTokens(), self.weather)
        issued = ServedTokens(Tokens(tokens))
        self._client = create_app(gateway, tokens=issued).test_client()
        self._named: dict[str, str] = {}
        for value in ({"n": 1}, {"n": 2}):
            self.ask("PUT", f"{C}/documents/k", value)
        self.ask("PUT", f"{C}/attributes/k", {"a": 1})
        self.ask("PATCH", f"{C}/documents/owned?manager=m", {"n": 1}, APPLY)
        self.ask("PUT", f"{C}/applications/job", {"version": 1})
        self.ask("PUT", f"{C}/subscriptions/s", RECEIVER)
        self.ask("POST", f"{C}/subscriptions/s/pause")
        self._named["pin"] = self.ask("POST", f"{C}/pins", {"seconds": 600}).get_json()["pin"]
        self._named["upload"] = self.ask("POST", f"{C}/uploads", {"key": "k"}).get_json()["upload"]
        self.ask("PUT", f"{C}/uploads/{{upload}}/parts/1", 7, PART)
        given = self.ask("POST", "/v1/tokens", {"name": "bob", "grants": ["read:*"]}).get_json()
        self._named["token"] = given["id"]

    def ask(
        self, method: str, path: str, body: Any = None, media_type: str = "application/json"
    ) -> TestResponse:
        sent: dict[str, Any] = {}
        if body is not None:
            sent = {"data": json.dumps(body), "content_type": media_type}
        return self._client.open(path.format(**self._named), method=method, **sent)

    def state(self) -> list[Any]:
        """All that shows whether something has changed."""
        lists = ("", "/export", "/commits", "/pins", "/subscriptions", "/applications")
        paths = [*(f"{C}{each}" for each in lists), f"{C}/uploads/{{upload}}", "/v1/tokens"]
        return [self.ask("GET", path).get_json() for path in paths]


def test_the_table_lists_every_route_that_changes_something() -> None:
    operations = {
        operation["operationId"]
        for methods in document.load()["paths"].values()
        for method, operation in methods.items()
        if method in ("post", "put", "patch", "delete")
    }
    assert operations - OTHERS == {name.partition(",")[0] for name in WRITES}


@pytest.mark.parametrize(("goes_on", "made"), [(False, True), (True, False)])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_reported_as_not_applied_has_changed_nothing(
    name: str, goes_on: bool, made: bool
) -> None:
    for at in range(40):
        world = World()
        before = world.state()
        with world.weather.breaking(at, goes_on=goes_on, made=made):
            answer = world.ask(*WRITES[name])
            calls = world.weather.calls
        if calls <= at:
            assert answer.status_code < 300, answer.data
            return
        if answer.status_code < 300:
            continue
        told = answer.get_json()
        assert (answer.status_code, told["code"], told["applied"]) in [
            (503, "store_unavailable", "no"),
            (503, "deadline_exceeded", "no"),
            (504, "outcome_unknown", "unknown"),
        ]
        if told["applied"] == "no":
            assert world.state() == before, at
    pytest.fail("there is no end of its calls")
