"""Responses, made in one go: what they hold is known when they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import msgspec
from flask import Response
from werkzeug.datastructures import Headers

from gateway.http.media_types import JSON
from gateway.http.raw_path import Environ

HeaderList = list[tuple[str, str]]

encode: Final = msgspec.json.Encoder().encode

_STATUS_LINES: Final = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


class Answer(Response):
    """A response that is sent with the headers it was given, and no others.

    It differs from werkzeug's in two ways. Last-Modified stays on a 304, as RFC 9110 section
    15.4.5 wants it. And ``headers`` is only built for who asks for it: building it and taking it
    apart again took a quarter of the time of a read.
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
    """With ``headers``, which are added to, and those that describe the body."""
    headers.append(("Content-Type", media_type))
    headers.append(("Content-Length", str(len(body))))
    return Answer(body, status, headers)


def empty_answer(headers: HeaderList, status: int = 204) -> Answer:
    """With ``headers`` alone, and nothing that describes a body: 204 and 304 may have none."""
    return Answer(b"", status, headers)


def etag(token: str) -> tuple[str, str]:
    return ("ETag", f'"{token}"')


@lru_cache(maxsize=1024)
def last_modified(time_s: int) -> tuple[str, str]:
    """``time_s`` in whole seconds since the epoch."""
    return ("Last-Modified", formatdate(time_s, usegmt=True))
