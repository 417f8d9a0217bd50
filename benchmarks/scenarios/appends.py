"""Writers that validate before they write, on one catalog: each looks at its own part of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks import rounds
from benchmarks.measurement import Measurement, measured
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig
from patching.client import Follower, Gateway, Snapshot, append

WRITERS = (1, 8, 32)
_WARM_UP_S = 0.5
_SECONDS = 4.0

Step = Callable[[], int]


def run(rig: Rig) -> Result:
    """An operation is an append, or an update, that went through; attempts are what was sent."""
    figures = []
    tables = []
    for name, writers in (("append", _appending), ("update", _updating)):
        title = f"validating writers ({name}), commits/s: n={WRITERS[-1]} / n=1"
        if not rig.with_gateway:
            figures.append(Figure(title, ">=", 1, None))
            continue
        variants = {f"n = {n}": partial(_measure, rig, writers, n) for n in WRITERS}
        results = rounds.interleave(variants, rig.rounds, rig.progress)
        rows = [row for n in WRITERS for row in load_rows(n, {f"n = {n}": results[f"n = {n}"]})]
        tables.append(Table(f"Validating writers on one catalog: {name}", LOAD_COLUMNS, rows))
        most, one = results[f"n = {WRITERS[-1]}"], results["n = 1"]
        figures.append(Figure(title, ">=", 1, rounds.ratio(most, one)))
    return Result(tables, figures)


def _measure(
    rig: Rig, writers: Callable[[str, str, int], tuple[list[Step], Callable[[], None]]], count: int
) -> Measurement:
    url = f"http://127.0.0.1:{rig.gateway()}"
    steps, close = writers(url, f"appends-{rig.serial()}", count)
    try:
        return closed_loop(steps)
    finally:
        close()


def closed_loop(steps: Sequence[Step]) -> Measurement:
    """Each step again and again, in a thread of its own. It returns how often it was sent."""
    latencies: list[list[float]] = [[] for _ in steps]
    attempts = [0] * len(steps)
    begin = time.perf_counter() + _WARM_UP_S
    end = begin + _SECONDS

    def work(number: int) -> None:
        while (since := time.perf_counter()) < end:
            sent = steps[number]()
            if begin <= time.perf_counter() < end:
                latencies[number].append(time.perf_counter() - since)
                attempts[number] += sent

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(steps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return measured([each for own in latencies for each in own], _SECONDS, sum(attempts))


def _appending(url: str, catalog: str, count: int) -> tuple[list[Step], Callable[[], None]]:
    """All on one copy; each adds to its own range what isn't there yet."""
    follower = Follower(url, catalog).start()

    def entries(name: str, now: Snapshot) -> list[dict[str, Any]]:
        key = f"{name}/state"
        state: Any = now.documents.get(key, {"n": 0})
        if len(now.under(f"{name}/")) > 1:
            raise AssertionError("somebody else wrote here")
        return [{"action": "put", "key": key, "value": {"n": state["n"] + 1}}]

    def step(number: int) -> int:
        return append(follower, partial(entries, f"writer-{number}")).attempts

    return [partial(step, number) for number in range(count)], follower.stop


def _updating(url: str, catalog: str, count: int) -> tuple[list[Step], Callable[[], None]]:
    """Each counts in a document of its own."""
    gateway = Gateway(url)
    part = gateway.catalog(catalog)

    def counted(content: Any) -> Any:
        return {"n": content["n"] + 1} if isinstance(content, dict) else {"n": 1}

    def step(number: int) -> int:
        return part.update(f"writer-{number}", counted, create=True).tries

    return [partial(step, number) for number in range(count)], gateway.close
