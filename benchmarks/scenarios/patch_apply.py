"""Applying a patch without a server: `patching` against the copying `jsonpatch`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jsonpatch

from benchmarks import documents, rounds
from benchmarks.measurement import Measurement, measured
from benchmarks.results import Figure, Result, Table
from benchmarks.rig import Rig

_SIZE_BYTES = 100_000
_ROUNDS_FACTOR = 3  # rounds are short here

Patch = list[dict[str, Any]]
Apply = Callable[[Any, Patch], Any]


def _patches(document: dict[str, Any]) -> dict[str, Patch]:
    field = documents.middle_field(document).removesuffix("/position")
    return {
        "replace a field": [{"op": "replace", "path": f"{field}/description", "value": "new"}],
        "add a tag": [{"op": "add", "path": "/tags/-", "value": "reviewed"}],
        "remove an array item": [{"op": "remove", "path": field}],
        "test, then replace": [
            {"op": "test", "path": f"{field}/nullable", "value": _at_middle(document)["nullable"]},
            {"op": "replace", "path": f"{field}/type", "value": "decimal"},
        ],
    }


def _at_middle(document: dict[str, Any]) -> dict[str, Any]:
    fields: list[dict[str, Any]] = document["fields"]
    return fields[len(fields) // 2]


def run(rig: Rig) -> Result:
    """The figure is that of the patch with the lowest ratio."""
    name = "patching.apply / jsonpatch.apply_patch, 100 KB"
    try:
        import patching

        apply: Apply = patching.apply
    except (ImportError, AttributeError):
        return Result(figures=[Figure(name, ">=", 20, None)])
    document = documents.dataset(size_bytes=_SIZE_BYTES)
    rows, ratios = [], []
    for patch_name, patch in _patches(document).items():
        if apply(document, patch) != jsonpatch.apply_patch(document, patch):
            raise AssertionError(f"{patch_name}: patching and jsonpatch differ")
        variants = {
            "patching": partial(_time, rig, apply, document, patch),
            "jsonpatch": partial(_time, rig, jsonpatch.apply_patch, document, patch),
        }
        results = rounds.interleave(
            variants, _ROUNDS_FACTOR * rig.rounds, rig.progress, f"{patch_name}: "
        )
        ratio = rounds.ratio(results["patching"], results["jsonpatch"])
        ratios.append(ratio)
        rows.append([patch_name, *(_us(results[one]) for one in variants), f"{ratio.median:.0f}x"])
    return Result(
        [
            Table(
                "Applying a patch to 100 KB",
                ("patch", "patching µs", "jsonpatch µs", "ratio"),
                rows,
            )
        ],
        [Figure(name, ">=", 20, min(ratios, key=lambda one: one.median))],
    )


def _us(measurements: list[Measurement]) -> str:
    return f"{1e6 / rounds.spread([one.per_second for one in measurements]).median:,.1f}"


def _time(rig: Rig, apply: Apply, document: dict[str, Any], patch: Patch) -> Measurement:
    """Apply again and again for a tenth of the rig's window, by the thread's CPU time: it waits
    for nothing, so what else runs on the machine has no place in it."""
    seconds = rig.seconds / 10
    latencies_s = []
    now = start = time.thread_time()
    while now < start + seconds:
        apply(document, patch)
        before, now = now, time.thread_time()
        latencies_s.append(now - before)
    return measured(latencies_s, now - start)
