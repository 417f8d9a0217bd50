"""The outcomes of a task's rows, and of all tasks of a job or micro-batch, as counts; and their
reports."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

from patching.spark.options import OptionRefused

_EXAMPLES_MAX = 5
_OWNERS_MAX: Final = 3
# Suffix of a file's name until it is whole.
UNFINISHED: Final = ".unfinished"
_BATCHES_KEPT: Final = 1_000
_SUMMED: Final = (
    "applied",
    "replayed",
    "unchanged",
    "passed_over",
    "skipped",
    "retried",
    "left_to_others",
)


@dataclass(slots=True)
class OutcomeCounts:
    """Rows by outcome. ``applied``: made a commit, ``replayed`` of them when they were sent before.
    ``unchanged``: found everything as they want it. ``skipped``: malformed or refused. ``retried``:
    sent more than once by the same attempt. ``passed_over``: excluded by their mode.
    ``left_to_others``: leaves that applies skipped because others own them; ``left``: some of
    these, of different documents."""

    applied: int = 0
    replayed: int = 0
    unchanged: int = 0
    skipped: int = 0
    retried: int = 0
    left_to_others: int = 0
    passed_over: int = 0
    examples: list[str] = field(default_factory=list)
    dead_letters: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def leave(self, key: str, skipped: Sequence[Mapping[str, Any]]) -> None:
        """Count the leaves of a document that were ``skipped``, as the gateway's answer has
        them."""
        self.left_to_others += len(skipped)
        if skipped and len(self.left) < _EXAMPLES_MAX:
            owners = " and ".join(
                f"{each['manager']!r} since revision {each['since']}"
                for each in skipped[0]["owners"][:_OWNERS_MAX]
            )
            more = f", and {len(skipped) - 1} more of its fields" * (len(skipped) > 1)
            self.left.append(f"{skipped[0]['pointer']!r} of {key!r}, owned by {owners}{more}")

    def skip(self, problem: str) -> None:
        self.skipped += 1
        if len(self.examples) < _EXAMPLES_MAX:
            self.examples.append(problem)

    def __str__(self) -> str:
        left = f", {self.left_to_others} fields left to others" * bool(self.left_to_others)
        left += f", {self.passed_over} passed over because of their mode" * bool(self.passed_over)
        return (
            f"{self.applied} applied ({self.replayed} of them by an earlier try), "
            f"{self.unchanged} changed nothing, {self.skipped} skipped, {self.retried} retried"
            f"{left}"
        )


@dataclass
class TaskWritten(WriterCommitMessage):
    """A task's message to the driver. ``finished``: by catalog, whether the version was finished
    there before (None: it isn't known to be begun). ``sample``: see ``idempotency``."""

    partition: int
    counts: OutcomeCounts
    finished: dict[str, bool | None] = field(default_factory=dict)
    sample: bytes = b""
    origin: str = ""


def total(messages: Iterable[WriterCommitMessage | None]) -> OutcomeCounts:
    """The sum over the tasks that finished."""
    counts = OutcomeCounts()
    for message in messages:
        if isinstance(message, TaskWritten):
            each = message.counts
            for name in _SUMMED:
                setattr(counts, name, getattr(counts, name) + getattr(each, name))
            counts.examples += each.examples[: _EXAMPLES_MAX - len(counts.examples)]
            counts.left += each.left[: _EXAMPLES_MAX - len(counts.left)]
            counts.dead_letters += each.dead_letters
    return counts


def finished_catalogs(messages: Iterable[WriterCommitMessage | None]) -> dict[str, bool | None]:
    """By catalog, whether the version was finished there before; for all tasks."""
    catalogs: dict[str, bool | None] = {}
    for message in messages:
        if isinstance(message, TaskWritten):
            for catalog, finished in message.finished.items():
                if finished is not None or catalog not in catalogs:
                    catalogs[catalog] = finished
    return catalogs


def samples(messages: Iterable[WriterCommitMessage | None]) -> dict[int, bytes]:
    """The samples, by partition."""
    return {each.partition: each.sample for each in messages if isinstance(each, TaskWritten)}


def report(what: str, counts: OutcomeCounts) -> None:
    """Print the counts to stderr, for the driver's log."""
    lines = [f"metadata: {what}: {counts}"]
    lines += [f"metadata: {what}: skipped: {each}" for each in counts.examples]
    lines += [f"metadata: {what}: left to others: {each}" for each in counts.left]
    lines += [f"metadata: {what}: dead letters in {each}" for each in counts.dead_letters]
    print("\n".join(lines), file=sys.stderr, flush=True)


class Reports:
    """The folder of the option reportPath, on the driver; without one, nothing is written."""

    def __init__(self, folder: str | None) -> None:
        """Raises OptionRefused if the folder can't be made."""
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OptionRefused(
                    "reportPath", f"the folder can't be created: {error}"
                ) from error

    def write_batch(self, number: int, counts: OutcomeCounts, *, done: bool) -> None:
        """Write a micro-batch's report, and remove the one from a thousand micro-batches before."""
        self.write(f"micro-batch-{number}", counts, done=done)
        if self._folder is not None and number >= _BATCHES_KEPT:
            old = self._folder / f"micro-batch-{number - _BATCHES_KEPT}.json"
            old.unlink(missing_ok=True)

    def write(
        self, name: str, counts: OutcomeCounts, *, done: bool, finished_before: Sequence[str] = ()
    ) -> None:
        """Write ``name``.json, whole or not at all, over an earlier one. ``finished_before``: the
        catalogs to which nothing was sent."""
        if self._folder is None:
            return
        about = {"name": name, "done": done, "finished_before": list(finished_before)}
        body = msgspec.json.encode({**about, **msgspec.to_builtins(counts)})
        begun = self._folder / f"{name}.json{UNFINISHED}"
        begun.write_bytes(body + b"\n")
        begun.replace(self._folder / f"{name}.json")
