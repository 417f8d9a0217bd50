"""gunicorn's parser, with a bound for each part of a request that a client could make long.

gunicorn lets a head grow to two megabytes, reads the whole rest of an unwanted body, and walks
through the chunks of a body one by one: four million chunks take seconds, in which no other request
runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.errors import (
    ChunkMissingTerminator,
    LimitRequestHeaders,
    NoMoreData,
    ParseException,
)
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import SocketUnreader

# Bytes of a header. A composite in If-Match is long: it names each document.
HEADER_BYTES_MAX: Final = 32_768
# Bytes of a head after its first line.
HEAD_BYTES_MAX: Final = 65_536
# If at most this much of a body is unread, it is read to its end, to keep the connection; else the
# connection is closed.
DRAIN_BYTES_MAX: Final = 65_536
# The framing of chunks may take as many bytes as their content, plus these.
_FRAMING_BYTES: Final = 65_536
_CHUNK_LINE_BYTES_MAX: Final = 1024
_TRAILER_BYTES_MAX: Final = 8190
# Chunks that are parsed before other requests may go on.
_CHUNKS_AT_A_TIME: Final = 256
_START_BYTES: Final = 16  # the bytes of a request that decide how it is let in

# A header line that may be remembered: its name has no underscore, its value no control characters.
_LINE_BYTES_MAX: Final = 256
_plain_field = re.compile(rb"([!#$%&'*+\-.^`|~0-9A-Za-z]+):([\t -~\x80-\xff]*)").fullmatch
_chunk_line = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n").match


class Door(Protocol):
    """Decides when a connection's requests may go on."""

    def let_in(self, start: bytes) -> None:
        """Wait until a request with these first bytes may be parsed."""

    def head_goes_on(self) -> None:
        """The head is incomplete: its rest has to come within `head_timeout_s`."""

    def let_go_on(self) -> None:
        """Let other requests go on, in the middle of a body."""


class ChunkFraming(ParseException):
    def __str__(self) -> str:
        return "its chunks are so small that most of it is framing"


class Wire(SocketUnreader):
    def __init__(self, connection: Any, door: Door) -> None:
        super().__init__(connection)
        self.door = door


class Parser(RequestParser):
    """The requests of one connection."""

    def __init__(self, cfg: Any, connection: Any, address: Any, door: Door) -> None:
        super().__init__(cfg, connection, address)
        self.unreader = Wire(connection, door)

    def finish_body(  # type: ignore[override] # the stubs are older than gunicorn
        self, deadline: float | None = None, max_bytes: int | None = None
    ) -> bool:
        """Read the rest of the last body. False if too much is left, which ends the connection."""
        body = None if self.mesg is None else self.mesg.body
        if not isinstance(body, RequestBody) or body.left == 0:
            return True
        if body.has_much_left():
            return False
        return bool(super().finish_body(deadline, max_bytes or DRAIN_BYTES_MAX))

    def has_much_left(self) -> bool:
        body = None if self.mesg is None else self.mesg.body
        return isinstance(body, RequestBody) and body.has_much_left()


# First lines of requests that were parsed, with the attributes that a request gets from its line.
_lines: Final[dict[bytes, dict[str, Any]]] = {}
_LINES_MAX: Final = 1024
_OF_LINE: Final = ("method", "uri", "path", "query", "fragment", "version")


@lru_cache(maxsize=_LINES_MAX)
def _field(line: bytes) -> tuple[str, str] | None:
    """The name, in upper case, and the value of a header whose meaning doesn't depend on the rest
    of the head; None for any other line, which gunicorn may refuse."""
    found = _plain_field(line)
    if found is None or (name := found[1].decode().upper()) == "EXPECT":
        return None
    return name, found[2].strip(b" \t").decode("latin-1")


class HostUnclear(ParseException):
    """A request of HTTP/1.1 without a Host header, or a request with two. RFC 9112 (section 3.2)
    wants both refused, because intermediaries route by the host."""

    def __str__(self) -> str:
        return "an HTTP/1.1 request needs a Host header, and no request may have two"


# Fields with a single value of any form: two values, joined, would look like another single one. In
# most other fields (lists, dates) the joined value means both, or is invalid.
_SINGLE: Final = frozenset(
    ("IDEMPOTENCY-KEY", "COMMIT-AUTHOR", "COMMIT-MESSAGE", "AUTHORIZATION", "LAST-EVENT-ID")
)


