"""The streaming sink: ``df.writeStream.format("metadata")…``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from .columns import Columns
from .counts import report, total
from .options import Options
from .sink import ModeRefused
from .task_write import Attempt, write_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Spark sets these for whatever a micro-batch runs; that of the query is kept in its checkpoint.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


class MetadataStreamWriter(DataSourceStreamArrowWriter):
    """Made anew for each micro-batch, and again for its commit: it remembers nothing itself."""

    def __init__(self, schema: StructType, options: Options, *, overwrite: bool) -> None:
        """Raises ColumnRefused and ModeRefused, before anything is sent."""
        if overwrite:
            raise ModeRefused(
                "output mode complete would replace the whole catalog with each micro-batch, which "
                "is never done; use outputMode('append')"
            )
        self._columns = Columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        attempt = Attempt.of_task(_micro_batch())
        return write_rows(iterator, self._columns, self._options, attempt)

    def commit(  # the name is Spark's
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        report(f"micro-batch {batchId} is done", total(messages))

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        report(
            f"micro-batch {batchId} FAILED, and nothing is undone; when the query is started again "
            "it is sent again. Of the tasks that were done",
            total(messages),
        )


def _micro_batch() -> str:
    """What names the micro-batch whose task this process runs, also after a restart."""
    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY) if context else None
    batch = context.getLocalProperty(_BATCH) if context else None
    if query is None or batch is None:
        raise RuntimeError(
            f"this Spark doesn't tell a task its micro-batch ({_QUERY}, {_BATCH}); nothing could "
            "keep rows that are sent again from being applied again, so nothing is sent"
        )
    return f"{query}-{batch}"
