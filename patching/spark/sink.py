"""The sinks: ``df.write.format("metadata").mode("append")`` and
``df.writeStream.format("metadata")``."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from patching.spark.columns import Columns
from patching.spark.dead_letters import settle_letters
from patching.spark.idempotency import are_apart_for_certain, require_apart
from patching.spark.options import OptionRefused, Options, UseRefused, brief
from patching.spark.outcomes import (
    OutcomeCounts,
    Reports,
    TaskWritten,
    finished_catalogs,
    report,
    samples,
    total,
)
from patching.spark.task_write import Attempt, WriteFailed, write_rows
from patching.spark.version_steps import Version, finish, give_up, is_there

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Spark sets these properties for all that a micro-batch runs. The query's id is in its checkpoint.
QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


class ModeRefused(UseRefused):
    """The mode would replace the catalog: rows are only added to what is there."""


class MetadataWriter(DataSourceArrowWriter):
    """Made once for a job, and pickled to its tasks, so they all have its ``origin``.

    There is no commit at the end that makes the rows visible at once, and nothing to roll back:
    each row is applied, for everybody to see, as soon as the gateway has it.
    """

    def __init__(
        self, schema: StructType, options: Options, *, overwrite: bool, of_table: bool = False
    ) -> None:
        """Raises ColumnRefused and ModeRefused, before anything is sent."""
        if overwrite:
            raise ModeRefused(
                "mode overwrite, which would replace the whole catalog and its history, isn't "
                "supported; use mode('append'), where a `document` replaces the one under its key"
            )
        self._columns = Columns(schema, options, of_table=of_table)
        self._options = options
        named = _named_version(options)
        self._origin = _job(named)
        self._version = named or Version(f"spark-{self._origin}", 0, open=True)
        self._reports = Reports(options.report_path)

    @brief(WriteFailed)
    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        attempt = Attempt.of_task(self._origin, self._version)
        return write_rows(iterator, self._columns, self._options, attempt)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raises PartitionsOverlap, LettersUnseen and VersionRefused: then the version isn't
        finished."""
        counts = total(messages)
        if not self._version.open:
            require_apart(samples(messages))
        # Before the version is finished: afterwards, nobody decides its rows again.
        _settle(self._options, self._origin, messages, counts)
        before = self._finish(messages)
        what = f"{self._named()} is done"
        if before:
            what += f" (it already was in {', '.join(before)}, where nothing was sent)"
        report(what, counts)
        if not self._version.open:
            _warn_unless_apart(what, messages, counts)
        self._reports.write(self._origin, counts, done=True, finished_before=before)

    def _named(self) -> str:
        return self._origin if self._version.open else str(self._version)

    def _finish(self, messages: list[WriterCommitMessage | None]) -> list[str]:
        """Finish the version; returns the catalogs where it was finished before."""
        catalogs = finished_catalogs(messages)
        if self._version.open:
            give_up(self._options, self._version, catalogs)
            return []
        common = self._options.catalog
        # A frame without rows doesn't make a catalog.
        if common is not None and common not in catalogs and is_there(self._options, common):
            catalogs[common] = False
        finish(self._options, self._version, catalogs)
        return sorted(catalog for catalog, was in catalogs.items() if was)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        counts = total(messages)
        # In the catalogs where it has written, or may have.
        catalogs = finished_catalogs(messages)
        give_up(self._options, self._version, catalogs, self._options.catalog)
        report(
            f"{self._named()} FAILED, and what was applied stays applied: see the error for the"
            " task that failed; all others together",
            counts,
        )
        self._reports.write(self._origin, counts, done=False)


class MetadataStreamWriter(DataSourceStreamArrowWriter):
    """Made anew for each micro-batch, and again for its commit, so it remembers nothing."""

    def __init__(
        self, schema: StructType, options: Options, *, overwrite: bool, of_table: bool = False
    ) -> None:
        """Raises ColumnRefused and ModeRefused, before anything is sent."""
        if overwrite:
            raise ModeRefused(
                "output mode complete, which would replace the whole catalog with each "
                "micro-batch, isn't supported; use outputMode('append')"
            )
        if options.txn_app_id is not None:
            raise OptionRefused("txnAppId", "not for a query, which names its micro-batches itself")
        if options.txn_principals is not None and options.idempotency in ("column", "none"):
            raise OptionRefused(
                "txnPrincipals",
                f"it can't be given together with idempotency={options.idempotency}",
            )
        self._run = uuid.uuid4().hex
        self._columns = Columns(schema, options, of_table=of_table)
        self._options = options
        self._reports = Reports(options.report_path)

    @brief(WriteFailed)
    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        query, batch = _micro_batch()
        if self._options.idempotency in ("column", "none"):
            version = Version(f"spark-query-rows-{query}", int(batch), open=True)
        else:
            version = Version(f"spark-query-{query}", int(batch), self._run)
        attempt = Attempt.of_task(f"{query}-{batch}", version)
        return write_rows(iterator, self._columns, self._options, attempt)

    def commit(  # the name is Spark's
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Raises PartitionsOverlap and LettersUnseen: then Spark runs the micro-batch again."""
        counts = total(messages)
        require_apart(samples(messages))
        for origin in {each.origin for each in messages if isinstance(each, TaskWritten)}:
            _settle(self._options, origin, messages, counts)
        what = f"micro-batch {batchId} is done"
        report(what, counts)
        _warn_unless_apart(what, messages, counts)
        self._reports.write_batch(batchId, counts, done=True)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        counts = total(messages)
        report(
            f"micro-batch {batchId} FAILED, and what was applied stays applied; it is sent again "
            "when the query is started again. The tasks that finished, together",
            counts,
        )
        self._reports.write_batch(batchId, counts, done=False)


def _settle(
    options: Options,
    origin: str,
    messages: list[WriterCommitMessage | None],
    counts: OutcomeCounts,
) -> None:
    replaces = not any(finished_catalogs(messages).values())
    settle_letters(options.dead_letter_path, origin, counts, replaces=replaces)


def _warn_unless_apart(
    what: str, messages: list[WriterCommitMessage | None], counts: OutcomeCounts
) -> None:
    if not are_apart_for_certain(samples(messages), counts.replayed):
        unsure = "judging by a sample of its rows, no equal rows in two partitions became one"
        print(f"metadata: {what}: {unsure}", file=sys.stderr, flush=True)


def _named_version(options: Options) -> Version | None:
    if options.txn_app_id is None or options.txn_version is None:
        if options.txn_principals is not None:
            raise OptionRefused("txnPrincipals", "it needs txnAppId")
        return None
    return Version(options.txn_app_id, options.txn_version, uuid.uuid4().hex)


def _job(version: Version | None) -> str:
    """The job's name: a named version always has the same one, any other job a new one."""
    if version is None:
        return f"job-{uuid.uuid4().hex}"
    named = f"{version.number} {version.application}".encode()
    return f"txn-{blake2b(named, digest_size=16).hexdigest()}"


def _micro_batch() -> tuple[str, str]:
    """The query and the micro-batch whose task this process runs; a restart changes neither."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY) if context else None
    batch = context.getLocalProperty(_BATCH) if context else None
    if query is None or batch is None:
        raise RuntimeError(
            f"this Spark doesn't tell a task its micro-batch ({QUERY}, {_BATCH}); rows that are "
            "sent again would be applied again, so nothing is sent"
        )
    return query, batch
