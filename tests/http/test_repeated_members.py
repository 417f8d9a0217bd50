"""An object with a member twice is refused, on every route that takes JSON, with its place.

Readers differ in which of the two they take (RFC 8259, section 4), so a proxy, a log or a signature
may see another request than the gateway carries out; RFC 6902, A.13, has it for patches.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.test import TestResponse

from gateway.http.wire import headers as media_types
from patching import join_pointer, split_pointer
from patching.values import repeated_member
from tests.http.conftest import JSON_PATCH, MERGE_PATCH, Catalog, problem

JSON = "application/json"
EXTENDED = media_types.EXTENDED_PATCH


def refused(answer: TestResponse, pointer: str, operation: int | None = None) -> None:
    content = problem(answer, 400, "malformed_json")
    told = (content["pointer"], content.get("operation"), content["applied"])
    assert told == (pointer, operation, "no"), content
    assert f"'{split_pointer(pointer)[-1]}' twice" in content["detail"]


def test_a_13_a_patch_with_two_ops_removes_nothing(catalog: Catalog) -> None:
    catalog.put({"a": 1})
    raw = b'[{"op":"replace","op":"remove","path":"/a","value":9}]'
    refused(catalog.send("PATCH", raw, JSON_PATCH), "/0/op", 0)
    assert catalog.get().get_json() == {"a": 1}
    assert catalog.head_revision() == 1


ADD = b'[{"op":"add","path":"/b","value":'
AN_OP_TWICE = b'[{"o\\u0070":"add","op":"remove","path":"/a","value":"\\u003a"}]'
A_PATH_TWICE = b'{"patch":[{"op":"increment","path":"/a","path":"/b"}]}'
TWO_PATCHES = b'{"patch":[],"patch":[{"op":"remove","path":"/a"}]}'


@pytest.mark.parametrize(
    ("method", "kind", "raw", "pointer", "operation"),
    [
        ("PATCH", JSON_PATCH, ADD + b'1},{"path":"/a","path":"/b"}]', "/1/path", 1),
        ("PATCH", JSON_PATCH, ADD + b'{"x":{"y":1,"y":1}}}]', "/0/value/x/y", 0),
        ("PATCH", JSON_PATCH, AN_OP_TWICE, "/0/op", 0),
        ("PATCH", EXTENDED, A_PATH_TWICE, "/patch/0/path", 0),
        ("PATCH", EXTENDED, TWO_PATCHES, "/patch", None),
        ("PATCH", MERGE_PATCH, b'{"a":null,"a":2}', "/a", None),
        ("PUT", JSON, b'{"a": 1, "a" : 1}', "/a", None),
        ("PUT", JSON, b'{"": [0, {"~/": 1, "~/": 1}]}', "//1/~0~1", None),
        ("PUT", JSON, b'{"a":"1","a":":::\\u003a"}', "/a", None),
    ],
)
def test_repeated_members_of_documents_and_patches_are_refused(
    catalog: Catalog, method: str, kind: str, raw: bytes, pointer: str, operation: int | None
) -> None:
    catalog.put({"a": 1})
    refused(catalog.send(method, raw, kind), pointer, operation)
    assert catalog.head_revision() == 1


def test_repeated_members_of_attributes_and_settings_are_refused(catalog: Catalog) -> None:
    catalog.put({"a": 1})
    attributes = f"{catalog.path}/attributes/k"
    twice = b'{"owner":"a","owner":"b"}'
    for path, method, kind in (
        (attributes, "PUT", JSON),
        (attributes, "PATCH", MERGE_PATCH),
        (catalog.path, "PUT", JSON),
    ):
        answer = catalog.client.open(path, method=method, data=twice, content_type=kind)
        refused(answer, "/owner")
    settings = b'{"schemas":{"a":true,"a":false}}'
    refused(catalog.client.put(catalog.path, data=settings, content_type=JSON), "/schemas/a")
    assert catalog.head_revision() == 1


@pytest.mark.parametrize(
    ("raw", "pointer"),
    [
        (b'{"then":[],"then":[{"action":"delete","key":"k"}]}', "/then"),
        (b'{"then":[{"action":"get","action":"delete","key":"k"}]}', "/then/0/action"),
        (b'{"compare":[{"key":"x","key":"k","absent":true}],"then":[]}', "/compare/0/key"),
        (
            b'{"then":[{"action":"patch","key":"k",'
            b'"patch":[{"op":"test","op":"remove","path":"/a","value":1}]}]}',
            "/then/0/patch/0/op",
        ),
    ],
)
def test_repeated_members_of_transactions_are_refused(
    catalog: Catalog, raw: bytes, pointer: str
) -> None:
    catalog.put({"a": 1})
    answer = catalog.client.post(f"{catalog.path}/transactions", data=raw, content_type=JSON)
    refused(answer, pointer)
    assert catalog.head_revision() == 1


def test_repeated_members_of_bulk_lines_are_refused(client: FlaskClient, catalog: Catalog) -> None:
    catalog.put({"a": 1})
    lines = [
        ('"op":"delete","op":"touch"', "/op", None),
        ('"op":"put","value":1,"value":2', "/value", None),
        ('"op":"put","value":{"a":{"b":1,"b":2}}', "/value/a/b", None),
        ('"op":"merge","value":{"a":1,"a":2}', "/value/a", None),
        ('"op":"patch","patch":[{"op":"test","op":"remove","path":"/a"}]', "/patch/0/op", 0),
        (
            '"op":"patch","patch":[{"op":"test","path":"","value":1},'
            '{"op":"increment","path":"/b","path":"/a"}]',
            "/patch/1/path",
            1,
        ),
        (
            '"op":"patch","patch":[],"array_primary_keys":{"/a":["x"],"/a":["y"]}',
            "/array_primary_keys/~1a",
            None,
        ),
        ('"op":"touch","if_match":{"a":1,"a":2}', "/if_match/a", None),
    ]
    name = json.dumps(catalog.name)
    body = "".join(f'{{"catalog":{name},"key":"k",{members}}}\n' for members, _, _ in lines)
    answer = client.post("/v1/bulk", data=body, content_type="application/x-ndjson")
    told = [json.loads(line) for line in answer.data.splitlines()]
    assert [(each["index"], each["status"]) for each in told] == [(i, 400) for i in range(8)]
    problems = [each["problem"] for each in told]
    assert {each["code"] for each in problems} == {"malformed_json"}
    places = [(each["pointer"], each.get("operation")) for each in problems]
    assert places == [(pointer, operation) for _, pointer, operation in lines]
    assert catalog.head_revision() == 1


def test_repeated_members_of_uploads_pins_and_compactions_are_refused(catalog: Catalog) -> None:
    catalog.put({"a": 1})
    client = catalog.client
    uploads = f"{catalog.path}/uploads"
    opened = client.post(uploads, json={"key": "k"}).get_json()["upload"]
    part = f"{uploads}/{opened}/parts/1"
    client.put(part, data=b'{"a":1,"a":2}', content_type="application/octet-stream")
    for path, raw, pointer in (
        (uploads, b'{"key":"a","key":"k"}', "/key"),
        (f"{uploads}/{opened}/commit", b'{"parts":[1],"parts":[2]}', "/parts"),
        (f"{uploads}/{opened}/commit", b'{"parts":[1]}', "/a"),
        (f"{catalog.path}/pins", b'{"seconds":1,"seconds":9}', "/seconds"),
        (f"{catalog.path}/compactions", b'{"revision":0,"revision":1}', "/revision"),
    ):
        refused(client.post(path, data=raw, content_type=JSON), pointer)
    assert catalog.head_revision() == 1


def _object(pairs: list[tuple[str, str]]) -> str:
    return "{" + " , ".join(f'"{name}" : {value}' for name, value in pairs) + "}"


_names = st.sampled_from(["a", "b", ":", "~/", "\\u003a", '\\":', "é"])
_texts = st.recursive(
    st.sampled_from(["1", "1e15", '"a"', '":\\u003A"', '"\\":"', "null"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{' ,'.join(items)}]")
        | st.lists(st.tuples(_names, inner), max_size=3).map(_object)
    ),
    max_leaves=12,
)


@given(_texts)
def test_counting_colons_finds_the_same_repeats_as_counting_names(text: str) -> None:
    """The proof in ``repeated_member``, tried; and its way leads to such a member."""
    value = msgspec.json.decode(text)
    way = repeated_member(text.encode(), msgspec.json.encode(value))
    twice: list[set[str]] = []

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        twice.append({name for name, count in counts.items() if count > 1})
        return dict(pairs)

    json.loads(text, object_pairs_hook=look)
    if way is None:
        assert not any(twice)
    else:
        assert any(way[-1] in names for names in twice), join_pointer(way)
