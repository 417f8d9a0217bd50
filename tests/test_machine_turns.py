"""Turns are a hint between processes; these tests use real ones, since locks are per process."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from gateway.assembly import _turns
from gateway.server.turns import MachineTurns, remove_left_over, turns_path
from tests import forking


def serve(path: Path, calls: Connection) -> None:
    turns = MachineTurns(path)
    while True:
        name, catalog = calls.recv()
        if name == "secret":
            calls.send(turns.secret)
        elif name in ("close", "others"):
            calls.send(getattr(turns, name)())
        else:
            calls.send(getattr(turns, name)(catalog))


class Worker:
    """Another process's turns."""

    def __init__(self, path: Path) -> None:
        context = forking.functions()
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


def test_only_one_worker_at_a_time_has_a_catalogs_turn(workers: list[Worker]) -> None:
    a, b = workers
    assert a.take("c")
    assert not b.take("c")
    assert b.take("another")
    assert a.end("c"), "b waits"
    assert b.take("c")
    assert not b.end("c"), "nobody waits any more"


def test_a_worker_that_gives_up_no_longer_waits(workers: list[Worker]) -> None:
    a, b = workers
    a.take("c")
    b.take("c")
    b.give_up("c")
    assert not a.end("c")


def test_a_killed_worker_loses_its_turn(
    workers: list[Worker], eventually: Callable[..., Any]
) -> None:
    a, b = workers
    a.take("c")
    os.kill(a.process.pid or 0, signal.SIGKILL)
    eventually(lambda: b.take("c"))


def test_the_last_process_that_closes_the_file_removes_it(
    workers: list[Worker], tmp_path: Path
) -> None:
    a, b = workers
    assert a.take("c")
    b.close("")
    assert (tmp_path / "turns").exists()
    a.close("")
    assert not (tmp_path / "turns").exists()


def test_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    names = [turns_path("mongodb://a", name).name for name in ("dead", "living", "own")]
    dead, living, own = (tmp_path / name for name in names)
    killed, other = Worker(dead), Worker(living)
    try:
        assert killed.take("c")
        assert other.give_up("c") is None, "it has opened its file, and holds no turn"
        assert killed.process.pid is not None
        os.kill(killed.process.pid, signal.SIGKILL)
        killed.process.join()
        (tmp_path / "another.turns").touch()
        turns = MachineTurns(own)
        remove_left_over(own)
        kept = {"another.turns", living.name, own.name}
        assert {each.name for each in tmp_path.iterdir()} == kept
        assert other.take("c")
        turns.close()
    finally:
        other.process.kill()


def test_only_the_same_database_has_the_same_file() -> None:
    assert turns_path("mongodb://a", "x") == turns_path("mongodb://a", "x")
    assert turns_path("mongodb://a", "x") != turns_path("mongodb://a", "y")
    assert "secret" not in str(turns_path("mongodb://user:secret@a", "x"))


def test_workers_know_the_other_workers(tmp_path: Path, eventually: Callable[..., Any]) -> None:
    made = [Worker(tmp_path / "turns") for _ in range(4)]
    for worker in made:
        worker.take("c")  # it is there by then
    pids = [worker.process.pid for worker in made]
    for worker in made:
        assert worker.others("") == sorted(p for p in pids if p != worker.process.pid)
    os.kill(pids[1] or 0, signal.SIGKILL)
    eventually(lambda: made[0].others("") == sorted([pids[2], pids[3]]))
    made[2].close("")
    assert made[0].others("") == [pids[3]]
    for worker in made:
        worker.process.kill()


def test_workers_that_share_a_file_share_a_secret_unreadable_to_others(
    workers: list[Worker], tmp_path: Path
) -> None:
    a, b = workers
    assert a.secret("") == b.secret("")
    assert len(a.secret("")) == 32
    assert (tmp_path / "turns").stat().st_mode & 0o777 == 0o600
    assert MachineTurns(tmp_path / "another").secret != a.secret("")


def test_a_file_readable_by_others_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "turns").touch(0o644)
    with pytest.raises(PermissionError, match="remove it"):
        MachineTurns(tmp_path / "turns")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_file_of_another_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "turns").touch(0o600)
    os.chown(tmp_path / "turns", 65534, 65534)
    with pytest.raises(PermissionError):
        MachineTurns(tmp_path / "turns")


def test_without_a_temporary_folder_there_are_no_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_folder() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", no_folder)
    assert _turns("mongodb://a", "x") is None
