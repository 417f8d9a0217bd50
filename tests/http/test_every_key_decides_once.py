"""A key decides once, on every route that takes one, whatever came of the request the first time:
it was applied, changed nothing, was refused, or its answer got lost; and a dry run uses up no key.

Each request is sent under its key, then others change the world so that it would be applied (this
is checked, under another key, in a twin of the catalog), then it is sent again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any, NamedTuple

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from gateway.http import create_app
from gateway.http.wire.headers import ACCEPT_PATCH
from gateway.http.wire.problems import encode_refusal
from gateway.http.write.bulk_lines import _OPERATIONS
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable
from tests.http.keyed_routes import CASES, WITHOUT_KEY, Ask, Case, World
from tests.memory_store import MemoryStore
from tests.openapi import document
from tests.without_http import SetClock

OUTCOMES = ("applied", "unchanged", "refused")
WORLDS = [
    pytest.param(outcome, world, id=f"{case.operation}-{case.name}-{outcome}{number}")
    for case in CASES
    for outcome in OUTCOMES
    for number, world in enumerate(getattr(case, outcome))
]
OPENAPI = document.load()


class KeyedAnswer(NamedTuple):
    """An answer without what is of the one request alone."""

    status: int
    replayed: bool
    content: Any


class Client:
    """A catalog, as a client calls it."""

    def __init__(self, client: FlaskClient, name: str) -> None:
        self._client = client
        self._name = name
        self._path = f"/v1/catalogs/{name}"
        self._fence: str | None = None

    def through(self, client: FlaskClient) -> Client:
        """The same catalog through another gateway."""
        other = Client(client, self._name)
        other._fence = self._fence
        return other

    def head(self) -> int:
        answer = self._client.get(f"{self._path}/commits")
        return int(answer.headers.get("Catalog-Revision", "0"))

    def content(self) -> Any:
        """All that the catalog has, without its time."""
        found = self._client.get(f"{self._path}/export").get_json()
        return {name: each for name, each in found.items() if name != "metadata"}, self.head()

    def prepare(self, world: World) -> Ask:
        """The world's request, as it is to be sent once the world is as it is before."""
        if world.ask.fenced:
            place = f"{self._path}/applications/job"
            self._fence = self._client.put(place, json={"version": 1}).get_json()["fence"]
        self.change(*world.before)
        if not world.ask.one_later:
            return world.ask
        revision = self.head() + len(world.between)
        if world.ask.line:
            body = {**world.ask.body, "resource_version": revision}
            return changed(world.ask, body=body)
        return changed(world.ask, place=world.ask.place.format(revision=revision))

    def change(self, *steps: Ask) -> None:
        """By somebody else; each step is one commit."""
        head = self.head()
        self.step(*steps)
        assert self.head() == head + len(steps)

    def step(self, *steps: Ask) -> None:
        """Writes by somebody else; some of them may change nothing."""
        for each in steps:
            assert self._send(each, None).status_code < 300

    def send(self, ask: Ask, key: str, **headers: str) -> KeyedAnswer:
        answer = self._send(ask, key, **headers)
        content = answer.get_json(silent=True)
        replayed = "Idempotency-Replayed" in answer.headers
        status = answer.status_code
        if ask.line:
            assert status == 200
            content = json.loads(answer.data)
            status, replayed = content["status"], content.pop("replayed", False)
            for member in ("request_id", "changes_since"):
                content.get("problem", {}).pop(member, None)
        elif isinstance(content, dict):
            content = {
                name: each
                for name, each in content.items()
                if name not in ("request_id", "changes_since")
            }
        return KeyedAnswer(status, replayed, content)

    def tried(self, ask: Ask, key: str) -> tuple[str, KeyedAnswer]:
        """The outcome, as the catalog's head shows it, and the answer."""
        head = self.head()
        told = self.send(ask, key)
        if self.head() > head:
            return "applied", told
        return "refused" if told.status >= 400 else "unchanged", told

    def _send(self, ask: Ask, key: str | None, **headers: str) -> TestResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if ask.line:
            where = {} if ask.body["op"] == "touch" and "key" in ask.body else {"key": "k"}
            sent = {"catalog": self._name, **where, **ask.body, "idempotency_key": key}
            if ask.fenced:
                sent["fence"] = self._fence
            if named.pop("dry", None):
                sent["dry_run"] = True
            return self._client.post(
                "/v1/bulk",
                data=json.dumps(sent),
                content_type="application/x-ndjson",
                headers=named,
            )
        named |= dict(ask.headers) | ({} if key is None else {"Idempotency-Key": key})
        place = ask.place
        if named.pop("dry", None):
            place += ("&" if "?" in place else "?") + "dry_run=true"
        body = (
            {"data": json.dumps(ask.body), "content_type": ask.media_type} if ask.has_body else {}
        )
        return self._client.open(self._path + place, method=ask.method, headers=named, **body)


@pytest.fixture
def catalogs(client: FlaskClient) -> Callable[[], Client]:
    return lambda: Client(client, f"keyed-{uuid.uuid4().hex}")


def fresh_answer(twin: Client, world: World) -> KeyedAnswer:
    """What the request gets that was sent, but is decided only in the world as it is later."""
    ask = twin.prepare(world)
    twin.send(ask, "a")
    twin.change(*world.between)
    outcome, told = twin.tried(ask, "b")
    assert outcome == "applied", told
    return told


