"""A gateway that is forked is what one is that is started from nothing (`tests.forking`)."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import pytest

from tests import forking, routing
from tests.patience import WAIT_S

ROOT = Path(__file__).resolve().parent.parent
# Of all names in all modules, those that are something else in a fork's workers: two locks of
# Python's, remade after the second fork, and what patches a worker.
OTHER = {
    "gevent.monkey.patch_all",
    "threading._active_limbo_lock",
    "threading._shutdown_locks_lock",
}

Start = Callable[[tuple[str, ...], dict[str, str]], Any]


def application(settings: Any) -> Any:
    """The gateway's, after the worker has written its names."""
    made = routing.create_application(settings)
    signals = {each.name: str(signal.getsignal(each)) for each in signal.Signals}
    told = {
        "modules": sorted(sys.modules),
        "names": dict(_names()),
        "signals": {name: re.sub(" at 0x[0-9a-f]+", "", what) for name, what in signals.items()},
        "blocked": [each.name for each in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "environment": {k: v for k, v in os.environ.items() if k != "PROMETHEUS_MULTIPROC_DIR"},
        "arguments": sys.argv[1:],
        "folder": str(Path.cwd()),
        "collector": [gc.get_threshold(), gc.isenabled()],
        "master's session": os.getsid(0) == os.getpgid(0) == os.getppid(),
        "main thread": threading.current_thread() is threading.main_thread(),
        "inherited": sorted(os.get_inheritable(each) for each in range(3)),
    }
    Path("told").write_text(json.dumps(told))
    return made


def _names() -> Iterator[tuple[str, str]]:
    """What each name in each module is: a class or a function, or else of which class."""
    for name, module in tuple(sys.modules.items()):
        for of, value in tuple(vars(module).items() if module is not None else ()):
            kind = type(value)
            itself = value if issubclass(kind, (type, FunctionType, BuiltinFunctionType)) else kind
            if name != "__main__" and isinstance(itself.__module__, str):
                yield f"{name}.{of}", f"{itself.__module__}.{itself.__qualname__}"


def from_nothing(arguments: tuple[str, ...], environment: dict[str, str]) -> Any:
    return subprocess.Popen(
        (sys.executable, "-m", "tests.routing", *arguments),
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    )


def test_workers_of_a_forked_gateway_are_like_those_of_a_fresh_one(
    mongodb_uri: str, database_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked(arguments: tuple[str, ...], environment: dict[str, str]) -> Any:
        return forking.start(arguments, sys.__stderr__.fileno(), environment)

    def told(start: Start) -> dict[str, Any]:
        process = start(arguments, environment)
        try:
            assert process.stdout.readline().startswith("gateway: ready at ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()
        return dict(json.loads((tmp_path / "told").read_text()))

    monkeypatch.chdir(tmp_path)
    variables = {"PYTHONPATH": str(ROOT), routing.APPLICATION: "tests.test_forking:application"}
    environment = {**os.environ, **variables}
    arguments = (
        *("serve", "--bind=127.0.0.1:0", "--workers=1", "--no-access"),
        *(f"--database={database_name}", f"--mongodb-uri={mongodb_uri}"),
    )
    fresh, fork = told(from_nothing), told(forked)
    names, names_of_fork = fresh.pop("names"), fork.pop("names")
    assert fork == fresh
    differ = {
        name
        for name in names.keys() | names_of_fork.keys()
        if names.get(name) != names_of_fork.get(name)
    }
    assert differ <= OTHER
    assert "gevent" in names["threading.Lock"]
    assert len(names) > 5000


def test_the_exit_status_of_a_fork_is_reported(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log:
        refused = forking.start(("serve", "--no-such-flag"), log.fileno(), {})
        assert refused.wait(WAIT_S) == 2
        assert "--no-such-flag" in (tmp_path / "log").read_text()
        killed = forking.start(("serve", "--no-access"), log.fileno(), {})
        os.killpg(killed.pid, signal.SIGKILL)
        assert (killed.wait(WAIT_S), killed.poll()) == (-signal.SIGKILL, -signal.SIGKILL)
    for each in (refused, killed):
        each.stdout.close()
