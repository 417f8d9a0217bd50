"""A server of `/v1/bulk` that follows a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUSY = {"code": "queue_full", "status": 429, "applied": "no", "retryable": True}
LATE = {"code": "deadline_exceeded", "status": 503, "applied": "no", "retryable": True}
LOST = {"code": "outcome_unknown", "status": 504, "applied": "unknown", "retryable": False}
FALSE = {"code": "test_failed", "status": 409, "applied": "no", "retryable": False}
CUT = {"code": "malformed_request", "status": 400, "applied": "no", "retryable": False}


class Scripted:
    """Answers each request by the next of ``script``: a function from its lines to the answers'
    contents, where None breaks the connection off; or the status, headers and problem of all."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.requests: list[list[str]] = []  # the keys of their lines
        self.lines: list[list[dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                whole = [json.loads(line) for line in body.splitlines()]
                lines = [line["key"] for line in whole]
                scripted.lines.append(whole)
                scripted.headers.append(dict(self.headers.items()))
                scripted.requests.append(lines)
                step = scripted.script.pop(0) if scripted.script else all_applied
                if callable(step):
                    self.answer(step(lines))
                else:
                    self.refuse(*step)

            def refuse(self, status: int, headers: dict[str, str], problem: Any) -> None:
                content = json.dumps(problem).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/problem+json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def answer(self, contents: list[Any]) -> None:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for index, content in enumerate(contents):
                    if content is None:
                        self.close_connection = True
                        return
                    line = json.dumps({"index": index, **content}).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


APPLIED = {"status": 200, "changed": True}


def problem(content: dict[str, Any]) -> dict[str, Any]:
    return {"status": content["status"], "problem": content}


def all_applied(lines: list[str]) -> list[Any]:
    return [APPLIED] * len(lines)


def by_key(**contents: Any) -> Callable[[list[str]], list[Any]]:
    return lambda lines: [contents.get(key, APPLIED) for key in lines]
