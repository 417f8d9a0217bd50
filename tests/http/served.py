"""A real server on a real database, and requests to it as they go over the wire."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.patience import WAIT_S
from tests.service import RunningGateway


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
        """``path`` is sent as it is; a ``body`` that isn't bytes is sent chunked."""
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
def serving(mongodb_uri: str, database: str, **settings: Any) -> Iterator[Server]:
    """A gateway with two workers and without access control, stopped in the end."""
    with RunningGateway(mongodb_uri, database, **settings) as running:
        yield Server(running.port)
