"""Responses whose body isn't known when they begin."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from gateway.http.answers import Answer, HeaderList
from gateway.http.raw_path import Environ


class Stream:
    """A WSGI body that is closed in any case, also where nobody ever asked for its first piece.

    A generator alone isn't: closed before it has begun, it runs nothing of itself.
    """

    def __init__(self, pieces: Iterator[bytes], close: Callable[[], None]) -> None:
        self._pieces = pieces
        self._close = close

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def close(self) -> None:
        """Called by the server when the response is over, or its client is gone."""
        self._close()


class StreamAnswer(Answer):
    """A response with a ``body`` that is sent piece by piece, as it is made, without a length."""

    def __init__(self, body: Stream, status: int, headers: HeaderList) -> None:
        super().__init__(b"", status, headers)
        self._stream = body
        self.response = body

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        super().__call__(environ, start_response)
        return self._stream


def in_pieces(parts: Iterable[bytes], piece_bytes: int) -> Iterator[bytes]:
    """The same bytes in as few pieces as possible, none larger than ``piece_bytes``.

    What a slow client hasn't taken yet is held as one piece, however large a part is.
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


def unbound_sending(connection: Any) -> Callable[[], None]:
    """The kernel no longer gives up on a client that takes nothing; returns what puts that back.

    For a client that may send for long before it reads. Whoever sends to it has to give up.
    """
    option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux alone has it
    before = 0
    if connection is not None and option is not None:
        with suppress(OSError):  # closed, or no TCP
            before = connection.getsockopt(socket.IPPROTO_TCP, option)
            connection.setsockopt(socket.IPPROTO_TCP, option, 0)

    def bind_again() -> None:
        if before:
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, option, before)

    return bind_again
