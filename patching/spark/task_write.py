"""One attempt of one task: it sends its rows as lines of bulk requests, and counts the outcomes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from patching.client import BulkAnswer, BulkLine, RequestError
from patching.client.bulk_writer import BulkWriter
from patching.spark.columns import Columns, RowRefused
from patching.spark.dead_letters import DeadLetters
from patching.spark.idempotency import RowKeys, row_keys
from patching.spark.json_values import encode, in_utc, python_value
from patching.spark.options import Options, may_not_write, naming_the_option
from patching.spark.outcomes import OutcomeCounts, TaskWritten
from patching.spark.version_steps import FenceKeeper, Version, VersionRefused

_NAMED_MAX: Final = 20
_KEY_SHOWN_MAX: Final = 120
_SLICE_BYTES: Final = 1024 * 1024
_NONE_BAD: Final[Mapping[str, str]] = {}
# The gateway's codes for a key that was sent with another request, and for a version that is over.
_ANOTHER_ROW: Final = "idempotency_key_reused"
_VERSION_OVER: Final = "application_conflict"
# Where problems of a line's ``begin`` point.
_BEGIN: Final = "/begin"

_ANOTHER: Final = (
    "an earlier attempt sent another row as the one in this place among the rows of its document, "
    "so this one isn't applied: the frame was computed differently, or the rows of a document came "
    "in another order (`sortWithinPartitions` keeps it) or are in several partitions "
    "(`repartition('key')` puts them into one); a new version that begins with "
    "idempotency=content allows all this"
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """``origin``: the same for the attempts that together apply each row once, and for no others.
    Unless the ``version`` is open, attempts of its other runs are among them."""

    origin: str
    partition: int
    number: int
    id: int
    version: Version

    @classmethod
    def of_task(cls, origin: str, version: Version) -> Attempt:
        """The attempt of the task that this process runs."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("rows can be written only by the tasks of a Spark job")
        number, own = context.attemptNumber(), context.taskAttemptId()
        return cls(origin, context.partitionId(), number, own, version)

    @property
    def key_prefix(self) -> str:
        """What its rows' keys begin with. The keys of a version are the application's."""
        if self.version.open:
            return f"spark-{self.origin}-{self.partition}"
        return f"spark-{self.version.number}"


@dataclass(slots=True)
class Failed:
    """The rows that aren't in the counts. ``taken``: how many there were in all; ``refused``: the
    places of malformed or refused ones; ``undecided``: how many others, of which ``unknown`` may
    have been applied."""

    taken: int = 0
    refused: list[int] = field(default_factory=list)
    undecided: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        said = []
        if self.refused:
            named = ", ".join(map(str, self.refused[:_NAMED_MAX]))
            more = ", …" if len(self.refused) > _NAMED_MAX else ""
            said.append(f"{len(self.refused)} refused (rows {named}{more})")
        if self.undecided:
            left = self.undecided - self.unknown
            said.append(f"{self.unknown} may have been applied, {left} certainly not")
        return ", ".join(said)


class WriteFailed(Exception):
    """The task can't go on. ``problem`` says why; ``failed`` and ``counts`` together have the
    outcomes of all rows taken until then. What was applied stays applied."""

    def __init__(
        self, attempt: Attempt, problem: str, failed: Failed, counts: OutcomeCounts
    ) -> None:
        super().__init__(
            f"partition {attempt.partition}, attempt {attempt.number}: {problem}. "
            f"Of its first {failed.taken} rows: {counts}, {failed}. "
            "What was applied stays applied; later rows were not sent"
        )
        self.attempt = attempt
        self.problem = problem
        self.failed = failed
        self.counts = counts


@dataclass(slots=True)
class _Row:
    """``ordinal``: its place in the partition, from 0. ``bad``: the columns whose values Python
    can't represent, and why; ``values`` has them as text. ``made``: how its key was made, and the
    key, if its line is to begin the version, and so may be sent a second time."""

    ordinal: int
    values: Mapping[str, Any]
    bad: Mapping[str, str] = field(default_factory=dict)
    made: tuple[str, str] | None = None


def write_rows(
    batches: Iterable[pa.RecordBatch], columns: Columns, options: Options, attempt: Attempt
) -> TaskWritten:
    """Send the rows. Raises WriteFailed."""
    with (
        options.open_transport() as transport,
        row_keys(attempt.key_prefix) as keys,
    ):
        terms = options.bulk_terms(resend_unknown=options.idempotency == "none")
        fences = FenceKeeper(transport, options, attempt.version)
        writing = _Writing(columns, options, attempt, keys, fences)
        return writing.run(_rows(batches, columns.names), BulkWriter(transport, terms))


