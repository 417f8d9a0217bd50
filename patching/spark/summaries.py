"""What the commands print in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from .reports import PlanReport, SyncReport

# Exit code: it is done, but some documents are not as wanted.
LEFT_OVER: Final = 3
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


def show_table(title: str, rows: Sequence[tuple[str, Any]]) -> None:
    table = Table(title=escape(title), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, f"{value:,}")
    _OUT.print(table)
