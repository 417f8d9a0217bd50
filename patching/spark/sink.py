"""The batch sink: ``df.write.format("metadata").mode("append")…``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from .columns import Columns
from .counts import report, total
from .options import Options
from .task_write import Attempt, write_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class ModeRefused(ValueError):
    """Rows are added to what is there, nothing else."""


class MetadataWriter(DataSourceArrowWriter):
    """Made once for a job, and pickled to its tasks: so all of them have its ``origin``.

    There is no commit at the end that makes the rows visible at once, and nothing to roll back:
    each row is applied, for everybody to see, as soon as the gateway has it.
    """

    def __init__(self, schema: StructType, options: Options, *, overwrite: bool) -> None:
        """Raises ColumnRefused and ModeRefused, before anything is sent."""
        if overwrite:
            raise ModeRefused(
                "mode overwrite would replace the whole catalog, history and all, which is never "
                "done; write with mode('append'), where a `document` replaces the one of its key"
            )
        self._columns = Columns(schema, options)
        self._options = options
        self._origin = f"job-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        attempt = Attempt.of_task(self._origin)
        return write_rows(iterator, self._columns, self._options, attempt)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        report(f"{self._origin} is done", total(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        report(
            f"{self._origin} FAILED, and nothing is undone; of the tasks that were done (the error "
            "of the one that failed tells what that one applied)",
            total(messages),
        )
