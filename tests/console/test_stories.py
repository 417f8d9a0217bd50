"""What the console is for: it says at once that what it shows is stale, who did what, and goes on.

Two people with a browser each and somebody who writes through the API play the two stories that
Hasura's console was given its resource version for, and what follows from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.console.browser import Browser
from tests.console.writer import Writer
from tests.service import RunningGateway, own_database

Screenshot = Callable[[Browser, str], None]
T, X = "tables/t", "tables/x"
TABLE = {"name": "t", "owner": "ann", "columns": ["id", "name"], "comment": "", "rows": 2**53 + 1}
STALE = ".note.stale"


@pytest.fixture
def tables(writer: Writer) -> Writer:
    """Two tables that know nothing of each other."""
    writer.put(T, TABLE, message="first import")
    writer.put(X, {"name": "x", "relationships": []})
    return writer


def test_user_1_wants_to_untrack_a_table_but_user_2_untracks_it_before(
    browser: Browser, second_browser: Browser, tables: Writer, screenshot: Screenshot
) -> None:
    """Story 1: user 1 isn't left with "table 't' not found", but told who removed it."""
    browser.open(tables.catalog, T)
    browser.press("Delete …")
    browser.wait_text("dialog", "Delete tables/t?")

    second_browser.open(tables.catalog, T)
    second_browser.press("Delete …")
    second_browser.labelled("Message").send_keys("no longer needed")
    second_browser.press("Delete", within="dialog")
    second_browser.wait_text("main", "There is no such document now")

    browser.wait_text("dialog", "anonymous removed this document already", "nothing left to delete")
    screenshot(browser, "story-1-removed-by-someone-else")
    assert "Delete" not in [each.text for each in browser.shown("dialog button")]
    browser.press("Reload", within="dialog")
    browser.wait_text("main", "There is no such document now")
    assert [commit["message"] for commit in tables.commits()][-1] == "no longer needed"


def test_user_1_wants_to_untrack_a_table_but_user_2_adds_a_relationship_to_it_before(
    browser: Browser, second_browser: Browser, tables: Writer, screenshot: Screenshot
) -> None:
    """Story 2: the table is what it was, but removing it would now break what user 2 made of x."""
    browser.open(tables.catalog, T)
    browser.press("Delete …")
    browser.wait_text("dialog", "Delete tables/t?")

    second_browser.open(tables.catalog, X, "edit")
    second_browser.edit(
        ('"relationships": []', '"relationships": [{"name": "to_t", "table": "t"}]')
    )
    second_browser.press("Send")
    second_browser.wait_text("main", "Applied, as revision 3.")

    browser.wait_text(
        "dialog .stale", "anonymous changed tables/x", "mentions this document", "to_t"
    )
    screenshot(browser, "story-2-it-would-mean-something-different")
    assert "Delete" not in [each.text for each in browser.shown("dialog button")]
    assert tables.read(T) == TABLE

    # Only who has seen that can go on.
    browser.press("I have seen this", within="dialog")
    browser.press("Delete", within="dialog")
    browser.wait_text("main", "There is no such document now")
    assert tables.read(T) is None


def test_a_relationship_not_yet_in_the_feed_refuses_the_deletion(
    browser: Browser, tables: Writer, screenshot: Screenshot
) -> None:
    """Story 2, in the moment between the feed and the click: the gateway refuses."""
    browser.open(tables.catalog, T)
    browser.press("Delete …")
    browser.deafen()
    tables.patch(X, {"op": "add", "path": "/relationships/-", "value": {"table": "t"}})
    browser.press("Delete", within="dialog")
    browser.wait_text("dialog .stale", "Nothing was deleted")
    screenshot(browser, "story-2-refused-when-sent")
    assert tables.read(T) == TABLE
    browser.press("I have seen this", within="dialog")
    browser.press("Delete", within="dialog")
    browser.wait_text("main", "There is no such document now")


def test_a_member_is_removed_while_i_edit_it(
    browser: Browser, second_browser: Browser, tables: Writer, screenshot: Screenshot
) -> None:
    """Story 1 within one document: the member I edit is gone; I decide which of the two stands."""
    tables.put(T, {**TABLE, "permissions": {"select": ["id"]}})
    browser.open(tables.catalog, T, "edit")
    browser.edit(('"select": ["id"]', '"select": ["id", "name"]'))
    second_browser.open(tables.catalog, T)
    tables.patch(T, {"op": "remove", "path": "/permissions"}, message="nobody reads this")

    # Who only looks is told, too.
    second_browser.wait_text(
        STALE, "anonymous changed this document since you opened it", "removed"
    )
    said = browser.wait_text(
        STALE, "while you were editing it", "/permissions", "you changed this too"
    )
    assert "nobody reads this" in said
    browser.press("Re-apply my edit on top")
    browser.wait_text("dialog", "/permissions", "Mine", "Theirs (anonymous)", "not there")
    screenshot(browser, "story-1-decide-what-stands")
    browser.press("Use this", within="dialog")  # nothing is decided yet: it stays
    browser.wait_text("dialog", "1 place to decide")
    browser.choose("dialog input[value=mine]")
    browser.press("Use this", within="dialog")
    browser.wait_text("main", "on top of what is there now")
    assert browser.text(STALE) == ""
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 5.")
    assert tables.read(T)["permissions"] == {"select": ["id", "name"]}

    second_browser.press("Reload")
    second_browser.wait_text("main .tree", "permissions")


