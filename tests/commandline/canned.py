"""A server that gives the answers of a test, or hangs up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Reply = tuple[int, Any] | None


class Canned:
    """``reply`` is given each request, and returns status and content, or None to hang up."""

    def __init__(self, reply: Callable[[Asked], Reply]) -> None:
        self.asked: list[Asked] = []
        canned = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked = Asked(self.command, self.path, dict(self.headers), sent)
                canned.asked.append(asked)
                replied = reply(asked)
                if replied is None:
                    self.close_connection = True
                    return
                status, content = replied
                body = json.dumps(content).encode() + b"\n"
                kind = "problem+json" if status >= 400 else "json"
                self.send_response(status)
                self.send_header("Content-Type", f"application/{kind}")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Catalog-Revision", "1")
                self.send_header("ETag", '"1-aa"')
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def problem(status: int, code: str, **members: Any) -> Reply:
    applied = "unknown" if status == 504 else "no"
    base = {"type": "about:blank", "title": code, "status": status, "detail": f"about {code}"}
    retryable = status in (429, 503)
    return status, {**base, "code": code, "applied": applied, "retryable": retryable, **members}
