"""`/v1/catalogs/{catalog}/uploads`: replacing a document in two phases."""

from __future__ import annotations

from typing import Any, Final

from marshmallow import ValidationError, fields
from msgspec.structs import replace

from gateway import memory
from gateway.access import Role
from gateway.decide.conditions import Tags, tag_text
from gateway.decide.request import WriteOutcome
from gateway.decide.strict import Exact, strict
from gateway.errors import ConditionFailed, UploadCommitted
from gateway.http.context import Context, Environ
from gateway.http.door.admission import take_body, take_members
from gateway.http.routes import CATALOG, Routes, route
from gateway.http.wire import headers as media_types
from gateway.http.wire.body import attributes_of, decode_document, require_few_values
from gateway.http.wire.codes import RequestRefused
from gateway.http.wire.conditions import body_conditions, refuse_conditions, refuse_terms
from gateway.http.wire.headers import (
    catalog_path,
    name_decoded,
    preferences,
    refuse_idempotency_key,
    require_key,
)
from gateway.http.wire.query import DRY_RUN_PARAMETERS, parameters, whole_number
from gateway.http.wire.responses import NO_STORE, Answer, body_answer, empty_answer, encode
from gateway.http.write.answer import carried_out, document_answer
from gateway.http.write.ask import Ask, read_ask
from gateway.http.write.explain import further_members
from gateway.uploads import PART_NUMBER_MAX, OpenUpload
from patching.values import rfc3339

_RULE: Final = f"{CATALOG}/uploads"
_ONE: Final = f"{_RULE}/<segment:upload>"

# Raw: conditions and ``attributes`` are parsed by the functions that bulk lines use too.
_AS_SENT: Final = fields.Raw(allow_none=True)
UPLOAD_REQUEST: Final = strict(
    key=Exact(str, "it must be a string", required=True),
    if_match=_AS_SENT,
    if_none_match=_AS_SENT,
    if_unchanged_under=_AS_SENT,
    attributes=_AS_SENT,
)


def _are_part_numbers(listed: list[Any]) -> bool:
    seen: set[int] = set()
    for index, each in enumerate(listed):
        if type(each) is not int or not 1 <= each <= PART_NUMBER_MAX or each in seen:
            reason = f"it must be a number from 1 to {PART_NUMBER_MAX}, listed only once"
            raise ValidationError({index: [reason]})
        seen.add(each)
    return bool(listed)


UPLOAD_COMMIT: Final = strict(
    parts=Exact(list, "it must be a non-empty list of part numbers", _are_part_numbers)
)


