"""The text of a failed connection is for people: no object, no error within an error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from patching.client import Gateway, Retry, Unreachable
from tests.ports import refusing_url

ONCE = Retry(retries_max=0)
CUT = b""
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"
NONSENSE = b"nonsense\r\n\r\n"


def is_whole(request: bytes) -> bool:
    """Whether all of the request has arrived. A write ends with its JSON, a read with its head."""
    return request.endswith(b"\r\n\r\n" if request.startswith(b"GET") else b"}")


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that answers everything by ``answer`` and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                received = b""
                while not is_whole(received) and (piece := connection.recv(65536)):
                    received += piece
                connection.sendall(answer)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (CUT, "Connection aborted: Remote end closed connection without response"),
        (SHORT, "Connection broken: cut off after 2 bytes; 8 more were expected"),
        (NONSENSE, "Connection aborted: nonsense"),
    ],
)
def test_a_truncated_answer(answer: bytes, said: str) -> None:
    with answering(answer) as url, Gateway(url, retry=ONCE) as gateway:
        with pytest.raises(Unreachable) as refused:
            gateway.catalog("c").put("k", {})
        assert str(refused.value) == f"PUT {url}/v1/catalogs/c/documents/k: {said}"


def test_a_refused_connection() -> None:
    url = refusing_url()
    with Gateway(url, retry=ONCE) as gateway, pytest.raises(Unreachable) as refused:
        gateway.catalog("c").get("k")
    said = "Failed to establish a new connection: Connection refused"
    assert str(refused.value) == f"GET {url}/v1/catalogs/c/documents/k: {said}"


def test_an_unknown_host() -> None:
    with Gateway("http://none.invalid", retry=ONCE) as gateway:
        with pytest.raises(Unreachable) as refused:
            gateway.catalog("c").get("k")
        assert ": Failed to resolve 'none.invalid' (" in str(refused.value)
        assert "host=" not in str(refused.value)
        assert "Errno" not in str(refused.value)
