"""Hasura: optimistic concurrency for the console. A catalog is the whole metadata, its revision
the `resource_version`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.systems.feeds import applied
from tests.systems.service import Answer, Catalog, Service, add, put, side_by_side, statuses


def track(name: str) -> dict[str, Any]:
    """The action that makes a table known."""
    return put(f"tables/{name}", {"name": name, "columns": []})


def at(revision: int) -> dict[str, int]:
    return {"resource_version": revision}


def test_h1_a_change_carries_the_version_it_was_made_against(catalog: Catalog) -> None:
    """A change carries the version it was made against (URL parameter; in a transaction also the
    body); a stale one is refused."""
    catalog.put("tables/a", {"n": 1}, at(0)).done(201)
    catalog.put("tables/a", {"n": 2}, at(1)).done()
    catalog.put("sources/x", {}).done(201)  # another document: the version is the catalog's

    stale: list[Callable[[dict[str, int]], Answer]] = [
        lambda version: catalog.put("tables/a", {"n": 3}, version),
        lambda version: catalog.patch(
            "tables/a", {"op": "add", "path": "/n", "value": 3}, query=version
        ),
        lambda version: catalog.delete("tables/a", version),
        lambda version: catalog.put("tables/new", {}, version),
        lambda version: catalog.touch(version),
        lambda version: catalog.send("PUT", "", {}, query=version),
        lambda version: catalog.send("PUT", "/attributes/sources%2Fx", {"a": 1}, query=version),
        lambda version: catalog.transaction(track("b"), query=version),
        lambda version: catalog.transaction(track("b"), compare=[version]),
        lambda version: catalog.transaction(track("b"), compare=[at(3)], query=version),
    ]
    for change in stale:
        for version in (2, 4):
            problem = change(at(version)).refused(412, "precondition_failed")
            assert problem["retryable"] is False
    assert catalog.revision == 3
    catalog.transaction(track("b"), compare=[at(3)], query=at(3)).done()
    answers = side_by_side([partial(catalog.put, f"race/{n}", n, at(4)) for n in range(8)])
    assert statuses(answers) == [201] + [412] * 7
    assert catalog.revision == 5


def test_h2_a_refusal_shows_the_current_version_and_the_changes_since(catalog: Catalog) -> None:
    """The refusal returns the current version and what changed since."""
    catalog.put("tables/a", {"n": 1})
    catalog.patch(
        "tables/a", {"op": "replace", "path": "/n", "value": 2}, commit_message="made%20it%20two"
    )
    catalog.transaction(track("b"), track("c"))
    catalog.delete("tables/b")
    for refused in (
        catalog.put("tables/a", {}, at(1)),
        catalog.transaction(track("d"), query=at(1)),
        catalog.transaction(track("d"), compare=[at(1)]),
    ):
        problem = refused.refused(412, "precondition_failed")
        assert problem["resource_version"] == 4
        since = [
            (commit["revision"], [(each["key"], each["action"]) for each in commit["changes"]])
            for commit in problem["changes_since"]
        ]
        assert since == [
            (2, [("tables/a", "patch")]),
            (3, [("tables/b", "put"), ("tables/c", "put")]),
            (4, [("tables/b", "delete")]),
        ]
        assert problem["changes_since"][0]["message"] == "made it two"
        assert all(commit["author"] and commit["time"] for commit in problem["changes_since"])


def test_h3_every_change_returns_the_new_version(service: Service, catalog: Catalog) -> None:
    """Every change returns the new version."""
    replace = {"op": "replace", "path": "/n", "value": 2}
    changes: list[Callable[[], Answer]] = [
        lambda: catalog.put("a", {"n": 1}),
        lambda: catalog.put("a", {"n": 0}),
        lambda: catalog.patch("a", replace),
        lambda: catalog.merge("a", {"n": 3}),
        lambda: catalog.extended("a", {"op": "increment", "path": "/n"}),
        lambda: catalog.put_attributes("a", {"owner": "x"}),
        lambda: catalog.transaction(track("b"), track("c")),
        lambda: catalog.touch(),
        lambda: catalog.settings({"require_precondition": False}),
        lambda: catalog.commit_upload(catalog.uploaded("a", {"n": 9})),
        lambda: catalog.delete("a"),
        lambda: catalog.put("a", {"n": 1}, prefer="return=minimal"),
    ]
    for revision, change in enumerate(changes, start=1):
        answer = change()
        assert answer.status in (200, 201, 204), (revision, answer)
        assert (answer.revision, catalog.revision) == (revision, revision)
        assert catalog.commit(revision)["commit_id"] == answer.headers["Commit-Id"]
    (line,) = service.bulk({"catalog": catalog.name, "key": "a", "op": "put", "value": 1})
    assert line["catalog_revision"] == len(changes) + 1
    unchanged = catalog.put("a", 1)
    assert unchanged.revision == len(changes) + 1


def test_h4_an_export_is_everything_at_one_version(catalog: Catalog) -> None:
    """Export returns `{resource_version, metadata}` at one consistent version; reads ignore the
    parameter."""
    names = [f"tables/{number}" for number in range(8)]
    catalog.transaction(*(put(name, 0) for name in names))
    assert catalog.export() == {"resource_version": 1, "metadata": dict.fromkeys(names, 0)}
    for ignored in ({"resource_version": 77}, {"resource_version": 0}):
        assert catalog.export(ignored)["resource_version"] == 1
        assert catalog.get(names[0], ignored).status == 200

    # While everything changes together, no export shows some of it changed.
    done = threading.Event()

    def write() -> list[dict[str, Any]]:
        try:
            for number in range(1, 40):
                actions = [put(name, number) for name in names]
                catalog.transaction(*actions).done()
        finally:
            done.set()
        return []

    def read() -> list[dict[str, Any]]:
        told = [catalog.export()]
        while not done.is_set():
            told.append(catalog.export())
        return told

    for told in side_by_side([write, read, read]):
        for export in told:
            number = export["resource_version"] - 1
            assert export["metadata"] == dict.fromkeys(names, number)
    assert catalog.export({"revision": 11})["metadata"] == dict.fromkeys(names, 10)


def test_h5_a_touch_and_a_cascade_raise_the_version_by_one(catalog: Catalog) -> None:
    """`touch` bumps the version without a change; a cascade is one atomic commit and one bump."""
    catalog.transaction(
        track("author"),
        put("relationships/author.articles", {"to": "author"}),
        put("permissions/author.reader", {"select": ["name"]}),
    ).done()
    before = catalog.export()["metadata"]
    touched = catalog.touch().done()
    assert (touched["revision"], touched["changed"]) == (2, True)
    assert catalog.commit(2)["changes"] == []
    assert catalog.export() == {"resource_version": 2, "metadata": before}

    # Untracking a table takes with it what hangs on it.
    untracked = catalog.transaction(
        {"action": "delete", "key": "tables/author"},
        {"action": "delete", "key": "relationships/author.articles"},
        {"action": "delete", "key": "permissions/author.reader"},
        compare=[at(2)],
    ).done()
    assert untracked["revision"] == 3
    assert {change["key"] for change in catalog.commit(3)["changes"]} == before.keys()
    assert catalog.export() == {"resource_version": 3, "metadata": {}}
    assert catalog.export({"revision": 2})["metadata"] == before


def test_h6_a_follower_of_the_feed_at_a_version_equals_the_export(catalog: Catalog) -> None:
    """A follower that has applied the feed up to version v holds exactly the export at v."""
    done = threading.Event()

    def edit(name: str) -> list[int]:
        for number in range(12):
            key = f"tables/{name}{number % 3}"
            catalog.put(key, {"n": number, "columns": [name]})
            catalog.extended(
                key, {"op": "add_to_set", "path": "/columns", "value": f"c{number}"}
            ).done()
            catalog.transaction(
                {"action": "move", "from": key, "to": f"old/{name}{number}"},
                put("last", [name, number]),
            ).done()
            catalog.touch()
        return []

    def edit_all() -> list[int]:
        try:
            side_by_side([partial(edit, name) for name in "ab"])
        finally:
            done.set()
        return []

    def follow(limit: int) -> list[int]:
        """An instance: a copy of its own, moved on by each page of the feed, and compared."""
        copied: dict[str, Any] = {}
        version, compared = 0, list[int]()
        while not (done.is_set() and version == catalog.revision):
            page = catalog.changes(version, timeout=5, limit=limit).done()
            copied = applied(copied, page["commits"])
            version = page["revision"]
            assert catalog.export({"revision": version}) == {
                "resource_version": version,
                "metadata": copied,
            }
            compared.append(version)
        return compared

    catalog.put("last", None)
    told: list[list[int]] = side_by_side([edit_all, partial(follow, 1000), partial(follow, 7)])
    for compared in told[1:]:
        assert compared == sorted(set(compared)), "versions only go up"
        assert compared[-1] == catalog.revision
    assert len(told[2]) >= catalog.revision // 7, "page by page"


def test_h7_a_change_without_a_version_never_fails_because_of_a_race(catalog: Catalog) -> None:
    """A change sent without a version never fails for a race: the server retries."""
    catalog.put("shared", {"n": 0})
    calls: list[Callable[[], Answer]] = []
    for number in range(8):
        calls += (
            partial(catalog.put, f"tables/{number}", {}),
            partial(catalog.put, "contested", {"by": number}),
            partial(catalog.extended, "shared", {"op": "increment", "path": "/n"}),
            partial(catalog.merge, "shared", {f"m{number}": True}),
            partial(catalog.transaction, track(f"t{number}"), track("contested")),
            partial(catalog.touch),
        )
    answers = side_by_side(calls)
    assert {answer.status for answer in answers} <= {200, 201}
    assert catalog.get("shared").done() == {"n": 8, **{f"m{n}": True for n in range(8)}}
    revisions = {answer.revision for answer in answers}
    assert max(revisions) == catalog.revision


def test_h8_a_page_that_shows_metadata_learns_that_it_is_stale_and_why(catalog: Catalog) -> None:
    """What a page that became stale is told: that it is, who changed what, and enough to reload or
    to re-apply the edit on top."""
    catalog.put("tables/a", {"comment": "", "columns": [], "owner": "me"})
    page = catalog.get("tables/a")
    shown, token, revision = page.done(), page.token, page.revision
    assert catalog.get("tables/a", if_none_match=token).status == 304, "not stale: no dialog"
    nothing = catalog.changes(revision).done()
    assert (nothing["commits"], nothing["revision"]) == ([], revision)

    catalog.put("tables/other", {})
    columns = {"op": "add", "path": "/columns/-", "value": "id"}
    catalog.patch("tables/a", columns, commit_message="add%20the%20key")
    edit = {"op": "replace", "path": "/comment", "value": "mine"}
    problem = catalog.patch("tables/a", edit, if_match=token).refused(412, "precondition_failed")
    (since,) = problem["changes_since"]
    assert (since["revision"], since["message"], since["action"]) == (3, "add the key", "patch")
    assert since["author"]
    assert since["time"]
    assert problem["current"]["etag"] == catalog.get("tables/a").token

    # The feed from what was shown says the same, with the values: enough to show the difference.
    feed = catalog.changes(revision, key="tables/a").done()
    assert [commit["revision"] for commit in feed["commits"]] == [3]
    assert feed["commits"][0]["message"] == "add the key"
    now = applied({"tables/a": shown}, feed["commits"])["tables/a"]
    assert now == catalog.get("tables/a").done()

    # Re-applied on top; an edit of what the other one changed isn't, and says what is in the way.
    again = catalog.patch("tables/a", edit, if_match=token, prefer="rebase").done()
    assert again["rebased_from"] == token
    assert catalog.get("tables/a").done() == json.loads(json.dumps(now | {"comment": "mine"}))
    drop = {"op": "replace", "path": "/columns", "value": []}
    overlap = catalog.patch("tables/a", drop, if_match=token, prefer="rebase")
    assert overlap.refused(412, "precondition_failed")["overlap"]


def test_h9_a_change_that_depends_on_a_range_is_refused_if_the_range_changed(
    catalog: Catalog,
) -> None:
    """Untracking a table is refused when somebody added a relationship to it since (a range that
    must be unchanged); an unrelated change doesn't refuse it."""
    catalog.transaction(track("author"), track("article")).done()
    mine = "relationships/author/"

    def untrack(table: str, seen: int) -> Answer:
        """As a person decided who saw the metadata at that version."""
        unchanged = {"prefix": f"relationships/{table}/", "unchanged_since": seen}
        action = {"action": "delete", "key": f"tables/{table}"}
        return catalog.transaction(action, compare=[unchanged])

    seen = catalog.export()["resource_version"]
    catalog.put(mine + "articles", {"to": "article"}).done(201)
    problem = untrack("author", seen).refused(412, "precondition_failed")
    (failed,) = problem["failed_compares"]
    assert (failed["prefix"], failed["changed_at"]) == (mine, 2)
    assert problem["changes_since"][0]["changes"] == [{"key": mine + "articles", "action": "put"}]
    assert catalog.get("tables/author").status == 200

    seen = catalog.export()["resource_version"]
    catalog.put("tables/other", {}).done(201)
    catalog.put("relationships/authority/x", {}).done(201)
    catalog.transaction(compare=[{"prefix": mine, "count": {"equal": 1}}]).done()
    untrack("author", seen).done()
    assert catalog.get("tables/author").status == 404

    catalog.delete(mine + "articles").done(204)  # a deletion is a change, too
    catalog.transaction(track("author")).done()
    untrack("author", seen).refused(412, "precondition_failed")
    seen = catalog.revision
    stale = f'"{mine}";revision={seen - 2}'  # in a header it means the same
    catalog.delete("tables/author", if_unchanged_under=stale).refused(412, "precondition_failed")
    racing = [partial(catalog.put, f"{mine}{n}", {}) for n in range(8)]
    untracked, *_ = side_by_side([partial(untrack, "author", seen), *racing])
    (first,) = catalog.commit(seen + 1)["changes"]
    assert (untracked.status == 200) == (first["key"] == "tables/author")


