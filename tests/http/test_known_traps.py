"""The known traps, over real HTTP and a real MongoDB: none is a 500, none changes anything."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.served import Server, serving
from tests.http.test_bodies import STORABLE, nested
from tests.http.test_names import KEYS
from tests.patience import WAIT_S
from tests.service import own_database

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


@pytest.fixture(scope="module")
def server(mongodb_uri: str) -> Iterator[Server]:
    limits = {"body_bytes_max": 100_000, "document_bytes_max": 50_000}
    with own_database(mongodb_uri) as database, serving(mongodb_uri, database, **limits) as running:
        yield running


class Document:
    """One document that exists at revision 1 of its own catalog."""

    VALUE: Any = {"a": 1, "list": [1, 2], "deep": {"x": None}, "~1": 1}  # noqa: RUF012

    def __init__(self, server: Server) -> None:
        self.server = server
        self.catalog = f"/v1/catalogs/{uuid.uuid4().hex}"
        self.path = f"{self.catalog}/documents/k"
        answer = self.send("PUT", json.dumps(self.VALUE).encode(), JSON)
        assert answer.status == 201, answer
        self.etag = answer.headers["ETag"]

    def send(self, method: str, body: Any = None, content_type: str = "", *headers: Any) -> Any:
        named = [("Content-Type", content_type)] if content_type else []
        return self.server.send(method, self.path, body, [*named, *headers])

    def is_untouched(self) -> bool:
        answer = self.send("GET")
        return (answer.json(), answer.headers["ETag"], answer.headers["Catalog-Revision"]) == (
            self.VALUE,
            self.etag,
            "1",
        )


@pytest.fixture
def document(server: Server) -> Document:
    return Document(server)


def operation(**members: Any) -> bytes:
    return json.dumps([{name.strip("_"): value for name, value in members.items()}]).encode()


PATCHES = {
    "true is not 1": (operation(op="test", path="/a", value=True), 409),
    "null is not absent": (operation(op="test", path="/nix", value=None), 409),
    "01 is no index": (operation(op="replace", path="/list/01", value=0), 409),
    "-1 is no index": (operation(op="remove", path="/list/-1"), 409),
    "1e0 is no index": (operation(op="remove", path="/list/1e0"), 409),
    "an index beyond the end": (operation(op="add", path="/list/3", value=0), 409),
    "- is only for add": (operation(op="remove", path="/list/-"), 409),
    "a scalar has no members": (operation(op="add", path="/a/b", value=0), 409),
    "~ escapes nothing else": (operation(op="remove", path="/~2"), 400),
    "a pointer begins with a slash": (operation(op="remove", path="a"), 400),
    "move into its own child": (operation(op="move", from_="/deep", path="/deep/x/y"), 400),
    "no such operation": (operation(op="increment", path="/a", value=1), 400),
    "no value": (operation(op="add", path="/b"), 400),
    "no path": (operation(op="remove"), 400),
    "no operation": (operation(path="/a"), 400),
    "an operation that is no object": (b"[1]", 400),
    "a patch that is no array": (b'{"op":"remove","path":"/a"}', 400),
    "a patch that is null": (b"null", 400),
    "NUL in a pointer": (operation(op="add", path="/b\0", value=1), 422),
    "a pointer that is too deep": (operation(op="test", path="/a" * 101, value=1), 422),
    "too many operations": (
        json.dumps([{"op": "test", "path": "/a", "value": 1}] * 1001).encode(),
        413,
    ),
    "copies that double": (
        json.dumps(
            [{"op": "add", "path": "/x", "value": ["x" * 1000]}]
            + [{"op": "copy", "from": "/x", "path": "/x/-"}] * 40
        ).encode(),
        413,
    ),
    "a result over the limit": (operation(op="add", path="/x", value="x" * 50_000), 413),
    "undone by a later test": (
        b'[{"op":"remove","path":"/a"},{"op":"test","path":"/a","value":1}]',
        409,
    ),
}


@pytest.mark.parametrize(("patch", "status"), PATCHES.values(), ids=PATCHES.keys())
def test_a_patch_that_is_refused_changes_nothing(
    document: Document, patch: bytes, status: int
) -> None:
    answer = document.send("PATCH", patch, JSON_PATCH)
    assert answer.status == status, answer.body
    assert answer.json()["applied"] == "no"
    assert document.is_untouched()


@pytest.mark.parametrize(
    "value",
    [
        *(json.loads(raw) for raw in STORABLE),
        json.loads(nested(100)),
        {"$ref": 1},
        {"$id": 1, "$db": 2},
        {"$ref": "a", "$id": "b"},
        {"a": {"$ref": "a", "$id": "b", "$db": "c", "d": 1}},
        {"$oid": "x"},
        {"$date": 0},
        {"$numberLong": "1"},
        {"$where": "x", "$expr": {"$eq": [1, 1]}},
        {"": {"": {"": 0}}},
        {"a.b": {"c.d": 1}, "a": {"b": 2}, ".": 3, "..": 4, "$": 5, "$$ROOT": 6},
        {"_id": 1, "content": {"_id": 2}, "__proto__": {}},
        {"0": 1, "1": [{"0": 2}]},
        {str(n): n for n in range(2000)},
        [],
        {},
        None,
        "\0\u2028\U0010ffff",
        [1, 1.0, -0.0, 5e-324, 1.7976931348623157e308, 2**53 + 1, -(2**63), 2**63 - 1, True],
    ],
)
def test_a_stored_value_is_read_back_unchanged(document: Document, value: Any) -> None:
    raw = json.dumps(value).encode()
    assert document.send("PUT", raw, JSON).status == 200
    answer = document.send("GET")
    assert (answer.status, json.dumps(answer.json())) == (200, json.dumps(value))
    # History keeps it in another form.
    then = document.server.send("GET", document.path + "?revision=2")
    assert json.dumps(then.json()) == json.dumps(value)
    if isinstance(value, dict) and value:
        beside = document.path.replace("/documents/", "/attributes/")
        assert document.server.send("PUT", beside, raw, [("Content-Type", JSON)]).status == 200
        for query in ("", "?revision=3"):
            kept = document.server.send("GET", beside + query).json()
            assert json.dumps(kept) == json.dumps(value)


@pytest.mark.parametrize("name", ["$set", "a.b", "$ref", "", "a~b/c", "😀", "0", "-"])
def test_members_of_any_name_are_patched(document: Document, name: str) -> None:
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    for op, value in (("add", 1), ("replace", {"$ref": 2}), ("test", {"$ref": 2})):
        patch = operation(op=op, path=pointer, value=value)
        answer = document.send("PATCH", patch, JSON_PATCH)
        assert answer.status == 200, answer.body
    assert document.send("GET").json()[name] == {"$ref": 2}
    assert document.send("PATCH", operation(op="remove", path=pointer), JSON_PATCH).status == 200
    assert document.send("GET").json() == document.VALUE


@pytest.mark.parametrize("key", [*KEYS, "k" * 1024, "é" * 512])
def test_keys_and_catalogs_are_arbitrary_text(server: Server, key: str) -> None:
    own = uuid.uuid4().hex
    name = own + (key if "\0" not in key and len(key) < 100 else "")
    path = f"/v1/catalogs/{quote(name, safe='')}/documents/{quote(key, safe='')}"
    written = server.send("PUT", path, b"1", [("Content-Type", JSON)])
    assert written.status == 201, written.body
    assert (written.json()["catalog"], written.json()["key"]) == (name, key)
    assert server.send("GET", written.headers["Location"]).json() == 1
    listed = server.send("GET", f"/v1/catalogs/{quote(name, safe='')}/commits").json()
    assert listed["commits"][0]["changes"][0]["key"] == key
    assert server.send("DELETE", path).status == 204
    assert server.send("GET", path).status == 404


@pytest.mark.parametrize("target", ["/v1/catalogs//documents/k", "/v1/catalogs/c/documents/%ff"])
def test_an_invalid_name_is_400(server: Server, target: str) -> None:
    assert server.send("GET", target).status == 400


@pytest.mark.parametrize(
    "target", ["/v1/catalogs/c/documents/../k", "//v1//catalogs", "http://[/", "/%", "*", "/\xe9"]
)
def test_an_odd_request_target_is_a_4xx(server: Server, target: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1"))
        status = int(connection.recv(1000).split()[1])
    assert 400 <= status < 500


# What a server makes of a header that comes twice, or has nothing in it.
CONDITIONS = [
    [("If-Match", "")],
    [("If-Match", '"a"'), ("If-Match", "b")],
    [("If-Unmodified-Since", "Fri, 06 Nov 2099 08:49:37 GMT")] * 2,
    [("Idempotency-Key", "")],
]
WRITES = [
    ("PUT", b"2", JSON),
    ("PATCH", operation(op="remove", path="/a"), JSON_PATCH),
    ("PATCH", b'{"a":2}', MERGE_PATCH),
    ("DELETE", None, ""),
]


@pytest.mark.parametrize("headers", CONDITIONS)
def test_a_bad_header_is_400_on_every_write(
    document: Document, headers: list[tuple[str, str]]
) -> None:
    for method, body, content_type in WRITES:
        answer = document.send(method, body, content_type, *headers)
        assert answer.status == 400, (method, answer.body)
    assert document.is_untouched()


@pytest.mark.parametrize("number", [0, 2**31, 2**53, 2**63 - 1, 2**63, 10**30])
def test_an_impossible_revision_causes_no_500(document: Document, number: int) -> None:
    for path in (
        f"{document.path}?revision={number}",
        f"{document.catalog}/commits/{number}",
        f"{document.catalog}/commits?after={number}",
        f"{document.catalog}/commits?after={number}&key=k",
    ):
        assert document.server.send("GET", path).status in (200, 400, 404), path


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999-23:59"])
def test_an_impossible_time_causes_no_500(document: Document, at: str) -> None:
    assert document.server.send("GET", f"{document.path}?at={at}").status in (200, 404)


def test_two_if_match_headers_count_as_one_list(document: Document) -> None:
    headers = [("If-Match", '"other"'), ("If-Match", document.etag)]
    assert document.send("PUT", b"2", JSON, *headers).status == 200


class TestBodySizes:
    def test_a_chunked_body_is_read(self, document: Document) -> None:
        answer = document.send("PUT", iter([b'{"b"', b":", b"[1]}"]), JSON)
        assert answer.status == 200, answer.body
        assert document.send("GET").json() == {"b": [1]}

    @pytest.mark.parametrize("chunked", [True, False])
    def test_a_body_over_the_limit_is_413(self, document: Document, chunked: bool) -> None:
        raw = b'"' + b"x" * 100_000 + b'"'
        body = iter([raw[start : start + 1000] for start in range(0, len(raw), 1000)])
        for method, content_type in (("PUT", JSON), ("PATCH", JSON_PATCH)):
            answer = document.send(method, body if chunked else raw, content_type)
            assert (answer.status, answer.json()["code"]) == (413, "body_too_large")
            body = iter([raw])
        assert document.is_untouched()

    @contextmanager
    def putting(
        self, document: Document, framing: str, body: bytes = b""
    ) -> Iterator[socket.socket]:
        """The head of a PUT is sent; what follows must not change the document."""
        head = f"PUT {document.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
        place = ("127.0.0.1", document.server.port)
        with socket.create_connection(place, timeout=WAIT_S) as connection:
            connection.sendall(f"{head}{framing}\r\n\r\n".encode() + body)
            yield connection
        assert document.is_untouched()

    def test_a_body_that_never_ends_is_answered(self, document: Document) -> None:
        """The answer comes while the client is still sending."""
        with self.putting(document, "Transfer-Encoding: chunked") as connection:
            for _ in range(101):
                connection.sendall(b"3e8\r\n" + b"1" * 1000 + b"\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")

    def test_a_content_length_over_the_limit_is_413_before_the_body(
        self, document: Document
    ) -> None:
        with self.putting(document, f"Content-Length: {10**15}") as connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")

    @pytest.mark.parametrize("length", ["-1", "x", "1.0", "+1", "0x2"])
    def test_an_invalid_content_length_is_400(self, document: Document, length: str) -> None:
        with self.putting(document, f"Content-Length: {length}", b"12") as connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")

    def test_a_truncated_body_is_not_accepted_as_complete(self, document: Document) -> None:
        """Its beginning is JSON by itself."""
        with self.putting(document, "Content-Length: 10", b"12") as connection:
            connection.shutdown(socket.SHUT_WR)
            status = connection.recv(1000).split()
            assert not status or status[1] == b"400"


def test_the_connection_stays_usable_after_every_kind_of_answer(document: Document) -> None:
    """An answer with a wrong Content-Length would spoil the next one."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", document.server.port, timeout=WAIT_S)
    for method, headers, status in (
        ("HEAD", {}, 200),
        ("GET", {"If-None-Match": "*"}, 304),
        ("GET", {"If-Match": '"x"'}, 412),
        ("HEAD", {"If-Match": '"x"'}, 412),
        ("OPTIONS", {}, 204),
        ("POST", {}, 405),
        ("DELETE", {"Prefer": "return=minimal"}, 204),
        ("HEAD", {}, 404),
        ("GET", {}, 404),
    ):
        connection.request(method, document.path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()
