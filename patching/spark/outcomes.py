"""The outcomes of a task's rows, and of all tasks of a job or micro-batch: counts, whether rows
were applied in their order, and the rows that could not be written."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

_EXAMPLES_MAX = 5
_HELD_MAX: Final = 100_000
_UNFINISHED: Final = ".unfinished"


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
    """The sum over the tasks that finished."""
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


class RowOrder:
    """The order of one partition's rows, as one attempt sees it. Two rows of a document are not
    compared if more than ``held_max`` other documents come between them."""

    def __init__(self, held_max: int = _HELD_MAX) -> None:
        self._held_max = held_max
        self._newest: OrderedDict[Hashable, int] = OrderedDict()

    def overtakes(self, document: Hashable, answer: Mapping[str, Any] | None) -> bool:
        """Whether the next row, which is about ``document`` and was applied, has a revision below
        that of a row before it."""
        revision = answer.get("catalog_revision") if answer else None
        if not isinstance(revision, int):
            return False
        newest = self._newest.pop(document, 0)
        self._newest[document] = max(newest, revision)
        if len(self._newest) > self._held_max:
            self._newest.popitem(last=False)
        return revision < newest


class DeadLetters:
    """The file is made with its first row, and has its name when the attempt is done: what an
    attempt that failed had put aside stays behind as ``….unfinished``, its successor starts over.
    """

    def __init__(self, folder: str, name: str) -> None:
        self._path = Path(folder) / f"{name}.jsonl"
        self._file: BinaryIO | None = None

    def add(self, letter: dict[str, Any]) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = Path(f"{self._path}{_UNFINISHED}").open("wb")  # noqa: SIM115 - see finish
        self._file.write(msgspec.json.encode(letter) + b"\n")

    def finish(self) -> str | None:
        """The file's path; None where there was nothing to put aside."""
        if self._file is None:
            return None
        self.close()
        return str(Path(f"{self._path}{_UNFINISHED}").rename(self._path))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
