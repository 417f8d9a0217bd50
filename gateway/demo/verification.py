"""Nothing lost, nothing twice: what the clients were told against what the service now says, and
the table at the end of the demonstration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.demo.workload import EVENTS, JOBS, NIGHTLY, Result
from patching.client import Gateway


def verify(gateway: Gateway, result: Result) -> list[str]:
    """The faults, a line each; none where every acknowledged patch is applied exactly once."""
    return [
        *(f"refused: {problem}" for problem in result.refused),
        *_lost_members(gateway, result),
        *_events(gateway, result),
        *_history(gateway, result),
    ]


def _lost_members(gateway: Gateway, result: Result) -> list[str]:
    findings = []
    documents: dict[tuple[str, str], dict[str, int]] = {}
    for (catalog, key, member), value in result.acknowledged.items():
        if (catalog, key) not in documents:
            document: Any = gateway.catalog(catalog).get(key).value
            documents[catalog, key] = document["progress" if key == NIGHTLY else "seen_by"]
        found = documents[catalog, key].get(member)
        if found != value:
            findings.append(f"{key} of {catalog}: {member} is {found}, acknowledged was {value}")
    return findings


def _events(gateway: Gateway, result: Result) -> list[str]:
    document: Any = gateway.catalog(JOBS).get(EVENTS).value
    found, expected = Counter(document["events"]), Counter(result.events)
    lost = [f"lost event: {event}" for event in expected - found]
    return lost + [f"event applied twice: {event}" for event in found - expected]


def _history(gateway: Gateway, result: Result) -> list[str]:
    """The catalog's log has no gap, and each acknowledged revision in it."""
    revisions = [commit.revision for commit in gateway.catalog(JOBS).commits(page_size=1000)]
    findings = []
    if revisions != list(range(1, len(revisions) + 1)):
        findings.append(f"the history of {JOBS} has gaps")
    missing = result.revisions.get(JOBS, set()) - set(revisions)
    return findings + [f"acknowledged revision {revision} is not there" for revision in missing]


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
