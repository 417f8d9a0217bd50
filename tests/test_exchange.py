"""The bytes of an answer, and the environment that its application sees."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest
from gunicorn.config import Config
from gunicorn.http.errors import ParseException
from gunicorn.http.message import Request
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.server.exchange import Exchange, environ_of_connection
from gateway.server.parsing import HeadRequest, Parser

FIVE: Final = [("Content-Length", "5")]
JSON: Final = ("Content-Type", "application/json")


class Open:
    """A door that lets everything in."""

    def let_in(self, start: bytes) -> None: ...

    def head_goes_on(self) -> None: ...

    def let_go_on(self) -> None: ...


class Connection(list[bytes]):
    """What is sent, piece by piece; ``received`` is what comes."""

    sendall = list.append

    def __init__(self, received: bytes) -> None:
        super().__init__()
        self._received = io.BytesIO(received)

    def recv(self, size: int) -> bytes:
        return self._received.read(size)

    def gettimeout(self) -> None: ...

    def settimeout(self, seconds: float | None) -> None: ...


def application(
    status: str, headers: list[tuple[str, str]], body: Iterable[bytes]
) -> Callable[..., Iterable[bytes]]:
    def run(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        seen.append(environ.copy())
        start_response(status, headers)
        return body

    seen: list[dict[str, Any]] = []
    run.seen = seen  # type: ignore[attr-defined]
    return run


def exchange(
    received: bytes, answers: Callable[..., Iterable[bytes]], *, is_last: bool = False
) -> tuple[Connection, Exchange]:
    connection = Connection(received)
    request = next(Parser(Config(), connection, ("10.0.0.1", 7), Open()))
    done = Exchange(request, connection, is_last=is_last)  # type: ignore[arg-type]
    listener, sender = ("127.0.0.1", 8080), ("10.0.0.1", 7)
    base = environ_of_connection(listener, sender, connection, encrypted=False)
    done.run(answers, base)
    return connection, done


def get(answers: Callable[..., Iterable[bytes]], line: str = "GET / HTTP/1.1") -> list[bytes]:
    """What is sent, without the lines that every answer has."""
    connection, _ = exchange(f"{line}\r\nHost: x\r\n\r\n".encode(), answers)
    first, *others = connection
    return [re.sub(rb"(Server|Date): [^\r]*\r\n", b"", first), *others]


def test_the_head_is_sent_with_the_first_part_of_the_body() -> None:
    assert get(application("200 OK", FIVE, [b"he", b"llo"])) == [
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhe",
        b"llo",
    ]


def test_a_body_without_a_length_is_sent_in_chunks() -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = get(application("200 OK", [], [b"", b"hello, world", b"", b"!"]))
    assert sent == [head, b"C\r\nhello, world\r\n", b"1\r\n!\r\n", b"0\r\n\r\n"]


def test_for_an_http_1_0_client_the_end_of_the_connection_ends_the_body() -> None:
    sent = get(application("200 OK", [], [b"hello"]), "GET / HTTP/1.0")
    assert sent == [b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello"]


@pytest.mark.parametrize(
    ("line", "status", "head"),
    [
        ("HEAD / HTTP/1.1", "200 OK", b"Content-Length: 5\r\n"),
        ("GET / HTTP/1.1", "304 Not Modified", b"Content-Length: 5\r\n"),
        ("GET / HTTP/1.1", "204 No Content", b""),
    ],
)
def test_an_answer_without_a_body_sends_none(line: str, status: str, head: bytes) -> None:
    sent = get(application(status, FIVE, [b"hello"]), line)
    began = f"HTTP/1.1 {status}\r\nConnection: keep-alive\r\n".encode()
    assert sent == [began + head + b"\r\n"]


def test_nothing_is_sent_beyond_the_content_length() -> None:
    assert b"".join(get(application("200 OK", FIVE, [b"hel", b"lo, world", b"!"])))[-5:] == b"hello"


def test_the_connection_ends_after_an_answer_shorter_than_its_length() -> None:
    received = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    _, short = exchange(received, application("200 OK", FIVE, [b"hel"]))
    assert short.is_last
    _, whole = exchange(received, application("200 OK", FIVE, [b"hel", b"lo"]))
    assert not whole.is_last
    _, head = exchange(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", application("200 OK", FIVE, []))
    assert not head.is_last


def test_an_answer_without_a_body_part_is_only_a_head() -> None:
    (head,) = get(application("200 OK", [("Content-Length", "0")], []))
    assert head.endswith(b"Content-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        ("200 OK", [("A", "b\r\nSet-Cookie: c")]),
        ("200 OK", [("A", "b\nc")]),
        ("200 OK", [("A", "b\0")]),
        ("200 OK", [("A", "ř")]),
        ("200 OK", [("A b", "c")]),
        ("200 OK", [("A\r\nB", "c")]),
        ("200 OK", [("", "c")]),
        ("200 OK\r\nA: b", []),
        ("OK", []),
    ],
)
def test_an_invalid_status_or_header_sends_nothing(
    status: str, headers: list[tuple[str, str]]
) -> None:
    connection = Connection(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    request = next(Parser(Config(), connection, ("10.0.0.1", 7), Open()))
    done = Exchange(request, connection, is_last=False)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="aren't valid HTTP"):
        done.run(application(status, headers, [b"hello"]), {})
    assert connection == []
    assert not done.has_begun


def test_an_answer_that_has_begun_cannot_be_replaced() -> None:
    def twice(_: Any, start_response: Callable[..., Any]) -> Iterator[bytes]:
        start_response("200 OK", FIVE)
        yield b"hel"
        error = LookupError("a defect")
        start_response("500 Internal Server Error", [], (LookupError, error, None))

    connection = Connection(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    request = next(Parser(Config(), connection, ("10.0.0.1", 7), Open()))
    done = Exchange(request, connection, is_last=False)  # type: ignore[arg-type]
    with pytest.raises(LookupError):
        done.run(twice, {})
    assert len(connection) == 1


def test_an_application_can_begin_only_one_answer() -> None:
    def twice(_: Any, start_response: Callable[..., Any]) -> list[bytes]:
        start_response("200 OK", FIVE)
        start_response("200 OK", FIVE)
        return [b"hello"]

    with pytest.raises(AssertionError):
        get(twice)


@pytest.mark.parametrize(
    ("head", "is_last"),
    [("", False), ("Connection: close\r\n", True), ("Connection: keep-alive\r\n", False)],
)
def test_the_connection_ends_if_the_client_asks(head: str, is_last: bool) -> None:
    received = f"GET / HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode()
    connection, done = exchange(received, application("200 OK", FIVE, [b"hello"]))
    assert done.is_last == is_last
    assert (b"Connection: close" in connection[0]) == is_last


def test_the_connection_ends_if_much_of_a_body_is_unread() -> None:
    received = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    connection, done = exchange(received, application("413 Too Large", FIVE, [b"hello"]))
    assert done.is_last
    assert b"Connection: close" in connection[0]


def test_a_client_that_expects_100_continue_gets_it() -> None:
    received = b"PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n"
    connection, _ = exchange(received, application("200 OK", FIVE, [b"hello"]))
    assert connection[0] == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_the_environment_follows_pep_3333() -> None:
    answers = application("200 OK", FIVE, [b"hello"])
    exchange(
        b"PUT /a%2Fb/%C3%A4?c=d HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
        b"Content-Length: 2\r\nIf-Match: a\r\nX-Y: 1\r\nIf-Match: b\r\n\r\nhi",
        answers,
    )
    (environ,) = answers.seen  # type: ignore[attr-defined]
    assert environ["wsgi.input"].read(5) == b"hi"
    told = {name: environ[name] for name in environ if name.isupper()}
    del told["SERVER_SOFTWARE"]
    assert told == {
        "REQUEST_METHOD": "PUT",
        "RAW_URI": "/a%2Fb/%C3%A4?c=d",
        "PATH_INFO": "/a/b/\u00c3\u00a4",
        "QUERY_STRING": "c=d",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8080",
        "REMOTE_ADDR": "10.0.0.1",
        "REMOTE_PORT": "7",
        "SCRIPT_NAME": "",
        "HTTP_HOST": "x",
        "CONTENT_TYPE": "text/plain",
        "CONTENT_LENGTH": "2",
        "HTTP_IF_MATCH": "a,b",
        "HTTP_X_Y": "1",
    }


NAMES = st.sampled_from(
    ["Host", "host", "A-b", "A_b", "Expect", "Content-Type", "", " A", "A:", "é"]
)
VALUES = st.text(st.sampled_from("ab ,\t\0\x7f\xff:\n"), max_size=6)
LINES = st.builds("{}:{}".format, NAMES, VALUES) | st.text(st.sampled_from("a :\t"), max_size=4)


@given(st.lists(LINES, min_size=1, max_size=5))
@example(["Host: x", "Host: x"])
@example(["Expect: 100-continue"])
@example(["Expect: nothing"])
@example(["A: b", " folded"])
@example(["A: " + "b" * 300, "B:  c\t "])
@example(["A: b"] * 200)
def test_cached_header_lines_are_parsed_as_gunicorn_parses_them(lines: list[str]) -> None:
    data = "\r\n".join(lines).encode("latin-1")

    def parsed(kind: type[Request]) -> object:
        request = object.__new__(kind)
        request.cfg, request.version, request.scheme = Config(), (1, 1), "http"
        request.peer_addr = ("10.0.0.1", 7)
        request.limit_request_fields, request.limit_request_field_size = 64, 8190
        request._expected_100_continue = False  # type: ignore[attr-defined]
        try:
            headers = request.parse_headers(data)
        except ParseException as error:
            return type(error), str(error)
        return headers, request._expected_100_continue  # type: ignore[attr-defined]

    assert parsed(HeadRequest) == parsed(Request)
