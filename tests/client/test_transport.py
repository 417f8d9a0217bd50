"""One request: what goes out, and which exception says what came back."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any

import pytest

from patching.client import (
    BulkTerms,
    Busy,
    ClientError,
    Conflict,
    Gateway,
    Gone,
    NotAuthorized,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Problem,
    Retry,
    Unreachable,
    aio,
)
from patching.client._blocking import exchanged
from patching.client._steps import SendOnce
from patching.client.errors import (
    BadRequest,
    Invalid,
    OverLimit,
    PreconditionRequired,
    Unavailable,
    UnexpectedAnswer,
)
from patching.client.transport import Transport, segment
from tests.client.fake_documents import Opens
from tests.patience import WAIT_S
from tests.ports import refusing_url


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A client that went away is no news."""


class Server:
    """Answers each request with ``answer``, and notes the requests."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.peers: list[tuple[str, int]] = []
        self.hold = threading.Event()
        self.hold.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.peers.append(self.client_address)
                server.asked.append((self.command, self.path, dict(self.headers), body))
                server.hold.wait(WAIT_S)
                status, headers, content = server.answer
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - what http.server calls

            wbufsize = -1  # an answer goes out at once, not its head first

            def log_message(self, *_: Any) -> None:
                """Tests are quiet."""

        self.http = _QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.http.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.hold.set()
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def transport(server: Server) -> Iterator[Transport]:
    with Transport(server.url) as transport:
        yield transport


PROBLEM = {"Content-Type": "application/problem+json; charset=utf-8"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, NotAuthorized),
        (403, NotAuthorized),
        (404, NotFound),
        (405, BadRequest),
        (409, Conflict),
        (410, Gone),
        (412, PreconditionFailed),
        (413, OverLimit),
        (414, OverLimit),
        (415, BadRequest),
        (422, Invalid),
        (428, PreconditionRequired),
        (429, Busy),
        (500, Problem),
        (503, Unavailable),
        (504, OutcomeUnknown),
    ],
)
def test_the_status_of_a_problem_selects_the_exception(
    server: Server, transport: Transport, status: int, kind: type[Problem]
) -> None:
    body = b'{"code":"some_code","detail":"why","applied":"no","retryable":true,"pointer":"/a"}'
    server.answer = (status, PROBLEM | {"Retry-After": "3"}, body)
    with pytest.raises(Problem) as raised:
        transport.request("POST", "/x", json={})
    error = raised.value
    assert type(error) is kind
    assert (error.status, error.code, error.detail) == (status, "some_code", "why")
    assert (error.applied, error.retryable, error.retry_after_s) == ("no", True, 3.0)
    assert error.problem["pointer"] == "/a"


@pytest.mark.parametrize("status", [302, 400, 429, 500, 502])
def test_a_response_without_a_problem_leaves_the_outcome_of_a_write_unknown(
    server: Server, transport: Transport, status: int
) -> None:
    head = {"Content-Type": "text/html", "Location": "/y", "Retry-After": "3"}
    server.answer = (status, head, b"<p>proxy</p>")
    with pytest.raises(UnexpectedAnswer, match="proxy") as raised:
        transport.request("POST", "/x", json={})
    assert (raised.value.status, raised.value.applied) == (status, "unknown")
    assert (raised.value.retryable, raised.value.retry_after_s) == (status in (429, 502), 3.0)
    with pytest.raises(UnexpectedAnswer) as raised:
        transport.request("GET", "/x")
    assert raised.value.applied == "no"
    assert len(server.asked) == 2


def test_a_body_that_is_not_json_is_unexpected(server: Server, transport: Transport) -> None:
    server.answer = (200, {}, b'{"a": ')
    with pytest.raises(UnexpectedAnswer):
        transport.request("GET", "/x").json()
    server.answer = (503, PROBLEM, b"[]")
    with pytest.raises(UnexpectedAnswer):
        transport.request("GET", "/x")


SHAPES = [b"null", b"[]", b"{}", b'"x"']
MEMBERS = "documents commits catalogs owners losses differences changes results pins revision"
SHAPES += [
    json.dumps(dict.fromkeys(MEMBERS.split(), value) | {"next": None, "applied": True}).encode()
    for value in (None, [5], [{}])
]


def test_an_answer_of_an_unexpected_shape_is_a_client_error(server: Server) -> None:
    """A proxy's, say. What is raised for it is what callers catch."""
    with Gateway(server.url, retry=Retry(retries_max=0)) as gateway:
        c = gateway.catalog("c")
        calls: list[Callable[[], Any]] = [
            lambda: c.get("k"),
            lambda: c.attributes.get("k"),
            lambda: c.put("k", 1),
            lambda: c.delete("k"),
            lambda: c.apply("k", {}, manager="m"),
            lambda: c.owners("k"),
            lambda: list(c.lost_by("m")),
            lambda: c.let_go("k", manager="m"),
            lambda: c.update("k", lambda value: value),
            lambda: c.several(["a"]),
            lambda: c.transact({"then": []}),
            lambda: list(c.documents()),
            lambda: list(c.keys()),
            lambda: list(c.digests()),
            lambda: list(c.export()),
            lambda: list(c.commits()),
            lambda: c.commit(1),
            lambda: list(c.differences(1)),
            lambda: c.revert(1),
            lambda: c.outcome("k"),
            lambda: c.read(),
            lambda: c.pins(),
            lambda: c.settings.lists(),
            lambda: c.settings.put({}),
            lambda: c.touch(),
            lambda: c.delete_catalog(),
            lambda: c.compact(1),
            lambda: list(gateway.catalogs()),
            lambda: list(c.changes(0, follow=False)),
            lambda: list(c.changes(initial=True, follow=False).documents),
            lambda: c.uploads.replace("k", [b"1"]),
            lambda: gateway.follower("c").start().stop(),
        ]
        for shape in SHAPES:
            server.answer = (200, {}, shape)
            for call in calls:
                with suppress(ClientError):
                    call()


