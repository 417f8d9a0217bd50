"""The table at the end of the demonstration."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gateway.demo.workload import Result


def show(console: Console, result: Result, head_writes: int, findings: Sequence[str]) -> None:
    """Print what was measured and whether anything was lost."""
    ordered = sorted(result.latencies_s)
    table = Table(title="Racing clients, two gateway workers, one MongoDB")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_row("patches acknowledged", f"{result.applied:,}")
    table.add_row("throughput", f"{result.applied / result.elapsed_s:,.0f} patches/s")
    table.add_row("latency p50", f"{1000 * ordered[len(ordered) // 2]:.1f} ms")
    table.add_row("latency p99", f"{1000 * ordered[len(ordered) * 99 // 100]:.1f} ms")
    table.add_row("commits", f"{result.applied:,}")
    table.add_row("conditional writes to MongoDB", f"{head_writes:,}")
    table.add_row("patches per conditional write", f"{result.applied / max(head_writes, 1):.1f}")
    table.add_row("requests decided again (races lost)", f"{result.attempts - result.applied:,}")
    console.print(table)
    if findings:
        for finding in findings[:20]:
            console.print(finding, style="red", markup=False)
        console.print(f"{len(findings)} findings: this must not happen.", style="bold red")
    else:
        console.print(
            "Verified: every acknowledged patch is there, none of them twice, no revision missing.",
            style="green",
        )
