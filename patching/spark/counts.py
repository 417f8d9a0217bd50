"""What became of the rows of a task, and of all tasks of a job or micro-batch."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

_EXAMPLES_MAX = 5


@dataclass(slots=True)
class Counts:
    """``applied`` rows made a commit, ``replayed`` ones among them did so when they were sent
    before; ``unchanged`` ones found everything as they want it; ``skipped`` ones were bad or
    refused. ``retried``: rows that had to be sent more than once by the same attempt. ``overtook``:
    rows that were applied before an earlier one about the same document."""

    applied: int = 0
    replayed: int = 0
    unchanged: int = 0
    skipped: int = 0
    retried: int = 0
    overtook: int = 0
    examples: list[str] = field(default_factory=list)
    dead_letters: list[str] = field(default_factory=list)

    def skip(self, problem: str) -> None:
        self.skipped += 1
        if len(self.examples) < _EXAMPLES_MAX:
            self.examples.append(problem)

    def __str__(self) -> str:
        said = (
            f"{self.applied} applied ({self.replayed} of them when sent before), "
            f"{self.unchanged} changed nothing, {self.skipped} skipped, {self.retried} retried"
        )
        if self.overtook:
            said += f", {self.overtook} APPLIED BEFORE AN EARLIER ROW about the same document"
        return said


@dataclass
class TaskWritten(WriterCommitMessage):
    """A task's message to the driver."""

    partition: int
    counts: Counts


def total(messages: Iterable[WriterCommitMessage | None]) -> Counts:
    """Of the tasks that finished."""
    counts = Counts()
    for message in messages:
        if isinstance(message, TaskWritten):
            each = message.counts
            for name in ("applied", "replayed", "unchanged", "skipped", "retried", "overtook"):
                setattr(counts, name, getattr(counts, name) + getattr(each, name))
            counts.examples += each.examples[: _EXAMPLES_MAX - len(counts.examples)]
            counts.dead_letters += each.dead_letters
    return counts


def report(what: str, counts: Counts) -> None:
    """Into the log of the driver, which takes what is said on stderr."""
    lines = [f"metadata: {what}: {counts}"]
    lines += [f"metadata: {what}: skipped: {each}" for each in counts.examples]
    lines += [f"metadata: {what}: dead letters in {each}" for each in counts.dead_letters]
    print("\n".join(lines), file=sys.stderr, flush=True)