def test_an_edit_is_reapplied_on_top_of_other_changes(
    browser: Browser, tables: Writer, screenshot: Screenshot
) -> None:
    browser.open(tables.catalog, T, "edit")
    browser.edit(('"comment": ""', '"comment": "mine"'))
    tables.replace(T, "/owner", "bob", message="hand over")
    tables.patch(T, {"op": "add", "path": "/columns/1", "value": "region"})
    said = browser.wait_text(
        STALE, "while you were editing it", "/owner", "/columns/1", "hand over"
    )
    assert "you changed this too" not in said
    screenshot(browser, "stale-while-editing")
    browser.press("Re-apply my edit on top")
    browser.wait_text("dialog", "None of your 1 change", "/comment")
    screenshot(browser, "re-apply")
    browser.press("Use this", within="dialog")
    browser.wait_text("main", "on top of what is there now")
    assert '"bob"' in browser.source
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 5.")
    assert tables.read(T) == TABLE | {
        "comment": "mine",
        "owner": "bob",
        "columns": ["id", "region", "name"],
    }
    # All that went over the wire was the change.
    assert tables.commits()[-1]["changes"][0]["patch"] == [
        {"op": "replace", "path": "/comment", "value": "mine"}
    ]


def test_after_the_database_was_set_back_the_page_shows_the_current_state(
    a_browser: Callable[[int], Browser], mongodb_uri: str
) -> None:
    """Though that is an earlier revision than the one that it shows."""
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, workers=1) as running,
    ):
        browser, writer = a_browser(0), Writer(running.url, "shop")
        browser.begin(running.url)
        writer.put(T, TABLE)
        put_back = backup(mongodb_uri, database)
        writer.replace(T, "/owner", "eve", message="in a future that was lost")
        browser.open(writer.catalog, T)
        browser.edit_field("/owner")
        browser.fill_in("bob")
        put_back()
        browser.press("Save")
        browser.wait_text(STALE, "Nothing was applied", "/owner", "you changed this too")
        browser.press("Discard my edit and reload")
        browser.wait_text("main", "Reloaded: revision 1.")
        browser.wait(lambda: "eve" not in browser.text(".body"))
        browser.edit_field("/owner")
        browser.fill_in("bob")
        browser.press("Save")
        browser.wait_text("main", "Applied, as revision 2.")
        assert writer.read(T) == TABLE | {"owner": "bob"}
        browser.end()


def backup(mongodb_uri: str, database: str) -> Callable[[], None]:
    """`put_back()` lets the database be what it is now, under a gateway that goes on."""

    def collections(client: MongoClient[RawBSONDocument]) -> Iterator[Any]:
        return (client[database][name] for name in client[database].list_collection_names())

    with MongoClient(mongodb_uri, document_class=RawBSONDocument) as client:
        records = {each.name: list(each.find()) for each in collections(client)}

    def put_back() -> None:
        with MongoClient(mongodb_uri, document_class=RawBSONDocument) as client:
            for each in collections(client):
                each.delete_many({})
                if records.get(each.name):
                    each.insert_many(records[each.name])

    return put_back


def test_a_stale_edit_that_is_sent_anyway_shows_the_same_choice(
    browser: Browser, tables: Writer, screenshot: Screenshot
) -> None:
    """No feed: the gateway's 412 says it, with what changed and who did; nothing is applied."""
    browser.open(tables.catalog, T, "edit")
    browser.deafen()
    browser.edit(('"ann"', '"me"'))
    tables.replace(T, "/owner", "bob", message="hand over")
    browser.press("Send")
    said = browser.wait_text(STALE, "Nothing was applied", "/owner", "you changed this too")
    assert "hand over" in said
    screenshot(browser, "refused-when-sent")
    assert tables.read(T)["owner"] == "bob"


def test_a_failed_test_shows_the_same_choice(browser: Browser, tables: Writer) -> None:
    """409: the patch demands an old value that isn't there any more."""
    browser.open(tables.catalog, T, "edit")
    browser.deafen()
    browser.edit(('"ann"', '"me"'))
    browser.choose('.outgoing input[aria-label="Test the old value of owner first"]')
    browser.wait_text(".outgoing pre", '{"op":"test","path":"/owner","value":"ann"}')
    browser.select("Only if", "my tests hold")
    tables.replace(T, "/owner", "bob")
    browser.press("Send")
    browser.wait_text(STALE, "Nothing was applied", "/owner", "you changed this too")
    assert tables.read(T)["owner"] == "bob"


