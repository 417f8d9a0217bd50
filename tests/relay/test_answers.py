"""The answer of a receiver is bounded, however much it sends and however fast."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from gateway.relay.posting import Deliverer, Undelivered
from gateway.runtime import ThreadRuntime
from tests.patience import WAIT_S


@contextmanager
def answering(start: bytes, piece: bytes = b"") -> Iterator[str]:
    """The URL of a receiver that answers with ``start`` and then, without an end, ``piece``."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError), listening.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(start)
                while piece:
                    connection.sendall(piece)
                # Closed with anything unread, it would be reset, and the answer be lost.
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/in"


def deliver(url: str) -> None:
    Deliverer(ThreadRuntime(), deadline_s=WAIT_S).post(url, b"{}", {}, lambda: True)


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1000),
        (b"HTTP/1.1 204 No Content\r\n", b"A: " + b"b" * 60_000 + b"\r\n"),
    ],
)
def test_an_endless_answer_is_abandoned_at_its_size_limit(start: bytes, piece: bytes) -> None:
    """While there is always something to read, no other code runs, and no deadline takes effect."""
    with answering(start, piece) as url, pytest.raises(Undelivered, match="larger than 65536"):
        deliver(url)


def test_interim_answers_are_skipped() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    with answering(b"HTTP/1.1 100 Continue\r\n\r\n" + hints + b"HTTP/1.1 204 OK\r\n\r\n") as url:
        deliver(url)
    with answering(hints + b"HTTP/1.1 500 No\r\n\r\n") as url, pytest.raises(Undelivered) as failed:
        deliver(url)
    assert failed.value.code == "answered_500"


def test_a_body_is_not_read() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536) as url:
        deliver(url)


def test_the_reason_why_a_receiver_is_unreachable_is_in_words_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]  # nobody listens there afterwards
    with pytest.raises(Undelivered) as raised:
        deliver(f"http://127.0.0.1:{port}/in")
    assert (raised.value.code, raised.value.detail) == ("unreachable", "Connection refused")


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
    ],
)
def test_a_truncated_answer_counts_as_none(start: bytes) -> None:
    """A proxy that died in the middle of it, for one, or a deadline that cut it off."""
    with answering(start) as url, pytest.raises(Undelivered) as failed:
        deliver(url)
    assert (failed.value.code, failed.value.detail) == (
        "unreachable",
        "the connection ended before the answer",
    )


@pytest.mark.parametrize(
    "start", [b"SSH-2.0-secret_1\r\n", b"HTTP/1.1 OK secret\r\n\r\n", b"secret/9 200 OK\r\n\r\n"]
)
def test_an_answer_that_is_not_http_is_not_quoted(start: bytes) -> None:
    with answering(start) as url, pytest.raises(Undelivered) as failed:
        deliver(url)
    assert (failed.value.code, failed.value.detail) == ("unreachable", "the answer isn't HTTP")


def test_the_reason_of_a_receiver_is_shown_as_plain_text() -> None:
    start = b"HTTP/1.1 503 No \x1b[31m \xe2\x80\xae\r\n\r\n"
    with answering(start) as url, pytest.raises(Undelivered) as failed:
        deliver(url)
    assert failed.value.detail == "the receiver answered 503 No ?[31m ???"


@pytest.mark.parametrize(
    ("status", "code"),
    [(b"429", "answered_429"), (b"204", "unreachable")],
    ids=["refused", "taken"],
)
def test_a_refusal_counts_though_the_receiver_took_only_the_head(status: bytes, code: str) -> None:
    """An answer that all went well doesn't: the receiver can't have the events."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            with listening.accept()[0] as connection:
                connection.recv(64)
                connection.sendall(b"HTTP/1.1 %b No\r\nRetry-After: 7\r\n\r\n" % status)

        threading.Thread(target=refuse, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/in"
        body = bytes(32 << 20)  # more than the buffers on the way take
        with pytest.raises(Undelivered) as failed:
            Deliverer(ThreadRuntime(), deadline_s=WAIT_S).post(url, body, {}, lambda: True)
    assert failed.value.code == code
    assert failed.value.retry_after_s == (7 if code == "answered_429" else 0)
