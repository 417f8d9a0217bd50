"""Ten times the load that can be carried: what is still accepted, and what it costs.

The peak is the best throughput of a closed loop. Then requests fall due at ten times that rate,
on thousands of connections whose owners heed no Retry-After, while `/livez` is asked on a
connection of its own each time.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import msgspec
import psutil

from benchmarks import load, stored, wire
from benchmarks.measurement import Measurement, UpdateLost, measured
from benchmarks.overloading import Overloaded, place
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig
from benchmarks.rounds import spread

TIMES = 10
GENERATORS = 2
CLIENTS = 4_000
PEAK_CLIENTS = (64, 128, 256)
OVERLOAD_S, QUICK_OVERLOAD_S = 60.0, 10.0

_PEAK_S, _QUICK_PEAK_S = 10.0, 3.0
_PROBE_EVERY_S = 0.1
_PROBE_WITHIN_S = 1.0
_READ_TIMEOUT_S = 30.0


class OverloadFailed(Exception):
    """A generator ended, or requests were never answered; the run is void."""


def run(rig: Rig) -> Result:
    if not rig.with_gateway:
        return Result(figures=_figures(None))
    port, catalog = rig.gateway(), f"overloaded-{rig.serial()}"
    stored.put_many_documents(port, catalog)
    peak_s, overload_s = (_QUICK_PEAK_S, QUICK_OVERLOAD_S) if rig.quick else (_PEAK_S, OVERLOAD_S)
    peaks = _peaks(rig, port, catalog, peak_s)
    best = max(each.per_second for each in peaks.values())
    rig.progress(f"{TIMES} times {best:,.0f} requests/s for {overload_s:g} s")
    offered = (CLIENTS, TIMES * best, overload_s, rig.serial())
    with (
        _generators(port, catalog, *offered) as generators,
        _watching(port, overload_s) as seen,
    ):
        results = _generated(generators)
    _verify(port, catalog, results)
    under = _measurement(results, overload_s)
    rows = [row for n, peak in peaks.items() for row in load_rows(n, {"closed loop": [peak]})]
    rows += load_rows(CLIENTS, {f"{TIMES} times the best": [under]})
    return Result(
        [Table("Overload", LOAD_COLUMNS, rows, _notes(results, seen, overload_s))],
        _figures(_Measured(under, best, seen)),
    )


@dataclass
class _Seen:
    """`probes_s`: how long each probe took, infinity where it failed or wasn't alive."""

    probes_s: list[float] = field(default_factory=list)
    memory_bytes: list[tuple[float, int]] = field(default_factory=list)

    def growth(self, seconds: float) -> float:
        """Of the memory, from the end of the first quarter to the end."""

        def at(share: float) -> float:
            near = [size for when, size in self.memory_bytes if abs(when - share) < 0.05]
            return sum(near) / len(near)

        ends_s = max(seconds, 1e-9)
        self.memory_bytes = [(when / ends_s, size) for when, size in self.memory_bytes]
        return at(0.95) / at(0.30)


@dataclass(frozen=True)
class _Measured:
    under: Measurement
    peak: float
    seen: _Seen


def _figures(found: _Measured | None) -> list[Figure]:
    """Each with its target; nothing measured without the gateway."""
    ratio = growth = alive = p99 = None
    if found:
        ratio = spread([found.under.per_second / found.peak])
        growth = spread([found.seen.growth(found.under.seconds)])
        alive = spread([_share_within(found.seen.probes_s, _PROBE_WITHIN_S)])
        p99 = spread([found.under.p99_ms / 1000])
    return [
        Figure(f"accepted at {TIMES} times the peak's load / peak", ">=", 0.8, ratio),
        Figure("memory at the end / after the first quarter", "<=", 1.1, growth),
        Figure(f"/livez answered within {_PROBE_WITHIN_S:g} s (share)", ">=", 1.0, alive, ""),
        # Nobody waits unread for more than 15 s; what is let in by then is committed, too.
        Figure("p99 of the accepted", "<", 20.0, p99, " s"),
    ]


def _share_within(probes_s: Sequence[float], bound_s: float) -> float:
    return sum(each <= bound_s for each in probes_s) / max(1, len(probes_s))


def _peaks(rig: Rig, port: int, catalog: str, seconds: float) -> dict[int, Measurement]:
    peaks = {}
    for clients in PEAK_CLIENTS:
        rig.progress(f"peak with {clients} clients")
        with _generators(port, catalog, clients, 0, seconds, rig.serial(), 1) as generators:
            results = _generated(generators)
        _verify(port, catalog, results)
        peaks[clients] = _measurement(results, seconds)
    return peaks


