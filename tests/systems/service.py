"""What the tests say to a running gateway, and what it answers, as it goes over the wire."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from tests.http.served import Answered, Server
from tests.patience import WAIT_S

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
EXTENDED_PATCH: Final = "application/vnd.metadata.patch+json"
NDJSON: Final = "application/x-ndjson"

# How tokens are sent: in quotes. Everything else is sent as given.
_TAGS = ("if_match", "if_none_match")
_NOTHING: Final = object()
_Result = TypeVar("_Result")


def add(path: str, value: Any) -> dict[str, Any]:
    """An operation of a patch."""
    return {"op": "add", "path": path, "value": value}


def put(key: str, value: Any) -> dict[str, Any]:
    """An action of a transaction."""
    return {"action": "put", "key": key, "value": value}


class Answer(Answered):
    """`token` is the entity tag without its quotes, `revision` the catalog's after the request."""

    @property
    def token(self) -> str:
        return str(self.headers["ETag"]).strip('"')

    @property
    def revision(self) -> int:
        return int(self.headers["Catalog-Revision"])

    @property
    def attempts(self) -> int:
        return int(self.headers["Attempts"])

    def done(self, status: int = 200) -> Any:
        """The body's content; the answer must have this status."""
        assert self.status == status, (self.status, self.body[:2000])
        return self.json() if self.body else None

    def refused(self, status: int, code: str) -> dict[str, Any]:
        """The problem, which must have this status and code, and say that nothing was applied."""
        problem = json.loads(self.body or b"null")
        assert (self.status, problem and problem["code"]) == (status, code), (self.status, problem)
        assert self.headers["Content-Type"] == "application/problem+json"
        assert problem["applied"] == "no"
        assert problem["detail"]
        return dict(problem)


