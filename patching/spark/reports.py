"""What a sync, a plan or a replay did, counted from the rows that its tasks gave back.

What the commands print in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from patching.spark import delivery

_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Left:
    """A document that isn't as it was wanted, and why."""

    key: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What became of the documents; each is counted once, by what became of it in the end.

    ``revision`` is the one that everything was compared with, 0 if there was no catalog. ``lost``:
    others were first, also in the last round. ``guards_lost``: how often somebody else was first.
    ``examples`` are the first few of those lost or refused.
    """

    catalog: str
    revision: int
    unchanged: int = 0
    created: int = 0
    patched: int = 0
    deleted: int = 0
    lost: int = 0
    refused: int = 0
    guards_lost: int = 0
    rounds: int = 1
    seconds: float = 0.0
    examples: tuple[Left, ...] = ()

    @property
    def sent(self) -> int:
        """How many documents were written."""
        return self.created + self.patched + self.deleted

    @property
    def in_step(self) -> bool:
        """Whether every document was as wanted when it was looked at last."""
        return not self.lost and not self.refused


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What a plan would do to the catalog as ``revision`` had it."""

    catalog: str
    revision: int
    path: str
    unchanged: int = 0
    create: int = 0
    patch: int = 0
    delete: int = 0
    seconds: float = 0.0

    @property
    def lines(self) -> int:
        return self.create + self.patch + self.delete


def totals(rows: DataFrame, by: str) -> dict[str, int]:
    """How many documents there are of each kind."""
    found = rows.groupBy(by).agg(F.sum("documents").alias("documents")).collect()
    return {row[by]: row["documents"] for row in found}


def counted(report: SyncReport, outcomes: DataFrame) -> SyncReport:
    """``report`` with the outcomes of one more round."""
    counts = totals(outcomes, "outcome")
    refused = counts.get(delivery.REFUSED, 0)
    lost = counts.get(delivery.LOST, 0)
    examples = report.examples
    if refused and len(examples) < _SHOWN_MAX:
        examples = (*examples, *_left(outcomes, delivery.REFUSED))[:_SHOWN_MAX]
    return replace(
        report,
        unchanged=report.unchanged + counts.get(delivery.UNCHANGED, 0),
        created=report.created + counts.get(delivery.CREATED, 0),
        patched=report.patched + counts.get(delivery.PATCHED, 0),
        deleted=report.deleted + counts.get(delivery.DELETED, 0),
        refused=report.refused + refused,
        lost=lost,
        guards_lost=report.guards_lost + lost,
        rounds=report.rounds + 1,
        examples=examples,
    )


def with_lost(report: SyncReport, outcomes: DataFrame) -> SyncReport:
    """``report`` with examples of what the last round lost."""
    if not report.lost:
        return report
    lost = _left(outcomes, delivery.LOST)
    return replace(report, examples=(*report.examples, *lost)[:_SHOWN_MAX])


def _left(outcomes: DataFrame, outcome: str) -> list[Left]:
    rows = outcomes.where(F.col("outcome") == outcome).limit(_SHOWN_MAX).collect()
    return [Left(row["key"], row["code"], row["detail"]) for row in rows]


# Exit code: it is done, but some documents are not as wanted.
LEFT_OVER: Final = 3
_ROWS_SHOWN: Final = 20
_OUT: Final = Console()


def show_sync(report: SyncReport) -> int:
    """The exit code that it comes to."""
    rows: list[tuple[str, Any]] = [
        ("unchanged", report.unchanged),
        ("created", report.created),
        ("patched", report.patched),
        ("deleted", report.deleted),
        ("others were first", report.lost),
        ("refused", report.refused),
        ("guards lost", report.guards_lost),
        ("rounds", report.rounds),
        ("seconds", round(report.seconds, 1)),
    ]
    compared = f", compared with revision {report.revision}" if report.revision else ""
    show_table(f"{report.catalog or 'plan'}{compared}", rows)
    for left in report.examples:
        click.echo(f"patching-spark: key {left.key!r}: {left.code}: {left.detail}", err=True)
    return 0 if report.in_step else LEFT_OVER


def show_plan(report: PlanReport) -> None:
    show_table(
        f"{report.catalog} at revision {report.revision}, planned in {report.path}",
        [
            ("unchanged", report.unchanged),
            ("create", report.create),
            ("patch", report.patch),
            ("delete", report.delete),
            ("seconds", round(report.seconds, 1)),
        ],
    )


def show_contention(rows: Sequence[dict[str, Any]], catalog: str, plot: Path | None) -> None:
    table = Table(title=escape(f"Who races with whom in {catalog}"))
    for name in ("document", "pointer", "one", "other"):
        table.add_column(name, overflow="fold")
    for name in ("races", "retried", "attempts"):
        table.add_column(name, justify="right")
    for row in rows[:_ROWS_SHOWN]:
        names = [row["key"], row["pointer"] or "(whole)", row["one"], row["other"] or "-"]
        counts = [row["races"], row["retried"], row["attempts_max"]]
        table.add_row(*(escape(name) for name in names), *(f"{each:,}" for each in counts))
    _OUT.print(table)
    if len(rows) > _ROWS_SHOWN:
        click.echo(f"and {len(rows) - _ROWS_SHOWN} more")
    if plot is not None:
        click.echo(f"plot: {plot}")


def show_table(title: str, rows: Sequence[tuple[str, Any]]) -> None:
    table = Table(title=escape(title), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, f"{value:,}")
    _OUT.print(table)
