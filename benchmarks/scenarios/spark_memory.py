"""Memory of the driver, Spark's Python and the gateway while more and more rows are written."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psutil

from benchmarks.results import Figure, Result, Table
from benchmarks.rig import Rig
from benchmarks.rounds import Spread
from benchmarks.spark_session import datasets, session, write

ALLOWED = 1.2
ROWS = (10_000, 50_000, 200_000)
ROWS_QUICK = (1_000, 4_000)
_LOOK_S = 0.2
_MIB = 1024 * 1024


def run(rig: Rig) -> Result:
    counts = ROWS_QUICK if rig.quick else ROWS
    parts = ("gateway", "driver (Python)", "Spark (JVM)", "tasks (Python)")
    name = f"memory at {counts[-1]:,} rows / at {counts[0]:,}"
    if not rig.with_gateway:
        return Result(figures=[Figure(f"{name}, {part}", "<=", ALLOWED, None) for part in parts])
    port = rig.gateway()
    peaks: dict[int, dict[str, int]] = {}
    with session() as spark:
        write(datasets(spark, counts[0]), port, f"spark-memory-{rig.serial()}")  # to warm up
        for count in counts:
            rig.progress(f"{count:,} rows")
            catalog = f"spark-memory-{rig.serial()}"
            rows = datasets(spark, count)
            peaks[count] = _peaks(lambda r=rows, c=catalog: write(r, port, c), port)  # type: ignore[misc]
    rows_told = [
        [f"{count:,}", *(f"{peaks[count][part] / _MIB:,.0f}" for part in parts)] for count in counts
    ]
    figures = []
    for part in parts:
        ratio = peaks[counts[-1]][part] / max(peaks[counts[0]][part], 1)
        figures.append(Figure(f"{name}, {part}", "<=", ALLOWED, Spread(ratio, ratio, ratio)))
    table = Table("Peak resident memory in MiB while rows are written", ("rows", *parts), rows_told)
    return Result([table], figures)


def _peaks(act: Callable[[], object], port: int) -> dict[str, int]:
    """The most that each part took while ``act`` ran."""
    peaks: dict[str, int] = {}
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_S):
            for part, size in _sizes(port).items():
                peaks[part] = max(peaks.get(part, 0), size)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        act()
    finally:
        done.set()
        looking.join()
    for part, size in _sizes(port).items():
        peaks[part] = max(peaks.get(part, 0), size)
    return peaks


def _sizes(port: int) -> dict[str, int]:
    sizes = {
        "gateway": 0,
        "driver (Python)": psutil.Process().memory_info().rss,
        "Spark (JVM)": 0,
        "tasks (Python)": 0,
    }
    for process in psutil.Process().children(recursive=True):
        try:
            command = " ".join(process.cmdline())
            size = process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        if "gateway.cli" in command and f":{port}" in command:
            sizes["gateway"] += size
        elif "pyspark.daemon" in command:
            sizes["tasks (Python)"] += size
        elif "org.apache.spark" in command:
            sizes["Spark (JVM)"] += size
    return sizes