class UploadRoutes(Routes):
    @route("POST", _RULE, "open_upload", Role.WRITE)
    def open(self, context: Context, catalog: str) -> Answer:
        """Check the conditions now and remember them; nothing is locked."""
        _refuse_terms(context.environ)
        members = take_members(context, self._limits, UPLOAD_REQUEST)
        key = require_key(members["key"], self._limits)
        conditions = body_conditions(members)
        attributes = attributes_of(members)
        try:
            opened = self._gateway.uploads.open(catalog, key, context.by, conditions, attributes)
        except ConditionFailed as failed:
            shows = preferences(context.environ).refusal_shows
            context.observed.helps = further_members(
                self._gateway, context.by, catalog, failed, key=key, shows=shows
            )
            raise
        place = f"{catalog_path(catalog)}/uploads/{opened.upload.id}"
        return body_answer(encode(_upload_shape(opened)), [("Location", place)], 201)

    @route("GET", _ONE, "read_upload", Role.WRITE)
    def read(self, context: Context, catalog: str, upload: str) -> Answer:
        _refuse_terms(context.environ)
        opened = self._find(context, catalog, upload)
        return body_answer(encode(_upload_shape(opened)), [NO_STORE])

    @route("DELETE", _ONE, "drop_upload", Role.WRITE)
    def drop(self, context: Context, catalog: str, upload: str) -> Answer:
        """Drop the upload, even if there is none. A committed one stays applied."""
        _refuse_terms(context.environ)
        self._gateway.uploads.drop(catalog, name_decoded(upload, "upload"), context.by)
        return empty_answer([])

    @route("PUT", f"{_ONE}/parts/<segment:number>", "put_part", Role.WRITE)
    def put_part(self, context: Context, catalog: str, upload: str, number: str) -> Answer:
        """Stage or replace a part, which may be any bytes."""
        _refuse_terms(context.environ)
        try:
            place = whole_number(number, 1, PART_NUMBER_MAX)
        except ValueError as error:
            raise RequestRefused("invalid_parameter", f"part number: {error}") from error
        media_types.require_bytes(context.environ)
        opened = self._find(context, catalog, upload)
        part = self._gateway.uploads.put_part(
            opened, place, take_body(context, self._limits, parsed=False)
        )
        return body_answer(encode(part), [])

    @route("POST", f"{_ONE}/commit", "commit_upload", Role.WRITE)
    def commit(self, context: Context, catalog: str, upload: str) -> Answer:
        """Replace the document by the joined parts. A repeated commit gets the first result.

        If a part or the catalog is wrong, the upload stays as it is.
        """
        refuse_conditions(context.environ)
        refuse_idempotency_key(context.environ, _SERVES)
        params = parameters(context.environ, DRY_RUN_PARAMETERS)
        said = read_ask(context, catalog, params=params)
        numbers = self._numbers(context)
        opened = self._find(context, said.catalog, upload)
        prefer = replace(said.prefer, returns=None, rebase=False)
        ask = replace(said, method="PUT", key=opened.upload.key, prefer=prefer)
        result = carried_out(
            self._gateway, context, ask, lambda: self._committed(opened, numbers, ask)
        )
        return document_answer(self._gateway, ask, result)

    def _committed(self, opened: OpenUpload, numbers: list[int] | None, ask: Ask) -> WriteOutcome:
        if opened.done is not None:
            return opened.done
        # Twice the size: the parts, and the text joined from them. Parsing takes memory later.
        memory.account().take(2 * sum(each.size_bytes for each in opened.parts))
        try:
            raw = self._gateway.uploads.content(opened, numbers)
        except UploadCommitted:  # another request committed it meanwhile
            upload = opened.upload
            done = self._gateway.uploads.find(upload.catalog, upload.id, opened.by).done
            if done is not None:
                return done
            raise
        require_few_values(raw, self._limits)
        memory.account().take_text(raw)
        value, size_bytes = decode_document(raw, self._limits)
        return self._gateway.uploads.commit(
            opened,
            value,
            size_bytes,
            sent_bytes=len(raw),
            author=ask.author,
            message=ask.message,
            wait_s=ask.prefer.wait_s,
            dry_run=ask.dry_run,
        )

    def _numbers(self, context: Context) -> list[int] | None:
        """The parts that the body lists; None if there is no body, or it has no list."""
        if context.observed.body_bytes == 0:
            return None
        numbers: list[int] | None = take_members(context, self._limits, UPLOAD_COMMIT)["parts"]
        return numbers

    def _find(self, context: Context, catalog: str, upload: str) -> OpenUpload:
        return self._gateway.uploads.find(catalog, name_decoded(upload, "upload"), context.by)


_SERVES: Final = "an upload needs none: it is committed only once"


def _refuse_terms(environ: Environ) -> None:
    if environ["REQUEST_METHOD"] != "GET":
        refuse_idempotency_key(environ, _SERVES)
    refuse_terms(environ)


def _upload_shape(opened: OpenUpload) -> dict[str, Any]:
    upload, attributes = opened.upload, opened.attributes
    shape: dict[str, Any] = {
        "upload": upload.id,
        "key": upload.key,
        "expires": rfc3339(upload.expires_us),
        "parts": list(opened.parts),
        "if_match": _tag_texts(opened.conditions.if_match),
        "if_none_match": _tag_texts(opened.conditions.if_none_match),
        "if_unchanged_under": [
            {"prefix": each.prefix, "revision": each.since}
            for each in opened.conditions.unchanged_under
        ],
        "attributes": {"mode": "keep"} if attributes is None else {"mode": "clear"},
        "committed": opened.committed,
    }
    if attributes:
        shape["attributes"] = {"mode": "replace", "value": attributes}
    return shape


def _tag_texts(tags: Tags | None) -> list[str] | None:
    return None if tags is None else sorted(map(tag_text, tags))
