"""Replacing a document in two phases: a condition is checked and remembered, parts are staged, and
one write replaces the document if what was remembered still holds.

Nothing is locked in between. An upload that was opened under any condition is *pinned* to the
document as it was then: if the document has changed, was deleted, or was deleted and made again,
the commit is refused, whatever the condition was. An upload that was opened without a condition has
none at its commit either.

A worked example. If-Match ``*`` is true of document k with token 7-aa, and the upload remembers
7-aa. Somebody deletes k (8) and makes it again (9-bb). Now ``*`` would be true, but 7-aa isn't: the
commit is refused as a conflict, and k stays as 9 made it.

A commit's idempotency key is the upload's id, in a form that no client can send. So the commit is
made once, however often it is asked for, and each time the answer is the first result, even that
there was nothing to change. A refusal decides nothing: the client may put other parts, and commit
again.

Whether the commit was made is read only from the catalog, each time the upload is looked up. The
upload is then marked as ended only to make room; if a worker died before that, the next look-up
does it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

from gateway.access import Principal
from gateway.access.principal import may_hold
from gateway.decide.conditions import (
    NO_CONDITIONS,
    CatalogTag,
    Composite,
    Preconditions,
    Tag,
    Tags,
)
from gateway.decide.draft import checked_attributes
from gateway.decide.edits import Delete, Edit, Get, Put
from gateway.decide.idempotency_keys import replayed
from gateway.decide.ranges import RangeUnchanged
from gateway.decide.request import Applied, Refused, RequestTerms, Unchanged, Unknown, WriteOutcome
from gateway.errors import (
    AboveLimit,
    CommitError,
    ConditionFailed,
    TooManyUploads,
    UnknownOutcome,
    UploadCommitted,
    UploadConflict,
    UploadIncomplete,
    UploadNotFound,
)
from gateway.limits import ServiceLimits
from gateway.model import Attributes, DocumentRecord, Idempotency, Reply, living
from gateway.runtime import Runtime
from gateway.store.contract import UploadPart, UploadRecord, UploadStore
from gateway.store.unreachable import as_unavailable, as_unknown
from patching import Json

_log = logging.getLogger(__name__)

PART_NUMBER_MAX = 10_000


class Writes(Protocol):
    """The part of the gateway that uploads need: see ``gateway.service.GatewayService``."""

    def write(
        self,
        catalog: str,
        key: str,
        edit: Edit,
        *,
        wait_s: float | None = None,
        **terms: Unpack[RequestTerms],
    ) -> WriteOutcome: ...

    def reply(self, catalog: str, principal: str, idempotency_key: str) -> Reply | None: ...


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload and its staged parts. ``attributes``: those to be set; None keeps them.

    ``conditions`` are those of its commit. ``done``: the outcome of its commit, None if there was
    none so far; ``by``: the principal of the present request.
    """

    upload: UploadRecord
    parts: tuple[UploadPart, ...]
    conditions: Preconditions
    attributes: Attributes | None
    done: WriteOutcome | None
    by: Principal

    @property
    def committed(self) -> int | None:
        """The revision at which it was committed; None: it wasn't."""
        outcome = None if self.done is None else self.done.outcome
        if isinstance(outcome, Applied):
            return outcome.commit.revision
        return outcome.catalog_revision if isinstance(outcome, Unchanged) else None


