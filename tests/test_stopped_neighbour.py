"""A stopped worker beside a running one: real processes, real turns, real messages."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.commit.handover import home_worker
from gateway.commit.messages import ByMessages, PeerAnswer, message_handler
from gateway.decide.request import Request, Unknown
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.server import neighbours
from gateway.server.neighbours import Neighbours
from gateway.server.turns import MachineTurns
from gateway.service import GatewayService
from tests import forking
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS, WAIT_S
from tests.without_http import add, applied, put, wait_until

HEALTHY = [f"healthy {number}" for number in range(50)]
SICK = [f"sick {number}" for number in range(20)]


def serve(path: Path, group: str, calls: Connection) -> None:
    """The other worker: it has the turns of the sick catalogs, and answers nothing in time."""
    turns = MachineTurns(path)
    neighbours = Neighbours(group, turns.secret, turns.others)
    neighbours.listen(message_handler(unknown))
    for catalog in SICK:
        assert turns.take(catalog)
    calls.send("ready")
    calls.recv()


def unknown(request: Request, _: int) -> PeerAnswer:
    return PeerAnswer(Unknown(request.commit_id), 1, goes_on=False)


@dataclass
class Machine:
    gateway: GatewayService
    neighbours: Neighbours
    other: int


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    context = forking.functions()
    calls, theirs = context.Pipe()
    group, path = uuid4().hex, tmp_path / "turns"
    process = context.Process(target=serve, args=(path, group, theirs), daemon=True)
    process.start()
    assert calls.recv() == "ready"
    turns = MachineTurns(path)
    ours = Neighbours(group, turns.secret, turns.others)
    limits, runtime = ServiceLimits(deadline_ms=WAIT_MS), ThreadRuntime()
    gateway = GatewayService(MemoryStore(), runtime, limits, turns, neighbours=ByMessages(ours))
    yield Machine(gateway, ours, process.pid or 0)
    process.kill()
    process.join()
    turns.close()


def test_no_request_of_a_worker_fails_because_its_neighbour_is_stopped(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped while it has turns, before anybody has connected to it. Once, the callers of
    its catalogs waited a second each for its greeting, one after the other, most of them beyond
    their time. Here, a single such wait would be too long."""
    monkeypatch.setattr(neighbours, "SILENT_S", 2 * WAIT_S)
    os.kill(machine.other, signal.SIGSTOP)
    owned = [c for c in SICK if home_worker(c, (os.getpid(), machine.other)) == machine.other]
    assert owned, "by its name, it is the one that some of them would be handed over to"

    def write(number: int, catalog: str) -> int:
        written = machine.gateway.write(catalog, f"k{number}", put(number))
        return applied(written.outcome).commit.revision

    with ThreadPoolExecutor(120) as pool:
        sick = [pool.submit(write, n, catalog) for n in range(4) for catalog in SICK]
        healthy = [pool.submit(write, n, catalog) for n in range(2) for catalog in HEALTHY]
        assert {each.result(2 * WAIT_S) for each in healthy} == {1, 2}
        assert {each.result(2 * WAIT_S) for each in sick} == {1, 2, 3, 4}


def test_a_neighbour_that_resumes_is_asked_again(machine: Machine) -> None:
    """The answer of its home worker shows that a write was handed over."""
    catalog = next(c for c in SICK if home_worker(c, (os.getpid(), machine.other)) == machine.other)
    os.kill(machine.other, signal.SIGSTOP)
    machine.gateway._hand_over.start(catalog)
    applied(machine.gateway.write(catalog, "k", put({})).outcome)
    wait_until(lambda: machine.neighbours.others() == [])
    machine.gateway._hand_over._to.clear()
    machine.gateway._hand_over.start(catalog)
    assert catalog not in machine.gateway._hand_over._to
    os.kill(machine.other, signal.SIGCONT)

    def is_handed() -> bool:
        machine.gateway._hand_over.start(catalog)
        written = machine.gateway.write(catalog, "k", add("/n", 1))
        return written.outcome == Unknown(written.commit_id)

    wait_until(is_handed)
