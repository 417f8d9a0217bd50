"""A secret in a protected document appears in no answer of the service to anybody else.

It is planted wherever a document can hold something, in what it was and is; then everybody else
asks every route there is, in every way that answers or refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from werkzeug.test import TestResponse

from tests.access.people import (
    APPLY,
    EXTENDED_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    People,
    Person,
    people_on,
)

SECRET: Final = "Zq7Secret"
# By endpoint, where to look; what has no catalog in its path is asked as it is.
READS: Final[dict[str, list[str]]] = {
    "read_document": [
        *("/documents/k", "/documents/k?revision=1", "/documents/k?revision=4", "/documents/moved"),
        *("/documents/gone", "/documents/gone?revision=6", "/documents/reused?revision=8"),
        "/documents/reused",
    ],
    "read_attributes": [
        "/attributes/k",
        "/attributes/k?revision=3",
        "/attributes/gone?revision=6",
        "/attributes/reused?revision=8",
    ],
    "read_owners": [
        *("/owners/k", "/owners/k?revision=3", "/owners/gone?revision=6"),
        "/owners/reused?revision=8",
    ],
    "list_losses": ["/owners?lost_by=nightly"],
    "read_catalog": [""],
    "list_documents": [
        *("/documents", "/documents?revision=4", "/documents?revision=8", "/documents?prefix=k"),
        *("/documents?key=k", "/documents?key=k&key=open", "/documents?key=gone&revision=6"),
        "/documents?key=reused&revision=8",
        *("/documents?select=digest", "/documents?select=digest&revision=4"),
    ],
    "export": ["/export", "/export?revision=4", "/export?revision=6", "/export?revision=8"],
    "plan_partitions": [
        *("/partitions?count=9", "/partitions?count=99&revision=6", "/partitions?count=9&prefix=k"),
    ],
    "list_commits": [
        "/commits",
        "/commits?newest_first=true",
        "/commits?author=ann",
        "/commits?key=k",
        "/commits?key=gone",
        "/commits?key=reused",
    ],
    "read_commit": [f"/commits/{revision}" for revision in range(1, 14)],
    "list_applications": ["/applications"],
    "list_differences": [
        *("/differences?from=0", "/differences?from=0&to=5", "/differences?from=9&to=3"),
        *("/differences?from=3&to=12", "/differences?from=8&to=6&prefix=k"),
    ],
    "outcome": [f"/outcomes/{SECRET[:-1]}", "/outcomes/mine"],
    "changes": [
        "/changes?after=0&timeout=1",
        "/changes?after=0&timeout=1&key=k",
        "/changes?after=0&timeout=1&key=reused",
        "/changes?after=0&timeout=1&prefix=k",
        "/changes?after=0&timeout=1&include=before&include=value",
        "/changes?after=8&timeout=1&key=reused&include=before&include=value",
        "/changes?after=0&timeout=1&author=ann&include=value",
        "/changes?initial=true",
        "/changes?initial=true&prefix=k",
    ],
    "read_upload": ["/uploads/{upload}"],
    "list_pins": ["/pins"],
    "list_subscriptions": ["/subscriptions"],
    "read_subscription": ["/subscriptions/x"],
    "read_pin": ["/pins/{pin}"],
    "document_options": [],
    "attributes_options": [],
}
CLOSED: Final = {"acl": {"read": ["ann"], "write": ["ann", "wes"]}, "note": f"{SECRET}-note"}


@pytest.fixture(scope="module")
def people(mongodb_uri: str) -> Iterator[People]:
    with people_on(mongodb_uri) as people:
        ann = people("ann")
        _plant(ann)
        assert people("bob").put("reused", {"mine": True}).status_code == 201
        people("ann").put("open", {"n": 1})
        key = {"Idempotency_Key": "mine"}
        assert people("wes").put("k", {SECRET: SECRET, "n": 2}, **key).status_code == 200
        people("root").send(
            "PUT", "", {"schemas": {"typed/*": {"type": "number"}, "e/*": {"enum": [1]}}}
        )
        yield people


def _plant(ann: Person) -> None:
    """Revisions 1 to 10: in `k`, in a document that is gone, and in one that is another's now."""
    told = {"Commit_Message": f"{SECRET} is in it"}
    ann.put("k", {SECRET: f"{SECRET}-old"}, **told)
    ann.put_attributes("k", CLOSED)
    ann.put("k", {SECRET: SECRET}, Idempotency_Key=f"{SECRET}-key", **told)
    ann.patch("k", {"op": "add", "path": f"/{SECRET}", "value": [SECRET]}, **told)
    ann.put("gone", {"n": SECRET})
    ann.put_attributes("gone", CLOSED)
    ann.put("reused", SECRET)
    ann.put_attributes("reused", CLOSED)
    for key in ("gone", "reused"):
        assert ann.delete(key).status_code == 204


