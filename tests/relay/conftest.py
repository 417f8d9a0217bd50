"""A gateway in this process, on the in-memory store, whose relay is quick; and a receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from werkzeug.test import TestResponse

from gateway.http import create_app
from gateway.http.wire import cloud_events
from gateway.http.wire.shapes import commit_event
from gateway.limits import RelayLimits, RequestLimits, ServiceLimits
from gateway.relay import relay as relaying
from gateway.relay.relay import Relay
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import StoreUnreachable
from tests.http.conftest import Catalog
from tests.memory_store import MemoryStore
from tests.relay.receiver import Receiver

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
QUICK = RelayLimits(poll_s=0.02)


class OutOfReach:
    """The store of a worker that has died: its threads that still run can't end its claims."""

    def __getattr__(self, name: str) -> Any:
        raise StoreUnreachable(f"nobody is left to call {name}")


class Gateway:
    """One process of a gateway. ``die`` stops its relay as a crash does: claims stay."""

    def __init__(self, store: MemoryStore, limits: RelayLimits = QUICK) -> None:
        self.store = store
        self.service = GatewayService(store, ThreadRuntime(), ServiceLimits(relay=limits))
        self.app = create_app(self.service, RequestLimits())
        self.catalog = Catalog(self.app.test_client(), "shop")
        self.relay: Relay = self.service.relay(commit_event, cloud_events)
        self.relay.start()

    @property
    def path(self) -> str:
        return f"{self.catalog.path}/subscriptions"

    def subscribe(self, to: Receiver | str, name: str = "s", **members: Any) -> Any:
        """The answer's body; it must be made or changed."""
        answer = self.put(to, name, **members)
        assert answer.status_code in (200, 201), answer.data
        return answer.get_json()

    def put(
        self, to: Receiver | str, name: str = "s", headers: Any = (), **members: Any
    ) -> TestResponse:
        members = {name.rstrip("_"): value for name, value in members.items()}
        body = {"to": to.url if isinstance(to, Receiver) else to, "secret": SECRET, **members}
        return self.catalog.client.put(f"{self.path}/{name}", json=body, headers=headers)

    def shown(self, name: str = "s") -> Any:
        answer = self.catalog.client.get(f"{self.path}/{name}")
        assert answer.status_code == 200, answer.data
        return answer.get_json()

    def post(self, rest: str, body: Any = None) -> TestResponse:
        return self.catalog.client.post(f"{self.path}/{rest}", json=body)

    def has_met(self, name: str = "s") -> bool:
        """Whether its relay has heard of the last change: a delivery may be under way before."""
        record = self.store.subscriptions().subscription("shop", name)
        runner = self.relay._runners.get(("shop", name))
        return bool(record and runner and runner.record.number == record.number)

    def die(self) -> None:
        self.relay._records = cast(Any, OutOfReach())
        self.relay._is_stopping = True
        for runner in self.relay._runners.values():
            runner.stop()

    def stop(self) -> None:
        self.relay.stop()
        self.app.begin_stop()  # type: ignore[attr-defined]


Begin = Callable[..., Gateway]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Gateways over one store, whose pauses after failures are short."""
    monkeypatch.setattr(relaying, "_PAUSE_S", 0.01)
    monkeypatch.setattr(relaying, "_PAUSE_S_MAX", 0.05)
    monkeypatch.setattr(relaying, "_IDLE_S", 0.02)
    monkeypatch.setattr(relaying, "_QUIET_POLL_S", 0.05)
    store, running = MemoryStore(), []

    def start(**limits: Any) -> Gateway:
        running.append(Gateway(store, replace(QUICK, **limits)))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def gateway(begin: Begin) -> Gateway:
    return begin()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as listening:
        yield listening
