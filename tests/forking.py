"""Gateways as forks of a process that has imported what they import: most of a start is imports.

The process is started when it is first asked. Its forks are what `python -m tests.routing` is: the
master has Python's own `select` and `os`, and the workers have what gevent makes of them, by which
their modules were imported. `test_forking` compares.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

_ROOT = Path(__file__).resolve().parent.parent
_LENGTH_BYTES: Final = 8
# What a master imports before it forks its workers, and what they import then.
_OF_MASTERS: Final = (
    "environs",
    "gateway.cli.main",
    "gateway.server.master",
    "gunicorn.workers.ggevent",
    "gateway.server.greenlets",
)
_OF_WORKERS: Final = "gateway.assembly"
# What of Python a master has as it is; in `threading`, it has no use for any.
_UNPATCHED: Final = (
    *("os", "time", "signal", "select", "selectors"),
    *("socket", "ssl", "subprocess", "queue"),
)
# What gevent has not of what it patches.
_ABSENT: Final = object()


class Fork:
    """What `subprocess.Popen` is to who started it."""

    def __init__(self, status: TextIO, stdout: TextIO) -> None:
        self._status, self.stdout = status, stdout
        self.pid = int(status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("gateway", timeout or 0)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def functions() -> ForkServerContext:
    """For functions of tests in processes of their own: forks of one, too, which has imported what
    most of these functions' modules import."""
    import multiprocessing  # which the forks that are gateways have no use for

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_stopped_neighbour"])
    return context


def start(arguments: Sequence[str], stderr: int, environment: Mapping[str, str]) -> Fork:
    """`gateway` with these arguments, the leader of a session of its own."""
    out, its_out = os.pipe()
    status, its_status = os.pipe()
    request = json.dumps([list(arguments), dict(environment), str(Path.cwd())]).encode()
    try:
        asked = _parent()
        length = len(request).to_bytes(_LENGTH_BYTES, "big")
        socket.send_fds(asked, [length], [its_out, stderr, its_status])
        asked.sendall(request)
    finally:
        os.close(its_out)
        os.close(its_status)
    return Fork(os.fdopen(status), os.fdopen(out))


@cache
def _parent() -> socket.socket:
    """A socket to the process that forks gateways, which ends with this one."""
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen(
            (sys.executable, "-m", "tests.forking", str(its.fileno())),
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            pass_fds=[its.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class _Parent:
    """In that process."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._told: dict[int, int] = {}  # of each fork that lives, where its exit code is told

    def serve(self) -> list[str] | None:
        """In each fork, the arguments of its gateway; None when no more are wanted."""
        signal.signal(signal.SIGCHLD, self._tell)
        while True:
            request, (out, err, status) = self._next()
            if not request:
                for pid in tuple(self._told):  # whom nobody is left to stop
                    with suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                return None
            # The end of the fork isn't told before it is known whom to tell.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            if (pid := os.fork()) == 0:
                return self._become(*json.loads(request), out, err, status)
            self._told[pid] = status
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            os.close(out)
            os.close(err)

    def _next(self) -> tuple[bytes, tuple[int, ...]]:
        """A request and its files; an empty one at the end."""
        length, files, _, _ = socket.recv_fds(self._asked, _LENGTH_BYTES, 3)
        if not length:
            return b"", (0, 0, 0)
        size = int.from_bytes(length, "big")
        request = b""
        while len(request) < size:
            request += self._asked.recv(size - len(request))
        return request, tuple(files)

    def _tell(self, *_: object) -> None:
        for pid, status in tuple(self._told.items()):
            ended, how = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._told[pid]
                with suppress(BrokenPipeError):
                    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(how))
                os.close(status)

    def _become(
        self,
        arguments: list[str],
        env: dict[str, str],
        folder: str,
        out: int,
        err: int,
        status: int,
    ) -> list[str]:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.write(status, b"%d\n" % os.getpid())
        self._asked.close()
        for each in (out, err, status, *self._told.values()):
            os.close(each)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(folder)
        sys.argv[1:] = arguments
        return arguments


def _import_as_workers_do() -> None:
    """Their modules, by a Python that gevent has patched.

    For the masters it is unpatched then; each worker has it patched again, by gunicorn's call.
    """
    for name in _OF_MASTERS:
        import_module(name)
    from gevent import monkey

    monkey.patch_all()
    import_module(_OF_WORKERS)
    own = {name: monkey.saved[name] for name in _UNPATCHED}
    patched = {
        name: {of: vars(sys.modules[name]).get(of, _ABSENT) for of in saved}
        for name, saved in own.items()
    }
    _set(own)

    def patch_all(**_: Any) -> None:
        _set(patched)

    monkey.patch_all = patch_all


def _set(values: Mapping[str, Mapping[str, Any]]) -> None:
    for module, attributes in values.items():
        there = vars(sys.modules[module])
        there.update(attributes)
        for name in [name for name, value in attributes.items() if value is _ABSENT]:
            del there[name]


def main(asked: str) -> None:
    from tests import routing

    routing.without_what_it_needs_not()
    _import_as_workers_do()
    gc.freeze()
    arguments = _Parent(socket.socket(fileno=int(asked))).serve()
    if arguments is not None:
        routing.run(arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
