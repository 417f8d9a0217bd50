"""A gateway's front, which a test can have do something before it passes a request on."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import psutil

from tests.patience import WAIT_S

_OF_A_CONNECTION = {"connection", "transfer-encoding", "content-length"}


class Passing:
    """Listens at ``url``; calls ``before(method, path, client port)`` for each request, and
    ``after`` with the same before its answer is passed on. ``told(client port, content)`` is called
    for each answer, too."""

    def __init__(self, port: int) -> None:
        self.before: Callable[[str, str, int], None] = lambda *_: None
        self.after: Callable[[str, str, int], None] = lambda *_: None
        self.told: Callable[[int, bytes], None] = lambda *_: None
        self.asked: list[str] = []
        passing = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length) if length else None
                passing.asked.append(f"{self.command} {self.path}")
                passing.before(self.command, self.path, self.client_address[1])
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
                sent = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
                connection.request(self.command, self.path, body, sent)
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                passing.told(self.client_address[1], content)
                passing.after(self.command, self.path, self.client_address[1])
                self._answer(answer, content)

            do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

            def _answer(self, answer: http.client.HTTPResponse, content: bytes) -> None:
                try:
                    self.send_response_only(answer.status)
                    for name, value in answer.getheaders():
                        if name.lower() not in _OF_A_CONNECTION:
                            self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:  # whoever asked is gone
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def process_at(port: int) -> psutil.Process:
    """The one that has a connection from this port of the machine."""
    for each in psutil.net_connections("tcp"):
        if each.laddr and each.laddr[1] == port and each.pid is not None:
            return psutil.Process(each.pid)
    raise AssertionError(f"no process is connected from port {port}")
