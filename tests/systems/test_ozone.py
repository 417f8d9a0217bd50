"""Ozone: replace a key only if it has not changed. Content is uploaded in parts and then
committed; the expectation is checked at both ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.service import RunningGateway
from tests.systems.service import Answer, Catalog, Service, add, side_by_side, statuses

ACL = {"acl": {"read": ["hive"], "write": ["hive"]}, "custom": {"team": "x"}}
KEY = "vol/bucket/key"


def everything(catalog: Catalog, key: str = KEY) -> tuple[Any, ...]:
    """Content, attributes, times, token and the catalog's revision: what a loser leaves alone."""
    answer = catalog.get(key)
    attributes = catalog.get_attributes(key)
    dates = [answer.headers["Last-Modified"], attributes.headers["Last-Modified"]]
    return answer.status, answer.body, attributes.body, answer.token, dates, catalog.head()


@pytest.fixture
def existing(catalog: Catalog) -> str:
    """The token of a key that has content and attributes."""
    catalog.put(KEY, {"v": 1})
    return catalog.put_attributes(KEY, ACL).token


def test_o1_a_read_shows_the_generation_which_any_change_changes(catalog: Catalog) -> None:
    """A read shows the generation; any change to content or attributes changes it."""
    seen = [catalog.put(KEY, {"v": 1}).token]
    for change in (
        partial(catalog.put_attributes, KEY, ACL),
        partial(catalog.put, KEY, {"v": 2}),
        partial(catalog.send, "PATCH", "/attributes/" + "vol%2Fbucket%2Fkey", [add("/x", 1)],
                content_type="application/json-patch+json"),
        partial(catalog.patch, KEY, add("/v", 3)),
        partial(catalog.put_attributes, KEY, {}),
    ):  # fmt: skip
        token = change().token
        assert catalog.get(KEY).token == catalog.get_attributes(KEY).token == token
        assert token not in seen
        # The state before is stale for both.
        catalog.put(KEY, {}, if_match=seen[-1]).refused(412, "precondition_failed")
        catalog.put_attributes(KEY, {"y": 1}, if_match=seen[-1]).refused(412, "precondition_failed")
        seen.append(token)
    assert catalog.get_attributes(KEY).done() == {}
    (shown,) = catalog.several(KEY).done()["documents"]
    assert shown["etag"] == seen[-1], "a listing shows it too"


def test_o2_the_expectation_is_checked_twice_and_sent_once(catalog: Catalog, existing: str) -> None:
    """The expectation is checked when the upload opens and again when it commits; it is
    remembered, not resent."""
    catalog.open_upload(KEY, if_match="1-00000000").refused(412, "precondition_failed")
    upload = catalog.uploaded(KEY, {"v": 2}, if_match=existing)
    replaced = catalog.commit_upload(upload)
    assert replaced.done()["changed"] is True
    assert catalog.get(KEY).done() == {"v": 2}
    assert catalog.get(KEY).token == replaced.token

    behind = catalog.uploaded(KEY, {"v": "mine"}, if_match=replaced.token)
    changed = catalog.put(KEY, {"v": "theirs"})
    lost = catalog.commit_upload(behind).refused(409, "upload_conflict")
    assert lost["current"]["etag"] == changed.token
    assert catalog.get(KEY).done() == {"v": "theirs"}

    # Nothing is resent: a condition at the commit would be a second one, and is refused.
    path = f"/uploads/{behind}/commit"
    catalog.send("POST", path, {}, if_match=changed.token).refused(400, "invalid_condition")

    # Of uploads opened on one generation, one commits.
    opened = [catalog.uploaded(KEY, {"v": n}, if_match=changed.token) for n in range(6)]
    answers = side_by_side([partial(catalog.commit_upload, each) for each in opened])
    assert statuses(answers) == [200] + [409] * 5


def test_o3_attributes_survive_a_replace_and_their_change_is_a_conflict(
    catalog: Catalog, existing: str
) -> None:
    """Attributes (ACL and custom) survive a replace. An attribute change between open and commit
    makes the commit fail."""
    upload = catalog.uploaded(KEY, {"v": 2}, if_match=existing)
    replaced = catalog.commit_upload(upload)
    assert catalog.get_attributes(KEY).done() == ACL
    assert catalog.put(KEY, {"v": 3}).status == 200
    assert catalog.get_attributes(KEY).done() == ACL

    upload = catalog.uploaded(KEY, {"v": 4}, if_match=catalog.get(KEY).token)
    assert replaced.token != catalog.get(KEY).token
    catalog.put_attributes(KEY, {"acl": {"read": ["hive"]}}).done()
    catalog.commit_upload(upload).refused(409, "upload_conflict")
    assert catalog.get(KEY).done() == {"v": 3}
    assert catalog.get_attributes(KEY).done() == {"acl": {"read": ["hive"]}}


