"""A running `gateway serve` for tests: processes of its own with real workers, by flags alone."""

from __future__ import annotations

import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from click.testing import CliRunner
from pymongo import MongoClient

from gateway.cli.main import main
from gateway.settings import SETTINGS
from tests import forking
from tests.patience import UNHURRIED, WAIT_S
from tests.routing import UNROUTED

_ROOT = Path(__file__).resolve().parent.parent
_ROWS = {row.name: row for row in SETTINGS}
_ready_at = re.compile(r"gateway: ready at (https?)://127\.0\.0\.1:(\d+) .*\n").fullmatch


class ServiceError(Exception):
    """The service did not start; `str()` holds what it said."""


# Written down a second time, apart from what the service keeps its own log clean by.
_SECRETS = re.compile(
    r"gwt_[0-9a-f]+_[0-9a-f]{8,}"  # a token with its secret
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"  # a signed JWT
    r"|mongodb(?:\+srv)?://[^\s/@:]+:[^\s/@]+@"  # a password in a connection string
)


def leaked_secrets(log: str) -> list[str]:
    """What no log may hold; so the logs of every gateway that the tests run are looked through."""
    return _SECRETS.findall(log)


_SHOWN = 8_000  # the last characters of the log of a gateway whose test failed


class RunningGateway:
    """`gateway serve` on a free port of this machine, over `database` of the server at the URI.

    It is started by `start()` or by entering it as a context, which returns when all workers are
    there and one of them is ready; leaving the context stops it, whatever state it is in. Further
    settings go by the names that `gateway.settings` has: `RunningGateway(uri, name,
    deadline_ms=500)`. Access control is off, unless `access=True` asks for it, and no limit of
    time is short (`UNHURRIED`). `GATEWAY_…`
    variables of the environment have no effect.
    """

    def __init__(
        self, mongodb_uri: str, database: str, *, workers: int = 2, **settings: Any
    ) -> None:
        chosen = {"mongodb_uri": mongodb_uri, "database": database, "workers": workers}
        chosen |= UNHURRIED | {"access": False} | settings
        self._workers = workers
        self._flags = [_flag(name, value) for name, value in chosen.items()]
        self._process: forking.Fork | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `stop`
        self._said = ""
        self._port = 0
        self._scheme = "http"

    @property
    def url(self) -> str:
        """Without a slash at the end."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def master_pid(self) -> int:
        return self._started().pid

    def any_worker(self, luck: random.Random) -> int:
        """One of the workers' process ids, as soon as there is one: they may all have died."""
        return luck.choice(self._some_workers())

    def oldest_worker(self) -> int:
        """The process id of the one that lives longest, as soon as there is one."""
        return self._some_workers()[0]

    def _some_workers(self) -> list[int]:
        deadline = time.monotonic() + WAIT_S
        while not (found := self.worker_pids()):
            if time.monotonic() > deadline:
                raise ServiceError("it has no workers any more")
            time.sleep(0.02)
        return found

    def worker_pids(self) -> list[int]:
        """Of the workers that live now, oldest first; the master replaces one that ended."""
        try:
            children = [each for each in psutil.Process(self.master_pid).children() if lives(each)]
            return [each.pid for each in sorted(children, key=lambda each: each.create_time())]
        except psutil.NoSuchProcess:  # one of them ended meanwhile
            return self.worker_pids() if self.is_running() else []

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What was written to stderr so far."""
        if not self._errors.closed:
            # At the process's own place in the file, which the two share: it writes at the end.
            file = self._errors.fileno()
            self._said = os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")
        return self._said

    def start(self) -> Self:
        """Raises ServiceError where it isn't ready in WAIT_S; nothing is left running then."""
        self.begin()
        try:
            self._await_ready(time.monotonic() + WAIT_S)
        except BaseException:
            self.kill()
            raise
        return self

    def begin(self) -> None:
        """Start it, whether it will be ready or not."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")}
        environment["PYTHONPATH"] = str(_ROOT)
        arguments = ("serve", "--bind=127.0.0.1:0", *self._flags)
        self._process = self._spawn(arguments, self._errors.fileno(), environment)

    def _spawn(
        self, arguments: Sequence[str], stderr: int, environment: Mapping[str, str]
    ) -> forking.Fork:
        return forking.start(arguments, stderr, environment)

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """The exit code, once master and workers have ended. Kills what doesn't end in WAIT_S."""
        process = self._started()
        if process.poll() is None:
            process.send_signal(signal_number)
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return self.kill()

    def kill(self) -> int:
        """Kill what is left of it, stopped processes included, and return the exit code."""
        process = self._started()
        if self._errors.closed:  # by an earlier call; the ids may be those of others by now
            return process.wait()
        with suppress(ProcessLookupError):  # nothing is left
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        _await_end(process.pid)
        if process.stdout is not None:
            process.stdout.close()
        log = self.log()
        self._errors.close()
        assert not (leaked := leaked_secrets(log)), f"secrets in the log: {leaked}"
        unrouted = [line for line in log.splitlines() if line.startswith(UNROUTED)]
        assert not unrouted, f"commands that all shards would be asked: {unrouted[:3]}"
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if error is not None:  # pytest shows it with the failure
            print(f"what {self.url} logged:\n{self.log()[-_SHOWN:]}", file=sys.stderr)

    def _await_ready(self, deadline: float) -> None:
        process = self._started()
        assert process.stdout is not None
        left_s = max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([process.stdout], [], [], left_s)
        line = process.stdout.readline() if readable else ""
        ready = _ready_at(line)
        if ready is None:
            raise ServiceError(f"the service isn't ready: {line}{self.log()}")
        self._scheme, self._port = ready[1], int(ready[2])
        while len(self.worker_pids()) < self._workers:
            if time.monotonic() > deadline or not self.is_running():
                raise ServiceError(f"the service has too few workers: {self.log()}")
            time.sleep(0.05)

    def _started(self) -> forking.Fork:
        if self._process is None:
            raise ServiceError("the service was not started")
        return self._process


@contextmanager
def own_database(mongodb_uri: str) -> Iterator[str]:
    """The name of a database that nobody else has, dropped in the end."""
    name = f"test_{uuid.uuid4().hex}"
    try:
        yield name
    finally:
        with MongoClient[dict[str, Any]](mongodb_uri) as client:
            client.drop_database(name)


def verify(mongodb_uri: str, database: str) -> str:
    """What ``gateway verify`` says; fails where it finds anything.

    In this process, which has imported what takes a process of its own longer than to verify.
    """
    flags = (f"--mongodb-uri={mongodb_uri}", f"--database={database}")
    flags += (f"--store-timeout-ms={UNHURRIED['store_timeout_ms']}",)
    ended = CliRunner().invoke(main, ("verify", "--all", *flags), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    assert "clean" in ended.output
    return ended.output


def lives(process: psutil.Process) -> bool:
    """Whether the process runs. A stopped one counts; one that has ended but wasn't waited for
    doesn't."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _await_end(group: int) -> None:
    """Wait until none of its processes runs: a killed one holds its sockets a moment longer."""
    deadline = time.monotonic() + WAIT_S
    while any(_in_group(process, group) for process in psutil.process_iter()):
        if time.monotonic() > deadline:
            raise ServiceError(f"processes of group {group} outlive SIGKILL")
        time.sleep(0.01)


def _in_group(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and lives(process)
    except ProcessLookupError:  # it ended meanwhile
        return False


def _flag(name: str, value: Any) -> str:
    row = _ROWS[name]
    if isinstance(value, bool):
        return row.flag if value else f"--no-{row.flag.removeprefix('--')}"
    return f"{row.flag}={value}"
