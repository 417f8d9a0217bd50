"""What a document was: its revisions viewed whole, and its own changes before those of others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from selenium.webdriver import Keys

from tests.console.browser import DESK, PHONE, Browser
from tests.console.writer import Writer

T = "tables/t"


@pytest.fixture
def table(writer: Writer) -> Writer:
    """Made at revision 1, with attributes from 3 on, away at 5, made again at 6."""
    writer.put(T, {"owner": "ann", "rows": 2**53 + 1}, message="first import")
    writer.replace(T, "/owner", "bob", message="hand over")
    writer.set_attributes(T, {"team": "sales"})
    writer.put("tables/x", 1)
    writer.delete(T)
    writer.put(T, {"owner": "eve"}, message="made again")
    return writer


def test_an_old_revision_is_shown_whole_and_compared_with_now(
    browser: Browser, table: Writer
) -> None:
    browser.open(table.catalog, T, "history")
    browser.wait_text(".history", "r2")
    browser.choose('.history a[href$="revision=2"]')
    # At the revision in between, the attributes had come.
    browser.wait_text(".body", "As it was at revision 2", "hand over", '"bob"', "9007199254740993")
    assert browser.run("return document.activeElement.innerText") == "As it was at revision 2"
    browser.wait_text(".comparison", "From revision 2 to now", '"bob"', '"eve"', "/rows")
    assert "team" not in browser.text(".body")
    table.replace(T, "/owner", "joe")
    browser.wait_text(".comparison", '"joe"')
    assert '"bob"' in browser.text(".body .tree"), "what was stays what it was"
    browser.driver.refresh()
    browser.wait_text(".comparison", "From revision 2 to now", '"joe"')

    # Any revision of the catalog, also one that another document made.
    at = "location.hash = location.hash.replace(/revision=[^&]*/, `revision=${arguments[0]}`)"
    browser.run(at, 4)
    browser.wait_text(".body", "changed its attributes at revision 3", "team", '"bob"')
    browser.wait_text(".comparison", "removed", "/team")
    browser.run(at, 5)
    browser.wait_text(".body", "There was no such document then.")
    browser.wait_text(".comparison", "the whole document", '"joe"')
    browser.run(at, 99)
    browser.wait_text(".body", "revision_not_found")
    browser.run(at, "x")
    browser.wait_text(".body", "“x” is not a revision.")
    browser.press("All of its history")
    browser.wait_text(".comparison", "From revision 6 to 7")


def test_history_shows_what_each_commit_changed(browser: Browser, table: Writer) -> None:
    """It names the places, so that nobody has to open each commit, even if only owners changed."""
    table.apply("o", {"rows": 1, "columns": {"total": {"type": "int"}}, "a": 1, "b": 1}, "nightly")
    table.replace("o", "/columns/total/type", "decimal")
    table.patch(
        "o", *({"op": "replace", "path": f"/{name}", "value": 2} for name in ("rows", "a", "b"))
    )
    browser.open(table.catalog, "o")
    browser.at_field("/rows", "Give back")
    browser.press("Give back", within="dialog")
    browser.wait_text("main", "Given back")
    browser.details(False)
    browser.open(table.catalog, "o", "history")
    rows = "return [...document.querySelectorAll('.history > li')].map((each) => each.innerText)"
    browser.wait(lambda: len(browser.run(rows)) == 4)
    given_back, three, one, created = browser.run(rows)
    assert "changed its owners by anonymous" in given_back
    assert "rows" in given_back.split("\n")
    assert "rows, a, b" in three.split("\n")
    assert "columns › total › type" in one.split("\n")
    assert "created" in created
    browser.wait_text(".feed", "changed its owners rows")
    browser.press("Undo", within=".history")
    browser.wait_text("dialog", "Who owns rows. No value changes.")


def test_a_documents_own_changes_come_before_those_of_others(
    browser: Browser, table: Writer
) -> None:
    for number in range(25):  # more than the page asks for when it opens
        table.put("tables/x", {"n": number})
    browser.open(table.catalog, T)
    browser.wait_text(".feed", "This document", "made again")
    mine, others = ".feed .commits", ".feed .commits ~ .commits"
    assert "tables/x" not in browser.text(mine)
    table.put("tables/y", {}, message="another")
    table.replace(T, "/owner", "joe", message="of this one")
    browser.wait_text(mine, "of this one", "/owner", "made again")
    browser.wait_text(others, "another")
    browser.press("r6", within=".feed")
    browser.wait_text(".body", "As it was at revision 6", '"eve"')

    places = """const [feed, body] = [".feed", ".body"].map((each) =>
          document.querySelector(each).getBoundingClientRect());
        return [feed.left >= body.right, feed.top >= body.bottom]"""
    browser.screen(DESK)
    assert browser.run(places) == [True, False]
    browser.screen(PHONE)
    assert browser.run(places) == [False, True]


def test_history_can_be_filtered_by_author_and_time(
    browser: Browser, writer: Writer, screenshot: Callable[[Browser, str], None]
) -> None:
    """Page by page, the newest first; the address keeps what was asked for."""
    for number in range(70):
        writer.put(T, number, author="ann" if number % 10 else "bob", message=f"m{number}")
        writer.put("tables/x", number, author="bob")
    browser.open(writer.catalog, T, "history")
    shown = ".history li"
    browser.wait(lambda: len(browser.shown(shown)) == 30)
    browser.press("Show older")
    browser.press("Show older")
    browser.wait(lambda: len(browser.shown(shown)) == 70)
    browser.wait_text(".body", "That is all of it.")
    texts = [each.text for each in browser.shown(shown)]
    assert ["m69" in texts[0], "m0" in texts[-1]] == [True, True]

    browser.run("document.querySelector('details.filters summary').click()")
    browser.labelled("Author").send_keys("bob", Keys.ENTER)
    browser.wait_text(".body", "That is all that was found.")
    browser.wait(lambda: len(browser.shown(shown)) == 7)
    assert "m60" in browser.text(".history")
    fourth = next(c["time"] for c in writer.commits() if c["message"] == "m30")
    local = """const [control, time] = arguments;
        const moment = new Date(time);
        moment.setMinutes(moment.getMinutes() - moment.getTimezoneOffset());
        control.value = moment.toISOString().slice(0, 19);
        control.dispatchEvent(new Event("change", {bubbles: true}))"""
    browser.run(local, browser.labelled("Until"), "2001-01-01T00:00:00Z")
    browser.wait(lambda: not browser.shown(shown))
    browser.run(local, browser.labelled("Until"), fourth)
    browser.wait_text(".history", "m30", "m0")
    browser.driver.refresh()
    browser.wait_text(".history", "m30", "m0")
    screenshot(browser, "history-narrowed")
    assert "ann" not in browser.text(".history")
    assert browser.labelled("Author").get_attribute("value") == "bob"


def test_an_agents_commits_are_marked(browser: Browser, table: Writer) -> None:
    message = "[agent curator; model m-1; conversation c-7] found an address <b>"
    table.replace(T, "/owner", "ada", message=message)
    table.replace(T, "/owner", "joe", message="[agentless] by hand")
    browser.open(table.catalog, T, "history")
    browser.wait_text(".body", "agent curator; model m-1; conversation c-7", "found an address <b>")
    assert "[agentless] by hand" in browser.text(".body")
    marks = browser.run(
        "return [...document.querySelectorAll('.body .agent')].map(e => e.innerText)"
    )
    assert marks == ["agent curator; model m-1; conversation c-7"]
