"""The processes that a job of Spark keeps busy, by part: their memory and their processor time."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GATEWAY: Final = "gateway"
DRIVER: Final = "driver (Python)"
JVM: Final = "Spark (JVM)"
TASKS: Final = "tasks (Python)"
MONGODB: Final = "MongoDB"
PARTS: Final = (GATEWAY, DRIVER, JVM, TASKS, MONGODB)
_LOOK_S = 0.2


# By process: its part, and how long it has run. What has ended is told no more.
_seen: dict[psutil.Process, tuple[str, float]] = {}


def cpu_s(port: int) -> dict[str, float]:
    """Seconds that each part has taken so far; of processes that ended, as they were seen last. The
    gateway is the one at that port."""
    for part, process in _processes(port):
        times = process.cpu_times()
        _seen[process] = part, times.user + times.system
    taken = dict.fromkeys(PARTS, 0.0)
    for part, seconds in _seen.values():
        taken[part] += seconds
    return taken


def peaks(act: Callable[[], object], port: int) -> dict[str, int]:
    """The most bytes that each part had resident while ``act`` ran."""
    most = dict.fromkeys(PARTS, 0)
    done = threading.Event()

    def look() -> None:
        sizes = dict.fromkeys(PARTS, 0)
        for part, process in _processes(port):
            sizes[part] += process.memory_info().rss
        for part, size in sizes.items():
            most[part] = max(most[part], size)

    def watch() -> None:
        while not done.wait(_LOOK_S):
            look()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        act()
    finally:
        done.set()
        watching.join()
    look()
    return most


def heap_bytes(spark: SparkSession) -> int:
    """What the JVM's heap holds after a collection. First Python lets go of what it holds there."""
    gc.collect()
    jvm = spark._jvm  # type: ignore[attr-defined]
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _processes(port: int) -> Iterator[tuple[str, psutil.Process]]:
    yield DRIVER, psutil.Process()
    for process in psutil.Process().children(recursive=True):
        try:
            command = " ".join(process.cmdline())
            process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        if "gateway.cli" in command and f":{port}" in command:
            yield GATEWAY, process
        elif "pyspark.daemon" in command:
            yield TASKS, process
        elif "org.apache.spark" in command:
            yield JVM, process
        elif process.name() == "mongod":
            yield MONGODB, process
