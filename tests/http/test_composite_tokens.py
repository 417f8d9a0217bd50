"""Composite tokens on writes: all documents they name must be unchanged, also unwritten ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.http.conftest import Catalog, problem

Write = Callable[[Catalog, str], TestResponse]


def token(catalog: Catalog, key: str) -> str:
    return str(catalog.get(key).headers["ETag"]).strip('"')


def transaction(catalog: Catalog, tag: str) -> TestResponse:
    body = {"then": [{"action": "merge", "key": "k", "value": {"v": 9}}]}
    return catalog.client.post(
        f"{catalog.path}/transactions",
        data=json.dumps(body),
        content_type="application/json",
        headers={"If-Match": tag},
    )


def attributes(catalog: Catalog, tag: str) -> TestResponse:
    path = f"{catalog.path}/attributes/k"
    return catalog.client.put(path, json={"v": 9}, headers={"If-Match": tag})


WRITES: list[Write] = [
    lambda catalog, tag: catalog.put({"v": 9}, If_Match=tag),
    lambda catalog, tag: catalog.merge({"v": 9}, If_Match=tag),
    lambda catalog, tag: catalog.patch({"op": "add", "path": "/v", "value": 9}, If_Match=tag),
    lambda catalog, tag: catalog.delete(If_Match=tag),
    attributes,
    transaction,
]


@pytest.fixture
def three(catalog: Catalog) -> Catalog:
    for key in ("k", "other", 'a;b=c%d"e é/f'):
        catalog.put({"v": 1}, key)
    return catalog


@pytest.mark.parametrize("write", WRITES)
class TestEveryWrite:
    def test_a_composite_of_unchanged_and_absent_documents_allows_the_write(
        self, three: Catalog, write: Write
    ) -> None:
        tag = f'"k={token(three, "k")};other={token(three, "other")};never=absent"'
        assert write(three, tag).status_code in (200, 204)

    def test_a_changed_document_that_is_not_written_refuses_the_write(
        self, three: Catalog, write: Write
    ) -> None:
        tag = f'"k={token(three, "k")};other={token(three, "other")}"'
        three.put({"v": 2}, "other")
        content = problem(write(three, tag), 412, "precondition_failed")
        assert content["key"] == "other"
        assert content["current"]["etag"] == token(three, "other")
        assert [each["key"] for each in content["stale"]] == ["other"]
        assert [each["revision"] for each in content["changes_since"]] == [4]
        assert three.head_revision() == 4

    def test_a_document_created_since_refuses_the_write(self, three: Catalog, write: Write) -> None:
        tag = f'"k={token(three, "k")};new=absent"'
        three.put(1, "new")
        three.put(2, "new")
        content = problem(write(three, tag), 412, "precondition_failed")
        assert content["stale"][0]["expected"] is None
        assert [each["revision"] for each in content["changes_since"]] == [4, 5]

    def test_a_document_deleted_since_refuses_the_write(self, three: Catalog, write: Write) -> None:
        tag = f'"other={token(three, "other")};k={token(three, "k")}"'
        three.delete("other")
        content = problem(write(three, tag), 412, "precondition_failed")
        assert (content["key"], content["stale"][0]["current"]) == ("other", None)


def test_several_stale_documents_are_named_with_all_their_changes(three: Catalog) -> None:
    tag = f'"k={token(three, "k")};other={token(three, "other")};new=absent"'
    three.put(2, "new")
    three.put(2, "unrelated")
    three.put(2, "other")
    three.put(2, "k")
    content = problem(three.put(3, If_Match=tag), 412, "precondition_failed")
    assert [each["key"] for each in content["stale"]] == ["k", "other", "new"]
    assert [each["revision"] for each in content["changes_since"]] == [4, 6, 7]
    assert [each["changes"][0]["key"] for each in content["changes_since"]] == ["new", "other", "k"]


def test_changes_are_listed_since_the_stale_token_not_since_the_newest(three: Catalog) -> None:
    old = token(three, "k")
    three.put(2, "k")
    three.put(2, "other")
    tag = f'"k={old};other={token(three, "other")}"'
    content = problem(three.put(3, If_Match=tag), 412, "precondition_failed")
    assert [each["revision"] for each in content["changes_since"]] == [4]


def test_keys_are_percent_encoded_where_they_must_be(three: Catalog) -> None:
    key = 'a;b=c%d"e é/f'
    tag = f'"a%3Bb%3Dc%25d%22e%20%C3%A9/f={token(three, key)}"'
    assert three.put({"v": 2}, key, If_Match=tag).status_code == 200
    assert problem(three.put(3, key, If_Match=tag), 412, "precondition_failed")["key"] == key


def test_the_tag_of_a_transaction_is_accepted_unchanged(catalog: Catalog) -> None:
    keys = ["a;b", "c=d", "é", "%", '"', "x y"]
    body = {"then": [{"action": "put", "key": key, "value": 1} for key in keys]}
    tag = catalog.client.post(f"{catalog.path}/transactions", json=body).headers["ETag"]
    assert catalog.put(2, "x y", If_Match=tag).status_code == 200
    content = problem(catalog.put(3, "x y", If_Match=tag), 412, "precondition_failed")
    assert content["key"] == "x y"


def test_one_matching_tag_of_several_is_enough(three: Catalog) -> None:
    tags = f'"k=1-x", "other={token(three, "other")}"'
    assert three.put(2, If_Match=tags).status_code == 200
    assert three.put(3, If_Match=f'"@1", {tags}').status_code == 200
    problem(three.put(4, If_Match='"k=1-x", "other=1-x", "@1"'), 412, "precondition_failed")


@pytest.mark.parametrize(
    "tag",
    [
        *('"k="', '"=1-x"', '"k=1-x;"', '"k=1-x;other"', '"k=1-x=2"', '"%zz=1-x"', '"%ff=1-x"'),
        *('"k=1-x;k=2-x"', '"k=1-x;k=absent"', '"k=1-x;%6B=absent"'),
    ],
)
def test_an_invalid_composite_is_400(three: Catalog, tag: str) -> None:
    problem(three.put(2, If_Match=tag), 400, "invalid_condition")
    assert three.head_revision() == 3


def test_a_key_may_be_named_twice_with_the_same_token(three: Catalog) -> None:
    same = token(three, "k")
    assert three.put(2, If_Match=f'"k={same};k={same}"').status_code == 200


def test_a_weak_composite_never_matches(three: Catalog) -> None:
    tag = f'W/"k={token(three, "k")}"'
    problem(three.put(2, If_Match=tag), 412, "precondition_failed")


def test_if_none_match_refuses_while_the_composite_is_unchanged(three: Catalog) -> None:
    tag = f'"other={token(three, "other")}"'
    problem(three.put(2, If_None_Match=tag), 412, "precondition_failed")
    three.put(2, "other")
    assert three.put(2, If_None_Match=tag).status_code == 200


def test_the_fingerprint_covers_the_composite(three: Catalog) -> None:
    tag = f'"other={token(three, "other")}"'
    assert three.put(2, If_Match=tag, Idempotency_Key="i").status_code == 200
    three.put(2, "other")
    assert three.put(2, If_Match=tag, Idempotency_Key="i").status_code == 200
    problem(three.put(2, Idempotency_Key="i"), 422, "idempotency_key_reused")


def test_a_date_and_a_composite_can_be_combined(three: Catalog) -> None:
    headers: dict[str, Any] = {
        "If_Match": f'"other={token(three, "other")}"',
        "If_Unmodified_Since": "Sun, 06 Nov 1994 08:49:37 GMT",
    }
    assert three.put(2, **headers).status_code == 200
