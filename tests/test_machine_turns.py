"""Turns are a hint between processes; these tests use real ones, since locks are per process."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from gateway.machine_turns import MachineTurns, turns_path


def serve(path: Path, calls: Connection) -> None:
    turns = MachineTurns(path)
    while True:
        name, catalog = calls.recv()
        calls.send(getattr(turns, name)(catalog))


class Worker:
    """Another process's turns."""

    def __init__(self, path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._calls, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(path, theirs), daemon=True)
        self.process.start()

    def __getattr__(self, name: str) -> Callable[[str], Any]:
        def call(catalog: str) -> Any:
            self._calls.send((name, catalog))
            return self._calls.recv()

        return call


@pytest.fixture
def workers(tmp_path: Path) -> Any:
    made = [Worker(tmp_path / "turns") for _ in range(2)]
    yield made
    for worker in made:
        worker.process.kill()


def test_one_worker_at_a_time_has_a_catalogs_turn(workers: list[Worker]) -> None:
    a, b = workers
    assert a.take("c")
    assert not b.take("c")
    assert b.take("another")
    assert a.end("c"), "b waits"
    assert b.take("c")
    assert not b.end("c"), "nobody waits any more"


def test_who_gives_up_waits_no_longer(workers: list[Worker]) -> None:
    a, b = workers
    a.take("c")
    b.take("c")
    b.give_up("c")
    assert not a.end("c")


def test_a_killed_worker_holds_no_turn(
    workers: list[Worker], eventually: Callable[..., Any]
) -> None:
    a, b = workers
    a.take("c")
    os.kill(a.process.pid or 0, signal.SIGKILL)
    eventually(lambda: b.take("c"))


def test_the_file_is_the_same_for_the_same_database_only() -> None:
    assert turns_path("mongodb://a", "x") == turns_path("mongodb://a", "x")
    assert turns_path("mongodb://a", "x") != turns_path("mongodb://a", "y")
    assert "secret" not in str(turns_path("mongodb://user:secret@a", "x"))
