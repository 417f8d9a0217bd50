"""A gateway that a test made has no threads any more when others run; one that they share has."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests import background
from tests.memory_store import MemoryStore
from tests.without_http import applied, put


def written() -> tuple[GatewayService, set[threading.Thread]]:
    """A gateway that has begun to work, and its threads."""
    before = set(threading.enumerate())
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
    write(gateway)
    return gateway, set(threading.enumerate()) - before


def write(gateway: GatewayService) -> None:
    applied(gateway.write("c", uuid.uuid4().hex, put(1)).outcome)


def test_the_threads_of_a_gateway_end_with_its_test(eventually: Callable[..., Any]) -> None:
    with background.of_one_test():
        _, threads = written()
        assert len(threads) > 1
    eventually(lambda: not any(each.is_alive() for each in threads))


def test_the_threads_of_a_fixture_of_several_tests_continue() -> None:
    with background.of_one_test():
        with background.of_several_tests():
            gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
        write(gateway)
    # A thread that ends is given one more thing to do at the most.
    for _ in range(2 * gateway.limits.leaders + 1):
        write(gateway)
