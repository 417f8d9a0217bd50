"""log and watch on a real gateway, and one that comes and goes."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from patching.client import Gateway
from tests.commandline.canned import Asked, Canned, Reply, problem
from tests.commandline.conftest import Commands


def revisions(ran: Any) -> list[int]:
    return [each["revision"] for each in ran.lines()]


def test_the_log_can_be_of_a_catalog_or_a_document(run: Commands, catalog: str) -> None:
    for number in range(3):
        run("put", "-q", catalog, "a", str(number), "-m", f"number {number}")
        run("put", "-q", catalog, "b", str(number))
    assert revisions(run("log", catalog)) == [1, 2, 3, 4, 5, 6]
    assert revisions(run("log", catalog, "b")) == [2, 4, 6]
    assert revisions(run("log", catalog, "--after", "4")) == [5, 6]
    assert revisions(run("log", catalog, "a", "--after", "1", "--limit", "1")) == [3]
    assert revisions(run("log", catalog, "--last", "2")) == [5, 6]
    assert revisions(run("log", catalog, "--after", "6")) == []
    none = run("log", catalog + "none", code=3)
    assert f"there never was a catalog '{catalog}none'" in none.error()
    first = run("log", catalog, "--limit", "1").lines()[0]
    (change,) = first["changes"]
    assert change.keys().isdisjoint({"before", "value", "withheld"}), "nobody asked for these"
    assert first["author"] == "anonymous"
    assert first["changes"][0]["patch"] == [{"op": "add", "path": "", "value": 0}]
    shown = run("log", catalog, "--limit", "1", "--output=pretty").stdout
    assert shown.startswith("     1  ")
    assert shown.endswith("Z  anonymous  put a  number 0\n")


def test_log_follow_and_watch_begin_with_existing_commits(run: Commands, catalog: str) -> None:
    for number in range(4):
        run("put", "-q", catalog, "ab"[number % 2], str(number))
    assert revisions(run("log", catalog, "--follow", "--limit", "4")) == [1, 2, 3, 4]
    assert revisions(run("log", catalog, "b", "-f", "--limit", "2", "-q")) == [2, 4]
    assert revisions(run("watch", catalog, "--after", "2", "--limit", "2")) == [3, 4]
    assert revisions(run("watch", catalog, "--after", "0", "--key", "b", "--limit", "2")) == [2, 4]
    assert revisions(run("watch", catalog, "--after", "0", "--prefix", "a", "--limit", "1")) == [1]
    run("compact", "-q", catalog, "2")
    error = run("watch", catalog, "--after", "1", "--limit", "1", code=3).error()
    assert "410 revision_compacted" in error


def commit(revision: int) -> dict[str, Any]:
    return {
        "revision": revision,
        "time": "2026-11-21T10:00:00.000000Z",
        "commit_id": "x",
        "author": "ana",
        "message": None,
        "idempotency_key": None,
        "attempts": 1,
        "changes": [],
    }


def test_a_watch_resumes_at_its_position_after_failures(catalog: str) -> None:
    replies: list[Reply] = [
        (200, {"commits": [commit(1)], "revision": 1}),
        None,
        problem(503, "store_unavailable"),
        (200, {"commits": [], "revision": 4}),
        (200, {"commits": [commit(5)], "revision": 5}),
    ]
    asked_after = []

    def reply(asked: Asked) -> Reply:
        parts = urlsplit(asked.path)
        if not parts.path.endswith("/changes"):
            return 200, {"commits": [], "next": None}
        asked_after.append(parse_qs(parts.query)["after"][0])
        return replies.pop(0)

    with Canned(reply) as canned:
        ran = Commands(canned.url)("watch", catalog, "--after=0", "--limit=2")
    assert revisions(ran) == [1, 5]
    assert asked_after == ["0", "1", "1", "1", "4"]


def test_a_watch_ends_after_a_permanent_failure(catalog: str) -> None:
    def reply(asked: Asked) -> Reply:
        if "/commits" in asked.path:
            return 200, {"commits": [], "next": None}
        return problem(401, "unauthenticated")

    with Canned(reply) as canned:
        Commands(canned.url)("watch", catalog, "--after=0", code=5)
    nowhere = Commands("http://127.0.0.1:1")
    nowhere("watch", catalog, "--after=0", "--timeout=0.1", code=6)
    nowhere("watch", catalog, "--timeout=0.1", code=6)


def test_a_catalog_that_is_not_there_yet_can_be_watched(catalog: str) -> None:
    def reply(asked: Asked) -> Reply:
        if "/changes" in asked.path:
            assert "after=0" in asked.path
            return 200, {"commits": [commit(1)], "revision": 1}
        if "/commits" in asked.path:
            return 200, {"commits": [], "next": None}
        return problem(404, "catalog_not_found")

    with Canned(reply) as canned:
        assert revisions(Commands(canned.url)("watch", catalog, "--limit=1")) == [1]


def test_all_documents_are_compared_at_two_revisions(run: Commands, catalog: str) -> None:
    run("put", "-q", catalog, "t/a", '{"n": 1}')
    run("put", "-q", catalog, "gone", "[1]")
    run("put", "-q", catalog, "t/a", '{"n": 2}')
    run("put", "-q", catalog, "t/a", '{"team": "x"}', "--attributes")
    run("delete", "-q", catalog, "gone")
    told = run("diff", catalog, "--from", "2", "--patch").lines()
    assert [(each["key"], each["change"]) for each in told] == [
        ("gone", "deleted"), ("t/a", "changed"),
    ]  # fmt: skip
    assert told[0]["value"] == [1]
    assert told[1]["patch"] == [{"op": "replace", "path": "/n", "value": 2}]
    under = run("diff", catalog, "--from", "5", "--to", "2", "--prefix", "t/", "--patch").lines()
    assert [each["attributes_patch"] for each in under] == [[{"op": "remove", "path": "/team"}]]
    shown = run("diff", catalog, "--from", "2", "--to", "5").stdout
    assert f"--- {catalog}/t/a (revision 2)\n" in shown
    assert '-  "n": 1\n' in shown
    assert '+  "n": 2\n' in shown
    assert f"+++ {catalog}/t/a attributes (revision 5)\n" in shown
    assert '+  "team": "x"\n' in shown
    assert run("diff", catalog, "--from", "5").stdout == ""
    run("diff", catalog, code=2)
    run("diff", catalog, "t/a", "--from", "1", code=2)
    assert "revision_not_found" in run.any("diff", catalog, "--from", "9").stderr


def test_commits_are_reverted(run: Commands, catalog: str) -> None:
    for value in ('{"a": 1, "b": 1}', '{"a": 2, "b": 1}', '{"a": 2, "b": 2}'):
        run("put", "-q", catalog, "k", value)
    dry = run("revert", catalog, "2", "--dry-run").json()
    assert (dry["changed"], dry["commit_id"]) == (True, None)
    # As in the history, without documents that were not asked for.
    (change,) = dry["changes"]
    assert change.keys() == run("log", catalog, "--last", "1").lines()[0]["changes"][0].keys()
    done = run("revert", catalog, "2", "-m", "undo").json()
    assert (done["revision"], done["skipped"]) == (4, [])
    assert run("get", catalog, "k").json() == {"a": 1, "b": 2}
    run("put", "-q", catalog, "k", '{"a": 9, "b": 2}')
    error = run("revert", catalog, "4", code=4).error()
    assert "409 changed_since" in error
    assert "contested '/a' of 'k': it is 9, wanted 2" in error
    skipped = run("revert", catalog, "4", "--conflict", "skip").json()
    assert [each["pointer"] for each in skipped["skipped"]] == ["/a"]
    forced = run("revert", catalog, "4", "--force", "k", "/a", "--dry-run").json()
    assert (forced["changed"], forced["skipped"]) == (True, [])
    run("revert", "-q", catalog, "--to", "1", "--prefix", "other")
    run("revert", "-q", catalog, "--to", "1", "--key", "k", "--from", "5")
    assert run("get", catalog, "k").json() == {"a": 1, "b": 1}
    run("revert", catalog, code=2)
    run("revert", catalog, "1", "--to", "1", code=2)


def test_the_commits_of_an_author_are_listed_and_followed(run: Commands, catalog: str) -> None:
    with Gateway(run.url) as client:
        for number, author in enumerate(("ann", "eve", "ann"), 1):
            client.catalog(catalog).put("k", number, author=author)
        client.catalog(catalog).put("other", 1, author="ann")
    ann = ("log", catalog, "--author", "ann")
    assert revisions(run(*ann)) == [1, 3, 4]
    assert revisions(run(*ann, "--last", "1")) == [4]
    assert revisions(run("log", catalog, "k", *ann[2:])) == [1, 3]
    assert revisions(run(*ann, "-f", "--limit", "2")) == [1, 3]
    assert revisions(run("log", catalog, "--author", "nobody")) == []