def _rows(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[_Row]:
    """The rows in Python, converted slice by slice, as a batch may be of any size."""
    ordinal = 0
    for batch in batches:
        columns = [in_utc(column) for column in batch.columns]
        for piece in _slices(pa.RecordBatch.from_arrays(columns, list(names))):
            for values, bad in _values(piece):
                yield _Row(ordinal, values, bad)
                ordinal += 1


def _values(piece: pa.RecordBatch) -> Iterator[tuple[dict[str, Any], Mapping[str, str]]]:
    """Each row's values; and the columns whose values can't be read, with why."""
    plain = None
    with suppress(OverflowError, ValueError):
        plain = piece.to_pylist()
    if plain is not None:
        yield from ((each, _NONE_BAD) for each in plain)
        return
    for row in range(piece.num_rows):
        values: dict[str, Any] = {}
        bad: dict[str, str] = {}
        for name, column in zip(piece.schema.names, piece.columns, strict=True):
            values[name], why = python_value(column[row])
            if why is not None:
                bad[name] = why
        yield values, bad


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in slices, in order, each of at most ``_SLICE_BYTES`` or of one row."""
    if batch.num_rows <= 1 or batch.nbytes <= _SLICE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _slices(batch.slice(0, half))
    yield from _slices(batch.slice(half))


class _Writing:
    def __init__(
        self,
        columns: Columns,
        options: Options,
        attempt: Attempt,
        keys: RowKeys,
        fences: FenceKeeper,
    ) -> None:
        self._fences = fences
        self._columns = columns
        self._options = options
        self._attempt = attempt
        self._keys = keys
        self._counts = OutcomeCounts()
        self._letters: DeadLetters | None = None
        if options.dead_letter_path is not None:
            number = f"{attempt.partition}-{attempt.number}-{attempt.id}"
            name = "-".join(filter(None, (attempt.origin, attempt.version.run, number)))
            self._letters = DeadLetters(options.dead_letter_path, name)
        self._failed = Failed()
        # Why the task fails, as soon as everything sent is answered.
        self._failure: str | None = None
        # Rows to send again: their lines couldn't begin the version.
        self._again: deque[_Row] = deque()

    def run(self, rows: Iterable[_Row], writer: BulkWriter) -> TaskWritten:
        try:
            rows = iter(rows)
            more = True
            while more:
                for answer in writer.write(self._lines(rows)):
                    self._note(answer)
                more = bool(self._again) and self._failure is None
            if self._failure is not None:
                self._failed.undecided += len(self._again)
                raise WriteFailed(self._attempt, self._failure, self._failed, self._counts)
            path = self._letters.finish() if self._letters else None
            self._counts.dead_letters += [path] if path else []
        finally:
            if self._letters:
                self._letters.close()
        attempt, finished = self._attempt, self._fences.finished
        sample = b"" if attempt.version.open else self._keys.sample
        return TaskWritten(attempt.partition, self._counts, finished, sample, attempt.origin)

    def _lines(self, rows: Iterator[_Row]) -> Iterator[BulkLine]:
        """Lines, until the rows end or one of them fails the task."""
        while self._failure is None:
            row = self._again.popleft() if self._again else next(rows, None)
            if row is None:
                return
            self._failed.taken = max(self._failed.taken, row.ordinal + 1)
            try:
                line = self._line(row)
            except RowRefused as error:
                self._refuse(row, str(error), {"code": "bad_row", "detail": str(error)})
            except VersionRefused as error:
                self._failure = str(error)
                self._failed.undecided += 1
            else:
                if line is not None:
                    yield line
                elif self._columns.have_one_catalog:
                    return

    def _line(self, row: _Row) -> BulkLine | None:
        """The row's line; None if its version was finished."""
        catalog, document = self._columns.subject(row.values)
        begun = self._fences.begun(catalog)
        if begun is not None and begun.finished:
            return None
        keys = self._fences.keys if begun is None else begun.keys
        key = row.made[1] if row.made is not None and row.made[0] == keys else None
        if keys == "job" and key is None:  # of a bad row, too, which keeps its place
            key = self._keys.key(catalog, document)
        for name, why in row.bad.items():
            raise RowRefused(name, why)
        asked = self._columns.ask(row.values)
        if keys == "content" and key is None:
            key = self._keys.row_key(asked.identity)
        text = asked.text
        if begun is None:
            row.made = None if key is None else (keys, key)
            text = b"%b,%b}" % (text[:-1], self._fences.begin(catalog))
        key = asked.idempotency_key or key
        text = text if key is None else _with(text, idempotency_key=key)
        text = text if begun is None else _with(text, fence=begun.fence)
        return BulkLine(text, key is not None, row)

    def _note(self, answer: BulkAnswer) -> None:
        counts = self._counts
        if self._is_of_the_begin(answer):
            return
        counts.retried += answer.sends > 1
        if skipped := (answer.content or {}).get("skipped"):
            counts.leave(self._columns.subject(answer.line.subject.values)[1], skipped)
        if not answer.decided:
            self._leave_undecided(answer)
        elif answer.error is not None and self._columns.is_passed_over(
            answer.line.subject.values, answer.error.code
        ):
            counts.passed_over += 1
        elif answer.error is not None:
            self._take_refusal(answer.line.subject, answer.error)
        elif answer.changed:
            counts.applied += 1
            counts.replayed += answer.replayed
        else:
            counts.unchanged += 1

    def _is_of_the_begin(self, answer: BulkAnswer) -> bool:
        """Whether it only refuses the ``begin``: then the row is sent again. Notes a fence."""
        fence = (answer.content or {}).get("fence")
        problem = getattr(answer.error, "problem", {}) if answer.decided else {}
        refused = str(problem.get("pointer", "")).startswith(_BEGIN)
        if fence is None and not refused:
            return False
        row: _Row = answer.line.subject
        catalog, _ = self._columns.subject(row.values)
        if fence is not None:
            self._fences.note_fence(catalog, fence)
        else:
            self._fences.note_refusal(catalog)
            self._again.append(row)
        return refused

    def _take_refusal(self, row: _Row, error: RequestError) -> None:
        """``onError`` isn't for a row whose key another row has used, whose version is over, or
        that the principal may not write: nothing is wrong with the row."""
        failure = None
        if error.code == _ANOTHER_ROW and row.values.get("idempotency_key") is None:
            failure = _ANOTHER
        elif error.code == _VERSION_OVER:
            failure = "it came too late"
        elif may_not_write(error) and not self._names_a_foreign_catalog(row):
            failure = "the principal may not write it"
        if failure is None:
            self._refuse(row, f"refused: {error}", getattr(error, "problem", {}))
            return
        self._failure = self._failure or f"{_named(row)}: {failure} ({error})"
        self._failed.refused.append(row.ordinal)

    def _names_a_foreign_catalog(self, row: _Row) -> bool:
        """Whether the row itself names its catalog, where the principal has written nothing yet."""
        if row.values.get("catalog") is None:
            return False
        return self._fences.finished.get(self._columns.subject(row.values)[0]) is None

    def _leave_undecided(self, answer: BulkAnswer) -> None:
        """``onError`` isn't for these: the row is well-formed, and may not be refused at all."""
        if not self._failed.undecided:
            row: _Row = answer.line.subject
            why = None if answer.error is None else naming_the_option(answer.error)
            self._failure = f"{_named(row)} could not be written: {why}"
        self._failed.undecided += 1
        self._failed.unknown += answer.applied != "no"

    def _refuse(self, row: _Row, why: str, problem: Mapping[str, Any]) -> None:
        said = f"{_named(row)}: {why}"
        if self._options.on_error == "fail":
            self._failure = self._failure or said
            self._failed.refused.append(row.ordinal)
            return
        self._counts.skip(said)
        if self._letters is not None:
            shown = self._columns.plain(row.values)
            if row.bad:
                shown |= dict.fromkeys(self._columns.lacking(row.values, row.bad))
            letter = {
                "key": row.values.get("key"),
                "partition": self._attempt.partition,
                "ordinal": row.ordinal,
                "row": shown,
                "problem": dict(problem),
            }
            if row.bad:
                letter["unreadable"] = {name: row.values[name] for name in row.bad}
            self._letters.add(letter)


def _named(row: _Row) -> str:
    key = repr(row.values.get("key"))
    more = "…" * (len(key) > _KEY_SHOWN_MAX)
    return f"row {row.ordinal} (key {key[:_KEY_SHOWN_MAX]}{more})"


def _with(text: bytes, **members: str) -> bytes:
    """The line with more members."""
    return text[:-1] + b"," + encode(members)[1:]
