"""A client without references is freed at once, with its connections. It doesn't wait for the
garbage collector, which may run rarely or never."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from patching.client import Gateway


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("batch_s", [None, 0.0])
def test_an_unreferenced_client_frees_its_connections(batch_s: float | None) -> None:
    gateway = Gateway("http://localhost:1", batch_s=batch_s)
    held: Any = gateway._calls
    let_go = [weakref.ref(held), weakref.ref(held.transport)]
    del held, gateway
    assert [each() for each in let_go] == [None, None]