def test_h11_undoing_a_change_makes_a_new_version(catalog: Catalog) -> None:
    """A change is taken back, or a catalog brought to what it was at a version, as a new version;
    what was changed since is named.
    """

    def revert(**body: Any) -> Answer:
        return catalog.send("POST", "/reverts", body)

    tables = {name: {"table": name, "columns": ["id"]} for name in ("authors", "books")}
    for name, table in tables.items():
        catalog.put(name, table).done(201)
    # 3: books are renamed, with a relationship to them; 4: somebody else adds a column to authors.
    renamed = catalog.transaction(
        {"action": "move", "from": "books", "to": "volumes"},
        put("authors", {**tables["authors"], "relationship": "volumes"}),
    ).done()
    catalog.patch("authors", add("/description", "who writes")).done()

    # Taken back as a new version: what came after is there, and what was moved is where it was.
    undone = revert(revisions=[renamed["revision"]]).done()
    assert (undone["revision"], undone["changed"], undone["skipped"]) == (5, True, [])
    assert catalog.get("authors").done() == {**tables["authors"], "description": "who writes"}
    assert catalog.get("books").done() == tables["books"]
    catalog.get("volumes").refused(404, "document_not_found")
    assert {each["key"] for each in catalog.commit(5)["changes"]} == {"authors", "books", "volumes"}

    # What was changed since is named, with both values, and nothing is done.
    catalog.merge("authors", {"relationship": "papers"}).done()
    refused = revert(revisions=[5]).refused(409, "changed_since")
    assert refused["contested"] == [
        {
            "key": "authors",
            "part": "content",
            "pointer": "/relationship",
            "revision": 6,
            "value": "papers",
            "wanted": "volumes",
        }
    ]
    assert catalog.revision == 6
    assert revert(revisions=[5], conflict="skip").done()["skipped"] == [
        {"key": "authors", "part": "content", "pointer": "/relationship"}
    ]

    # Brought to what it was at version 2, as a new version, while others write elsewhere.
    answers = side_by_side(
        [
            lambda: revert(to=2, prefix="b"),
            *(partial(catalog.put, f"other/{n}", n) for n in range(4)),
        ]
    )
    assert [each.status for each in answers] == [200, 201, 201, 201, 201]
    revert(to=2, conflict="force").done()
    assert catalog.export()["metadata"] == tables
    told = catalog.send("GET", "/differences", query={"from": 2}).done()
    assert told["differences"] == []
    assert [each["revision"] for each in catalog.commits()] == list(range(1, catalog.revision + 1))


