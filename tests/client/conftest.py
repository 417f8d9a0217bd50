"""A fake gateway, and followers of it that are stopped in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from patching.client import Backoff, Follower
from tests.client.fake_gateway import FakeGateway

QUICK = Backoff(first_s=0.01, longest_s=0.05)

Follow = Callable[..., Follower]


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway() as running:
        yield running


@pytest.fixture
def follow(gateway: FakeGateway) -> Iterator[Follow]:
    """`follow(...)` starts a follower of the fake's catalog."""
    started: list[Follower] = []

    def start(**options: Any) -> Follower:
        follower = Follower(gateway.url, "c", backoff=QUICK, **options)
        started.append(follower.start())
        return follower

    yield start
    for follower in started:
        follower.stop()
