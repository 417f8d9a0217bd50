"""What a program is made of: requests, and the catalog that they are about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from benchmarks.cost.choices import Choices
from benchmarks.cost.values import Json, Room

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
PATCH: Final = "application/json-patch+json"
EXTENDED: Final = "application/vnd.metadata.patch+json"
MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/vnd.metadata.apply+json"
# All that is made beforehand.
_SETUP_BYTES, _SETUP_VALUES = 12_000_000, 1_000_000


@dataclass(frozen=True)
class Request:
    """``as_reader``: by a principal that may only read. ``unread``: its answer isn't taken.

    ``keeps``: a header or a member of its answer, which later paths and headers name in braces.
    """

    method: str
    path: str
    body: bytes = b""
    content_type: str = ""
    as_reader: bool = False
    unread: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    keeps: str = ""

    @property
    def size_bytes(self) -> int:
        return (
            len(self.method)
            + len(self.path)
            + len(self.body)
            + 100
            + sum(len(name) + len(each) for name, each in self.headers)
        )

    @property
    def route(self) -> str:
        """The method and what the path is about."""
        parts = self.path.partition("?")[0].split("/")
        return f"{self.method} {'/'.join(parts[2:3] + parts[4:5])}"

    def __str__(self) -> str:
        body = self.body[:160].decode(errors="replace") + ("…" if len(self.body) > 160 else "")
        who = " (reader)" if self.as_reader else ""
        unread = " (unread)" if self.unread else ""
        headers = "".join(f" {name}: {each[:80]}" for name, each in self.headers)
        return (
            f"{self.method} {self.path[:200]}{headers} [{self.content_type}, {len(self.body):,} B]"
            f"{who}{unread} {body!r}"
        )


@dataclass
class Program:
    """``attack`` is sent one after the other, or ``at_once`` times at the same time."""

    setup: list[Request] = field(default_factory=list)
    attack: list[Request] = field(default_factory=list)
    at_once: int = 1


@dataclass
class World:
    """A catalog while its program is drawn: what later parts can speak of."""

    path: str
    choices: Choices
    document: Json = None
    keys: list[str] = field(default_factory=list)
    managers: int = 0
    commits: int = 0
    lists: list[dict[str, Json]] = field(default_factory=list)
    room: Room = field(default_factory=lambda: Room(_SETUP_VALUES, _SETUP_BYTES))
    requests: list[Request] = field(default_factory=list)

    def key(self) -> str:
        return self.choices.pick(self.keys[-3:] or ["k"])

    def send(self, method: str, path: str, body: Json = None, kind: str = JSON) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.requests.append(Request(method, f"{self.path}{path}", text, kind if text else ""))

    def send_lines(self, lines: Iterator[Json]) -> None:
        """As bulk requests of some megabytes."""
        piece: list[bytes] = []
        size = 0
        for line in lines:
            text = json.dumps({"catalog": self.path.split("/")[3], **line}).encode() + b"\n"
            piece.append(text)
            size += len(text)
            if size > 4_000_000:
                self.requests.append(Request("POST", "/v1/bulk", b"".join(piece), LINES))
                piece, size = [], 0
        if piece:
            self.requests.append(Request("POST", "/v1/bulk", b"".join(piece), LINES))


def request(
    method: str, path: str, query: dict[str, str], body: Json, content_type: str
) -> Request:
    path = f"{path}?{urlencode(query)}" if query else path
    return Request(method, path, json.dumps(body).encode(), content_type)
