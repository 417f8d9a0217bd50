"""A fake gateway with followers that are stopped in the end, and a real one with a client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from patching.client import Catalog, Follower, Gateway, Retry
from tests.client.fake_documents import FakeDocuments, Opens, retry
from tests.client.fake_gateway import FakeGateway
from tests.client.on_a_loop import Loop
from tests.patience import WAIT_S
from tests.service import RunningGateway, own_database

QUICK = Retry(first_s=0.01, longest_s=0.05)


class Followed(FakeGateway):
    """`eventually`: as the fixture of that name."""

    def __init__(self, eventually: Callable[..., Any]) -> None:
        super().__init__()
        self.eventually = eventually
        self.followers: list[Follower] = []

    def follow(self, **options: Any) -> Follower:
        """One of its catalog that has started."""
        follower = Follower(self.url, "c", retry=QUICK, **options)
        self.followers.append(follower.start())
        return follower


@pytest.fixture
def gateway(eventually: Callable[..., Any]) -> Iterator[Followed]:
    with Followed(eventually) as running:
        yield running
        for follower in running.followers:
            follower.stop()


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


@pytest.fixture(params=["blocking", "asyncio"])
def opens(request: pytest.FixtureRequest, loop: Loop) -> Opens:
    """Makes a `Gateway`: the one that blocks, and the one of asyncio behind an adapter."""
    return Gateway if request.param == "blocking" else loop.gateway


@pytest.fixture
def fake(opens: Opens) -> Iterator[FakeDocuments]:
    with FakeDocuments(opens) as running:
        running.put(k={"n": 1})
        yield running


@pytest.fixture
def faked(fake: FakeDocuments, opens: Opens) -> Iterator[Catalog]:
    """Its catalog, by a client that doesn't wait."""
    with opens(fake.url, retry=retry(fake)) as gateway:
        yield gateway.catalog("c")


@pytest.fixture(scope="package")
def service(mongodb_uri: str) -> Iterator[RunningGateway]:
    """A real gateway that several tests share, each with a catalog of its own."""
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, workers=1) as running,
    ):
        yield running


@pytest.fixture
def connected(service: RunningGateway, opens: Opens) -> Iterator[Gateway]:
    with opens(service.url, timeout_s=WAIT_S) as opened:
        yield opened


@pytest.fixture
def catalog(connected: Gateway) -> Catalog:
    """Of a name that has everything that names can have."""
    return connected.catalog(f"urn:li:(ü,{uuid.uuid4().hex})/%2F ;=")
