"""Sends the lines of a plan to the gateway, and reports the outcome of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from patching.client import BulkAnswer, BulkLine, NotFound, PreconditionFailed, RequestError
from patching.client.bulk_writer import BulkWriter
from patching.spark.batches import in_batches, schema_of_text
from patching.spark.json_values import encode
from patching.spark.options import Options, may_not_write, naming_the_option

CREATED: Final = "created"
PATCHED: Final = "patched"
DELETED: Final = "deleted"
# A manager let go of the document, which stays.
LET_GO: Final = "let go"
# A manager let go of a document in which it owned nothing.
NOT_OWNED: Final = "not owned"
# An apply skipped leaves of the document, because others own them; a row counts these.
LEFT_TO_OTHERS: Final = "left to others"
# The document was as wanted already.
UNCHANGED: Final = "unchanged"
# The guard was false: another writer was first.
LOST: Final = "lost"
REFUSED: Final = "refused"

_CONTESTED: Final = "owned_by_others"
_CREATED_STATUS: Final = 201
_LEAVES_SHOWN_MAX: Final = 5
# A row for each document that was lost or refused, and one with the count of each other outcome. Or
# (`Delivery.each`) a row for each document, with its present token.
SCHEMA: Final = (
    "outcome string, key string, code string, detail string, documents long, etag string"
)
_ROW: Final = schema_of_text(SCHEMA)


class NotSent(Exception):
    """The gateway wasn't reached, or refused for now, for longer than the options allow; or the
    principal may not write the catalog, or not any more.

    What was applied until then stays applied, and isn't applied again under the same keys.
    """


class LineBroken(ValueError):
    """A line of a plan is malformed."""


class _LineHead(msgspec.Struct):
    """The members of a line that its delivery and the report of its outcome need."""

    key: str
    op: str
    idempotency_key: str | None = None
    if_none_match: Any = None


@dataclass(frozen=True)
class Delivery:
    """Sends lines. Those of ``sync`` and of plans have idempotency keys: sent again, they get the
    same answer, and nothing is applied twice. ``fence``: sent with each line. ``each``: return a
    row for each document, unless leaves of it were left to others."""

    options: Options
    fence: str | None = None
    each: bool = False

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``: takes rows with a column ``line``, and returns rows of ``SCHEMA``."""
        return in_batches(self._outcomes(batches), _ROW)

    def _outcomes(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
        done: Counter[str] = Counter()
        with self.options.open_transport() as transport:
            writer = BulkWriter(transport, self.options.bulk_terms())
            for answer in writer.write(self._lines(batches)):
                outcome = _outcome(answer)
                if outcome in (LOST, REFUSED):
                    assert answer.error is not None
                    key, error = answer.line.subject.key, answer.error
                    yield outcome, key, error.code, error.detail, 1, None
                    continue
                content, key = answer.content or {}, answer.line.subject.key
                skipped = content.get("skipped")
                if self.each and not skipped:
                    yield outcome, key, None, None, 1, content.get("etag")
                    continue
                done[outcome] += 1
                if skipped:
                    detail = _leaves_and_owners(skipped)
                    yield LEFT_TO_OTHERS, key, _CONTESTED, detail, len(skipped), None
        for outcome, count in done.items():
            yield outcome, None, None, None, count, None

    def _lines(self, batches: Iterator[pa.RecordBatch]) -> Iterator[BulkLine]:
        decode = msgspec.json.Decoder(_LineHead).decode
        end = fence_member(self.fence)
        for batch in batches:
            for text in batch.column("line").to_pylist():
                try:
                    head = decode(text)
                except (msgspec.MsgspecError, ValueError) as error:
                    why = f"this is not a line of a plan ({error}): {text[:200]}"
                    raise LineBroken(why) from error
                whole = f"{text[:-1]}{end}".encode()
                yield BulkLine(whole, head.idempotency_key is not None, subject=head)


def fence_member(fence: str | None) -> str:
    """The end of a line: the fence, if there is one, and the brace."""
    return "}" if fence is None else f',"fence":{encode(fence).decode()}}}'


def _outcome(answer: BulkAnswer) -> str:
    """The outcome of a line. Raises NotSent if it isn't decided, so that Spark repeats the task, or
    if no line would be applied."""
    error = answer.error
    if error is None:
        return _effect(answer)
    if not answer.decided or may_not_write(error):
        error = naming_the_option(error)
        raise NotSent(f"key {answer.line.subject.key!r}, sent {answer.sends} times: {error}")
    return LOST if _was_overtaken(error) else REFUSED


def _leaves_and_owners(skipped: Sequence[Mapping[str, Any]]) -> str:
    """The skipped leaves and their owners, the first few."""
    shown = [
        f"{leaf['pointer']} of {', '.join(owner['manager'] for owner in leaf['owners'])}"
        for leaf in skipped[:_LEAVES_SHOWN_MAX]
    ]
    more = ["…"] if len(skipped) > _LEAVES_SHOWN_MAX else []
    return f"left to others: {'; '.join([*shown, *more])}"


def _was_overtaken(error: RequestError) -> bool:
    """Whether a new comparison of the document may give another line.

    A reused idempotency key means that the task was run again, and other documents were wanted
    then.
    """
    return isinstance(error, PreconditionFailed | NotFound) or (
        error.code in ("idempotency_key_reused", "path_missing", "test_failed")
    )


def _effect(answer: BulkAnswer) -> str:
    """The outcome of an accepted line. Whether a manager's line created a document, or left one, is
    only in the answer."""
    head: _LineHead = answer.line.subject
    content = answer.content or {}
    if head.op == "let_go":
        if not answer.changed:
            return NOT_OWNED
        return DELETED if content.get("etag") is None else LET_GO
    if not answer.changed:
        return UNCHANGED
    if head.op == "delete":
        return DELETED
    made = head.if_none_match is not None or content.get("status") == _CREATED_STATUS
    return CREATED if made else PATCHED
