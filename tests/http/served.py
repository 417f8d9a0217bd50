"""A real server on a real database, and requests to it as they go over the wire."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.patience import WAIT_S


class Answered(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    def __init__(self, port: int) -> None:
        self.port = port

    def send(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> Answered:
        """``path`` goes out as it is; a ``body`` that is no bytes goes out chunked."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            chunked = body is not None and not isinstance(body, bytes)
            if chunked:
                connection.putheader("Transfer-Encoding", "chunked")
            elif isinstance(body, bytes):
                connection.putheader("Content-Length", str(len(body)))
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders(body, encode_chunked=chunked)
            answer = connection.getresponse()
            return Answered(answer.status, answer.headers, answer.read())
        finally:
            connection.close()


@contextmanager
def serving(mongodb_uri: str, database: str, *flags: str) -> Iterator[Server]:
    """``gateway serve`` with two workers and without access control, stopped in the end."""
    command = [sys.executable, "-m", "gateway.cli", "serve", "--bind=127.0.0.1:0"]
    command += ["--workers=2", "--no-access"]
    process = subprocess.Popen(
        [*command, f"--mongodb-uri={mongodb_uri}", f"--database={database}", *flags],
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"ready at http://[^ ]*:(\d+) ", line)
        assert found, f"the server said {line!r}"
        yield Server(int(found[1]))
    finally:
        process.terminate()
        process.wait(WAIT_S)
