"""A gateway with one worker, and what that worker has used: CPU by its own clock, and memory.

CPU is counted, not time: so the figures are the same on a machine that is busy with other things.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from benchmarks.cost.world import Request
from benchmarks.processes import free_port, server

_CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
# Far beyond what anything may take: a worker that is silent for so long is given up.
GIVE_UP_S: Final = 60.0
_PROBE_EVERY_S: Final = 0.02  # a block is counted so much too short at most
_MIB: Final = 1 << 20


class WorkerLost(Exception):
    """The worker ended, or answered nothing for GIVE_UP_S."""


@dataclass
class Cost:
    """What an attack took. ``statuses`` are those of its answers, 0 for one that never came.

    ``blocked_cpu_ms`` is the longest CPU time of the worker between the sending of a ``/livez`` and
    its answer; ``cpu_ms`` all of its CPU time, and ``memory_mib`` how much its memory rose.
    """

    blocked_cpu_ms: float = 0.0
    cpu_ms: float = 0.0
    memory_mib: float = 0.0
    sent_bytes: int = 0
    lost: bool = False
    statuses: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # what the worker logged of it

    @property
    def refused(self) -> list[int]:
        return sorted({each for each in self.statuses if not 200 <= each < 300})


class Worker:
    """The one worker of a gateway, and two principals: one that may do all, one that may read."""

    def __init__(self, port: int, pid: int, writer: str, reader: str) -> None:
        self.port, self.pid = port, pid
        self._tokens = {False: writer, True: reader}
        self._kept: dict[str, str] = {}
        self._log = _newest_log()
        self._clock = (~pid << 3) | 2  # the CPU clock of that process (clock_getcpuclockid)

    def cpu_s(self) -> float:
        try:
            return time.clock_gettime(self._clock)
        except OSError as error:
            raise WorkerLost(str(error)) from error

    def logged(self, start: int = 0) -> list[str]:
        """The lines of its log from there on."""
        try:
            return self._log.read_text(errors="replace").splitlines()[start:]
        except OSError:
            return []

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=GIVE_UP_S)

    def send(self, request: Request, keep: list[http.client.HTTPConnection]) -> int:
        """The status of the answer; 0 where there is none. One that isn't read is kept open."""
        connection = self.connect()
        try:
            headers = {"Authorization": f"Bearer {self._tokens[request.as_reader]}"}
            if request.content_type:
                headers["Content-Type"] = request.content_type
            headers |= {name: self._named(each) for name, each in request.headers}
            path, body = self._named(request.path), request.body or None
            connection.request(request.method, path, body=body, headers=headers)
            answer = connection.getresponse()
            if request.unread:
                keep.append(connection)
                return answer.status
            if request.keeps:
                self._keep(request.keeps, answer)
            while answer.read(_MIB):
                pass
        except (OSError, http.client.HTTPException):
            connection.close()
            return 0
        if connection not in keep:
            connection.close()
        return answer.status

    def _named(self, text: str) -> str:
        for name, each in self._kept.items():
            text = text.replace("{" + name + "}", each)
        return text

    def _keep(self, name: str, answer: http.client.HTTPResponse) -> None:
        kept = answer.getheader(name)
        if kept is None:
            with suppress(ValueError):
                held = json.loads(answer.read())
                kept = held.get(name) if isinstance(held, dict) else None
        if kept is not None:
            self._kept[name] = str(kept)

    def forget_peak(self) -> None:
        with suppress(OSError):
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_mib(self) -> float:
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError as error:
            raise WorkerLost(str(error)) from error
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        if found is None:
            raise WorkerLost(status)
        return int(found[1]) / 1024

    def resident_mib(self) -> float:
        try:
            return float(psutil.Process(self.pid).memory_info().rss) / _MIB
        except psutil.Error as error:
            raise WorkerLost(str(error)) from error


