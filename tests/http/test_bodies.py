"""Bodies: what can't be parsed, held or taken is refused with its place, before any write."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Unstorable
from gateway.http import create_app
from gateway.http.wire import body as bodies
from gateway.http.wire.body import decode_patch, decode_value, require_few_values, require_storable
from gateway.http.wire.codes import RequestRefused
from gateway.limits import RequestLimits
from gateway.service import GatewayService
from tests.http.conftest import JSON_PATCH, MERGE_PATCH, Catalog, problem

JSON = "application/json"
LIMITS = RequestLimits(depth_max=5)

MALFORMED = [
    b"",
    b" ",
    b"{",
    b"[1,]",
    b"{'a': 1}",
    b'{"a": 1} x',
    b"\xef\xbb\xbf1",
    b'"\xff"',
    b'"a\x00b"',
    b'"\x1f"',
    b'"\\x"',
    b"01",
    b"+1",
    b".5",
    b"tru",
    # Python's JSON has these; RFC 8259, section 6, doesn't.
    b"NaN",
    b'{"a": [1, NaN]}',
    b'{"a": Infinity}',
    b'{"a": -Infinity}',
    b'{"a": 1, "b": {"c": "\\ud800"}, "d": NaN}',
]

UNSTORABLE = [
    (b'{"a": 1e400}', "/a"),
    (b'{"a": -1e400}', "/a"),
    (b'{"a": ' + b"9" * 400 + b".5}", "/a"),
    (b'{"a": 9223372036854775808}', "/a"),
    (b'{"a": -9223372036854775809}', "/a"),
    (b'{"a": ' + b"9" * 5000 + b"}", "/a"),
    (b'{"a": "\\ud800"}', "/a"),
    (b'{"a": "\\udc00\\ud800"}', "/a"),
    (b'{"a": {"b\\u0000": 1}}', "/a"),
    (b'{"a": {"\\ud800": 1}}', "/a"),
    (b'{"~/": 1e400}', "/~0~1"),
    (b"1e400", ""),
]

STORABLE = [
    *(b"9223372036854775807", b"-9223372036854775808", b'"9999999999999999999999"', b'"\\u0000"'),
    *(b'["\\\\u0000"]', b"0.1234567890123456789012345", b"1e308"),
    *(b'{"$set": {"a.b": {"": {"$ref": 1}}}}', b'"\\ud83d\\ude00"', b'"[[[[[[[[[[[[[[[["'),
]


@pytest.mark.parametrize("raw", MALFORMED)
@pytest.mark.parametrize(
    ("method", "content_type"), [("PUT", JSON), ("PATCH", JSON_PATCH), ("PATCH", MERGE_PATCH)]
)
def test_malformed_json_is_400(
    catalog: Catalog, method: str, content_type: str, raw: bytes
) -> None:
    catalog.put(1)
    problem(catalog.send(method, raw, content_type), 400, "malformed_json")
    assert catalog.head_revision() == 1


def test_the_position_of_malformed_json_is_named(catalog: Catalog) -> None:
    content = problem(catalog.send("PUT", b'{"a":\n 1 2}', JSON), 400, "malformed_json")
    assert "line 2 column 4" in content["detail"]
    content = problem(catalog.send("PUT", b'{"a": "\xff"}', JSON), 400, "malformed_json")
    assert "byte 7" in content["detail"]


@pytest.mark.parametrize(("raw", "pointer"), UNSTORABLE)
def test_an_unstorable_value_is_422_with_its_pointer(
    catalog: Catalog, raw: bytes, pointer: str
) -> None:
    catalog.put({"x": 1})
    for method, content_type in (("PUT", JSON), ("PATCH", MERGE_PATCH)):
        content = problem(catalog.send(method, raw, content_type), 422, "unstorable_value")
        assert content["pointer"] == pointer
    patch = b'[{"op":"test","path":"/x","value":1},{"op":"add","path":"/x","value":' + raw + b"}]"
    content = problem(catalog.send("PATCH", patch, JSON_PATCH), 422, "unstorable_value")
    assert (content["pointer"], content["operation"]) == (f"/x{pointer}", 1)
    assert catalog.head_revision() == 1


@pytest.mark.parametrize("raw", STORABLE)
def test_values_that_only_look_unstorable_are_stored(catalog: Catalog, raw: bytes) -> None:
    assert catalog.send("PUT", raw, JSON).status_code == 201
    assert catalog.get().get_json() == json.loads(raw)
    patch = b'[{"op":"add","path":"","value":[' + raw + b"]}]"
    assert catalog.send("PATCH", patch, JSON_PATCH).status_code == 200
    assert catalog.get().get_json() == [json.loads(raw)]


@pytest.mark.parametrize("member", ["path", "from"])
def test_a_pointer_with_nul_is_refused(catalog: Catalog, member: str) -> None:
    catalog.put({"x": 1, "a": 1})
    operation = {"op": "copy", "from": "/a", "path": "/b", member: "/x\0"}
    problem(catalog.patch(operation), 422, "unstorable_value")
    assert catalog.head_revision() == 1


def test_a_lone_surrogate_in_a_pointer_is_422(catalog: Catalog) -> None:
    catalog.put({})
    raw = b'[{"op":"add","path":"/\\ud800","value":1}]'
    problem(catalog.send("PATCH", raw, JSON_PATCH), 422, "unstorable_value")


def test_an_infinity_in_an_ignored_member_is_refused_too(catalog: Catalog) -> None:
    catalog.put({})
    raw = b'[{"op":"remove","path":"/a","note":1e400}]'
    content = problem(catalog.send("PATCH", raw, JSON_PATCH), 422, "unstorable_value")
    assert content["pointer"] == "/0/note"


def test_nan_is_malformed_json_and_the_refusal_names_its_position(catalog: Catalog) -> None:
    raw = b'{"a": "NaN",\n "b\\"NaN": -Infinity}'
    content = problem(catalog.send("PUT", raw, JSON), 400, "malformed_json")
    assert content["detail"] == (
        "the body is not JSON: JSON has no -Infinity: line 2 column 12 (char 24)"
    )


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize("levels", [101, 900, 5000, 200_000])
@pytest.mark.parametrize("closed", [True, False])
def test_nesting_beyond_the_limit_is_422(catalog: Catalog, levels: int, closed: bool) -> None:
    catalog.put({})
    value = nested(levels) if closed else b"[" * levels
    patch = b'[{"op":"add","path":"/a","value":' + value + (b"}]" if closed else b"")
    answers = [
        catalog.send("PUT", value, JSON),
        catalog.send("PATCH", value, MERGE_PATCH),
        catalog.send("PATCH", patch, JSON_PATCH),
    ]
    for answer in answers:
        # Releases of Python differ in how deep they read before they see that the end is missing.
        if closed or answer.status_code == 422:
            assert problem(answer, 422, "nesting_too_deep")["limit"] == "depth_max"
        else:
            problem(answer, 400, "malformed_json")
    assert catalog.head_revision() == 1


def test_nesting_up_to_the_limit_is_stored(catalog: Catalog) -> None:
    assert catalog.send("PUT", nested(100), JSON).status_code == 201
    assert catalog.send("PUT", b"[" + b"[]," * 200 + b"[]]", JSON).status_code == 200


def test_nesting_in_a_patch_counts_from_the_root(catalog: Catalog) -> None:
    catalog.put({"a": {}})
    value = json.loads(nested(99))
    problem(catalog.patch({"op": "add", "path": "/a/b", "value": value}), 422, "nesting_too_deep")


class TestSize:
    def test_a_body_over_the_limit_is_413(self, small_catalog: Catalog) -> None:
        raw = b'"' + b"x" * 199 + b'"'
        content = problem(small_catalog.send("PUT", raw, JSON), 413, "body_too_large")
        assert (content["limit"], content["maximum"], content["actual"]) == (
            "body_bytes_max",
            200,
            201,
        )

    def test_a_body_at_the_limit_is_taken(self, small_catalog: Catalog) -> None:
        raw = b" " * 199 + b"1"
        assert small_catalog.send("PUT", raw, JSON).status_code == 201

    def test_a_document_over_the_limit_is_413(self, small_catalog: Catalog) -> None:
        assert small_catalog.put("x" * 98).status_code == 201
        content = problem(small_catalog.put("x" * 99), 413, "over_limit")
        assert (content["limit"], content["maximum"], content["actual"]) == (
            "document_bytes_max",
            100,
            101,
        )

    def test_numbers_count_with_their_stored_size(self, small_catalog: Catalog) -> None:
        """1e15 takes four bytes as it is sent, and eighteen in the document."""
        raw = b"[" + b",".join([b"1e15"] * 10) + b"]"
        problem(small_catalog.send("PUT", raw, JSON), 413, "over_limit")

    def test_the_size_is_checked_before_the_search(self, small_catalog: Catalog) -> None:
        raw = json.dumps({"\0": "x" * 150}).encode()
        problem(small_catalog.send("PUT", raw, JSON), 413, "over_limit")

    def test_a_wide_value_is_searched_without_copying_it(self) -> None:
        raw = b'["\\u0000"' + b",0" * 500_000 + b"]"
        value = json.loads(raw)
        tracemalloc.start()
        try:
            require_storable(value, depth_max=100)
            # A copy takes four million; threads of other tests may take some too.
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


def test_the_first_unstorable_place_in_the_text_is_named() -> None:
    value: Any = {"a": [[1, {"b": "x"}], {"c": [2, "\ud800"]}], "d\0": 1, "e": 2**64}
    with pytest.raises(Unstorable) as caught:
        require_storable(value, depth_max=100)
    assert caught.value.pointer == ""
    del value["d\0"]
    for pointer, place, key in (("/a/1/c/1", value["a"][1]["c"], 1), ("/e", value, "e")):
        with pytest.raises(Unstorable) as caught:
            require_storable(value, depth_max=100)
        assert caught.value.pointer == pointer
        place[key] = None
    require_storable(value, depth_max=4)
    with pytest.raises(Unstorable) as caught:
        require_storable(value, depth_max=3)
    assert caught.value.pointer == "/a/0/1"


@pytest.mark.parametrize(
    ("method", "content_type", "accepted"),
    [
        ("PUT", "", False),
        ("PUT", "text/plain", False),
        ("PUT", "application/x-www-form-urlencoded", False),
        ("PUT", "application/json; charset=latin-1", False),
        ("PUT", JSON_PATCH, False),
        ("PUT", "application/jsonx", False),
        ("PUT", "application/json; charset=utf-8", True),
        ("PUT", 'Application/JSON; charset="UTF-8"', True),
        ("PUT", "application/json;profile=x", True),
        ("PATCH", JSON, False),
        ("PATCH", "", False),
        ("PATCH", "application/json-patch+json; charset=utf-16", False),
        ("PATCH", "application/json-patch+json; charset=utf-8", True),
        ("PATCH", "application/merge-patch+json", True),
    ],
)
def test_other_media_types_are_refused(
    catalog: Catalog, method: str, content_type: str, accepted: bool
) -> None:
    catalog.put({})
    answer = catalog.send(method, b"[]", content_type)
    if accepted:
        assert answer.status_code == 200
        return
    problem(answer, 415, "unsupported_media_type")
    header = "Accept-Patch" if method == "PATCH" else "Accept"
    assert JSON_PATCH in answer.headers[header] or answer.headers[header] == JSON
    assert catalog.get().get_json() == {}


def test_a_binary_body_has_no_charset(catalog: Catalog) -> None:
    answer = catalog.client.put(f"{catalog.path}/uploads/x/parts/1", data=b"1")
    content = problem(answer, 415, "unsupported_media_type")
    assert content["detail"] == "Content-Type must be application/octet-stream; it is missing"


def test_a_problem_of_the_whole_body_names_the_body(catalog: Catalog) -> None:
    answer = catalog.client.post(f"{catalog.path}/reverts", json={})
    content = problem(answer, 400, "invalid_body")
    assert content["detail"] == "the body: it must have exactly one of: revisions, to"
    assert content["pointer"] == ""


def test_encoded_bodies_are_415(catalog: Catalog) -> None:
    answer = catalog.send("PUT", b"1", JSON, Content_Encoding="gzip")
    problem(answer, 415, "unsupported_content_encoding")
    for header in ({"Content_Encoding": "gzip, br"}, {"Transfer_Encoding": "gzip, chunked"}):
        problem(catalog.send("PUT", b"1", JSON, **header), 415, "unsupported_content_encoding")
    assert catalog.send("PUT", b"1", JSON, Content_Encoding="identity").status_code == 201


# Scraps of JSON text that put together are at times JSON, and at times trouble.
_SCRAPS = r"""{"a": } [ ] , " "b": 1 000000000 999999999999999999 - . e9 e400 NaN null
\u0000 \ud800 \udc00 \ é"""
_scraps = st.sampled_from(_SCRAPS.split())
_numbers = st.integers(-(2**70), 2**70) | st.floats()
_names = st.text(st.characters(categories=["L", "Cs", "Cc"]), max_size=3)
_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _numbers | _names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
)
_bodies = st.lists(_scraps).map(lambda s: "".join(s).encode()) | _values.map(
    lambda value: json.dumps(value).encode()
)


@given(_bodies)
def test_a_body_accepted_without_the_search_would_pass_the_search(raw: bytes) -> None:
    """The proof in ``gateway.http.wire.body``, tried: what it accepts, the search accepts."""
    for decode, depth_max in (
        (lambda: decode_value(raw, LIMITS), LIMITS.depth_max),
        (lambda: decode_patch(raw), len(raw)),
    ):
        try:
            value = decode()
        except (RequestRefused, Unstorable):
            continue
        require_storable(value, depth_max=depth_max)


@given(_values)
def test_a_body_that_passes_the_search_is_not_refused(value: Any) -> None:
    try:
        require_storable(value, depth_max=LIMITS.depth_max)
    except Unstorable:
        with pytest.raises((RequestRefused, Unstorable)):
            decode_value(json.dumps(value).encode(), LIMITS)
    else:
        assert decode_value(json.dumps(value).encode(), LIMITS) == value


class TestValues:
    """The values of a body are counted by its commas and colons, before it is decoded."""

    LIMITS = RequestLimits(body_values_max=10_000)
    CROWDED = b"[" + b",".join([b"[]"] * 6_000) + b"]"

    @pytest.fixture
    def narrow(self, memory_gateway: GatewayService) -> FlaskClient:
        return create_app(memory_gateway, self.LIMITS).test_client()

    def test_a_body_with_too_many_values_is_refused_before_decoding(
        self, narrow: FlaskClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bodies, "_decode", None)
        for method, path, body in (
            ("PUT", "documents/k", self.CROWDED),
            ("PUT", "", b'{"schemas": ' + self.CROWDED + b"}"),
            ("PATCH", "documents/k", self.CROWDED),
            ("POST", "transactions", b'{"then": ' + self.CROWDED + b"}"),
            ("POST", "uploads", self.CROWDED),
        ):
            patch = "application/json-patch+json" if method == "PATCH" else "application/json"
            path = f"/v1/catalogs/crowded/{path}".rstrip("/")
            answer = narrow.open(path, method=method, data=body, content_type=patch)
            assert problem(answer, 413, "over_limit")["limit"] == "body_values_max"

    def test_lines_of_bulk_requests_and_uploads_with_too_many_values_are_refused(
        self, narrow: FlaskClient
    ) -> None:
        line = b'{"catalog": "c", "key": "k", "op": "put", "value": ' + self.CROWDED + b"}"
        answer = narrow.post("/v1/bulk", data=line, content_type="application/x-ndjson")
        assert json.loads(answer.data)["problem"]["limit"] == "body_values_max"
        place = narrow.post("/v1/catalogs/c/uploads", json={"key": "k"}).headers["Location"]
        narrow.put(f"{place}/parts/1", data=self.CROWDED, content_type="application/octet-stream")
        answer = narrow.post(f"{place}/commit")
        assert problem(answer, 413, "over_limit")["limit"] == "body_values_max"

    @pytest.mark.parametrize(
        "raw",
        [
            json.dumps("1,2,[3]," * 10_000).encode(),
            json.dumps({'"\\': ',"[' * 20_000}).encode(),
            json.dumps([0] * 10_000).encode(),
        ],
    )
    def test_commas_and_colons_inside_strings_do_not_count_as_values(self, raw: bytes) -> None:
        require_few_values(raw, self.LIMITS)
