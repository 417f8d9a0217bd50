"""Responses, made in one go: what they hold is final when they are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import Any

import msgspec
from flask import Response

from gateway.http.media_types import JSON

Headers = list[tuple[str, str]]

encode = msgspec.json.Encoder().encode


class Answer(Response):
    """A response that sends exactly the headers it was given, and Content-Length.

    werkzeug's own drops Last-Modified from a 304, which RFC 9110 section 15.4.5 wants there.
    """

    automatically_set_content_length = True

    def get_wsgi_headers(self, environ: Any) -> Any:  # noqa: ARG002 - the signature is werkzeug's
        return self.headers


def json_answer(
    content: object, headers: Sequence[tuple[str, str]] = (), *, status: int = 200
) -> Response:
    """``content`` may be anything that msgspec encodes."""
    return body_answer(encode(content), [*headers], status)


def body_answer(body: bytes, headers: Headers, status: int = 200, media_type: str = JSON) -> Answer:
    headers.append(("Content-Type", media_type))
    headers.append(("Content-Length", str(len(body))))
    return Answer(body, status, headers)


def empty_answer(headers: Iterable[tuple[str, str]], status: int = 204) -> Answer:
    answer = Answer(None, status, list(headers))
    del answer.headers["Content-Type"]
    return answer


def etag(token: str) -> tuple[str, str]:
    return ("ETag", f'"{token}"')


@lru_cache(maxsize=1024)
def last_modified(time_s: int) -> tuple[str, str]:
    """``time_s`` in whole seconds since the epoch."""
    return ("Last-Modified", formatdate(time_s, usegmt=True))
