"""The reads and writes of every round of the commit loop."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from pymongo import ASCENDING, DeleteOne, UpdateMany, UpdateOne

from gateway import memory
from gateway.model import Claim, CommitRecord, DocumentRecord, Head, HeadMove, Reply, Verdict
from gateway.store.contract import (
    CLAIMS_MAX,
    NEVER_US,
    ForeignRecord,
    Moved,
    MoveResult,
    StoreUnreachable,
)
from gateway.store.mongodb import records
from gateway.store.mongodb.connection import StorePart
from gateway.store.mongodb.format import UnknownFormat, is_older, take_over_heads
from gateway.store.mongodb.indexes import (
    BY_REPLY,
    OPEN,
    UNCOMMITTED,
    in_spans,
    of_catalog,
    of_catalogs,
    one_of,
)
from gateway.store.mongodb.records import Record

_log = logging.getLogger(__name__)

# What one answer of ``commits`` may take: bytes of changes as JSON text, and bytes of memory once
# they are parsed.
_COMMITS_BYTES_MAX = 16 * 1024 * 1024
_COMMITS_MEMORY_MAX = 64 * 1024 * 1024
# The most documents of one call: the driver prepares and encodes all of a call in one go.
_DOCUMENTS_AT_ONCE = 2_000
# The second try updates the record that made the first one fail, unless it was purged meanwhile.
_WRITE_TRIES = 4
# A head that isn't of this format after as many tries has no format that any gateway has written.
_TAKE_OVER_TRIES = 3
# From this many new documents on, they are inserted. An insert takes the server a fifth of the time
# of an update that inserts, but it is another call, for which the other documents wait.
_INSERTS_MIN = 16


class LoopPart(StorePart):
    """See ``gateway.store.contract.Store``."""

    def heads(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        return self._heads(catalogs, records.BARE_HEAD)

    def tails(self, catalogs: Collection[str]) -> Mapping[str, Head]:
        return self._heads(catalogs, records.HEAD_WITH_TAIL)

    def _heads(self, catalogs: Collection[str], fields: Record) -> dict[str, Head]:
        """Raises ForeignRecord if a catalog has commits or documents, but no head: a new head would
        begin a second history among these."""
        heads = self._present_heads(catalogs, fields)
        while missing := set(catalogs).difference(heads):
            begun = self._one_begun(missing)
            if begun is None:
                break
            # Its head may have been made between the two reads; then the rest is read again.
            heads |= self._present_heads(missing, fields)
            if begun not in heads:
                raise ForeignRecord(begun, None, "it has commits or documents, but no head")
        return heads

    def _present_heads(self, catalogs: Collection[str], fields: Record) -> dict[str, Head]:
        query = {"_id": one_of(catalogs)}
        for _ in range(_TAKE_OVER_TRIES):
            with self._on.reading() as session:
                found = list(self._on.catalogs.find(query, fields, session=session))
            if not self._took_over(found):
                break
        return {record["_id"]: records.head_from(record) for record in found}

    def _one_begun(self, catalogs: Collection[str]) -> str | None:
        """One of these catalogs that has commits or documents; None if none has."""
        ranges = [{"_id": of_catalog(catalog)} for catalog in catalogs]
        of_any = ranges[0] if len(ranges) == 1 else {"$or": ranges}
        for collection in (self._on.commits, self._on.documents):
            with self._on.reading() as session:
                found = collection.find_one(of_any, {"_id": 1}, session=session)
            if found is not None:
                return str(found["_id"]).partition("\0")[0]
        return None

    def _took_over(self, found: Sequence[Record]) -> bool:
        """Take over the heads of an older format among these; whether there were any."""
        try:
            older = [record["_id"] for record in found if is_older(record)]
        except UnknownFormat as error:
            raise StoreUnreachable(str(error)) from error
        if older:
            with self._on.as_unreachable():
                take_over_heads(self._on.catalogs, {"_id": one_of(older)})
        return bool(older)

    def last_written(self, revisions: Mapping[str, Collection[int]]) -> Mapping[str, int]:
        ids = [records.commit_id(catalog, r) for catalog, each in revisions.items() for r in each]
        # In ascending order, so that the last one of a catalog stays.
        return dict(records.named_by(name) for name in sorted(self._there(ids)))

    def end_tails(self, reached: Mapping[str, tuple[int, int]]) -> None:
        updates = [
            UpdateOne(
                {
                    "_id": catalog,
                    "head.format": records.FORMAT,
                    records.REVISION: revision,
                    "head.judged": judged,
                },
                {
                    "$set": {"out": revision, "tail": [], "judged_out": judged},
                    "$unset": {"open": "", "verdicts": ""},
                },
            )
            for catalog, (revision, judged) in reached.items()
        ]
        if updates:
            self._on.bulk(self._on.catalogs.bulk_write, updates)

    def open_tails(
        self, before_us: int, limit: int, skip: int = 0, *, after_us: int = NEVER_US
    ) -> Sequence[Head]:
        made = [{"time_us": {"$lt": before_us}}, {"time_us": {"$gt": after_us}}]
        query = {"open": True, "$or": made}
        for _ in range(_TAKE_OVER_TRIES):
            with self._on.reading() as session:
                cursor = self._on.catalogs.find(query, records.BARE_HEAD, session=session)
                found = list(cursor.hint(OPEN).skip(skip).limit(limit))
            # This finds heads that a gateway of an older format still makes and that nobody asks
            # for.
            older = [each for each in found if not isinstance(each.get("head"), dict)]
            if not self._took_over(older):
                break
        return records.readable_heads(found)

    def uncommitted(self, before_us: int, limit: int) -> Sequence[Head]:
        query = {"uncommitted": {"$lt": before_us}}
        with self._on.reading() as session:
            cursor = self._on.catalogs.find(query, records.BARE_HEAD, session=session)
            found = list(cursor.hint(UNCOMMITTED).sort("uncommitted", ASCENDING).limit(limit))
        return records.readable_heads(found)

    def drop_uncommitted(self, heads: Sequence[Head]) -> None:
        deletions = [
            DeleteOne(
                {
                    **records.head_at(head.catalog, head.position),
                    "uncommitted": {"$exists": True},
                    "open": {"$exists": False},
                }
            )
            for head in heads
            if head.revision == 0 and not self._has_verdicts(head.catalog)
        ]
        if deletions:
            self._on.bulk(self._on.catalogs.bulk_write, deletions)

    def _has_verdicts(self, catalog: str) -> bool:
        with self._on.reading() as session:
            of_it = {"_id": of_catalog(catalog)}
            return self._on.verdicts.find_one(of_it, {"_id": 1}, session=session) is not None

    def commits(self, spans: Mapping[str, tuple[int, int]]) -> Mapping[str, Sequence[CommitRecord]]:
        prefixes: dict[str, list[CommitRecord]] = {}
        left_bytes, left_memory = _COMMITS_BYTES_MAX, _COMMITS_MEMORY_MAX
        with self._on.reading() as session:
            for record in self._on.commits.find(in_spans(spans), session=session).sort("_id"):
                with records.as_unreadable(record):
                    catalog, revision = records.named_by(record["_id"])
                    prefix = prefixes.setdefault(catalog, [])
                    if revision == spans[catalog][0] + len(prefix) + 1:
                        prefix.append(records.bounded_commit_from(record))
                    left_bytes -= len(record["changes"])
                    left_memory -= memory.text_weight(record["changes"].encode())
                if min(left_bytes, left_memory) < 0:
                    break
        return prefixes

    def commit_id(self, catalog: str, revision: int) -> str | None:
        name = {"_id": records.commit_id(catalog, revision)}
        with self._on.reading() as session:
            found = self._on.commits.find_one(name, {"id": 1}, session=session)
        return None if found is None else records.text_of(found, "id")

    def documents(
        self, keys: Mapping[str, Collection[str]], content_bytes_max: int | None = None
    ) -> Mapping[tuple[str, str], DocumentRecord]:
        ids = [records.document_id(c, key) for c, wanted in keys.items() for key in wanted]
        query = {"_id": one_of(ids)}
        with self._on.reading() as session:
            shown = None if content_bytes_max is None else records.with_content(content_bytes_max)
            raw = list(self._on.raw_documents.find(query, shown, session=session))
        # Outside: to wait for memory neither holds a session nor lets the read time out.
        found = records.documents_from(raw)
        return {(catalog, document.key): document for catalog, document in found}

    def replies(
        self, keys: Mapping[str, Collection[tuple[str, str]]]
    ) -> Mapping[tuple[str, str, str], Reply]:
        ids = [
            records.reply_id(catalog, principal, key)
            for catalog, wanted in keys.items()
            for principal, key in wanted
        ]
        query = {"reply_id": one_of(ids), **of_catalogs(keys)}
        judged = {"$match": {"_id": one_of(ids)}}
        both = [
            {"$match": query},
            {"$unionWith": {"coll": self._on.verdicts.name, "pipeline": [judged]}},
        ]
        with self._on.reading() as session:
            found = list(self._on.commits.aggregate(both, session=session, hint=BY_REPLY))
        replies: dict[tuple[str, str, str], Reply] = {}
        for record in found:
            is_commit = "reply_id" in record
            reply: Reply = (records.commit_from if is_commit else records.verdict_from)(record)
            assert reply.idempotency is not None
            name = (reply.catalog, reply.idempotency.principal, reply.idempotency.key)
            # If there is a verdict, too, the commit was made after that had expired.
            if isinstance(reply, CommitRecord) or name not in replies:
                replies[name] = reply
        return replies

    def claim(self, catalogs: Collection[str], claim: Claim) -> None:
        in_line = {
            "_id": one_of(catalogs),
            "claims.by": {"$ne": claim.by},
            f"claims.{CLAIMS_MAX - 1}": {"$exists": False},
        }
        pushed = {"$push": {"claims": {"by": claim.by, "hold_ms": claim.hold_ms}}}
        self._on.bulk(self._on.catalogs.bulk_write, [UpdateMany(in_line, pushed)])

    def drop_claims(self, catalogs: Collection[str], by: str) -> None:
        pulled = {"$pull": {"claims": {"by": by}}}
        left = UpdateMany({"_id": one_of(catalogs)}, pulled)
        self._on.bulk(self._on.catalogs.bulk_write, [left])

    def move_heads(self, moves: Sequence[HeadMove]) -> Mapping[str, MoveResult]:
        # With upsert, a lost move is an error of that catalog alone: the filter doesn't match the
        # head, and its name can't be inserted a second time.
        upserts = [
            (records.moved_from(move) | records.in_line(move), records.head_move(move))
            for move in moves
        ]
        results = self._on.upsert_each(self._on.catalogs, upserts)
        moved: dict[str, MoveResult] = {move.catalog: Moved.WON for move in moves}
        moved |= {moves[index].catalog: Moved.LOST for index in results.taken}
        moved |= {moves[index].catalog: each for index, each in results.rejected.items()}
        for index, reason in results.in_doubt.items():
            catalog = moves[index].catalog
            _log.warning("a move is in doubt: %s", reason, extra={"catalog": catalog})
            del moved[catalog]
        return moved

    def write_documents(self, documents: Mapping[str, Sequence[DocumentRecord]]) -> None:
        every = [(catalog, each) for catalog, changed in documents.items() for each in changed]
        for first in range(0, len(every), _DOCUMENTS_AT_ONCE):
            self._write_some(every[first : first + _DOCUMENTS_AT_ONCE])

    def _write_some(self, every: Sequence[tuple[str, DocumentRecord]]) -> None:
        new = [(catalog, each) for catalog, each in every if each.revision == each.create_revision]
        left = []
        if len(new) >= _INSERTS_MIN:
            inserts = [records.document_record(*each) for each in new]
            taken = self._on.bulk(self._on.documents.insert_many, inserts)
            left = [_document_update(*new[index]) for index in sorted(taken)]
            every = [each for each in every if each[1].revision != each[1].create_revision]
        left += [_document_update(*each) for each in every]
        for _ in range(_WRITE_TRIES):
            if not left:
                return
            # If a document is inserted twice at the same time, the second insert becomes an update.
            left = [left[index] for index in self._on.bulk(self._on.documents.bulk_write, left)]
        if left:
            raise StoreUnreachable(
                "others keep creating and deleting the documents that are written out"
            )

    def write_commits(self, commits: Sequence[CommitRecord]) -> None:
        left = [records.commit_record(commit) for commit in commits]
        # In order, so that a visible commit proves the ones before it. An existing commit stops the
        # insert; the rest is tried again without those that exist.
        while left:
            taken = self._on.bulk(self._on.commits.insert_many, left, ordered=True)
            left = left[min(taken) + 1 :] if taken else []
            there = self._there([record["_id"] for record in left]) if left else ()
            left = [record for record in left if record["_id"] not in there]

    def write_verdicts(self, verdicts: Sequence[Verdict], kept_s: int) -> None:
        writes = [_verdict_update(each, kept_s) for each in verdicts]
        if writes:
            self._on.bulk(self._on.verdicts.bulk_write, writes)

    def _there(self, ids: Collection[str]) -> set[str]:
        """The ``_id``s among these under which commits are stored."""
        with self._on.reading() as session:
            found = self._on.commits.find({"_id": one_of(ids)}, {"_id": 1}, session=session)
            return {record["_id"] for record in found}


def _verdict_update(verdict: Verdict, kept_s: int) -> UpdateOne:
    """The update that writes the verdict if its key has none, or an earlier one: that of another
    run."""
    record = records.verdict_record(verdict, kept_s)
    earlier = {"_id": record.pop("_id"), "number": {"$lt": verdict.number}}
    return UpdateOne(earlier, {"$set": record}, upsert=True)


def _document_update(catalog: str, document: DocumentRecord) -> UpdateOne:
    """The update that writes the document if none is stored, or an older one."""
    name = {"_id": records.document_id(catalog, document.key)}
    return UpdateOne(name, records.document_update(catalog, document), upsert=True)