def test_h10_everything_under_a_prefix_is_replaced_by_the_sent_documents(catalog: Catalog) -> None:
    """replace_metadata: everything under a prefix, or the whole catalog, is replaced by what is
    sent, atomically; what isn't in it goes."""

    def replace_all(prefix: str, documents: Any, **more: Any) -> Answer:
        action = {"action": "replace", "prefix": prefix, "documents": documents}
        return catalog.transaction(action, **more)

    catalog.transaction(track("a"), track("b"), put("sources/x", {"n": 1})).done()
    catalog.put_attributes("tables/a", {"team": "sales"}).done()
    tables = {"tables/a": {"n": 2}, "tables/c": {"n": 3}}
    (result,) = replace_all("tables/", tables, compare=[at(2)]).done()["results"]
    assert (result["written"], result["deleted"]) == (2, 1)
    exported = catalog.export()
    assert exported == {"resource_version": 3, "metadata": {**tables, "sources/x": {"n": 1}}}
    assert catalog.get_attributes("tables/a").done() == {"team": "sales"}

    replace_all("", {"tables/z": {}}, compare=[at(2)]).refused(412, "precondition_failed")
    refused = replace_all("", {"tables/z": {}, "": {}})
    assert refused.status == 400
    assert catalog.export() == exported

    many = {f"tables/{n}": {"n": n, "columns": ["id"] * 5} for n in range(5_000)}
    assert replace_all("", many).done()["results"][0]["deleted"] == 3
    assert catalog.export() == {"resource_version": 4, "metadata": many}
    assert len(catalog.commit(4)["changes"]) == 5_003
    replace_all("", exported["metadata"]).done()
    assert catalog.export()["metadata"] == exported["metadata"]
    assert replace_all("", exported["metadata"]).done()["changed"] is False

    # People who replace it at the same time: it is the one's or the other's, never a mixture.
    mine = [{f"tables/{n}": {"by": who} for n in range(who, who + 50)} for who in range(6)]
    answers = side_by_side([partial(replace_all, "", each) for each in mine])
    assert statuses(answers) == [200] * 6
    assert catalog.export()["metadata"] in mine
