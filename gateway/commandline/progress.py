"""A progress bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .output import Output

Advance = Callable[[int], None]


@contextmanager
def progress(output: Output, what: str, total: int | None) -> Iterator[Advance]:
    """``total`` documents, where that is known; call what it gives with how many more are done."""
    if not output.shows_progress:
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        redirect_stdout=sys.stdout.isatty(),  # else what is written there would go to stderr
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def _nothing(count: int) -> None:
    del count
