"""A client of the feed as simple as it gets: an event stream over a connection of its own."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from tests.patience import WAIT_S

_HEADERS = {"Accept": "text/event-stream"}


class Event(NamedTuple):
    name: str
    id: Any  # a revision, as an int; a position in a list, as text; None
    data: Any


class EventStream:
    """Entered, it is connected; iterated, it gives the events until the stream ends."""

    def __init__(self, port: int, path: str, *, timeout_s: float = WAIT_S, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        self._connection.request("GET", path, headers=_HEADERS | named)
        self.response = self._connection.getresponse()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Event]:
        return events(iter(self.response.readline, b""))

    def until(self, name: str) -> Event:
        return next(event for event in self if event.name == name)


def events(lines: Iterator[bytes]) -> Iterator[Event]:
    """As the HTML specification has it, for what is sent here: each field is one line."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
            continue
        if "data" in fields:
            place: Any = fields.get("id", "")
            place = int(place) if place.isdecimal() else place or None
            yield Event(fields.get("event", "message"), place, json.loads(fields["data"]))
        fields = {}


class Follower:
    """Follows a catalog as a browser does: it connects again from the last event that it received.

    ``commits`` are those that it received, in the order of arrival, and ``times`` when each
    arrived; ``ended`` are the codes of ends.
    """

    def __init__(self, port: Callable[[], int], path: str, **headers: str) -> None:
        self.commits: list[Any] = []
        self.times: list[float] = []
        self.ended: list[str] = []
        self.connected = 0
        self.unexpected: list[str] = []
        self._port = port
        self._path = path
        self._headers = headers
        self._position: int | None = None
        self._stopped = False
        self._stream: EventStream | None = None
        self._thread = threading.Thread(target=self._run)

    @property
    def position(self) -> int:
        """The revision that it has come to."""
        return self._position or 0

    @property
    def revisions(self) -> list[int]:
        return [commit["revision"] for commit in self.commits]

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        if self._stream is not None:
            with suppress(OSError, AttributeError):
                self._stream._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            with suppress(OSError, http.client.HTTPException):
                self._follow()

    def _follow(self) -> None:
        headers = dict(self._headers)
        if self._position is not None:
            headers["Last_Event_ID"] = str(self._position)
        with EventStream(self._port(), self._path, **headers) as stream:
            self._stream = stream
            if stream.response.status != 200:
                if stream.response.status != 503:
                    self.unexpected.append(stream.response.read().decode())
                return
            self.connected += 1
            for event in stream:
                if event.name == "end":
                    self.ended.append(event.data["code"])
                if event.name == "commit":
                    self.times.append(time.monotonic())
                    self.commits.append(event.data)
                if event.id is not None:
                    self._position = event.id