def paths(people: People, endpoint: str, rule: str) -> list[str]:
    if "catalog>" not in rule:
        return [rule.replace("<rest:path>", "index.html").replace("<path:path>", "index.html")]
    assert endpoint in READS, f"nobody looks for secrets at {endpoint}"
    ann = people("ann")
    upload = ann.send("POST", "/uploads", {"key": "k"}).get_json()["upload"]
    raw = f'"{SECRET}"'.encode()
    ann.send("PUT", f"/uploads/{upload}/parts/1", raw, "application/octet-stream")
    pin = ann.send("POST", "/pins", {"seconds": 60}).get_json()["pin"]
    return [path.format(upload=upload, pin=pin) for path in READS[endpoint]]


def text_of(answer: TestResponse) -> str:
    headers = "".join(f"{name}: {value}\n" for name, value in answer.headers)
    return f"{answer.status}\n{headers}\n{answer.get_data(as_text=True)}"


@pytest.mark.parametrize("name", ["bob", "wes", "eve"])
def test_no_read_route_reveals_the_secret(name: str, people: People) -> None:
    person = people(name)
    asked = 0
    for rule in people.app.url_map.iter_rules():
        if "GET" not in (rule.methods or ()):
            continue
        for path in paths(people, rule.endpoint, rule.rule):
            answer = person.get(path)
            assert SECRET not in text_of(answer), path
            assert answer.status_code < 500, path
            asked += 1
    assert asked > 40
    assert SECRET in text_of(people("ann").get("/documents/k")), "it is there"


@pytest.mark.parametrize("query", ["", "&revision=4", "&revision=6", "&revision=8", "&key=k"])
def test_a_list_of_digests_hides_the_same_documents_as_a_list_of_values(
    query: str, people: People
) -> None:
    """Who knows a digest can find out whether a content is what he takes it for."""

    def listed(person: Person, select: str) -> tuple[int, list[str]]:
        answer = person.get(f"/documents?{select}{query}")
        return answer.status_code, [each["key"] for each in answer.get_json().get("documents", ())]

    assert "k" in listed(people("ann"), "select=digest")[1]
    status, keys = listed(people("eve"), "select=digest")
    assert (status, keys) == listed(people("eve"), "limit=100")
    assert "k" not in keys


def test_the_event_stream_does_not_reveal_the_secret(people: People) -> None:
    answer = people("eve").get("/changes?after=0", Accept="text/event-stream")
    pieces = ""
    try:
        for piece in answer.response:
            pieces += piece.decode() if isinstance(piece, bytes) else piece
            if "\nid: 13\n" in pieces:
                break
    finally:
        answer.close()
    assert "event: commit" in pieces
    assert SECRET not in pieces


def attempts(guess: str) -> Iterator[tuple[str, str, Any, str]]:
    """Writes whose answer might depend on the secret: method, path, body, media type."""
    test = {"op": "test", "path": f"/{guess}", "value": guess}
    for dry in ("", "?dry_run=true"):
        for key in ("k", "gone"):
            for operation in (
                {"op": "test", "path": f"/{guess}", "value": 0},
                {"op": "test", "path": "", "value": guess},
                {"op": "remove", "path": f"/{guess}/9"},
                {"op": "replace", "path": f"/{guess}", "value": guess},
            ):
                yield "PATCH", f"/documents/{key}{dry}", [operation], JSON_PATCH
            yield "PATCH", f"/documents/{key}{dry}", {guess: guess}, MERGE_PATCH
            yield "PATCH", f"/attributes/{key}{dry}", {"note": f"{guess}-note"}, MERGE_PATCH
            yield "PATCH", f"/attributes/{key}{dry}", [{**test, "path": "/note"}], JSON_PATCH
        yield "PATCH", f"/documents/k{dry}", {guess: guess}, APPLY
        for predicate in ("contains", "starts", "ends", "matches"):
            extended = {"patch": [{"op": predicate, "path": f"/{guess}", "value": guess}]}
            yield "PATCH", f"/documents/k{dry}", extended, EXTENDED_PATCH
        for compare in (
            {"key": "k", "equals": {guess: guess}},
            {"key": "k", "test": [test]},
            {"key": "k", "absent": True},
            {"key": "k", "etag": "1-00000000"},
        ):
            yield "POST", f"/transactions{dry}", {"compare": [compare]}, "application/json"
            asked = {"compare": [compare], "then": [{"action": "touch"}], "else": []}
            yield "POST", f"/transactions{dry}", asked, "application/json"
        for action in (
            {"action": "get", "key": "k"},
            {"action": "move", "from": "k", "to": "typed/k"},
            {"action": "move", "from": "k", "to": "e/k"},
            {"action": "move", "from": "k", "to": "open"},
            {"action": "patch", "key": "k", "patch": [test]},
            {"action": "merge", "key": "k", "value": {guess: guess}},
            {"action": "attributes", "key": "k", "patch": [{**test, "path": "/note"}]},
        ):
            asked = {"then": [{"action": "touch"}, action]}
            yield "POST", f"/transactions{dry}", asked, "application/json"


