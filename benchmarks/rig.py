"""Everything a scenario measures with: the servers, started when first asked for."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from benchmarks import load, wire
from benchmarks.measurement import Measurement
from benchmarks.processes import ServerFailed, cpu_s, free_port, gunicorn, server
from benchmarks.rounds import Progress
from gateway.settings import resolve

DATABASE = "benchmark_baselines"
# As many as `gateway serve` has on this machine by itself.
WORKERS = resolve({}).settings.workers

_READY_S = 30.0
CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass
class Rig:
    """Servers on one mongod, kept until the rig is left.

    All of them run WORKERS workers of the same worker class, so that they differ in the
    application alone.
    """

    uri: str
    seconds: float
    warmup_s: float
    rounds: int
    quick: bool
    with_gateway: bool
    progress: Progress
    earlier: Path | None = None
    """A checkout of the commit that this one is measured against."""
    documents: int | None = None
    """Of the scenarios whose figures depend on it most; None: as many as each has."""
    _stack: ExitStack = field(default_factory=ExitStack)
    _ports: dict[str, int] = field(default_factory=dict)
    _serials: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def baseline(self, application: str, workers: int = WORKERS) -> int:
        """The port of `benchmarks.baselines.<application>_application`."""
        environment = {"BENCHMARK_MONGODB_URI": self.uri, "BENCHMARK_DATABASE": DATABASE}
        module = f"benchmarks.baselines.{application}_application:application"
        port = self._port(
            f"{application}, {workers} workers", gunicorn(module, workers, environment)
        )
        load.ask(port, wire.get("/"))  # it listens before its workers serve
        return port

    def on(self, uri: str) -> Rig:
        """A rig with servers of its own on that MongoDB; they are stopped when it is left."""
        return replace(self, uri=uri, _stack=ExitStack(), _ports={})

    def gateway(
        self,
        *options: str,
        earlier: bool = False,
        number: int = 1,
        host: str = "",
        workers: int = WORKERS,
    ) -> int:
        """The port of `gateway serve`, with more options than bind, workers and MongoDB.

        Gateways of different numbers or hosts are different ones. Those of one host share their
        turns, as the workers of one gateway do; those of different hosts only MongoDB.
        """
        kind = "earlier gateway" if earlier else "gateway"
        workers_named = () if workers == WORKERS else (f"{workers} workers",)
        numbered = (f"{number}",) if number > 1 else ()
        name = " ".join((kind, *numbered, host, *workers_named, *options))
        tree = self.earlier if earlier else None
        return self._port(name, _gateway(self.uri, options, tree, host, workers))

    def serial(self) -> int:
        """A number that this rig gives once: for names and values that must be fresh."""
        return next(self._serials)

    def run(self, port: int | Sequence[int], clients: Sequence[load.Client]) -> Measurement:
        """Drive the clients for the rig's warm-up and window, dealt out to the ports in turn."""
        ports = (port,) if isinstance(port, int) else port
        before_s = sum(map(cpu_s, ports))
        measurement = load.run(port, clients, self.seconds, self.warmup_s)
        return replace(measurement, cpu_s=sum(map(cpu_s, ports)) - before_s)

    def _port(self, name: str, started: AbstractContextManager[int]) -> int:
        if name not in self._ports:
            self.progress(f"starting {name}")
            self._ports[name] = self._stack.enter_context(started)
        return self._ports[name]


@contextmanager
def _gateway(
    uri: str, options: Sequence[str], tree: Path | None, host: str, workers: int
) -> Iterator[int]:
    """The code is that of ``tree``, of this checkout where that is None.

    What a machine's workers share is in its folder of temporary files: a host has its own.
    """
    port = free_port()
    command = [
        *(sys.executable, "-m", "gateway.cli", "serve", "--bind", f"127.0.0.1:{port}"),
        "--no-access",
        *("--workers", str(workers), "--mongodb-uri", uri),
        *options,
    ]
    environment = {"PYTHONPATH": str(tree or CHECKOUT), "PYTHONSAFEPATH": "1"}
    with ExitStack() as stack:
        if host:
            folder = TemporaryDirectory(prefix=f"benchmark-{host}-")
            environment["TMPDIR"] = stack.enter_context(folder)
        stack.enter_context(server(command, port, environment))
        until = time.monotonic() + _READY_S
        while (answer := load.ask(port, wire.get("/readyz"))).status != 200:
            if time.monotonic() > until:
                raise ServerFailed(f"/readyz still answers {answer.status}: {answer.body!r}")
            time.sleep(0.05)
        yield port