@contextmanager
def _generators(
    port: int,
    catalog: str,
    clients: int,
    rate: float,
    seconds: float,
    serial: int,
    number: int = GENERATORS,
) -> Iterator[list[subprocess.Popen[str]]]:
    """They have connected, and wait to be told to begin."""
    each = clients // number
    with ExitStack() as stack:
        started = []
        for index in range(number):
            arguments = (port, catalog, index * each, each, rate / number, seconds)
            command = [sys.executable, "-m", "benchmarks.overloading", *map(str, arguments)]
            started.append(stack.enter_context(_process([*command, str(serial * 1_000_000)])))
        for process in started:
            if _said(process) != "connected\n":
                raise OverloadFailed("a generator couldn't connect")
        yield started


def _generated(generators: Sequence[subprocess.Popen[str]]) -> list[Overloaded]:
    """What each found. Raises OverloadFailed where a request was never answered."""
    for process in generators:
        assert process.stdin is not None
        process.stdin.write("begin\n")
        process.stdin.flush()
    results = [msgspec.json.decode(_said(process), type=Overloaded) for process in generators]
    if unanswered := sum(each.unanswered for each in results):
        raise OverloadFailed(f"{unanswered} requests were never answered")
    return results


@contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise OverloadFailed("a generator ended early")
    return line


def _measurement(results: Sequence[Overloaded], seconds: float) -> Measurement:
    """Of the accepted, those that were so before the window ended."""
    statuses: dict[int, int] = {}
    for each in results:
        for status, count in each.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    latencies_s = [
        latency_s
        for each in results
        for at_s, latency_s in zip(each.accepted_at_s, each.latencies_s, strict=True)
        if at_s <= seconds
    ]
    return measured(latencies_s, seconds, statuses=statuses)


def _verify(port: int, catalog: str, results: Sequence[Overloaded]) -> None:
    """No counter may be below what was acknowledged, or above what was sent."""
    documents: dict[str, dict[str, int]] = {}
    for each in results:
        for number, sent in each.sent.items():
            owned, pointer = place(catalog, number)
            if owned.path not in documents:
                documents[owned.path] = _counters(port, owned.path)
            found = documents[owned.path][pointer.rpartition("/")[2]]
            least = each.acknowledged.get(number, 0)
            if not (least <= found <= sent):
                raise UpdateLost(
                    f"{owned.path} {pointer}: acknowledged {least}, sent {sent}, stored {found}"
                )


def _counters(port: int, path: str) -> dict[str, int]:
    counters: dict[str, int] = msgspec.json.decode(load.ask(port, wire.get(path)).body)["counters"]
    return counters


@contextmanager
def _watching(port: int, seconds: float) -> Iterator[_Seen]:
    """Probes and weighs the gateway meanwhile, for the time that the overload lasts."""
    seen, ended = _Seen(), threading.Event()
    workers = _gateway_processes(port)

    def probe() -> None:
        while not ended.is_set():
            began = time.perf_counter()
            alive = _is_alive(port)
            took_s = time.perf_counter() - began
            seen.probes_s.append(took_s if alive else float("inf"))
            ended.wait(_PROBE_EVERY_S)

    def weigh() -> None:
        began = time.perf_counter()
        while not ended.wait(min(0.25, seconds / 100)):
            size = sum(each.memory_info().rss for each in workers)
            seen.memory_bytes.append((time.perf_counter() - began, size))

    threads = [threading.Thread(target=target) for target in (probe, weigh)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _is_alive(port: int) -> bool:
    """On a new connection, as an orchestrator asks."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_READ_TIMEOUT_S) as connection:
            connection.sendall(wire.get("/livez", Connection="close"))
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _gateway_processes(port: int) -> list[psutil.Process]:
    """Master and workers."""
    children = psutil.Process().children(recursive=True)
    return [each for each in children if f"127.0.0.1:{port}" in each.cmdline()]


def _notes(results: Sequence[Overloaded], seen: _Seen, seconds: float) -> list[str]:
    offered = sum(each.offered for each in results)
    not_sent = sum(each.not_sent for each in results)
    probes = sorted(seen.probes_s)
    sizes = [size for _, size in seen.memory_bytes]
    return [
        f"{offered / seconds:,.0f} requests/s went out; {not_sent / seconds:,.0f}/s more were due"
        " while every connection waited for an answer",
        f"{len(probes)} probes of /livez, the slowest took {probes[-1] * 1000:,.0f} ms,"
        f" half of them at most {probes[len(probes) // 2] * 1000:,.0f} ms",
        f"memory of all processes of the gateway: {min(sizes) >> 20} to {max(sizes) >> 20} MiB",
        f"refusals without Retry-After: {sum(each.without_retry_after for each in results)}",
    ]