def test_o4_attributes_are_kept_cleared_or_replaced_explicitly(
    catalog: Catalog, existing: str
) -> None:
    """Attributes on replace: keep, replace or clear is explicit, never guessed from null."""
    assert catalog.get(KEY).token == existing
    for number, (mode, expected) in enumerate(
        [
            ({"mode": "keep"}, ACL),
            ({"mode": "replace", "value": {"a": None}}, {"a": None}),
            ({"mode": "replace", "value": {}}, {}),
            ({"mode": "replace", "value": ACL}, ACL),
            ({"mode": "clear"}, {}),
        ]
    ):
        upload = catalog.uploaded(KEY, {"upload": number}, attributes=mode)
        catalog.commit_upload(upload).done()
        assert catalog.get_attributes(KEY).done() == expected
        catalog.put_attributes(KEY, ACL)
        put = {"action": "put", "key": KEY, "value": {"put": number}, "attributes": mode}
        catalog.transaction(put).done()
        assert catalog.get_attributes(KEY).done() == expected
        catalog.put_attributes(KEY, ACL)
    before = everything(catalog)
    for said, pointer in (
        (None, "/attributes"),
        ({}, "/attributes/mode"),
        ({"mode": None}, "/attributes/mode"),
        ({"mode": "drop"}, "/attributes/mode"),
        ({"mode": "replace"}, "/attributes/value"),
        ({"mode": "replace", "value": None}, "/attributes/value"),
        ({"mode": "keep", "value": {}}, "/attributes/value"),
        ({"mode": "clear", "value": None}, "/attributes/value"),
    ):
        refused = catalog.open_upload(KEY, attributes=said).refused(400, "invalid_body")
        assert refused["pointer"] == pointer
        put = {"action": "put", "key": KEY, "value": 1, "attributes": said}
        refused = catalog.transaction(put).refused(400, "invalid_body")
        assert refused["pointer"].startswith("/then/0/attributes")
    assert everything(catalog) == before


def test_o5_a_key_is_created_only_if_absent_through_both_phases(catalog: Catalog) -> None:
    """Create only if absent, through the same two phases."""
    upload = catalog.uploaded(KEY, {"v": 1}, if_none_match="*")
    assert catalog.get(KEY).status == 404, "an open upload can't be seen"
    catalog.commit_upload(upload).done(201)
    catalog.open_upload(KEY, if_none_match="*").refused(412, "precondition_failed")

    opened = [catalog.uploaded("new", {"v": n}, if_none_match="*") for n in range(6)]
    answers = side_by_side([partial(catalog.commit_upload, each) for each in opened])
    assert statuses(answers) == [201] + [409] * 5
    for answer in answers:
        if answer.status != 201:
            answer.refused(409, "upload_conflict")


def test_o6_a_refusal_at_open_and_a_lost_race_at_commit_have_different_codes(
    catalog: Catalog, existing: str
) -> None:
    """Refused at open: 412. Lost the race at commit: a conflict of its own."""
    upload = catalog.uploaded(KEY, {"v": "mine"}, if_match=existing)
    current = catalog.patch(KEY, add("/v", "theirs")).token
    at_open = catalog.open_upload(KEY, if_match=existing).refused(412, "precondition_failed")
    at_commit = catalog.commit_upload(upload).refused(409, "upload_conflict")
    for problem in (at_open, at_commit):
        assert problem["current"]["etag"] == current
        assert problem["retryable"] is False
        assert [commit["action"] for commit in problem["changes_since"]] == ["patch"]
    # The parts are still there, and the loser stays one: nothing is resent, nothing guessed.
    kept = catalog.send("GET", f"/uploads/{upload}").done()
    assert [part["number"] for part in kept["parts"]] == [1, 2]
    catalog.commit_upload(upload).refused(409, "upload_conflict")


def test_o7_contradictory_or_empty_conditions_are_refused(catalog: Catalog, existing: str) -> None:
    """Contradictory or empty conditions: 400."""
    before = everything(catalog)
    contradictions: tuple[dict[str, Any], ...] = (
        {"if_match": existing, "if_none_match": "*"},
        {"if_match": "*", "if_none_match": "*"},
        {"if_match": [existing], "if_none_match": [existing]},
        {"if_match": ""},
        {"if_match": []},
        {"if_match": None},
        {"if_none_match": [""]},
        {"if_match": ["*", existing]},
    )
    for asked in contradictions:
        problem = catalog.open_upload(KEY, **asked).refused(400, "invalid_condition")
        assert problem["pointer"].startswith("/if_")
    quoted = f'"{existing}"'
    for headers in (
        {"If-Match": quoted, "If-None-Match": "*"},
        {"If-Match": quoted, "If-None-Match": quoted},
        {"If-Match": ""},
        {"If-None-Match": " , "},
        {"If-Match": existing},  # a tag without its quotes
        {"If-Match": f"*, {quoted}"},
    ):
        for method, path, body in (
            ("PUT", "/documents/vol%2Fbucket%2Fkey", b"1"),
            ("DELETE", "/documents/vol%2Fbucket%2Fkey", None),
            ("PUT", "/attributes/vol%2Fbucket%2Fkey", b"{}"),
            ("POST", "/transactions", b'{"then":[{"action":"touch"}]}'),
        ):
            answer = catalog.service.send(
                method, catalog.path + path, body, {"Content-Type": "application/json", **headers}
            )
            answer.refused(400, "invalid_condition")
    line = {"catalog": catalog.name, "key": KEY, "op": "put", "value": 1}
    (told,) = catalog.service.bulk({**line, "if_match": existing, "if_none_match": "*"})
    assert (told["status"], told["problem"]["code"]) == (400, "invalid_condition")
    assert everything(catalog) == before


