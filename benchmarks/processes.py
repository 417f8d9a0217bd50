"""Child processes that never outlive the benchmark: servers and mongod."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_START_S = 30.0
_STOP_S = 10.0


# The process that was started for each port that is listened at.
_started: dict[int, int] = {}


class ServerFailed(Exception):
    """A server ended or didn't listen in time; the message ends with its output."""


@contextmanager
def child(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in its own process group; on leaving, the whole group is stopped.

    Its own group, so that Ctrl-C reaches the benchmark alone, which then stops its children
    in order. Output goes to `log`.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _signal_group(process, signal.SIGTERM)
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
        finally:
            _signal_group(process, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(
    command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a command until it listens on the port, and yield the port. Raises ServerFailed."""
    folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
    log = folder / "output"
    try:
        with child(command, log, environment) as process:
            _wait_until_listening(process, port, log)
            _started[port] = process.pid
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cpu_s(port: int) -> float:
    """Seconds of processor time that the server at that port has taken so far, workers included;
    LookupError where it is none of ``server``'s."""
    master = psutil.Process(_started[port])
    times = [each.cpu_times() for each in (master, *master.children(recursive=True))]
    return sum(each.user + each.system for each in times)


@contextmanager
def gunicorn(
    application: str,
    workers: int,
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Serve a WSGI application (`module:name`) and yield its port.

    The settings are those with which `gateway.server` runs gunicorn, as far as they cost time:
    the parser written in Python, keep-alive, no access log.
    """
    port = free_port()
    command = [
        *(sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}"),
        *("--workers", str(workers), "--worker-class", "gevent"),
        *("--keep-alive", "75", "--log-level", "warning", "--no-control-socket"),
        *("--http-parser", "python", "--worker-connections", "4096"),
        *("--worker-tmp-dir", "/dev/shm"),
        application,
    ]
    with server(command, port, environment) as listening:
        yield listening


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                output = log.read_text(errors="replace")[-4000:]
                raise ServerFailed(f"{process.args!r}\n{output}") from None
            time.sleep(0.05)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
