"""``python -m benchmarks.cost``: search, print the worst of each route, and end with status 1 where
something is above the bounds."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from benchmarks.cost.search import (
    BLOCKED_CPU_MS_MAX,
    MEMORY_MIB_MAX,
    Found,
    Search,
    summary,
    told_again,
)
from benchmarks.cost.worker import one_worker
from gateway.store.embedded import EmbeddedMongod


@click.command(help=__doc__)
@click.option("--minutes", type=float, default=5.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--again",
    type=click.Path(exists=True, path_type=Path),
    help="Run the finding in this file again.",
)
@click.option("--findings", type=click.Path(path_type=Path), help="Write findings to this folder.")
@click.option("--verbose", is_flag=True, help="Print a line for each program.")
def main(
    minutes: float, seed: int, again: Path | None, findings: Path | None, verbose: bool
) -> None:
    with TemporaryDirectory(prefix="cost-mongod-") as folder, EmbeddedMongod(folder) as mongod:
        if again is not None:
            held = json.loads(again.read_text())
            with one_worker(mongod.uri, "test_cost_again") as worker:
                found = told_again(worker, held["genes"], held["seed"], "again")
            show(found)
            sys.exit(found.is_over)
        told = partial(print, flush=True) if verbose else lambda _: None
        search = Search(mongod.uri, seed, told, partial(keep, findings))
        search.run(minutes * 60)
    print(f"{search.tried} programs; the worst of each aim and route:")
    for (aim, route), kept in sorted(search.worst.items()):
        print(f"{aim:13} {route:28} {summary(kept[0])}")
    print(
        f"\nprograms above {BLOCKED_CPU_MS_MAX:.0f} ms of CPU, {MEMORY_MIB_MAX:.0f} MiB or a"
        f" request's time: {len(search.over())}"
    )
    for found in search.over():
        show(found)
    sys.exit(bool(search.over()))


def keep(folder: Path | None, found: Found) -> None:
    """Write down how to run it again."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        held = {"seed": found.seed, "genes": found.genes, "summary": summary(found)}
        (folder / f"{found.seed}.json").write_text(json.dumps(held))


def show(found: Found) -> None:
    print(f"- {summary(found)}")
    for request in [*found.program.setup[:4], *found.program.attack[:2]]:
        print(f"    {request}")
    for line in found.cost.told[:8]:
        print(f"    logged: {line[:1_000]}")


if __name__ == "__main__":
    main()
