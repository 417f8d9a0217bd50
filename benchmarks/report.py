"""The printed tables, the summary with the machine it holds for, and the JSON of both."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
from pymongo import MongoClient

from benchmarks.results import Figure, Result, Table

_PACKAGES = ("flask", "gunicorn", "gevent", "msgspec", "pymongo", "jsonpatch")


def environment(uri: str) -> dict[str, str]:
    """What the numbers hold for: date, CPU and what else keeps it busy, versions.

    To be asked before the first scenario: later the load is the benchmark's own.
    """
    with MongoClient[dict[str, Any]](uri) as client:
        mongod = client.server_info()["version"]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "mongod": mongod,
        **{package: _version(package) for package in _PACKAGES},
    }


def table_text(table: Table) -> str:
    """The table with aligned columns: text to the left, numbers to the right."""
    lines = [table.title, *_aligned([table.columns, *table.rows])]
    return "\n".join([*lines, *(f"  {note}" for note in table.notes), ""])


def summary_text(figures: Iterable[Figure], machine: Mapping[str, str]) -> str:
    rows = [_figure_cells(figure) for figure in figures]
    columns = ("figure", "target", "measured", "low..high", "met?")
    return "\n".join(
        [
            "Summary (medians of the rounds)",
            *(_aligned([columns, *rows]) if rows else ["  no figures in this run"]),
            "",
            ", ".join(f"{name} {value}" for name, value in machine.items()),
        ]
    )


def write_json(
    path: Path,
    results: Mapping[str, Result],
    machine: Mapping[str, str],
    settings: Mapping[str, Any],
) -> None:
    content = {
        "environment": machine,
        "settings": settings,
        "scenarios": {
            name: {
                "tables": [asdict(table) for table in result.tables],
                "figures": [{**asdict(figure), "met": figure.met} for figure in result.figures],
            }
            for name, result in results.items()
        },
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def _figure_cells(figure: Figure) -> list[str]:
    bound = figure.bound
    target = "" if bound is None else f"{figure.relation} {bound:g}{figure.unit}"
    if figure.measured is None:
        return [figure.name, target, "", "", "not measured"]
    measured = figure.measured
    return [
        figure.name,
        target,
        f"{measured.median:.2f}{figure.unit}",
        f"{measured.low:.2f}..{measured.high:.2f}",
        {True: "yes", False: "NO", None: ""}[figure.met],
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numeric = [
        all(not row[column] or row[column][0].isdigit() for row in rows[1:])
        for column in range(len(rows[0]))
    ]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
