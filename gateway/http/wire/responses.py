"""Responses, whole ones and streams, and their headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import msgspec
from flask import Response
from werkzeug.datastructures import Headers

from gateway import cpu
from gateway.decide.conditions import Tag, tag_text
from gateway.http.context import Environ, HeaderList
from gateway.http.wire.headers import JSON, PROBLEM

encode: Final = msgspec.json.Encoder().encode

NO_STORE: Final = ("Cache-Control", "no-store")
_JSON_TYPES: Final = (JSON, PROBLEM)
_STATUS_LINES: Final = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


class Answer(Response):
    """A response that is sent with the headers it was given, and no others.

    It differs from werkzeug's in two ways. A 304 keeps Last-Modified, as RFC 9110 section 15.4.5
    wants it. And ``headers`` is built only when used: building it and taking it apart again took a
    quarter of the time of a read.
    """

    def __init__(self, body: bytes, status: int, headers: HeaderList) -> None:
        self._body = body
        self._status = _STATUS_LINES[status]
        self._status_code = status
        self._header_list = headers
        self._headers: Headers | None = None
        self._on_close: list[Callable[[], Any]] = []
        self.response = (body,)

    @property
    def headers(self) -> Headers:  # type: ignore[override]
        if self._headers is None:
            self._headers = Headers(self._header_list)
        return self._headers

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        headers = self._header_list if self._headers is None else list(self._headers)
        start_response(self._status, headers)
        return () if environ["REQUEST_METHOD"] == "HEAD" else (self._body,)


def body_answer(
    body: bytes, headers: HeaderList, status: int = 200, media_type: str = JSON
) -> Answer:
    """An answer with a body. The headers that describe the body are appended to ``headers``. A line
    end is appended to JSON, for people who read it in a terminal."""
    if media_type in _JSON_TYPES:
        body += b"\n"
    headers.append(("Content-Type", media_type))
    headers.append(("Content-Length", str(len(body))))
    return Answer(body, status, headers)


def empty_answer(headers: HeaderList, status: int = 204) -> Answer:
    """An answer with ``headers`` alone, none of which describes a body: 204 and 304 mustn't."""
    return Answer(b"", status, headers)


def etag(tag: Tag) -> tuple[str, str]:
    return ("ETag", f'"{tag if isinstance(tag, str) else tag_text(tag)}"')


def state_headers(tag: Tag, revision: int) -> HeaderList:
    """The headers of a catalog's state at ``revision``. Caches must revalidate it before use."""
    return [etag(tag), ("Catalog-Revision", str(revision)), ("Cache-Control", "no-cache")]


@lru_cache(maxsize=1024)
def last_modified(time_s: int) -> tuple[str, str]:
    """The header for ``time_s``, seconds since the epoch."""
    return ("Last-Modified", formatdate(time_s, usegmt=True))


class Stream:
    """A WSGI body whose ``close`` always runs, even if nobody asked for the first piece.

    A generator's ``finally`` wouldn't: one that is closed before it has begun runs no code at all.
    """

    def __init__(self, pieces: Iterator[bytes], close: Callable[[], None]) -> None:
        self._pieces = pieces
        self._close = close

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            yield piece
            cpu.renew()  # each piece may take as much time as a request: a long answer needs it

    def close(self) -> None:
        """Called by the server when the response is over or the client is gone."""
        self._close()


class StreamAnswer(Answer):
    """A response without a length, whose ``body`` is sent piece by piece as it is made."""

    def __init__(self, body: Stream, headers: HeaderList) -> None:
        super().__init__(b"", 200, headers)
        self._stream = body
        self.response = body

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        super().__call__(environ, start_response)
        return self._stream


def in_pieces(parts: Iterable[bytes], piece_bytes: int = 64 * 1024) -> Iterator[bytes]:
    """The bytes of ``parts`` in few pieces, none larger than ``piece_bytes``.

    So what waits for a slow client is one piece, however large a part is.
    """
    gathered: list[bytes] = []
    size = 0
    for part in parts:
        if size + len(part) > piece_bytes and gathered:
            yield b"".join(gathered)
            gathered, size = [], 0
        start = 0
        while len(part) - start > piece_bytes:
            yield part[start : start + piece_bytes]
            start += piece_bytes
        gathered.append(part[start:] if start else part)
        size += len(part) - start
    if gathered:
        yield b"".join(gathered)