class _Probe(threading.Thread):
    """Asks ``/livez`` all the time, and counts the CPU that the worker takes until it answers."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(daemon=True)
        self._worker = worker
        self._ended = threading.Event()
        self.longest_s = 0.0
        self.answers = 0
        self.lost = False

    def run(self) -> None:
        connection = self._worker.connect()
        while not self._ended.wait(_PROBE_EVERY_S):
            try:
                begun = self._worker.cpu_s()
                connection.request("GET", "/livez")
                connection.getresponse().read()
                self.longest_s = max(self.longest_s, self._worker.cpu_s() - begun)
                self.answers += 1
            except WorkerLost:
                self.lost = True
                return
            except (OSError, http.client.HTTPException):
                with suppress(WorkerLost):
                    self.longest_s = max(self.longest_s, self._worker.cpu_s() - begun)
                connection.close()
                connection = self._worker.connect()

    def end(self) -> None:
        self._ended.set()
        self.join(GIVE_UP_S)
        self.lost = self.lost or self.is_alive()


def cost_of(worker: Worker, requests: list[Request], at_once: int) -> Cost:
    """Send the requests, each after the answer to the one before; ``at_once`` such clients."""
    worker.forget_peak()
    cost = Cost(sent_bytes=sum(each.size_bytes for each in requests))
    kept: list[http.client.HTTPConnection] = []
    logged = len(worker.logged())
    before_mib, before_s = worker.resident_mib(), worker.cpu_s()
    probe = _Probe(worker)
    probe.start()

    def client() -> None:
        for each in requests:
            cost.statuses.append(worker.send(each, kept))

    clients = [threading.Thread(target=client, daemon=True) for _ in range(at_once)]
    for each in clients:
        each.start()
    until = time.monotonic() + GIVE_UP_S * 2
    for each in clients:
        each.join(max(until - time.monotonic(), 0.0))
    probe.end()
    try:
        cost.blocked_cpu_ms = probe.longest_s * 1000
        cost.cpu_ms = (worker.cpu_s() - before_s) * 1000
        cost.memory_mib = worker.peak_mib() - before_mib
    except WorkerLost:
        cost.lost = True
    cost.told = worker.logged(logged)
    cost.lost = cost.lost or probe.lost or any(each.is_alive() for each in clients)
    for connection in kept:
        connection.close()
    return cost


def _newest_log() -> Path:
    """That of the server that was started last: see ``benchmarks.processes.server``."""
    logs = Path(tempfile.gettempdir()).glob("benchmark-*/output")
    return max(logs, key=lambda each: each.stat().st_ctime_ns, default=Path("/dev/null"))


@contextmanager
def one_worker(uri: str, database: str) -> Iterator[Worker]:
    """A gateway of this checkout over a database of its own."""
    about = ("--mongodb-uri", uri, "--database", database)
    environment = {"PYTHONPATH": str(_CHECKOUT), "PYTHONSAFEPATH": "1"}

    def token(name: str, grant: str) -> str:
        command = (*_CLI, "token", "create", "--name", name, "--grant", grant, *about)
        made = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, **environment}
        )
        return str(_TOKEN.findall(made.stdout)[0])

    writer, reader = token("writer", "admin:*"), token("reader", "read:*")
    port = free_port()
    serve = ("serve", "--bind", f"127.0.0.1:{port}", "--workers", "1", "--log-level", "warning")
    command = (*_CLI, *serve, "--no-audit-log", *about)
    with server(command, port, environment):
        yield Worker(port, _worker_pid(port), writer, reader)


_CLI: Final = (sys.executable, "-m", "gateway.cli")
_TOKEN: Final = re.compile(r"gwt_\w+")


def _worker_pid(port: int) -> int:
    """The one that listens and was forked by the one that does: the master's only child."""
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        with suppress(psutil.Error):
            for process in psutil.process_iter(("cmdline",)):
                line = process.info["cmdline"] or ()
                if f"127.0.0.1:{port}" in line:
                    for child in process.children():
                        if _answers(port):
                            return int(child.pid)
        time.sleep(0.05)
    raise WorkerLost("no worker was found")


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