def test_the_gateway_rebases_if_asked(browser: Browser, tables: Writer) -> None:
    browser.open(tables.catalog, T, "edit")
    browser.deafen()
    browser.edit(('"comment": ""', '"comment": "mine"'))
    browser.select("Only if", "nobody has changed what I change")
    tables.replace(T, "/owner", "bob")
    browser.press("Send")
    browser.wait_text("main", "applied on top of what others had changed")
    assert tables.read(T) == TABLE | {"comment": "mine", "owner": "bob"}
    assert tables.commits()[-1]["rebased_from"]


def test_overwriting_needs_a_confirmation_that_names_the_losses(
    browser: Browser, tables: Writer, screenshot: Screenshot
) -> None:
    browser.open(tables.catalog, T, "edit")
    browser.edit(('"ann"', '"me"'), ('"id",', '"id", "mine",'))
    tables.patch(
        T,
        {"op": "replace", "path": "/owner", "value": "bob"},
        {"op": "add", "path": "/region", "value": "eu"},
    )
    browser.press("Overwrite with mine")
    said = browser.wait_text("dialog", "your document would undo", '"bob"', "/region")
    assert "/columns" not in said, "nobody else touched that"
    screenshot(browser, "overwrite-knowingly")
    browser.press("Overwrite", within="dialog")
    assert tables.read(T)["owner"] == "bob", "not without the second word"
    # Changed once more while the dialog is open: what would be lost is another thing now.
    tables.replace(T, "/comment", "news")
    browser.choose("dialog input[type=checkbox]")
    browser.press("Overwrite", within="dialog")
    browser.wait_text(STALE, "Nothing was applied", "/comment")
    browser.press("Overwrite with mine")
    browser.wait_text("dialog", "/comment", '"news"')
    browser.choose("dialog input[type=checkbox]")
    browser.press("Overwrite", within="dialog")
    browser.wait_text("main", "Overwritten, as revision 5.")
    assert tables.read(T) == TABLE | {"owner": "me", "columns": ["id", "mine", "name"]}


def test_a_document_removed_during_an_edit_can_be_created_again(
    browser: Browser, tables: Writer, screenshot: Screenshot
) -> None:
    """Story 1 with an edit: re-apply knows nothing to apply it to, but for the whole."""
    browser.open(tables.catalog, T, "edit")
    browser.edit(('"ann"', '"me"'))
    tables.delete(T, message="spring cleaning")
    browser.wait_text(STALE, "removed this document while you were editing it", "spring cleaning")
    screenshot(browser, "story-1-removed-while-editing")
    browser.press("Re-apply my edit on top")
    browser.wait_text("dialog", "The whole document", "not there")
    browser.choose("dialog input[value=mine]")
    browser.press("Use this", within="dialog")
    browser.wait_text("main", "on top of what is there now")
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 4.")
    assert tables.read(T) == TABLE | {"owner": "me"}


def test_my_own_change_does_not_make_the_page_stale(browser: Browser, tables: Writer) -> None:
    browser.open(tables.catalog, T, "edit")
    for revision, (old, new) in enumerate([("ann", "bob"), ("bob", "eve")], 3):
        browser.edit((f'"{old}"', f'"{new}"'))
        browser.labelled("Message").send_keys(f"to {new}")
        browser.press("Send")
        browser.applied(revision)
        # The feed has told of it by now, and said nothing.
        browser.wait_text(".feed", f"to {new}")
        assert browser.text(STALE) == ""
        browser.press("Edit")
        browser.wait_editor()


def test_unrelated_changes_do_not_make_an_edit_stale(browser: Browser, tables: Writer) -> None:
    """Other documents, a touch, a write that changes nothing: no alarm."""
    browser.open(tables.catalog, T, "edit")
    browser.edit(('"ann"', '"me"'))
    tables.put("tables/other", {"name": "other"})
    tables.put(T, TABLE)
    tables.put("tables/last", 1)
    browser.wait_text(".feed", "tables/last")
    assert browser.text(STALE) == ""
    browser.press("Send")
    browser.wait_text("main", "Applied")


def test_a_stale_list_is_marked(browser: Browser, tables: Writer, screenshot: Screenshot) -> None:
    browser.open(tables.catalog)
    browser.wait_text(".rows", T, X)
    tables.delete(X)
    tables.put("tables/new", {})
    tables.replace(T, "/owner", "bob")
    browser.wait_text(STALE, "anonymous changed 3 documents of this list")
    browser.wait_text(".rows", "removed", "changed")
    screenshot(browser, "list-stale")
    browser.press("Read again")
    browser.wait_text(".rows", "tables/new")
    assert X not in browser.text(".rows")
    assert browser.text(STALE) == ""


def test_the_feed_resumes_where_it_was_interrupted(browser: Browser, tables: Writer) -> None:
    """After an outage the page shows what happened meanwhile, each thing once."""
    browser.open(tables.catalog, T)
    browser.offline(True)
    browser.wait_text("#state", "Reconnecting")
    tables.replace(T, "/owner", "bob", message="while you were away")
    browser.offline(False)
    browser.wait_text(STALE, "/owner", "while you were away")
    browser.wait(lambda: browser.find(".pulse.live"))
    assert len(re.findall("while you were away", browser.text(".feed"))) == 1
