"""The ``patching-spark`` command.

Exit codes: 0: done. 3: done, but some documents were lost to other writers, or refused by the
gateway. 1: failed. 2: wrong usage. An error is one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from patching.command_line import Kind, OneLineGroup, printable, together
from patching.spark.session import JavaMissing, require_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from patching.spark.sync_reports import PlanReport, SyncReport

# Exit code: done, but some documents were lost or refused.
LEFT_OVER: Final = 3


class _Deletes(Kind):
    """A number of documents; with a decimal point, a share of them."""

    name = "number"

    def convert(self, value: Any, _param: Any, _context: Any) -> float:
        try:
            number = float(value) if "." in str(value) else int(value)
        except ValueError:
            number = -1
        if number < 0 or (isinstance(number, float) and number > 1):
            self.fail(f"{value!r} is neither a number of documents nor a share from 0.0 to 1.0")
        return number


_session_flags = together(
    click.option("--url", required=True, help="Address of the gateway."),
    click.option(
        "--option",
        "pairs",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the data source, such as tokenFile=PATH. Repeatable.",
    ),
    click.option(
        "--remote", envvar="SPARK_REMOTE", help="Address of a Spark Connect server, sc://HOST:PORT."
    ),
    click.option("--master", help="Spark's master. Default: as submitted, or local[*]."),
    click.option("--driver-memory", help="Memory of the driver, such as 2g."),
)
_desired_flags = together(
    click.option(
        "--format",
        "format_",
        type=click.Choice(("jsonl", "parquet", "csv", "table")),
        help="Format of SOURCE. Default: by its suffix.",
    ),
    click.option("--key", default="key", help="Column of the keys. Default: key."),
    click.option(
        "--document",
        help="Column of the documents. Default: document, else all other columns.",
    ),
    click.option("--delete", is_flag=True, help="Delete documents that aren't in SOURCE."),
    click.option("--allow-empty", is_flag=True, help="Let --delete delete all documents."),
    click.option(
        "--max-deletes",
        type=_Deletes(),
        default="0.5",
        help="How many documents --delete may delete; with a decimal point, a share. Default: 0.5.",
    ),
    click.option("--prefix", default="", help="Only keys that begin with this."),
    click.option("--message", help="Message of every commit."),
    click.option("--manager", help="Apply SOURCE as this manager, which then owns what it sends."),
    click.option(
        "--conflict",
        type=click.Choice(("refuse", "skip", "force")),
        default="refuse",
        help="What to do with fields that another manager owns with a different value.",
        show_default=True,
    ),
)


@click.group(
    "patching-spark", cls=OneLineGroup, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="metadata-gateway", prog_name="patching-spark")
def main() -> None:
    """Sync and export catalogs, with Spark. Also: spark-submit …/patching/spark/__main__.py"""


@main.command("sync")
@click.argument("source")
@click.argument("catalog")
@_desired_flags
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    help="How often to compare a document that others keep changing. Default: 5.",
)
@click.option(
    "--plan", "plan_path", help="Write the changes to this folder instead of sending them."
)
@click.option("--overwrite", is_flag=True, help="Overwrite an existing plan.")
@click.option("--state", help="Folder for this job's state, which makes its next run faster.")
@_session_flags
def sync_command(
    source: str,
    catalog: str,
    format_: str | None,
    rounds: int,
    plan_path: str | None,
    overwrite: bool,
    state: str | None,
    **flags: Any,
) -> int:
    """Make CATALOG equal to SOURCE, with the fewest and smallest writes.

    SOURCE is a path of JSON lines ({"key": …, "document": …}), Parquet or CSV, or a table.
    """
    if plan_path is not None and state is not None:
        raise click.UsageError("--state can't be given together with --plan")
    with _session(**flags) as (spark, common):
        from patching.spark.desired import read_desired
        from patching.spark.sync import sync, write_plan

        desired: DataFrame = read_desired(spark, source, format_)
        if plan_path is not None:
            _show_plan(write_plan(desired, catalog, plan_path, overwrite=overwrite, **common))
            return 0
        report = sync(desired, catalog, rounds=rounds, state=state, **common)
    return _show_sync(report)


@main.command("replay")
@click.argument("path")
@_session_flags
def replay_command(path: str, **flags: Any) -> int:
    """Send the plan in PATH, except to documents that changed since it was made."""
    with _session(**flags) as (spark, common):
        from patching.spark.sync import replay

        report = replay(spark, path, **common)
    return _show_sync(report)


@main.command("export")
@click.argument("catalog")
@click.argument("path")
@click.option("--history", is_flag=True, help="Write every commit's changes, as Parquet by date.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(("jsonl", "parquet")),
    default="jsonl",
    help="Format of the documents. Default: jsonl.",
)
@click.option("--revision", type=click.IntRange(0), help="Write the state at this revision.")
@click.option("--at", help="Write the state at this time, RFC 3339.")
@click.option("--after", type=click.IntRange(0), help="With --history: add later commits only.")
@click.option("--prefix", help="Only keys that begin with this.")
@click.option("--overwrite", is_flag=True, help="Overwrite an existing export.")
@_session_flags
def export_command(
    catalog: str,
    path: str,
    history: bool,
    format_: str,
    revision: int | None,
    at: str | None,
    after: int | None,
    **flags: Any,
) -> int:
    """Write CATALOG, or its --history, into files below PATH."""
    if history and (revision is not None or at is not None or format_ != "jsonl"):
        raise click.UsageError(
            "--revision, --at and --format can't be given together with --history"
        )
    if not history and after is not None:
        raise click.UsageError("--after needs --history")
    with _session(**flags) as (spark, common):
        from patching.spark.export import export_catalog, export_history

        common.pop("progress")(f"exporting {catalog}")
        if history:
            report = export_history(spark, catalog, path, after=after, **common)
        else:
            report = export_catalog(
                spark, catalog, path, format=format_, revision=revision, at=at, **common
            )
    _show_table(
        f"{catalog} in {report.path}", [("rows", report.rows), ("revision", report.revision or 0)]
    )
    return 0


def _show_sync(report: SyncReport) -> int:
    """Print the report; returns the exit code."""
    rows: list[tuple[str, Any]] = [
        ("unchanged", report.unchanged),
        ("created", report.created),
        ("patched", report.patched),
        ("deleted", report.deleted),
        ("let go", report.let_go),
        ("fields left to others", report.left_to_others),
        ("changed by others", report.lost),
        ("refused", report.refused),
        ("lost races", report.guards_lost),
        ("rounds", report.rounds),
        ("seconds", round(report.seconds, 1)),
    ]
    compared = f", compared with revision {report.revision}" if report.revision else ""
    _show_table(f"{report.catalog or 'plan'}{compared}", rows)
    for left in report.examples:
        click.echo(
            f"patching-spark: key {left.key!r}: {left.code}: {printable(left.detail)}", err=True
        )
    return 0 if report.in_step else LEFT_OVER


def _show_plan(report: PlanReport) -> None:
    _show_table(
        f"{report.catalog} at revision {report.revision}, planned in {report.path}",
        [
            ("unchanged", report.unchanged),
            ("create", report.create),
            ("patch", report.patch),
            ("delete", report.delete),
            ("apply", report.apply),
            ("let go", report.let_go),
            ("seconds", round(report.seconds, 1)),
        ],
    )


def _show_table(title: str, rows: Sequence[tuple[str, Any]]) -> None:
    cells = [(name, f"{value:,}") for name, value in rows]
    left, right = (max(map(len, column)) for column in zip(*cells, strict=True))
    click.echo(f"{title}:")
    for name, value in cells:
        click.echo(f"  {name:{left}}  {value:>{right}}")


@contextmanager
def _session(
    url: str,
    pairs: Sequence[str],
    remote: str | None,
    master: str | None,
    driver_memory: str | None,
    **given: Any,
) -> Iterator[tuple[SparkSession, dict[str, Any]]]:
    """A session by these flags, and the keyword arguments of the function to run in it, ``given``
    among them. Says what is missing before it starts anything."""
    options = _options(pairs)
    if remote and (master or driver_memory):
        raise click.UsageError("--master and --driver-memory can't be given together with --remote")
    try:
        import pyspark

        if not remote:
            require_java(pyspark.__version__)
    except JavaMissing as error:
        raise click.ClickException(str(error)) from error
    except ImportError as error:
        raise click.ClickException(
            "Spark isn't installed: pip install '.[spark]' in the gateway's repository"
        ) from error
    from patching.spark.session import Shown, command_session, one_line

    try:
        with command_session(master, driver_memory, remote) as spark, Shown(spark) as progress:
            yield spark, {**given, "url": url, "options": options, "progress": progress}
    except click.ClickException:
        raise
    except Exception as error:
        raise click.ClickException(one_line(error)) from error


def _options(pairs: Sequence[str]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--option {pair!r}: write it as NAME=VALUE")
        options[name] = value
    return options


if __name__ == "__main__":
    main()