def test_o8_a_delete_may_carry_a_token(catalog: Catalog, existing: str) -> None:
    """Delete with a token; unconditional delete of an absent key succeeds."""
    current = catalog.put(KEY, {"v": 2}).token
    catalog.delete(KEY, if_match=existing).refused(412, "precondition_failed")
    assert catalog.delete(KEY, if_match=current).status == 204
    catalog.get(KEY).refused(404, "document_not_found")
    revision = catalog.revision
    assert catalog.delete(KEY).status == 204
    assert catalog.revision == revision, "there was nothing to do"
    catalog.delete(KEY, if_match=current).refused(412, "precondition_failed")
    catalog.delete(KEY, if_match="*").refused(412, "precondition_failed")
    catalog.get_attributes(KEY).refused(404, "document_not_found")
    catalog.put(KEY, {"v": 3}).done(201)
    assert catalog.get_attributes(KEY).done() == {}, "attributes don't come back"


def test_o9_a_stale_upload_cannot_replace_a_deleted_or_re_created_key(
    catalog: Catalog, existing: str
) -> None:
    """A key deleted, or deleted and made again, in between cannot be replaced by a stale upload.
    The loser leaves content, attributes and times untouched."""
    same = catalog.get(KEY).done()
    stale = [
        catalog.uploaded(KEY, {"v": "stale"}, if_match=existing, attributes=mode)
        for mode in ({"mode": "keep"}, {"mode": "clear"}, {"mode": "replace", "value": {"x": 1}})
    ]
    any_state = catalog.uploaded(KEY, {"v": "stale"}, if_match="*")
    catalog.delete(KEY)
    gone = catalog.head()
    for upload in (*stale, any_state):
        catalog.commit_upload(upload).refused(409, "upload_conflict")
    catalog.get(KEY).refused(404, "document_not_found")
    assert catalog.head() == gone

    catalog.put(KEY, same).done(201)
    catalog.put_attributes(KEY, ACL).done()
    before = everything(catalog)
    for upload in (*stale, any_state):
        catalog.commit_upload(upload).refused(409, "upload_conflict")
    assert everything(catalog) == before

    # Created, deleted and absent again: "only if absent" is about the moment of the commit.
    fresh = catalog.uploaded("other", {"v": 1}, if_none_match="*")
    catalog.put("other", {})
    catalog.commit_upload(fresh).refused(409, "upload_conflict")
    catalog.delete("other")
    catalog.commit_upload(catalog.uploaded("other", {"v": 1}, if_none_match="*")).done(201)


def test_o10_an_open_upload_blocks_nobody_and_expires(
    mongodb_uri: str, systems_database: str, catalog: Catalog, existing: str,
    eventually: Callable[..., Any],
) -> None:  # fmt: skip
    """No lock is held between open and commit; other writers are never delayed; an abandoned
    upload expires."""
    opened = [catalog.uploaded(KEY, {"v": n}, if_match=existing) for n in range(4)]
    # Had it to wait for an upload, it would be refused in the end: nobody ends one before that.
    for write in (
        partial(catalog.put, KEY, {"v": "others"}),
        partial(catalog.put_attributes, KEY, {"a": 1}),
        partial(catalog.put, "another", 1),
        partial(catalog.delete, KEY),
    ):
        answer: Answer = write()
        assert answer.status in (200, 201, 204)
        open_still = catalog.send("GET", f"/uploads/{opened[0]}").done()
        assert open_still["committed"] is None
    for upload in opened:
        catalog.commit_upload(upload).refused(409, "upload_conflict")

    with RunningGateway(mongodb_uri, systems_database, workers=1, upload_expiry_s=1) as brief:
        again = Catalog(Service(brief.port), catalog.name)
        again.put(KEY, {"v": "kept"})
        before = everything(again)
        upload = again.open_upload(KEY).done(201)
        again.part(upload["upload"], 1, json.dumps({"v": "late"}).encode())
        eventually(lambda: again.send("GET", f"/uploads/{upload['upload']}").status == 404)
        for asked in (again.commit_upload(upload["upload"]), again.part(upload["upload"], 2, b"")):
            asked.refused(404, "upload_not_found")
        assert everything(again) == before