@pytest.mark.parametrize("asked", ["99999999999", "9" * 400])
def test_an_absurd_retry_after_does_not_stop_a_follower(server: Server, asked: str) -> None:
    """A proxy's. A thread can't sleep for so long."""
    problem = b'{"code":"overloaded","detail":"","applied":"no","retryable":true}'
    server.answer = (503, PROBLEM | {"Retry-After": asked}, problem)
    with Transport(server.url) as transport, pytest.raises(Unavailable) as raised:
        transport.request("GET", "/x")
    pause_s = raised.value.retry_after_s
    assert pause_s is not None
    assert pause_s < threading.TIMEOUT_MAX


def test_integers_of_any_size_are_kept(server: Server, transport: Transport) -> None:
    server.answer = (200, {}, b"[9223372036854775807, 123456789012345678901234567890]")
    assert transport.request("GET", "/x").json() == [2**63 - 1, 123456789012345678901234567890]


def test_a_request_that_was_not_sent_was_not_applied() -> None:
    with Transport(refusing_url()) as transport, pytest.raises(Unreachable) as raised:
        transport.request("POST", "/x", json={})
    assert (raised.value.applied, raised.value.retryable) == ("no", True)


def test_a_request_without_an_answer_in_time_has_an_unknown_outcome(
    server: Server, transport: Transport
) -> None:
    server.hold.clear()
    with pytest.raises(Unreachable) as raised:
        transport.request("POST", "/x", json={}, read_timeout_s=0.1)
    assert raised.value.applied == "unknown"


def test_the_error_of_a_truncated_refusal_names_the_url(
    server: Server, transport: Transport
) -> None:
    server.answer = (503, {"Content-Length": "99", "Connection": "close"}, b"{}")
    with pytest.raises(Unreachable, match=f"^GET {server.url}/x: "):
        transport.open("GET", "/x")


def test_closing_ends_waiting_requests(
    server: Server, transport: Transport, eventually: Callable[..., Any]
) -> None:
    server.hold.clear()
    ended: list[Exception] = []

    def ask() -> None:
        try:
            transport.request("GET", "/x")
        except Unreachable as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: server.asked)
    transport.close()
    thread.join(WAIT_S)
    assert len(ended) == 1
    with pytest.raises(Unreachable):
        transport.request("GET", "/x")


def test_the_token_is_read_again_for_each_request(server: Server) -> None:
    tokens = iter(["one", "two"])
    with Transport(server.url, token=lambda: next(tokens)) as transport:
        transport.request("GET", "/x")
        transport.request("GET", "/x")
    sent = [headers["Authorization"] for _, _, headers, _ in server.asked]
    assert sent == ["Bearer one", "Bearer two"]


def test_names_are_sent_percent_encoded(server: Server, transport: Transport) -> None:
    for name, path in (("a/b", "a%2Fb"), ("..", "%2E%2E"), (".", "%2E"), ("é;=", "%C3%A9%3B%3D")):
        transport.request("GET", f"/v1/{segment(name)}/x", query=[("key", "a b&+"), ("n", 1)])
        assert server.asked[-1][1] == f"/v1/{path}/x?key=a%20b%26%2B&n=1"


def test_the_gateway_may_be_below_a_path(server: Server) -> None:
    with Transport(server.url + "/below/") as transport:
        transport.request("GET", "/x")
    assert server.asked[-1][1] == "/below/x"


@pytest.mark.parametrize("url", ["ftp://h", "h:80", "http://", "http://h?q=1", "http://h#f"])
def test_invalid_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Transport(url)