class Service(Server):
    """A gateway at a port of this machine. Every request has a connection of its own."""

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return Answer(*super().send(method, path, body, (headers or {}).items()))

    def send_and_hang_up(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> None:
        """Send, and cut the connection off without waiting for an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request(method, path, body, dict(headers))
        connection.close()

    def bulk(self, *lines: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The lines of the answer to these lines, in order."""
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        answer = self.send("POST", "/v1/bulk", body, {"Content-Type": NDJSON})
        assert answer.status == 200, answer
        told = [json.loads(line) for line in answer.body.splitlines()]
        assert [line["index"] for line in told] == list(range(len(lines)))
        return told


class Catalog:
    """The routes of one catalog.

    Keyword arguments are headers (`if_match="1f-…"`, `prefer="wait=0"`), `query` is a mapping of
    parameters, where a list stands for a parameter that is given repeatedly.
    """

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        self.name = name
        self.path = f"/v1/catalogs/{quote(name, safe='')}"

    # Documents and attributes

    def get(self, key: str, query: Any = None, **headers: Any) -> Answer:
        return self.send("GET", self._document(key), query=query, **headers)

    def put(self, key: str, value: Any, query: Any = None, **headers: Any) -> Answer:
        return self.send("PUT", self._document(key), value, query=query, **headers)

    def patch(self, key: str, *operations: Any, query: Any = None, **headers: Any) -> Answer:
        """A JSON Patch."""
        path = self._document(key)
        return self.send("PATCH", path, operations, query=query, content_type=JSON_PATCH, **headers)

    def merge(self, key: str, value: Any, **headers: Any) -> Answer:
        return self.send("PATCH", self._document(key), value, content_type=MERGE_PATCH, **headers)

    def extended(
        self, key: str, *operations: Any, array_primary_keys: Any = None, **headers: Any
    ) -> Answer:
        """An extended patch."""
        body: dict[str, Any] = {"patch": operations}
        if array_primary_keys is not None:
            body["array_primary_keys"] = array_primary_keys
        return self.send("PATCH", self._document(key), body, content_type=EXTENDED_PATCH, **headers)

    def delete(self, key: str, query: Any = None, **headers: Any) -> Answer:
        return self.send("DELETE", self._document(key), query=query, **headers)

    def get_attributes(self, key: str) -> Answer:
        return self.send("GET", self._attributes(key))

    def put_attributes(self, key: str, value: Any, **headers: Any) -> Answer:
        return self.send("PUT", self._attributes(key), value, **headers)

    # The catalog

    def several(self, *keys: str) -> Answer:
        """Documents at one revision; the token of the answer is their composite."""
        return self.send("GET", "/documents", query={"key": keys})

    def export(self, query: Any = None) -> dict[str, Any]:
        return dict(self.send("GET", "/export", query=query).done())

    def touch(self, query: Any = None, **headers: Any) -> Answer:
        return self.send("POST", "/touch", query=query, **headers)

    def settings(self, value: Any) -> Answer:
        return self.send("PUT", "", value)

    def head(self) -> dict[str, Any]:
        """Where the catalog is: revision, floor, time."""
        return dict(self.send("GET", "").done())

    @property
    def revision(self) -> int:
        return int(self.head()["revision"])

    def transaction(
        self,
        *then: Mapping[str, Any],
        compare: Sequence[Mapping[str, Any]] = (),
        otherwise: Sequence[Mapping[str, Any]] | None = None,
        query: Any = None,
        **headers: Any,
    ) -> Answer:
        body: dict[str, Any] = {"compare": compare, "then": then}
        if otherwise is not None:
            body["else"] = otherwise
        return self.send("POST", "/transactions", body, query=query, **headers)

    # History and feed

    def commits(self, after: int = 0, key: str | None = None) -> list[dict[str, Any]]:
        """All commits above `after`, by revision."""
        told: list[dict[str, Any]] = []
        query: dict[str, Any] = {"limit": 1000} | ({} if key is None else {"key": key})
        more: int | None = after
        while more is not None:
            page = self.send("GET", "/commits", query={**query, "after": more}).done()
            told += page["commits"]
            more = page["next"]
        return told

    def commit(self, revision: int) -> dict[str, Any]:
        return dict(self.send("GET", f"/commits/{revision}").done())

    def outcome(self, idempotency_key: str) -> Answer:
        return self.send("GET", f"/outcomes/{quote(idempotency_key, safe='')}")

    def changes(self, after: int, **query: Any) -> Answer:
        """One long poll of the feed."""
        return self.send("GET", "/changes", query={"after": after, "timeout": 0, **query})

    def pin(self, **asked: Any) -> Answer:
        return self.send("POST", "/pins", asked)

    def compact(self, revision: int) -> Answer:
        return self.send("POST", "/compactions", {"revision": revision})

    # Two-phase replace

    def open_upload(self, key: str, **asked: Any) -> Answer:
        return self.send("POST", "/uploads", {"key": key, **asked})

    def part(self, upload: str, number: int, content: bytes) -> Answer:
        path = f"{self.path}/uploads/{upload}/parts/{number}"
        headers = {"Content-Type": "application/octet-stream"}
        return self.service.send("PUT", path, content, headers)

    def commit_upload(self, upload: str) -> Answer:
        return self.send("POST", f"/uploads/{upload}/commit", {})

    def uploaded(self, key: str, value: Any, **asked: Any) -> str:
        """The id of an upload that is open and has its content, in two parts."""
        upload = str(self.open_upload(key, **asked).done(201)["upload"])
        content = json.dumps(value).encode()
        half = len(content) // 2
        self.part(upload, 1, content[:half]).done()
        self.part(upload, 2, content[half:]).done()
        return upload

    # The wire

    def send(
        self,
        method: str,
        path: str,
        body: Any = _NOTHING,
        *,
        query: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        **headers: Any,
    ) -> Answer:
        return self.service.send(*self.request(method, path, body, query, content_type, **headers))

    def request(
        self,
        method: str,
        path: str,
        body: Any = _NOTHING,
        query: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        **headers: Any,
    ) -> tuple[str, str, bytes | None, dict[str, str]]:
        """The request as `Service.send` takes it; ``path`` begins behind the catalog's."""
        sent = {name.replace("_", "-"): _written(name, text) for name, text in headers.items()}
        content = None
        if body is not _NOTHING:
            content = json.dumps(body).encode()
            sent["Content-Type"] = content_type
        asked = "?" + urlencode(query, doseq=True) if query else ""
        return method, self.path + path + asked, content, sent

    def _document(self, key: str) -> str:
        return f"/documents/{quote(key, safe='')}"

    def _attributes(self, key: str) -> str:
        return f"/attributes/{quote(key, safe='')}"


def _written(header: str, text: str) -> str:
    return f'"{text}"' if header in _TAGS and text != "*" else text


class Feed:
    """Server-sent events of one catalog, read as they come; a context that ends the stream."""

    def __init__(self, catalog: Catalog, after: int, *, resume: bool = False) -> None:
        """`resume`: `after` goes as `Last-Event-ID`, as a browser sends it."""
        self._position = after
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", catalog.service.port, timeout=WAIT_S
        )
        headers = {"Accept": "text/event-stream"}
        if resume:
            headers["Last-Event-ID"] = str(after)
        query = "" if resume else f"?after={after}"
        self._connection.request("GET", f"{catalog.path}/changes{query}", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def events(self) -> Iterator[tuple[str, Any]]:
        """(event, data) until the server ends it; an event's id is the revision that it tells."""
        told: dict[str, str] = {}
        while line := self._answer.readline().decode():
            name, _, text = line.rstrip("\r\n").partition(": ")
            if name:
                told[name] = text
                continue
            if "data" in told:
                data = json.loads(told["data"])
                assert told["event"] == "end" or told["id"] == str(data["revision"])
                yield told["event"], data
            told = {}

    def commits(self, count: int) -> list[dict[str, Any]]:
        """The next `count` commits. A bookmark must not pass any that was not told."""
        told: list[dict[str, Any]] = []
        for event, data in self.events() if count else ():
            assert event != "end", data
            if event == "commit":
                told.append(data)
                self._position = data["revision"]
            assert data["revision"] == self._position, f"told up to {self._position}, not {data}"
            if len(told) == count:
                return told
        assert not count, f"the feed ended after {len(told)} of {count} commits"
        return told


def side_by_side(calls: Iterable[Callable[[], _Result]]) -> list[_Result]:
    """The results, in order, of calls that were let go at the same moment."""
    waiting = list(calls)
    start = threading.Barrier(len(waiting))

    def run(call: Callable[[], _Result]) -> _Result:
        start.wait(WAIT_S)
        return call()

    with ThreadPoolExecutor(len(waiting)) as pool:
        return list(pool.map(run, waiting))


def statuses(answers: Iterable[Answer]) -> list[int]:
    return sorted(answer.status for answer in answers)
