"""The lines of a plan on their way to the gateway, and what becomes of each."""

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
from patching.spark.options import Options, naming_the_option

CREATED: Final = "created"
PATCHED: Final = "patched"
DELETED: Final = "deleted"
# A manager owns nothing of it any more, and others do.
LET_GO: Final = "let go"
# A manager that wants nothing of it owned nothing of it.
NOT_OWNED: Final = "not owned"
# An apply skipped leaves of it, because others own them; a row counts these.
LEFT_TO_OTHERS: Final = "left to others"
# It was as wanted already.
UNCHANGED: Final = "unchanged"
# The guard was false: somebody else was there first.
LOST: Final = "lost"
REFUSED: Final = "refused"

_CONTESTED: Final = "owned_by_others"
_CREATED_STATUS: Final = 201
_LEAVES_SHOWN_MAX: Final = 5
# A row for each document that was lost or refused, and one for all that became the same else; or
# one each, with the token that the document has now.
SCHEMA: Final = (
    "outcome string, key string, code string, detail string, documents long, etag string"
)
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
    answered as they were, and nothing is applied twice. ``fence``: what they have beside.
    ``each``: every line has a row of its own, but for those that left something to others."""

    options: Options
    fence: str | None = None
    each: bool = False

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``: of rows with a column ``line``, rows of ``SCHEMA``."""
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
                    why = f"this is no line of a plan ({error}): {text[:200]}"
                    raise LineBroken(why) from error
                whole = f"{text[:-1]}{end}".encode()
                yield BulkLine(whole, head.idempotency_key is not None, subject=head)


def fence_member(fence: str | None) -> str:
    """What a line ends with."""
    return "}" if fence is None else f',"fence":{encode(fence).decode()}}}'


def _outcome(answer: BulkAnswer) -> str:
    """Raises NotSent where nobody knows yet, so that the task is tried again."""
    error = answer.error
    if error is None:
        return _effect(answer)
    if not answer.decided:
        error = naming_the_option(error)
        raise NotSent(f"key {answer.line.subject.key!r}, sent {answer.sends} times: {error}")
    return LOST if _was_overtaken(error) else REFUSED


def _leaves_and_owners(skipped: Sequence[Mapping[str, Any]]) -> str:
    """Which leaves, and whose they are."""
    shown = [
        f"{leaf['pointer']} of {', '.join(owner['manager'] for owner in leaf['owners'])}"
        for leaf in skipped[:_LEAVES_SHOWN_MAX]
    ]
    more = ["…"] if len(skipped) > _LEAVES_SHOWN_MAX else []
    return f"left to others: {'; '.join([*shown, *more])}"


def _was_overtaken(error: RequestError) -> bool:
    """Whether another look at the document's state would give another line.

    A key that was used for another line is that of a task which was run again and saw the
    documents wanted in another state.
    """
    return isinstance(error, PreconditionFailed | NotFound) or (
        error.code in ("idempotency_key_reused", "path_missing", "test_failed")
    )


def _effect(answer: BulkAnswer) -> str:
    """What a line did. Only the gateway knows whether a manager's made a document, or left one."""
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