@pytest.mark.parametrize("kind", [Transport, Gateway, aio.Gateway])
def test_an_unknown_argument_of_a_connection_is_named(kind: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'tokne'"):
        kind("http://127.0.0.1:9", tokne="secret")


class TestSeveral:
    def test_an_unreachable_gateway_is_skipped(self, server: Server) -> None:
        with Transport(f"{refusing_url()}, {server.url}/") as transport:
            for _ in range(2):
                assert transport.request("POST", "/a", json=1).json() == {}
        assert [path for _, path, *_ in server.asked] == ["/a", "/a"]

    def test_a_request_that_broke_off_is_not_repeated_and_the_next_one_uses_another_gateway(
        self, server: Server
    ) -> None:
        with running() as first, Transport(f"{first.url},{server.url}") as transport:
            first.answer = (200, {"Content-Length": "99", "Connection": "close"}, b"{}")
            with pytest.raises(Unreachable) as told:
                transport.request("POST", "/a", json=1)
            assert told.value.applied == "unknown"
            assert transport.request("POST", "/b", json=1).json() == {}
        assert [path for _, path, *_ in first.asked] == ["/a"]
        assert [path for _, path, *_ in server.asked] == ["/b"]

    def test_a_call_ends_if_every_gateway_is_unreachable(self) -> None:
        with Transport(f"{refusing_url()},{refusing_url()}") as transport:
            with pytest.raises(Unreachable) as told:
                transport.request("POST", "/a", json=1)
            assert told.value.applied == "no"

    def test_every_address_must_be_a_url(self) -> None:
        with pytest.raises(ValueError, match="'ftp://b'"):
            Transport("http://a,ftp://b")


_ANSWERS = {
    "with a length": b'HTTP/1.1 200 OK\r\nETag: "12-a"\r\nContent-Length: 2\r\n\r\n{}',
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "of no content": b"HTTP/1.1 204 No Content\r\nCatalog-Revision: 12\r\n\r\n",
    "of a refusal": b"HTTP/1.1 409 Conflict\r\nDate: x\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("takes", ["whole", "lines", "stream"])
@pytest.mark.parametrize("answer", _ANSWERS.values(), ids=_ANSWERS)
def test_an_answer_truncated_in_its_head_counts_as_lost(answer: bytes, takes: Any) -> None:
    """At whichever byte. It isn't one without content, or with half a revision: the request may be
    sent again under its key."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        for length in range(answer.index(b"\r\n\r\n") + len(b"\r\n\r\n")):

            def cut_off(head: bytes = answer[:length]) -> None:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(head)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65_536):  # what is unread at a close resets it
                        pass

            threading.Thread(target=cut_off, daemon=True).start()
            step = SendOnce("PUT", "/k", body=b"1", takes=takes)
            with Transport(url) as transport, pytest.raises(Unreachable) as lost:
                exchanged(transport, step)
            assert (lost.value.applied, lost.value.retryable) == ("unknown", True), answer[:length]


@pytest.fixture
def answering() -> Iterator[Callable[..., str]]:
    """The URL of a server that says some bytes for each request, and then closes."""
    with ExitStack() as listeners:

        def listen(*answers: bytes) -> str:
            listening = listeners.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve() -> None:
                left = list(answers)
                while left:
                    connection, _ = listening.accept()
                    with connection:
                        while left and connection.recv(65_536):
                            connection.sendall(left.pop(0))
                listening.close()

            threading.Thread(target=serve, daemon=True).start()
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield listen


def test_interim_answers_are_skipped(answering: Callable[..., str], opens: Opens) -> None:
    """Else the answer would be that of the connection's next request."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    found = b'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nETag: "1-a"\r\nCatalog-Revision: 1\r\n\r\n'
    with opens(answering(early + found + b"1", found + b"2")) as gateway:
        assert [gateway.catalog("c").get("k").value for _ in range(2)] == [1, 2]


def test_a_protocol_switch_means_an_unknown_outcome(
    answering: Callable[..., str], opens: Opens
) -> None:
    switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    once = Retry(retries_max=0)
    with opens(answering(switched), retry=once) as gateway, pytest.raises(Unreachable) as lost:
        gateway.catalog("c").put("k", 1)
    assert lost.value.applied == "unknown"


def test_both_clients_ask_for_uncompressed_answers(server: Server, opens: Opens) -> None:
    server.answer = (200, {"ETag": '"1-a"', "Catalog-Revision": "1"}, b"1")
    with opens(server.url) as gateway:
        gateway.catalog("c").get("k")
    _, _, headers, _ = server.asked[0]
    assert {name.lower(): value for name, value in headers.items()}["accept-encoding"] == "identity"


def test_headers_given_by_the_caller_override_others_in_any_case(
    server: Server, opens: Opens
) -> None:
    server.answer = (200, {"ETag": '"1-a"', "Catalog-Revision": "1"}, b"1")
    own = {"accept-encoding": "gzip", "ACCEPT": "application/json, */*"}
    with opens(server.url, headers=own) as gateway:
        gateway.catalog("c").get("k")
    _, _, headers, _ = server.asked[0]
    sent = [(name.lower(), value) for name, value in headers.items()]
    for name, value in own.items():
        assert [each for each in sent if each[0] == name.lower()] == [(name.lower(), value)]


def test_an_answer_compressed_by_a_proxy_is_read(server: Server, opens: Opens) -> None:
    """Whole answers, and those that are streamed."""
    as_it_was = {"Content-Encoding": "gzip", "ETag": '"1-a"', "Catalog-Revision": "1"}
    server.answer = (200, as_it_was, gzip.compress(b'{"metadata": {"k": 1}}'))
    line = {"catalog": "c", "key": "k", "op": "put", "value": 1}
    with opens(server.url) as gateway:
        assert gateway.catalog("c").get("k").value == {"metadata": {"k": 1}}
        with gateway.catalog("c").export() as export:
            assert list(export) == [("k", 1)]
        applied = {"index": 0, "status": 200, "etag": "1-a", "revision": 1, "changed": True}
        server.answer = (200, as_it_was, gzip.compress(json.dumps(applied).encode() + b"\n"))
        assert [each.changed for each in gateway.bulk([line])] == [True]


_ANSWERED = [b'{"index":%d,"status":200,"changed":true}\n' % index for index in range(3)]


def _cut_off() -> Iterator[tuple[bytes, int]]:
    """The lines in two chunks, with the boundary at every byte of the second one or of its ends,
    cut off at every byte for some of these, and soon behind the boundary for all; and how many
    lines came whole."""
    body, begin = b"".join(_ANSWERED), len(_ANSWERED[0])
    end = begin + len(_ANSWERED[1])
    for at in range(begin, end + 1):
        first = b"%x\r\n%b" % (at, body[:at])
        before = b"\r\n%x\r\n" % (len(body) - at)
        text = first + before + body[at:]
        behind = len(first + before)
        everywhere = at in (begin, (begin + end) // 2, end)
        for length in range(len(text) + 1) if everywhere else range(behind - 6, behind + 7):
            came = body[: min(at, max(0, length - len(first) + at))]
            came += body[at : at + max(0, length - behind)]
            yield text[:length], came.count(b"\n")


def test_complete_lines_of_a_truncated_answer_count(opens: Opens) -> None:
    """And the others count as lost: what came of a line is none."""
    answers: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(answers.pop())

        def log_message(self, *_: Any) -> None:
            pass

    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    line = {"catalog": "c", "op": "put", "value": 1}
    lines = [{**line, "key": key} for key in "abc"]
    terms = BulkTerms(retry=Retry(retries_max=0))
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with opens(f"http://127.0.0.1:{server.server_port}") as gateway:
            for text, came in _cut_off():
                answers.append(head + text)
                told = list(gateway.bulk(lines, terms))
                assert [each.changed for each in told] == [at < came for at in range(3)], text
                for each in told[came:]:
                    assert isinstance(each.error, Unreachable), text
        server.shutdown()


def test_a_closed_client_does_not_retry(server: Server) -> None:
    """Whoever waits for its threads would wait for all of their retries."""
    gateway = Gateway(server.url)
    gateway.close()
    with pytest.raises(Unreachable, match="the client was closed") as late:
        gateway.catalog("c").put("k", 1)
    assert (late.value.applied, late.value.retryable) == ("no", False)

    async def closed() -> None:
        gateway = aio.Gateway(server.url)
        await gateway.close()
        await gateway.catalog("c").put("k", 1)

    with pytest.raises(Unreachable, match="the client was closed") as late:
        asyncio.run(closed())
    assert (late.value.applied, late.value.retryable) == ("no", False)


def test_closing_ends_a_call_under_way_without_a_retry(server: Server) -> None:
    server.hold.clear()
    errors: list[Unreachable] = []

    def call() -> None:
        with pytest.raises(Unreachable) as broken:
            gateway.catalog("c").get("k")
        errors.append(broken.value)

    retry = Retry(answer_s=None, on_retry=lambda _: pytest.fail("again"))
    gateway = Gateway(server.url, retry=retry)
    thread = threading.Thread(target=call)
    thread.start()
    while not server.asked:
        assert thread.is_alive()
    gateway.close()
    thread.join(WAIT_S)
    assert [(each.applied, each.retryable) for each in errors] == [("no", False)]
    assert "the client was closed" in str(errors[0]), "and not what the connection says of it"


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
@pytest.mark.parametrize("client", [Gateway, aio.Gateway])
def test_an_invalid_timeout_is_named(client: Any, timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s must be more than 0"):
        client("http://127.0.0.1:1", timeout_s=timeout_s)
