"""The lines of a plan on their way to the gateway, and what becomes of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from patching.client import (
    BulkAnswer,
    BulkLine,
    BulkWriter,
    NotFound,
    PreconditionFailed,
    RequestError,
)
from patching.spark.batches import in_batches, schema_of_text
from patching.spark.options import Options, naming_the_option

from .plan import CREATE, DELETE, PATCH

CREATED: Final = "created"
PATCHED: Final = "patched"
DELETED: Final = "deleted"
# It was as wanted already.
UNCHANGED: Final = "unchanged"
# The guard was false: somebody else was there first.
LOST: Final = "lost"
REFUSED: Final = "refused"

DONE: Final = {CREATE: CREATED, PATCH: PATCHED, DELETE: DELETED}
# A row for each document that was lost or refused, and one for all that became the same else.
SCHEMA: Final = "outcome string, key string, code string, detail string, documents long"
_ROW: Final = schema_of_text(SCHEMA)


class NotSent(Exception):
    """The gateway wasn't reached, or refused for the moment, for longer than the options allow.

    What was applied until then stays applied, under keys by which it isn't applied again.
    """


class LineBroken(ValueError):
    """A line of a plan that isn't one."""


class _LineHead(msgspec.Struct):
    """The members of a line that its delivery and the report of its outcome need."""

    key: str
    op: str
    idempotency_key: str | None = None
    if_none_match: Any = None


@dataclass(frozen=True)
class Delivery:
    """Sends lines. Those of ``sync`` and of plans have idempotency keys: sent again, they are
    answered as they were, and nothing is applied twice."""

    options: Options

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``: of rows with a column ``line``, rows of ``SCHEMA``."""
        return in_batches(self._outcomes(batches), _ROW)

    def _outcomes(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
        done: Counter[str] = Counter()
        with self.options.open_transport() as transport:
            writer = BulkWriter(transport, self.options.bulk_terms())
            for answer in writer.write(_lines(batches)):
                outcome = _outcome(answer)
                if outcome in (LOST, REFUSED):
                    assert answer.error is not None
                    key, error = answer.line.subject.key, answer.error
                    yield outcome, key, error.code, error.detail, 1
                else:
                    done[outcome] += 1
        for outcome, count in done.items():
            yield outcome, None, None, None, count


def _lines(batches: Iterator[pa.RecordBatch]) -> Iterator[BulkLine]:
    decode = msgspec.json.Decoder(_LineHead).decode
    for batch in batches:
        for text in batch.column("line").to_pylist():
            try:
                head = decode(text)
            except (msgspec.MsgspecError, ValueError) as error:
                raise LineBroken(f"this is no line of a plan ({error}): {text[:200]}") from error
            yield BulkLine(text.encode(), head.idempotency_key is not None, subject=head)


def _outcome(answer: BulkAnswer) -> str:
    """Raises NotSent where nobody knows yet, so that the task is tried again."""
    error = answer.error
    if error is None:
        return DONE[_action(answer.line.subject)] if answer.changed else UNCHANGED
    if not answer.decided:
        error = naming_the_option(error)
        raise NotSent(f"key {answer.line.subject.key!r}, sent {answer.sends} times: {error}")
    return LOST if _was_overtaken(error) else REFUSED


def _was_overtaken(error: RequestError) -> bool:
    """Whether another look at the document's state would give another line.

    A key that was used for another line is that of a task which was run again and saw the
    documents wanted in another state.
    """
    return isinstance(error, PreconditionFailed | NotFound) or (
        error.code in ("idempotency_key_reused", "path_missing", "test_failed")
    )


def _action(head: _LineHead) -> str:
    if head.op == "delete":
        return DELETE
    return CREATE if head.if_none_match is not None else PATCH