@pytest.mark.parametrize(("outcome", "world"), WORLDS)
def test_a_request_sent_again_gets_its_first_answer(
    outcome: str, world: World, catalogs: Callable[[], Client]
) -> None:
    fresh_answer(catalogs(), world)
    catalog = catalogs()
    ask = catalog.prepare(world)
    first_outcome, first = catalog.tried(ask, "a")
    assert first_outcome == outcome, first
    assert not first.replayed
    catalog.change(*world.between)
    there = catalog.content()
    second = catalog.send(ask, "a")
    assert second == first._replace(replayed=True)
    assert catalog.send(ask, "a", dry="true").replayed
    assert catalog.content() == there


@pytest.mark.parametrize(("outcome", "world"), WORLDS)
def test_a_dry_run_uses_up_no_key(
    outcome: str, world: World, catalogs: Callable[[], Client]
) -> None:
    catalog = catalogs()
    ask = catalog.prepare(world)
    dry = catalog.send(ask, "a", dry="true")
    assert (dry.status >= 400, dry.replayed) == (outcome == "refused", False)
    catalog.step(*world.between)
    then, told = catalog.tried(ask, "a")
    assert (then, told.replayed) == ("applied", False), told


class LosingStore:
    """A store that makes a move, and then is out of reach until it is ``back``, an hour later."""

    def __init__(self, store: MemoryStore, clock: SetClock) -> None:
        self._store = store
        self._clock = clock
        self.loses = self.lost = False

    def back(self) -> None:
        self.loses = self.lost = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._store, name)
        if name in ("stored_bytes", "uploads", "await_reachable"):
            return method

        def losing(*arguments: Any, **named: Any) -> Any:
            if self.lost:
                raise StoreUnreachable("it is away")
            done = method(*arguments, **named)
            if self.loses and name == "move_heads":
                self.lost = True
                self._clock.passed_s += 3600
                raise StoreUnreachable("the answer is lost")
            return done

        return losing


class Lossy(NamedTuple):
    """Two gateways on one store; the answers to the moves of ``losing`` get lost."""

    losing: FlaskClient
    other: FlaskClient
    store: LosingStore


@pytest.fixture(scope="module")
def lossy() -> Lossy:
    store, clock = MemoryStore(), SetClock()
    losing = LosingStore(store, clock)
    first = GatewayService(losing, clock, ServiceLimits(), encode_refusal=encode_refusal)  # type: ignore[arg-type]
    second = GatewayService(store, ThreadRuntime(), ServiceLimits(), encode_refusal=encode_refusal)
    return Lossy(create_app(first).test_client(), create_app(second).test_client(), losing)


@pytest.mark.parametrize(("outcome", "world"), WORLDS)
def test_a_request_whose_answer_was_lost_gets_it_when_sent_again(
    outcome: str, world: World, lossy: Lossy
) -> None:
    """Sent again through another gateway, when the world is another one."""
    expected = _answered(Client(lossy.other, f"keyed-{uuid.uuid4().hex}"), world)
    catalog = Client(lossy.other, f"keyed-{uuid.uuid4().hex}")
    ask = catalog.prepare(world)
    lossy.store.loses = True
    first = catalog.through(lossy.losing).send(ask, "a")
    assert lossy.store.lost
    lossy.store.back()
    assert first.status == (504 if outcome == "applied" else 503)
    catalog.change(*world.between)
    there = catalog.content()
    second = catalog.send(ask, "a")
    assert (second.status, second.replayed) == (expected.status, True)
    assert _comparable(second) == _comparable(expected)
    assert catalog.content() == there


def _answered(twin: Client, world: World) -> KeyedAnswer:
    return twin.send(twin.prepare(world), "a")


def _comparable(told: KeyedAnswer) -> Any:
    """What two runs of the same say alike."""
    if not isinstance(told.content, dict):
        return None
    content = told.content.get("problem", told.content)
    return {name: content.get(name) for name in ("changed", "code", "status", "title")}


def keyed_operations() -> set[str]:
    return {
        operation["operationId"]
        for path in OPENAPI["paths"].values()
        for method, operation in path.items()
        if method in ("put", "patch", "post", "delete")
        if any(
            each.get("$ref", "").endswith("/IdempotencyKey")
            for each in (*operation.get("parameters", ()), *path.get("parameters", ()))
        )
    }


def test_every_route_that_takes_a_key_is_in_the_table() -> None:
    writes = {
        operation["operationId"]
        for path in OPENAPI["paths"].values()
        for method, operation in path.items()
        if method in ("put", "patch", "post", "delete")
    }
    cases = {case.operation for case in CASES}
    assert cases == keyed_operations() | {"run_bulk"}
    assert cases.isdisjoint(WITHOUT_KEY)
    assert writes == cases | WITHOUT_KEY.keys()


def test_every_kind_of_a_write_is_in_the_table() -> None:
    """Of a patch by its type, of a bulk line by its operation."""
    assert _names("patch_document") == set(ACCEPT_PATCH[1].split(", "))
    assert _names("run_bulk") - {"put, fenced"} == _OPERATIONS.keys()


def _names(operation: str) -> set[str]:
    return {case.name for case in CASES if case.operation == operation}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.operation}-{case.name}")
def test_every_route_has_a_request_for_each_outcome(case: Case) -> None:
    assert case.applied
    assert case.refused
    assert case.unchanged or "touch" in case.name