class FieldTwice(ParseException):
    """A request with two values of a field that has one: of two idempotency keys, for example, the
    first might be used already."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f"{self._name.title()} is given twice"


class HeadRequest(Request):
    _expected_100_continue: bool
    body: Body
    version: tuple[int, int]
    path: str
    query: str

    def read_into(self, unreader: Any, buf: bytearray, stop: bool | None = False) -> None:
        """gunicorn's method; ``stop`` is true only for the first bytes of a request."""
        if stop:
            super().read_into(unreader, buf, stop)
            unreader.door.let_in(bytes(buf[:_START_BYTES]))
            return
        unreader.door.head_goes_on()
        super().read_into(unreader, buf)
        if len(buf) > HEAD_BYTES_MAX:
            raise LimitRequestHeaders(f"the head takes more than {HEAD_BYTES_MAX} bytes")

    def parse_request_line(self, line_bytes: bytes) -> None:
        """Like gunicorn's, but parses a repeated line once."""
        if known := _lines.get(line_bytes):
            vars(self).update(known)
            return
        super().parse_request_line(line_bytes)
        if len(line_bytes) <= _LINE_BYTES_MAX:
            if len(_lines) >= _LINES_MAX:
                _lines.clear()
            _lines[line_bytes] = {name: getattr(self, name) for name in _OF_LINE}

    def parse_headers(self, data: bytes, from_trailer: bool = False) -> list[tuple[str, str]]:
        """Like gunicorn's, but parses a repeated line once. Also raises FieldTwice."""
        lines = data.split(b"\r\n")
        if from_trailer or len(lines) > self.limit_request_fields:
            return super().parse_headers(data, from_trailer)
        headers = [_field(line) if len(line) <= _LINE_BYTES_MAX else None for line in lines]
        names = {each[0] for each in headers if each is not None}
        if len(names) < len(lines):  # there is an unusual line, or a name twice
            return _each_once(super().parse_headers(data, from_trailer))
        return cast("list[tuple[str, str]]", headers)

    def set_body_reader(self) -> None:
        """gunicorn's method, called once the head is complete. Also raises HostUnclear."""
        hosts = [name for name, _ in self.headers].count("HOST")
        if hosts > 1 or (not hosts and self.version >= (1, 1)):
            raise HostUnclear
        super().set_body_reader()
        reader = self.body.reader
        if isinstance(reader, ChunkedReader):
            self.body = RequestBody(Chunks(self, cast(Wire, self.unreader)))
        elif isinstance(reader, LengthReader) and reader.length:
            self.body = RequestBody(reader)


Parser.mesg_class = HeadRequest


def _each_once(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    single = [name for name, _ in headers if name in _SINGLE]
    for name in single:
        if single.count(name) > 1:
            raise FieldTwice(name)
    return headers


class RequestBody(Body):
    """The body of a request that has one."""

    reader: LengthReader | Chunks

    @property
    def left(self) -> int | None:
        """The unread bytes of a body of known length; None for others."""
        reader = self.reader
        return reader.length + self.buf.tell() if isinstance(reader, LengthReader) else None

    def has_come(self, size: int) -> bool:
        """Whether exactly ``size`` bytes of a body of known length are unread, and all of them have
        been received."""
        reader = self.reader
        if not isinstance(reader, LengthReader) or self.left != size:
            return False
        return not self.buf.tell() and bool(reader.unreader.buf.tell() >= size)

    def has_much_left(self) -> bool:
        """Whether reading the rest costs more than a new connection."""
        reader = self.reader
        if isinstance(reader, LengthReader):
            return reader.length > DRAIN_BYTES_MAX
        return reader.parser is not None  # of unknown length


class Chunks(ChunkedReader):
    """gunicorn's reader of chunks, used only for chunks that are unusual or incomplete."""

    def __init__(self, request: HeadRequest, wire: Wire) -> None:
        super().__init__(request, wire)
        self.limit_chunk_size_line = _CHUNK_LINE_BYTES_MAX
        self.limit_trailer_section = _TRAILER_BYTES_MAX
        self._door = wire.door
        self._received = 0
        self._framing = -_FRAMING_BYTES  # bytes of framing, less this and those of content
        self._since_others = 0

    def parse_chunked(self, unreader: Any) -> Iterator[bytes]:  # type: ignore[override]
        """Yield the content of the chunks as it arrives."""
        data = b""
        while True:
            whole, end = _whole_chunks(data)
            if whole:
                held = b"".join(whole)
                self._count(len(whole), end, len(held))
                yield held
                data = data[end:]
            before = self._received
            size, rest = self.parse_chunk_size(unreader, data=data)
            if size == 0 or rest is None:
                return
            line = len(data) + self._received - before - len(rest)
            self._count(1, line + 2 + size, size)
            while size > len(rest):
                size -= len(rest)
                yield rest
                rest = unreader.read(None, read_ahead=size)
                if not rest:
                    raise NoMoreData
            yield rest[:size]
            rest = rest[size:]
            while len(rest) < 2:
                more = unreader.read()
                if not more:
                    break
                rest += more
            if rest[:2] != b"\r\n":
                raise ChunkMissingTerminator(rest[:2])
            data = rest[2:]

    def read_into(self, unreader: Any, buf: bytearray) -> None:
        before = len(buf)
        super().read_into(unreader, buf)  # type: ignore[misc]
        self._received += len(buf) - before

    def _count(self, chunks: int, wire_bytes: int, held_bytes: int) -> None:
        """Count ``wire_bytes``, of which ``held_bytes`` are content. Raises ChunkFraming."""
        self._framing += wire_bytes - 2 * held_bytes
        if self._framing > 0:
            raise ChunkFraming
        self._since_others += chunks
        if self._since_others >= _CHUNKS_AT_A_TIME:
            self._since_others = 0
            self._door.let_go_on()


def _whole_chunks(data: bytes) -> tuple[list[bytes], int]:
    """The content of the chunks at the start of ``data``, and where they end.

    It stops before the last chunk of a body and before any unusual one.
    """
    whole: list[bytes] = []
    end = 0
    while (line := _chunk_line(data, end)) is not None:
        begin = line.end()
        stop = begin + int(line[1], 16)
        if stop == begin or data[stop : stop + 2] != b"\r\n":
            break
        whole.append(data[begin:stop])
        end = stop + 2
    return whole, end