class UploadService:
    """Uploads. Thread-safe. Every call raises StoreUnavailable; those that change something also
    raise UnknownOutcome, and those about an upload UploadNotFound."""

    def __init__(
        self, store: UploadStore, writes: Writes, runtime: Runtime, limits: ServiceLimits
    ) -> None:
        self._store = store
        self._writes = writes
        self._runtime = runtime
        self._limits = limits

    def open(
        self,
        catalog: str,
        key: str,
        by: Principal,
        conditions: Preconditions,
        attributes: Attributes | None,
    ) -> OpenUpload:
        """Open an upload, if a write under ``conditions`` would be let through now.

        Raises the errors with which such a write would be refused, including AboveLimit for the
        attributes, and TooManyUploads.
        """
        self._require_one_more(by, counted=0)
        if attributes is not None:
            checked_attributes(attributes, key, self._limits.attributes_bytes_max)
        document = self._checked(catalog, key, by, conditions)
        conditions = conditions.pinned(key, document)
        now_us = self._runtime.now_us()
        upload = UploadRecord(
            id=self._runtime.new_id(),
            catalog=catalog,
            key=key,
            principal=by.name,
            terms=_terms_of(conditions, attributes),
            created_us=now_us,
            expires_us=now_us + self._limits.upload_expiry_s * 1_000_000,
        )
        with as_unknown():
            self._store.create_upload(upload)
        try:
            self._require_one_more(by, counted=1)  # others may have been opened meanwhile
        except TooManyUploads:
            with as_unavailable():
                self._store.drop_upload(upload)
            raise
        return OpenUpload(upload, (), conditions, attributes, None, by)

    def find(self, catalog: str, upload_id: str, by: Principal) -> OpenUpload:
        """The upload; only the principal that opened it can find it. If it was committed, but isn't
        marked as ended, this does so."""
        upload = self._found(catalog, upload_id, by)
        with as_unavailable():
            parts = tuple(self._store.parts(upload))
        done = self._earlier(upload)
        if done is not None and (upload.is_open or parts):
            self._end(upload)
            parts = ()
        conditions, attributes = _from_terms(upload.terms)
        return OpenUpload(upload, parts, conditions, attributes, done, by)

    def _found(self, catalog: str, upload_id: str, by: Principal) -> UploadRecord:
        """The upload's record, if it is ``by``'s and hasn't expired. Raises UploadNotFound."""
        with as_unavailable():
            upload = self._store.upload(catalog, upload_id)
        if (
            upload is None
            or upload.principal != by.name
            or upload.expires_us <= self._runtime.now_us()
        ):
            raise UploadNotFound(upload_id)
        return upload

    def put_part(self, opened: OpenUpload, number: int, content: bytes) -> UploadPart:
        """Stage a part, or replace it. Raises AboveLimit, TooManyUploads and UploadCommitted.

        Parts that are put at the same moment may exceed the bound on all uploads together.
        """
        if opened.done is not None:
            raise UploadCommitted(opened.upload.id)
        others = sum(part.size_bytes for part in opened.parts if part.number != number)
        self._require_size(others + len(content))
        before = next((part.size_bytes for part in opened.parts if part.number == number), 0)
        if len(content) > before:
            self._require_bytes(opened.by, len(content) - before)
        with as_unavailable():
            upload, maximum = opened.upload, self._limits.upload_bytes_max
            if not self._store.make_room(upload, number, len(content), maximum):
                # Meanwhile, the upload has ended, or got other parts.
                self._require_open(upload)
                self._require_size(max(others + len(content), maximum + 1))
        with as_unknown():
            return self._store.put_part(upload, number, content)

    def content(self, opened: OpenUpload, numbers: Sequence[int] | None) -> bytes:
        """The parts with these numbers (None: all of them), joined in ascending order.

        Raises UploadIncomplete, UploadCommitted and AboveLimit.
        """
        try:
            content = self._content(opened, numbers)
        finally:
            # Checked last: if it is still open, no part was removed before.
            self._require_open(opened.upload)
        return content

    def _require_open(self, upload: UploadRecord) -> None:
        """Raise UploadNotFound or UploadCommitted unless the upload is open now."""
        with as_unavailable():
            now = self._store.upload(upload.catalog, upload.id)
        if now is None:
            raise UploadNotFound(upload.id)
        if not now.is_open:
            raise UploadCommitted(upload.id)

    def _content(self, opened: OpenUpload, numbers: Sequence[int] | None) -> bytes:
        sizes = {part.number: part.size_bytes for part in opened.parts}
        wanted = sorted(sizes if numbers is None else set(numbers))
        if not wanted:
            raise UploadIncomplete(None)
        for number in wanted:
            if number not in sizes:
                raise UploadIncomplete(number)
        self._require_size(sum(sizes[number] for number in wanted))
        contents = []
        for number in wanted:
            with as_unavailable():
                content = self._store.part_content(opened.upload, number)
            if content is None:
                raise UploadIncomplete(number)
            contents.append(content)
        return b"".join(contents)

    def _earlier(self, upload: UploadRecord) -> WriteOutcome | None:
        """The outcome of an earlier commit of the upload; None if there is none so far."""
        name = _idempotency(upload)
        reply = self._writes.reply(upload.catalog, name.principal, name.key)
        if reply is None:
            return None
        return WriteOutcome(replayed(name, reply), reply.id, reply.attempts)

    def commit(
        self,
        opened: OpenUpload,
        value: Json,
        size_bytes: int,
        *,
        sent_bytes: int,
        author: str | None = None,
        message: str | None = None,
        wait_s: float | None = None,
        dry_run: bool = False,
    ) -> WriteOutcome:
        """Replace the document by ``value``; the outcome is Applied or Unchanged. ``author`` None:
        the principal that opened it.

        Raises UploadConflict if the document isn't as the upload remembers it, and any other
        refusal of the write. The parts are dropped only once the document is replaced, or is found
        to be so already.
        """
        upload = opened.upload
        done = self._writes.write(
            upload.catalog,
            upload.key,
            Put(value, size_bytes, opened.attributes),
            conditions=opened.conditions,
            size_bytes=sent_bytes,
            by=opened.by,
            author=author or upload.principal,
            message=message,
            idempotency=_idempotency(upload),
            wait_s=wait_s,
            dry_run=dry_run,
        )
        outcome = done.outcome
        if isinstance(outcome, Unknown):
            raise UnknownOutcome(outcome.commit_id)
        if isinstance(outcome, Refused):
            if isinstance(outcome.error, ConditionFailed):
                raise UploadConflict(outcome.error.conflict) from outcome.error
            raise outcome.error
        if isinstance(outcome, Applied) or not dry_run:
            self._end(upload)
        return done

    def drop(self, catalog: str, upload_id: str, by: Principal) -> None:
        """Delete an upload; does nothing if there is none."""
        try:
            upload = self._found(catalog, upload_id, by)
        except UploadNotFound:
            return
        with as_unknown():
            self._store.drop_upload(upload)

    def _checked(
        self, catalog: str, key: str, by: Principal, conditions: Preconditions
    ) -> DocumentRecord | None:
        """The live document of which the conditions are true, by a dry run."""
        conditional = conditions is not NO_CONDITIONS
        # Without conditions, it isn't a read: that would pass even if the catalog requires one.
        edit: Edit = Get(to_write=True) if conditional else Delete()
        done = self._writes.write(catalog, key, edit, conditions=conditions, by=by, dry_run=True)
        outcome = done.outcome
        if isinstance(outcome, Refused):
            raise outcome.error
        if not isinstance(outcome, Unchanged):
            raise UnknownOutcome(done.commit_id)
        document = outcome.documents.get(key)
        return living(document)

    def _require_one_more(self, by: Principal, *, counted: int) -> None:
        """Raise TooManyUploads if there may be no further upload. ``counted`` is 1 if the further
        one is open already."""
        with as_unavailable():
            held, own = self._store.held(by.name, self._runtime.now_us())
        maximum = self._limits.uploads_max
        _require_room(by, own.uploads - counted, 1, held.uploads - counted, maximum, "uploads_max")

    def _require_bytes(self, by: Principal, size_bytes: int) -> None:
        """Raise TooManyUploads if the parts of all uploads may not take ``size_bytes`` more."""
        with as_unavailable():
            held, own = self._store.held(by.name, self._runtime.now_us())
        maximum = self._limits.uploads_bytes_max
        _require_room(by, own.bytes, size_bytes, held.bytes, maximum, "uploads_bytes_max")

    def _require_size(self, size_bytes: int) -> None:
        maximum = self._limits.upload_bytes_max
        if size_bytes > maximum:
            raise AboveLimit(
                f"the upload's parts take {size_bytes} bytes; the limit is {maximum}",
                limit="upload_bytes_max",
                maximum=maximum,
                actual=size_bytes,
            )

    def _end(self, upload: UploadRecord) -> None:
        """End the upload and drop its parts, to make room. Errors are only logged: the commit is
        made, and the parts expire in any case."""
        try:
            with as_unavailable():
                self._store.end_upload(upload)
                self._store.drop_parts(upload)
        except CommitError as error:
            why = error.__cause__ or error
            _log.warning("the parts of upload %s stay until they expire: %s", upload.id, why)


