"""A gateway of one catalog in this process, which can be made to misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

import patching
from tests.ports import own_port

EPOCH = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)


class Refused(Exception):
    def __init__(
        self, status: int, code: str, retry_after_s: int | None = None, **members: Any
    ) -> None:
        self.status = status
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        self.problem = {"status": status, "code": code, "detail": code, "applied": "no", **members}


@dataclass(frozen=True)
class Reply:
    """An answer with all that it has; ``content`` as bytes goes out as it is."""

    status: int
    content: Any
    headers: dict[str, str]


class FakeGateway:
    """Commit n is made at EPOCH + n seconds. Everything is guarded by ``changed``."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.commits: list[dict[str, Any]] = []
        self.states: list[dict[str | None, Any]] = [{}]
        self.floor = 0
        self.replies: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.hidden: set[int] = set()  # revisions that the feed leaves out
        self.page_documents = 1000
        # Called with (method, route) of each request; it may raise, Refused among others.
        self.before: Callable[[str, str], object] = lambda *_: None
        # Called after a transaction was done and before it is answered.
        self.before_answer: Callable[[], object] = lambda: None
        self._made = 0  # commits, those that are lost by now among them
        self._server: ThreadingHTTPServer | None = None
        self._port = own_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def head(self) -> int:
        return len(self.commits)

    def put(self, **documents: Any) -> int:
        return self.commit(dict(documents))

    def commit(self, after: dict[Any, Any], author: str = "me") -> int:
        """One commit that gives these keys these values, ABSENT deleting; {} is a touch."""
        with self.changed:
            state = dict(self.states[-1])
            revision = self.head + 1
            changes = []
            for key, value in after.items():
                before = state.get(key, patching.ABSENT)
                patch = patching.diff(before, value)
                action = "delete" if value is patching.ABSENT else "patch"
                if key is None:
                    action = "settings"
                changes.append(
                    {
                        "key": key,
                        "action": action,
                        "create_revision": revision,
                        "patch": patch,
                        "attributes": None,
                    }
                )
                state.pop(key, None)
                if value is not patching.ABSENT:
                    state[key] = value
            self.append(changes, author)
            self.states.append(state)
            self.changed.notify_all()
            return revision

    def append(self, changes: list[dict[str, Any]], author: str = "me") -> None:
        revision = self.head + 1
        self._made += 1
        self.commits.append(
            {
                "revision": revision,
                "time": (EPOCH + timedelta(seconds=revision)).isoformat(),
                "commit_id": f"id-{self._made}",
                "parent": self.commits[-1]["commit_id"] if self.commits else None,
                "author": author,
                "message": None,
                "idempotency_key": None,
                "attempts": 1,
                "changes": changes,
            }
        )

    def documents(self, revision: int | None = None, prefix: str = "") -> dict[str, Any]:
        state = self.states[self.head if revision is None else revision]
        return {key: value for key, value in state.items() if key and key.startswith(prefix)}

    def compact(self, revision: int) -> None:
        with self.changed:
            self.floor = revision
            self.changed.notify_all()

    def set_back(self, revision: int) -> None:
        with self.changed:
            del self.commits[revision:], self.states[revision + 1 :]
            self.changed.notify_all()

    # HTTP

    def start(self) -> Self:
        self._server = _Server(("127.0.0.1", self._port), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Connections that are open stay so until they are used."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            with self.changed:
                self._server = None
                self.changed.notify_all()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def answer(self, method: str, url: str, headers: Message, body: Any) -> Any:
        """What is sent as JSON with 200, or a Reply."""
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        route = parts.path.removeprefix("/v1/catalogs/c").strip("/")
        with self.changed:
            self.requests.append(f"{method} {route}?{parts.query}")
        self.before(method, route)
        if method == "POST":
            answer = self._transact(headers.get("Idempotency-Key"), body)
            self.before_answer()
            return answer
        if route == "changes" and query.get("initial") == "true":
            return self._state(query, headers.get("Last-Event-ID"))
        routes = {"": self._read, "export": self._export, "changes": self._changes}
        return (routes | {"commits": self._commits})[route](query)

    def _read(self, _: dict[str, str]) -> Any:
        with self.changed:
            self._require_written()
            time = self.commits[-1]["time"]
            settings = self.states[-1].get(None)
            return {"revision": self.head, "time": time, "settings": settings}

    def _export(self, query: dict[str, str]) -> Any:
        with self.changed:
            self._require_written()
            revision = int(query.get("revision", self.head))
            self._require_retained(revision)
            documents = self.documents(revision, query.get("prefix", ""))
            return {"resource_version": revision, "metadata": documents}

    def _state(self, query: dict[str, str], position: str | None) -> Any:
        """A page of ``page_documents`` at most."""
        with self.changed:
            number, _, after = (position or f"{self.head}/").partition("/")
            revision, after = int(number), unquote(after)
            self._require_retained(revision)
            if revision > self.head:
                raise Refused(404, "revision_not_found")
            there = sorted(self.documents(revision, query.get("prefix", "")).items())
            page = [each for each in there if each[0] > after][: self.page_documents]
            listed = [self._listed(key, value) for key, value in page]
            if position is None and self.states[revision].get(None) is not None:
                listed.insert(0, self._listed(None, self.states[revision][None]))
            answer = {"documents": listed, "commits": [], "revision": revision}
            if page != there[-len(page) :] and page:
                return {**answer, "position": f"{revision}/{quote(page[-1][0])}"}
            made = self.commits[revision - 1] if revision else {"time": None, "commit_id": None}
            synced = {name: made[name] for name in ("time", "commit_id")}
            return {
                **answer,
                "position": str(revision),
                "synced": {"revision": revision, **synced},
            }

    def _listed(self, key: str | None, value: Any) -> dict[str, Any]:
        return {"key": key, "etag": "1-a", "revision": 1, "create_revision": 1, "value": value}

    def _changes(self, query: dict[str, str]) -> Any:
        after, prefix = int(query["after"]), query.get("prefix", "")
        with_settings = query.get("include") == "settings"
        with self.changed:
            found = []
            server = self._server
            for _ in range(2):
                self._require_retained(after)
                made = self.commits[after - 1]["commit_id"] if 0 < after <= self.head else None
                if after > self.head or query.get("commit_id", made) != made:
                    raise Refused(404, "revision_not_found")
                found = [
                    commit
                    for commit in self.commits[after:]
                    if commit["revision"] not in self.hidden
                    and (_touches(commit, prefix) or (with_settings and _sets(commit)))
                ]
                if found:
                    break
                self.changed.wait(int(query["timeout"]))
                if self._server is not server:
                    raise ConnectionResetError
            revision = self.head if found or prefix else after
            made = self.commits[revision - 1]["commit_id"] if revision else None
            return {"commits": found, "revision": revision, "commit_id": made}

    def _commits(self, query: dict[str, str]) -> Any:
        after, limit = int(query["after"]), int(query["limit"])
        with self.changed:
            self._require_retained(after)
            page = self.commits[after : after + limit]
            more = page and page[-1]["revision"] < self.head
            return {"commits": page, "next": page[-1]["revision"] if more else None}

    def _transact(self, key: str | None, body: Any) -> Any:
        with self.changed:
            if key in self.replies:
                return self.replies[key or ""]
            if not all(map(self._is_true, body["compare"])):
                raise Refused(412, "precondition_failed", resource_version=self.head)
            after = {each["key"]: each["value"] for each in body["then"]}
            changed = any(self.states[-1].get(k) != v for k, v in after.items())
            if changed:
                self.commit(after)
            reply: dict[str, Any] = {
                "revision": self.head,
                "succeeded": True,
                "changed": changed,
                "commit_id": f"id-{self.head}" if changed else None,
                "attempts": 1,
                "results": [],
            }
            self.replies[key or ""] = reply
            return reply

    def _is_true(self, compare: Any) -> bool:
        if "resource_version" in compare:
            return bool(compare["resource_version"] == self.head)
        if "absent" in compare:
            return compare["key"] not in self.states[-1]
        changed = [
            change["key"]
            for commit in self.commits
            if commit["revision"] > compare["unchanged_since"]
            for change in commit["changes"]
        ]
        if "prefix" in compare:
            return not any(key.startswith(compare["prefix"]) for key in changed)
        return compare["key"] in self.states[-1] and compare["key"] not in changed

    def _require_written(self) -> None:
        if not self.head:
            raise Refused(404, "catalog_not_found")

    def _require_retained(self, revision: int) -> None:
        if revision < self.floor:
            raise Refused(410, "revision_compacted", oldest_revision=self.floor)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, *_: Any) -> None:
        """Doesn't print an error if the client has gone away."""


def _touches(commit: dict[str, Any], prefix: str) -> bool:
    return not prefix or any((c["key"] or "").startswith(prefix) for c in commit["changes"])


def _sets(commit: dict[str, Any]) -> bool:
    return any(change["key"] is None for change in commit["changes"])


def _handler(gateway: FakeGateway) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            try:
                answer = gateway.answer(self.command, self.path, self.headers, body)
                if not isinstance(answer, Reply):
                    answer = Reply(200, answer, {})
                self._send(answer, "application/json")
            except Refused as refused:
                reply = Reply(refused.status, refused.problem, refused.headers)
                self._send(reply, "application/problem+json")
            except ConnectionError:
                self.close_connection = True  # without an answer

        # the names that http.server calls
        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

        def _send(self, reply: Reply, media_type: str) -> None:
            content = reply.content
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            headers = {
                "Content-Type": media_type,
                "Content-Length": str(len(raw)),
                "Catalog-Revision": str(gateway.head),
                **reply.headers,
            }
            self.send_response(reply.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            """Tests are quiet."""

    return Handler