@pytest.mark.parametrize("name", ["bob", "wes"])
def test_no_write_reveals_the_secret_or_whether_it_was_guessed(name: str, people: People) -> None:
    """`wes` may write it, unread."""
    person = people(name)
    wrong = "Zq7Guesse"
    for right, other in zip(attempts(SECRET), attempts(wrong), strict=True):
        answers = [_asked(person, *each) for each in (right, other)]
        statuses = [answer.status_code for answer in answers]
        said = [
            _content(answer, guess) for answer, guess in zip(answers, (SECRET, wrong), strict=True)
        ]
        assert said[0] == said[1], (right, statuses)
        assert SECRET not in str(said[0]), right
        expected = 404 if "/gone" in right[1] else 403
        assert statuses == [expected, expected], right
    assert people("ann").get("/documents/k").get_json() == {SECRET: SECRET, "n": 2}


@pytest.mark.parametrize("path", ["documents", "attributes"])
def test_a_conditional_write_without_read_access_reveals_only_tokens(
    path: str, people: People
) -> None:
    wes = people("wes")
    value: Any = {"x": 1} if path == "documents" else CLOSED
    for headers in (
        {"If-Match": '"1-00000000"'},
        {"If-None-Match": "*"},
        {"If-Match": '"1-00000000"', "Prefer": "return=representation"},
        {"If-None-Match": "*", "Prefer": "refusal=representation"},
        {"If-Match": '"k=1-00000000"', "Prefer": "return=representation"},
        {"If-Match": '"1-00000000"', "Prefer": "return=representation", "Idempotency-Key": path},
        {"If-Match": '"1-00000000"', "Prefer": "return=representation", "Idempotency-Key": path},
        {"If-Unmodified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"},
    ):
        answer = wes.send("PUT", f"/{path}/k", value, headers=headers)
        assert answer.status_code == 412
        assert SECRET not in text_of(answer)
        assert "changes_since" not in answer.get_json() or not answer.get_json()["changes_since"]
        assert "value" not in answer.get_json().get("current", {})
        if "Prefer" in headers and "Idempotency-Key" not in headers:
            seen = people("ann").send("PUT", f"/{path}/k", value, headers=headers)
            assert SECRET in text_of(seen), "it is there, for who may read it"
    dry = wes.send(
        "PUT", f"/{path}/k?dry_run=true", value, headers={"Prefer": "return=representation"}
    )
    assert dry.status_code == 200
    assert SECRET not in text_of(dry)
    for body in (
        {"then": [{"action": "put", "key": "k", "value": 1}]},
        {"then": [{"action": "attributes", "key": "k", "value": CLOSED}]},
        {"then": [{"action": "replace", "prefix": "k", "documents": {"k": 1, "k2": 1}}]},
    ):
        answer = wes.send(
            "POST", "/transactions?dry_run=true", body, headers={"Prefer": "return=representation"}
        )
        assert answer.status_code == 200
        assert SECRET not in text_of(answer)
    assert [each["key"] for each in answer.get_json()["changes"]] == ["k2"], "which it makes"


def test_bulk_lines_do_not_reveal_the_secret(people: People) -> None:
    lines: list[dict[str, Any]] = [
        {"op": "patch", "patch": [{"op": "test", "path": f"/{SECRET[:-1]}", "value": 0}]},
        {"op": "patch", "patch": [{"op": "test", "path": "", "value": 0}]},
        {"op": "merge", "value": {"n": 2}},
        {"op": "put", "value": 1, "if_match": "1-00000000"},
        {"op": "touch", "if_match": "1-00000000"},
    ]
    whole = [{"catalog": people.catalog, "key": "k", **line} for line in lines]
    for name in ("bob", "wes"):
        answers = people(name).bulk(*whole, Prefer="return=representation")
        assert SECRET not in str(answers)
        expected = [403, 403, 403, 412 if name == "wes" else 403, 403]
        assert [each["status"] for each in answers] == expected


def _asked(person: Person, method: str, path: str, body: Any, media_type: str) -> TestResponse:
    return person.send(method, path, body, media_type, {"Prefer": "return=representation"})


def _content(answer: TestResponse, guess: str) -> Any:
    """An answer's content, without what always differs between two answers."""
    content = answer.get_json(silent=True)
    if isinstance(content, dict):
        content = {
            name: value
            for name, value in content.items()
            if name not in ("request_id", "commit_id", "revision", "etag", "create_revision")
        }
    return answer.status_code, str(content).replace(guess, "GUESS")
