"""Replacing a document in two phases: staged part by part, then committed at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Literal, Self, TypeAlias

from patching.client._calls import Call, CallPolicy
from patching.client._steps import Steps, called, plan_of
from patching.client._wire import segment
from patching.client.errors import RequestError
from patching.client.results import UploadState, Written, expecting, parse_written, value_of
from patching.client.terms import CheckedTerms, Tokens, condition_members, encoded

Source: TypeAlias = "bytes | os.PathLike[str] | IO[bytes] | Iterable[bytes]"
Attributes: TypeAlias = "Mapping[str, Any] | Literal['keep', 'clear']"

# Leaving an upload waits no longer than this: it expires by itself.
_LEAVING_TIMEOUT_S: Final = 5.0
_JSON: Final = {"Content-Type": "application/json"}
_BYTES: Final = {"Content-Type": "application/octet-stream"}
_PART_BYTES: Final = 1024 * 1024


class Upload:
    """An open upload: put its parts, then ``commit``. As a context manager, it is dropped if it is
    left without a commit."""

    def __init__(self, calls: CallPolicy, path: str, state: UploadState) -> None:
        self._calls = calls
        self._path = path
        self._is_committed = False
        self.id = state.id
        self.key = state.key
        self.expires = state.expires

    @called
    def put_part(self, number: int, part: bytes) -> Steps[None]:
        """Stage ``part`` under ``number``, from 1 on; another part with this number is replaced."""
        path = f"{self._path}/parts/{number}"
        call = Call(method="PUT", path=path, body=part, headers=_BYTES, repeatable=True)
        yield from self._calls.send(call)

    @called
    def commit(
        self,
        parts: Iterable[int] | None = None,
        *,
        message: str | None = None,
        author: str | None = None,
        dry_run: bool = False,
        wait_s: int | None = None,
        timeout_s: float | None = None,
    ) -> Steps[Written]:
        """Replace the document by the parts (None: all), in ascending order. Raises Conflict
        (``upload_conflict``) if the document has changed since the upload was opened; nothing is
        changed then. Sent again, it returns its first result."""
        terms = CheckedTerms(message=message, author=author, dry_run=dry_run, wait_s=wait_s)
        call = Call(
            method="POST",
            path=f"{self._path}/commit",
            query=terms.query,
            body=encoded({} if parts is None else {"parts": list(parts)}),
            headers={**_JSON, **terms.headers},
            reads=dry_run,
            repeatable=True,
            waits=True,
            wait_s=wait_s,
        )
        written = parse_written(self.key, (yield from self._calls.send(call, timeout_s)))
        self._is_committed = not dry_run
        return written

    @called
    def read(self) -> Steps[UploadState]:
        """The upload's state. Raises NotFound if it was dropped or has expired."""
        answer = yield from self._calls.get(self._path)
        return _parse_state(answer.json())

    @called
    def drop(self) -> Steps[None]:
        """Forget it and its parts. A document that it committed stays."""
        yield from self._calls.send(self._dropping())

    def _dropping(self) -> Call:
        return Call(method="DELETE", path=self._path, repeatable=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.run(self.end())

    def end(self) -> Steps[None]:
        """The plan of leaving it: drop it, unless it was committed."""
        if not self._is_committed:
            with suppress(RequestError):  # it expires by itself
                yield from self._calls.send(self._dropping(), _LEAVING_TIMEOUT_S)


class CatalogUploads:
    """The uploads of a catalog, as ``Catalog.uploads``."""

    def __init__(self, calls: CallPolicy, catalog_path: str) -> None:
        self._calls = calls
        self._path = f"{catalog_path}/uploads"

    @called
    def open(
        self,
        key: str,
        *,
        if_match: Tokens | None = None,
        if_absent: bool = False,
        if_unchanged_under: Mapping[str, int] | None = None,
        attributes: Attributes = "keep",
    ) -> Steps[Upload]:
        """Open an upload: check the conditions (PreconditionFailed) and remember them. Nothing is
        locked.

        ``if_unchanged_under``: as for every write. ``attributes``: kept or cleared by the commit,
        or replaced by these.
        """
        if if_match is not None and if_absent:
            raise ValueError("if_match and if_absent can't be given together")
        asked: dict[str, Any] = {"key": key, "attributes": _mode(attributes)}
        asked |= condition_members(if_match, if_absent)
        asked |= CheckedTerms(if_unchanged_under=if_unchanged_under).members
        # Sent again after a lost answer it opens a second one; the first expires.
        call = Call(
            method="POST", path=self._path, body=encoded(asked), headers=_JSON, repeatable=True
        )
        answer = yield from self._calls.send(call)
        return self._upload(_parse_state(answer.json()))

    @called
    def resume(self, upload_id: str) -> Steps[Upload]:
        """An upload that was opened before. Raises NotFound."""
        answer = yield from self._calls.get(self._one(upload_id))
        return self._upload(_parse_state(answer.json()))

    @called
    def replace(
        self,
        key: str,
        source: Source,
        *,
        if_match: Tokens | None = None,
        if_absent: bool = False,
        if_unchanged_under: Mapping[str, int] | None = None,
        attributes: Attributes = "keep",
        part_bytes: int = _PART_BYTES,
        message: str | None = None,
        author: str | None = None,
        wait_s: int | None = None,
    ) -> Steps[Written]:
        """Open, stage and commit. ``source`` is JSON as bytes, pieces of them, a file, or a path to
        one, staged in parts of ``part_bytes``. If it fails, no upload is left behind."""
        if part_bytes < 1:
            raise ValueError("part_bytes must be at least 1")
        upload = yield from plan_of(self.open)(
            key,
            if_match=if_match,
            if_absent=if_absent,
            if_unchanged_under=if_unchanged_under,
            attributes=attributes,
        )
        try:
            for number, part in enumerate(_parts(source, part_bytes), 1):
                yield from plan_of(upload.put_part)(number, part)
            commit = plan_of(upload.commit)(message=message, author=author, wait_s=wait_s)
            return (yield from commit)
        except GeneratorExit:  # nobody carries the plan out any more
            raise
        except BaseException:  # Ctrl+C and a cancelled task, too
            yield from upload.end()
            raise

    def _upload(self, state: UploadState) -> Upload:
        return Upload(self._calls, self._one(state.id), state)

    def _one(self, upload_id: str) -> str:
        return f"{self._path}/{segment(upload_id)}"


def _mode(attributes: Attributes) -> dict[str, Any]:
    if isinstance(attributes, Mapping):
        return {"mode": "replace", "value": dict(attributes)}
    if attributes not in ("keep", "clear"):
        raise ValueError(f"attributes must be 'keep', 'clear' or an object, not {attributes!r}")
    return {"mode": attributes}


def _parse_state(content: Any) -> UploadState:
    with expecting("upload"):
        numbers = [part["number"] for part in content["parts"]]
        return value_of(UploadState, content, id=content["upload"], parts=numbers)


def _parts(source: Source, part_bytes: int) -> Iterator[bytes]:
    """``source`` cut into parts of ``part_bytes``, the last one shorter."""
    if isinstance(source, os.PathLike):
        with Path(source).open("rb") as file:
            yield from _parts(file, part_bytes)
        return
    pieces: Iterable[bytes]
    if isinstance(source, bytes):
        pieces = [source]
    elif hasattr(source, "read"):
        pieces = iter(lambda: source.read(part_bytes), b"")
    else:
        pieces = source
    begun = bytearray()
    for piece in pieces:
        begun += piece
        while len(begun) >= part_bytes:
            yield bytes(begun[:part_bytes])
            del begun[:part_bytes]
    if begun:
        yield bytes(begun)
