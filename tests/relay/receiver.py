"""A receiver of what subscriptions are sent, that a test has behave as badly as it likes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.patience import WAIT_S
from tests.ports import own_port

Events = list[dict[str, Any]]


class Post(NamedTuple):
    path: str
    headers: Message
    body: bytes

    @property
    def events(self) -> Events:
        content = json.loads(self.body)
        return content if isinstance(content, list) else [content]


class Receiver:
    """``posts`` are all that were answered, ``events`` those that it has taken (2xx). ``asked``
    counts them when they come.

    ``answer`` decides about each: the status, None: the connection breaks without an answer, before
    or (a negative status) after it was taken. It may take its time.
    """

    def __init__(self, answer: Callable[[Post], int | None] = lambda _: 204) -> None:
        self.answer = answer
        self.headers: dict[str, str] = {}
        self.asked = 0
        self.posts: list[Post] = []
        self.events: Events = []
        self.port = own_port()
        self.tls: ssl.SSLContext | None = None
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}/in?a=b"

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", self.port), _handler(self))
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def wait_for(self, is_there: Callable[[Receiver], object]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: is_there(self), WAIT_S):
                raise AssertionError([post.body[:300] for post in self.posts[-5:]])

    def wait_for_commits(self, revision: int) -> None:
        """Until it has taken all up to there."""
        self.wait_for(lambda it: revision in it.revisions)

    @property
    def revisions(self) -> list[int]:
        return [each["data"]["revision"] for each in self.of("commit")]

    def of(self, kind: str) -> Events:
        return [each for each in self.events if each["type"] == f"metadata-gateway.{kind}"]

    def take(self, post: Post) -> int | None:
        with self._changed:
            self.asked += 1
        status = self.answer(post)
        with self._changed:
            self.posts.append(post)
            if status is not None and (status < 0 or 200 <= status < 300):
                self.events += post.events
            self._changed.notify_all()
        return None if status is not None and status < 0 else status


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, *_: Any) -> None:
        """A client that went away is no news."""


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(Post(self.path, self.headers, body))
            if status is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - what a redirect that is followed would ask with

        def log_message(self, *_: Any) -> None:
            """Tests are quiet."""

    return Handler


def is_signed(post: Post, secret: str) -> bool:
    """As Standard Webhooks has receivers verify it; written down apart from what signs."""
    sent_s = int(post.headers["webhook-timestamp"])
    if abs(time.time() - sent_s) > 300:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = b".".join((post.headers["webhook-id"].encode(), str(sent_s).encode(), post.body))
    digest = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return f"v1,{digest}" in post.headers["webhook-signature"].split(" ")
