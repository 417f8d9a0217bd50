"""`python -m benchmarks`: run the scenarios, print their tables and the summary.

A missed target doesn't fail the command; a lost update, an unexpected answer or a server that
doesn't start does.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import click

from benchmarks import report
from benchmarks.progress import ProgressLine
from benchmarks.results import Result
from benchmarks.rig import Rig
from benchmarks.scenarios import ONLY_BY_NAME, SCENARIOS
from gateway.store.embedded import EmbeddedMongod


@click.command(help="Measure the gateway against its baselines, on this machine.")
@click.option("--quick", is_flag=True, help="2 rounds of 1 second: only for a first look.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(SCENARIOS)),
    help="Measure only this. Repeatable.",
)
@click.option("--seconds", type=click.FloatRange(min=0.1), help="Seconds of a round. Default: 3.")
@click.option("--rounds", type=click.IntRange(min=1), help="Number of rounds. Default: 3.")
@click.option(
    "--documents",
    type=click.IntRange(min=1_000),
    help="Documents in the catalogs of the Spark scenarios.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path),
    help="Also write the results to this file, as JSON.",
)
@click.option(
    "--mongodb-uri", help="Use this replica set. Default: start one, and drop it at the end."
)
@click.option(
    "--against", metavar="COMMIT", help="Only compare the gateway with that of an earlier commit."
)
@click.option("--baselines-only", is_flag=True, help="Measure everything except the gateway.")
def main(
    quick: bool,
    only: tuple[str, ...],
    seconds: float | None,
    rounds: int | None,
    documents: int | None,
    json_path: Path | None,
    mongodb_uri: str | None,
    against: str | None,
    baselines_only: bool,
) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    progress = ProgressLine()
    window_s = seconds or (1.0 if quick else 3.0)
    if ("against" in only) > bool(against):
        raise click.UsageError("--only against needs --against COMMIT")
    if against and not only:
        only = ("against",)
    chosen = only or tuple(name for name in SCENARIOS if name not in ONLY_BY_NAME)
    with ExitStack() as stack:
        uri = mongodb_uri or _start_mongod(stack)
        rig = Rig(
            uri=uri,
            seconds=window_s,
            warmup_s=window_s / 3,
            rounds=rounds or (2 if quick else 3),
            quick=quick,
            documents=documents,
            with_gateway=not baselines_only,
            progress=progress,
            earlier=stack.enter_context(_checkout(against)) if against else None,
        )
        stack.enter_context(rig)
        machine = report.environment(uri)
        results: dict[str, Result] = {}
        for name in chosen:
            progress.scenario = name
            results[name] = SCENARIOS[name](rig)
            progress.clear()
            for table in results[name].tables:
                print(report.table_text(table), flush=True)
        figures = [figure for result in results.values() for figure in result.figures]
        print(report.summary_text(figures, machine), flush=True)
        if json_path:
            settings = {"seconds": rig.seconds, "rounds": rig.rounds, "quick": quick}
            report.write_json(json_path, results, machine, settings)


def _start_mongod(stack: ExitStack) -> str:
    folder = stack.enter_context(TemporaryDirectory(prefix="benchmark-mongod-"))
    return stack.enter_context(EmbeddedMongod(folder)).uri


@contextmanager
def _checkout(commit: str) -> Iterator[Path]:
    """The tree of a commit, in a folder of its own."""
    here = Path(__file__).resolve().parent.parent
    with TemporaryDirectory(prefix="benchmark-earlier-") as folder:
        archive = subprocess.run(
            ("git", "archive", "--format=tar", commit), cwd=here, capture_output=True
        )
        if archive.returncode:
            raise click.UsageError(archive.stderr.decode(errors="replace").strip())
        subprocess.run(("tar", "-x", "-C", folder), input=archive.stdout, check=True)
        yield Path(folder)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that every server is stopped."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