def _require_room(
    by: Principal, own: int, more: int, held: int, maximum: int, setting: str
) -> None:
    if held + more > maximum:
        raise TooManyUploads(setting, maximum)
    holder = by.holder
    if holder is not None and not may_hold(own, more, held, maximum):
        raise TooManyUploads(setting, maximum, holder)


def _idempotency(upload: UploadRecord) -> Idempotency:
    # It has a space, which no Idempotency-Key may have.
    return Idempotency(upload.principal, f"upload {upload.id}", upload.id)


def _terms_of(conditions: Preconditions, attributes: Attributes | None) -> dict[str, Any]:
    """The conditions and attributes as plain JSON, for the store."""
    return {
        "if_match": _tags_to_json(conditions.if_match),
        "if_none_match": _tags_to_json(conditions.if_none_match),
        "unchanged_under": [[each.prefix, each.since] for each in conditions.unchanged_under],
        "attributes": attributes,
    }


def _from_terms(terms: Mapping[str, Any]) -> tuple[Preconditions, Attributes | None]:
    """The conditions and attributes of ``_terms_of``."""
    match, none_match = terms["if_match"], terms["if_none_match"]
    ranges = terms.get("unchanged_under", ())  # an earlier version's upload has none
    if match is none_match is None and not ranges:
        return NO_CONDITIONS, terms["attributes"]
    conditions = Preconditions(
        _tags_from_json(match),
        _tags_from_json(none_match),
        unchanged_under=tuple(RangeUnchanged(*each) for each in ranges),
    )
    return conditions, terms["attributes"]


def _tags_to_json(tags: Tags | None) -> list[Any] | None:
    return None if tags is None else [_tag_to_json(tag) for tag in tags]


def _tag_to_json(tag: Tag) -> Any:
    if isinstance(tag, Composite):
        return [list(pair) for pair in tag.tokens]
    return tag.revision if isinstance(tag, CatalogTag) else tag


def _tags_from_json(tags: list[Any] | None) -> Tags | None:
    return None if tags is None else frozenset(map(_tag_from_json, tags))


def _tag_from_json(tag: Any) -> Tag:
    if isinstance(tag, list):
        return Composite(tuple((key, token) for key, token in tag))
    return CatalogTag(tag) if isinstance(tag, int) else str(tag)
