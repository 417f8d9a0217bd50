"""Each view: what it shows, for everybody, on every screen, however large the catalog."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

import pytest
from selenium.webdriver import Keys

from tests.console.axe import contrast_violations, violations
from tests.console.browser import PHONE, Browser
from tests.console.writer import Writer
from tests.ports import own_port
from tests.service import RunningGateway

Screenshot = Callable[[Browser, str], None]
T = "tables/t"
# A catalog of 100,000 takes half a minute to fill: ask for it where that is wanted.
DOCUMENTS = int(os.environ.get("GATEWAY_TEST_CONSOLE_DOCUMENTS", "5000"))
TABLE = {
    "name": "t",
    "owner": "ann",
    "columns": [{"name": "id", "type": "bigint"}, {"name": "total", "type": "decimal"}],
    "rows": 2**53 + 1,
    "ratio": 1.0,
    "comment": "all of it, " * 30,
    "none": None,
}


@pytest.fixture
def table(writer: Writer) -> Writer:
    writer.put(T, {"name": "t", "owner": "nobody"}, message="first import")
    writer.put(T, TABLE, message="what it is")
    writer.set_attributes(T, {"team": "sales", "tier": 2})
    return writer


def _stale(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T, "edit")
    browser.edit(('"ann"', '"me"'))
    table.patch(T, {"op": "replace", "path": "/owner", "value": "bob"})
    browser.wait_text(".note.stale", "/owner", "you changed this too")


def _rebase(browser: Browser, table: Writer) -> None:
    _stale(browser, table)
    browser.press("Re-apply")
    browser.wait_text("dialog", "/owner")
    browser.choose("dialog input[value=theirs]")


def _overwrite(browser: Browser, table: Writer) -> None:
    _stale(browser, table)
    browser.press("Overwrite with mine")
    browser.wait_text("dialog", "/owner")


def _delete(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T)
    browser.press("Delete …")
    table.put("tables/x", {"to": T})
    browser.wait_text("dialog", "mentions this document")


def _create(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog)
    browser.press("New document")
    browser.wait_text("dialog", "member by member")


def _shown(tab: str | None, *texts: str) -> Callable[[Browser, Writer], None]:
    def show(browser: Browser, table: Writer) -> None:
        browser.open(table.catalog, T, tab)
        browser.wait_text("main", *texts)

    return show


def _edit(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T, "edit")
    browser.edit(('"ann"', '"me"'), ('"none": null', '"more": [1, 2]'))
    browser.wait_text(".outgoing", "/owner", "/more", "3 operations")


def _catalogs(browser: Browser, table: Writer) -> None:
    browser.open()
    browser.wait_text("main", table.catalog)


def _catalog(browser: Browser, table: Writer) -> None:
    table.put("tables/x", {})
    browser.open(table.catalog)
    table.patch("tables/x", {"op": "add", "path": "/a", "value": 1}, message="more")
    browser.wait_text(".note.stale", "tables/x")


def _settings(browser: Browser, table: Writer) -> None:
    table.set_schema({"type": "object"})
    browser.open(table.catalog, None, "settings")
    browser.edit(('"object"', '"objec"'))
    browser.press("Send")
    browser.wait_text(".outgoing", "/schemas/*/type", "Go there")


def _subscriptions(browser: Browser, table: Writer) -> None:
    table.subscribe("billing", f"http://127.0.0.1:{own_port()}/in?" + "x" * 200)
    browser.open(table.catalog, None, "subscriptions")
    browser.wait_text(".subscriptions", "billing", "retrying", "Last error")


def _subscription(browser: Browser, table: Writer) -> None:
    table.subscribe("billing", f"http://127.0.0.1:{own_port()}/in")
    browser.open(table.catalog, None, "subscriptions")
    browser.press("Change …")
    browser.wait_text("dialog", "Change billing")


def _home(browser: Browser, table: Writer) -> None:
    table.apply(T, {"loaded": {"rows": 1}}, "nightly")
    table.replace(T, "/loaded/rows", 2)
    browser.open(table.catalog, None, "home")
    browser.wait_text("main", "nightly", "lost 1 field")


def _who(browser: Browser, table: Writer) -> None:
    table.replace(T, "/columns/0/type", "int")
    browser.open(table.catalog, T)
    browser.at_field("/columns", "Who")
    browser.wait_text("dialog", "Who changed columns?", "/columns/0/type")


def _undo(browser: Browser, table: Writer) -> None:
    """Of what others changed since."""
    table.replace(T, "/owner", "bob")
    table.replace(T, "/owner", "eve")
    browser.open(table.catalog, T, "history")
    browser.wait_text(".history", "r5")
    browser.shown(".history button", "Undo …")[1].click()
    browser.wait_text("dialog", "Changed since: 1 place", "/owner")


def _restore(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T, "history&revision=1")
    browser.press("Restore this")
    browser.wait_text("dialog", "What would change", "/owner")


def _sent(browser: Browser, table: Writer) -> None:
    table.apply(T, {"loaded": 1}, "nightly")
    _stale(browser, table)
    browser.press("Send")
    browser.wait_text(".note.stale", "Nothing was applied")


def _saved(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T)
    browser.edit_field("/owner")
    browser.fill_in("eve")
    browser.press("Save")
    browser.wait_text("main", "Applied, as revision 4.")


def _missing(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, "nothing/here")
    browser.wait_text("main", "There is no such document now")


VIEWS: dict[str, Callable[[Browser, Writer], None]] = {
    "catalogs": _catalogs,
    "catalog": _catalog,
    "tree": _shown(None, "columns", "9007199254740993"),
    "settings": _settings,
    "subscriptions": _subscriptions,
    "text": _shown("text", '"rows": 9007199254740993'),
    "attributes": _shown("attributes", "team", "sales"),
    "history": _shown("history", "From revision 2 to 3", "first import"),
    "revision": _shown("history&revision=1", "From revision 1 to now", "nobody"),
    "edit": _edit,
    "missing": _missing,
    "stale": _stale,
    "rebase": _rebase,
    "overwrite": _overwrite,
    "delete": _delete,
    "create": _create,
    "subscription": _subscription,
    "home": _home,
    "who": _who,
    "undo": _undo,
    "restore": _restore,
    "sent": _sent,
    "saved": _saved,
}
# What is written in JSON, by the person or because it was asked for, and exact times are left out.
SAID = """const asJson = "pre, textarea, .source";
    const hides = (each) => each.matches(asJson) && (each.hidden = true);
    const all = [...document.querySelectorAll("body *")];
    const hidden = all.filter((each) => !each.hidden && hides(each));
    const named = all.filter((each) => each.tagName !== "TIME" && each.checkVisibility());
    const told = named.flatMap((each) => [each.title, each.ariaLabel, each.placeholder]);
    const texts = [document.title, document.body.innerText, ...told.filter(Boolean)];
    for (const each of hidden) each.hidden = false;
    return texts.join("\\n");"""
TECHNICAL = re.compile(
    r"revision \d+|\br\d+\b|\b\d+-[0-9a-f]{8}\b"
    rf"|(?<![\w.:/-])/(?:{'|'.join([*TABLE, 'more', 'loaded', 'schemas', 'team', 'tier'])})\b"
)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_accessible(
    browser: Browser, table: Writer, screenshot: Screenshot, view: str
) -> None:
    """By axe: no violation in light or in dark; on a phone nothing is wider than the screen; and
    without details, all is said in words."""
    VIEWS[view](browser, table)
    screenshot(browser, f"view-{view}-light")
    assert violations(browser) == []
    details = "document.documentElement.toggleAttribute('data-details')"
    browser.run(details)
    assert violations(browser) == []
    screenshot(browser, f"view-{view}-words")
    found = [match[0] for match in TECHNICAL.finditer(browser.run(SAID))]
    assert found == [], "no revision, token or pointer for those who don't want details"
    browser.run(details)
    browser.prefer(color_scheme="dark")
    screenshot(browser, f"view-{view}-dark")
    assert contrast_violations(browser) == []
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, f"view-{view}-phone")
    wide = browser.run(
        """const ways = ["auto", "scroll", "hidden"];
           const scrolls = (e) => e && (ways.includes(getComputedStyle(e).overflowX)
             || scrolls(e.parentElement));
           const wide = (e) => e.getBoundingClientRect().right > innerWidth + 1;
           return [...document.querySelectorAll("body *")]
             .filter((e) => wide(e) && !scrolls(e.parentElement))
             .map((e) => e.outerHTML.slice(0, 200))"""
    )
    assert wide == []
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]


def test_a_document_can_be_edited_and_deleted_by_keyboard_only(
    browser: Browser, table: Writer
) -> None:
    """From the list of catalogs to a changed document, and to who removes it, without a mouse."""
    browser.open(table.catalog)
    browser.keys(Keys.TAB)
    browser.tab_to("Keys that begin with")
    browser.keys("tables/")
    browser.wait(lambda: "prefix=tables" in browser.driver.current_url)
    browser.tab_to(T)
    browser.keys(Keys.ARROW_DOWN, Keys.ENTER)
    browser.wait_text("main", "columns")

    # The tree: one stop of Tab, arrows within.
    browser.wait(lambda: browser.run("return document.activeElement.tagName") == "H1")
    browser.tab_to("Edit")
    browser.keys(Keys.TAB)
    assert browser.run("return document.activeElement.getAttribute('role')") == "treeitem"
    browser.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.text(".foot code") == "/columns/0"
    browser.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert browser.text(".foot code") == "/columns/0/name"
    browser.keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.END)
    assert browser.text(".foot code") == "/none"
    assert browser.outline(), "what has the focus is seen"

    browser.chord(Keys.SHIFT, Keys.TAB)
    browser.keys(Keys.ENTER)  # the link to the editor
    browser.wait_editor()
    browser.tab_to("Content, as JSON")
    browser.keys(Keys.TAB)  # is no character in it: it leads on
    assert not browser.run("return document.activeElement.closest('.source')")
    browser.chord(Keys.SHIFT, Keys.TAB)
    browser.chord(Keys.CONTROL, "a")
    browser.keys('{"by": "keyboard"}')
    browser.wait_text(".outgoing", "/by")
    browser.chord(Keys.CONTROL, Keys.ENTER)
    browser.wait_text("main", "Applied, as revision 4.")
    assert table.read(T) == {"by": "keyboard"}

    # A dialog takes the focus, keeps it, gives it back.
    browser.tab_to("Delete …")
    browser.keys(Keys.ENTER)
    browser.wait_text("dialog", "Delete tables/t?")
    browser.wait(lambda: browser.focused() == "Cancel")
    assert browser.run("return document.querySelector('dialog').matches(':modal')")
    browser.keys(Keys.ESCAPE)
    browser.wait(lambda: browser.find("dialog") is None)
    browser.wait(lambda: browser.focused() == "Delete …")
    browser.keys(Keys.ENTER)
    browser.tab_to("Delete", 8)
    browser.keys(Keys.ENTER)
    browser.wait_text("main", "There is no such document now")
    assert table.read(T) is None


def test_a_redrawn_list_keeps_the_focus(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog)
    browser.wait_text("main", T)
    browser.tab_to(T)
    table.patch(T, {"op": "add", "path": "/x", "value": 1})
    browser.wait_text(".note.stale", T)
    assert browser.focused().startswith(T)


def test_screen_readers_are_told_about_stale_documents(browser: Browser, table: Writer) -> None:
    """Staleness in an alert, that was there before; landmarks; a heading that has the focus."""
    browser.open(table.catalog, T)
    roles = browser.run(
        "return [...document.querySelectorAll('header, nav, main, aside')].map((e) => e.tagName)"
    )
    assert {"HEADER", "NAV", "MAIN", "ASIDE"} <= set(roles)
    browser.run("window.alertPlace = document.querySelector('main [role=alert]')")
    table.replace(T, "/owner", "bob")
    browser.wait_text(".note.stale", "/owner")
    said = browser.run("return alertPlace.isConnected && alertPlace.innerText")
    assert "anonymous changed this document" in said


def test_large_numbers_survive_an_edit_of_another_member(browser: Browser, table: Writer) -> None:
    """Beyond 2^53, by patch and by compare-and-set."""
    browser.open(table.catalog, T, "edit")
    for kind, old, new, revision in [("patch", "ann", "bob", 4), ("put", "bob", "eve", 5)]:
        browser.choose(f"input[name=kind][value={kind}]")
        browser.edit((f'"{old}"', f'"{new}"'))
        browser.press("Send")
        browser.applied(revision)
        assert table.read(T) == TABLE | {"owner": new}
        browser.press("Edit")
        browser.wait_editor()
    browser.choose("input[name=kind][value=patch]")
    browser.edit(("9007199254740993", "9007199254740995"))
    browser.wait_text(".outgoing pre", '{"op":"replace","path":"/rows","value":9007199254740995}')
    browser.press("Send")
    browser.wait(lambda: table.read(T)["rows"] == 9007199254740995)


def test_invalid_json_is_marked_and_not_sent(browser: Browser, table: Writer) -> None:
    """At its line, and above the text; and nothing on the page moves."""
    browser.open(table.catalog, T, "edit")
    browser.wait_editor()
    places = """return [".source", ".outgoing", ".json-head"]
        .map((each) => document.querySelector(each).getBoundingClientRect())
        .map(({top, height}) => [top, height])"""
    before = browser.run(places)
    browser.edit(('"ann",', '"ann"'))
    browser.wait_text(".json-status", "line 4, column 3", "expected a comma or }")
    assert '"columns":' in browser.text(".fault-line")
    assert browser.run(places)[0] == before[0]
    assert browser.run(places)[2] == before[2]
    assert _above(browser, ".json-status", ".source"), "under the text it would be out of sight"
    assert violations(browser) == []
    browser.press("Send")
    assert browser.selected('"columns"')
    assert "Nothing, as long as the text isn't JSON" in browser.text(".outgoing")
    assert table.read(T) == TABLE


def _above(browser: Browser, upper: str, lower: str) -> bool:
    script = """const [a, b] = [...arguments].map((each) => document.querySelector(each));
        return a.getBoundingClientRect().bottom <= b.getBoundingClientRect().top + 1"""
    return bool(browser.run(script, upper, lower))


def test_invalid_json_is_marked_in_the_dialog_until_it_is_corrected(
    browser: Browser, table: Writer
) -> None:
    _create(browser, table)
    browser.labelled("Key").send_keys("new")
    browser.choose("dialog input[value=json]")
    browser.write('{"a": 1,\n"b" 2}')
    browser.press("Create", within="dialog")
    browser.wait_text("dialog", "line 2, column 5: expected a colon", '"b" 2}')
    browser.keys(Keys.ARROW_LEFT, ":")
    browser.wait(lambda: "isn't JSON" not in browser.text("dialog"))
    browser.press("Create", within="dialog")
    browser.wait(lambda: table.read("new") == {"a": 1, "b": 2})


def test_a_refusal_disappears_when_the_text_changes(browser: Browser, table: Writer) -> None:
    table.set_schema({"properties": {"owner": {"enum": ["ann", "bob"]}}})
    browser.open(table.catalog, T, "edit")
    browser.edit(('"ann"', '"me"'))
    browser.press("Send")
    browser.wait_text(".outgoing", "schema_violation")
    browser.edit(('"me"', '"bob"'))
    browser.wait(lambda: "schema_violation" not in browser.text(".outgoing"))
    browser.press("Send")
    browser.wait(lambda: table.read(T)["owner"] == "bob")


def test_an_absent_catalog_is_explained_and_can_be_created(
    browser: Browser, writer: Writer
) -> None:
    browser.open(writer.catalog, wait=False)
    browser.wait_text("main", "There is no such catalog. Its first document creates it.")
    browser.wait_text("#state", "No such catalog", "anonymous")
    assert "Live" not in browser.text("#state")
    writer.put("k", 1)
    browser.wait_text("#state", "Live")
    browser.open(f"{writer.catalog}-none", "k", wait=False)
    browser.wait_text("main", "There is no such catalog.")


def test_times_are_relative_and_exact_on_hover(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T)
    browser.wait_text(".facts", "anonymous")
    script = "return [...document.querySelectorAll('time')].map((t) => [t.textContent, t.title])"
    told = browser.run(script)
    year = browser.run("return String(new Date().getFullYear())")
    assert told
    assert all(text == "just now" and year in title for text, title in told), told

    # As time goes on.
    browser.run("const now = Date.now(); Date.now = () => now + 3 * 3600_000")
    browser.wait(lambda: all("3 hours ago" in text for text, _ in browser.run(script)))


def test_leaving_the_page_does_not_lose_an_edit(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T, "edit")
    browser.edit(('"ann"', '"me"'))
    browser.press("History")
    browser.wait_text("main", "From revision")
    browser.press("Edit")
    assert '"me"' in browser.source
    browser.press("Catalogs")
    browser.wait_text("dialog", "Leave your edit?")
    browser.press("Stay", within="dialog")
    assert '"me"' in browser.source
    browser.press("Catalogs")
    browser.press("Discard my edit", within="dialog")
    browser.wait_text("h1", "Catalogs")


def test_going_back_during_the_question_stays_on_the_page(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog, T, "edit")
    browser.edit(('"ann"', '"me"'))
    browser.press("Catalogs")
    browser.wait_text("dialog", "Leave your edit?")
    browser.driver.back()
    browser.wait(lambda: not browser.find("dialog"))
    assert '"me"' in browser.source
    browser.press("Catalogs")
    browser.press("Discard my edit", within="dialog")
    browser.wait_text("h1", "Catalogs")
    assert browser.run("return location.hash") == "#/"


def test_text_typed_while_an_edit_is_sent_is_kept(browser: Browser, table: Writer) -> None:
    """Even if it isn't JSON yet. It becomes an edit of what was saved."""
    browser.open(table.catalog, T, "edit")
    for owner, more, revision in (("bob", "bobby", 4), ("eve", "evelyn", 6)):
        browser.edit((f'"{table.read(T)["owner"]}"', f'"{owner}"'))
        browser.hold_answers()
        browser.press("Send")
        browser.wait(lambda owner=owner: table.read(T)["owner"] == owner)
        text = browser.source.replace(f'"{owner}"', f'"{more}"')
        browser.write(text if owner == "bob" else text[:-2])
        browser.let_answers_go()
        browser.wait_text("main", f"Applied, as revision {revision}.")
        browser.press("Edit")
        if owner == "eve":
            assert browser.source == text[:-2]
            browser.write(text)
        assert browser.source == text
        browser.press("Send")
        browser.applied(revision + 1)
        assert table.read(T) == TABLE | {"owner": more}
        browser.press("Edit")


def test_two_arbitrary_revisions_can_be_compared(browser: Browser, table: Writer) -> None:
    table.replace(T, "/owner", "bob")
    table.delete(T)
    table.put(T, {"again": True})
    browser.open(table.catalog, T, "history")
    browser.wait_text(".comparison", "From revision 5 to 6", "the whole document", "again")
    browser.choose('input[name=from][value="1"]')
    browser.choose('input[name=to][value="4"]')
    said = browser.wait_text(".comparison", "From revision 1 to 4", '"nobody"', '"bob"')
    assert "/owner" in said
    assert "team" in said, "attributes are compared, too"
    # The address names the comparison.
    browser.driver.refresh()
    browser.wait_text(".comparison", "From revision 1 to 4", "/owner")


def test_a_document_is_created_but_never_replaced(browser: Browser, table: Writer) -> None:
    browser.open(table.catalog)
    browser.press("New document")
    browser.labelled("Key").send_keys(T)
    browser.press("Create", within="dialog")
    browser.wait_text("dialog", "There is already a document under this key")
    assert table.read(T) == TABLE
    browser.labelled("Key").clear()
    browser.labelled("Key").send_keys("a/../ä?#%2F 1")
    browser.press("Create", within="dialog")
    browser.wait_text("h1", "a/../ä?#%2F 1")
    assert table.read("a/../ä?#%2F 1") == {}


def test_text_written_by_others_is_never_run_as_markup(browser: Browser, writer: Writer) -> None:
    """In keys, values, names of members, messages, attributes: shown as it is, never run."""
    attack = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'
    writer.put(attack, {attack: attack, "__proto__": {"x": 1}}, message=attack)
    writer.set_attributes(attack, {attack: attack})
    writer.put(attack, {attack: [attack]}, message=attack)
    browser.open(writer.catalog, attack)
    for tab in ("text", "attributes", "history", None, "edit"):
        browser.go(writer.catalog, attack, tab)
        browser.wait_text("main", "<img src=x", "<script>")
    browser.edit(('": [', '": [1,'))
    writer.put(attack, {"other": attack}, message=attack)
    browser.wait_text(".note.stale", "<img src=x")
    browser.open(writer.catalog)
    browser.wait_text("main", "<img src=x")
    assert browser.run("return window.broken ?? null") is None
    assert browser.run("return document.querySelectorAll('main img, main script').length") == 0


def test_a_large_catalog_stays_usable(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    """A page at a time, whatever is behind it; any key is found by its beginning."""
    step = 5_000
    for start in range(0, DOCUMENTS, step):
        stop = min(start + step, DOCUMENTS)
        writer.bulk({f"t/{n:06}": {"n": n, "name": f"table {n}"} for n in range(start, stop)})
    began = time.monotonic()
    browser.open(writer.catalog)
    browser.wait_text(".rows", "t/000099")
    opened_s = time.monotonic() - began
    for place in ("101–200", "201–300"):
        browser.press("Next")
        browser.wait_text(".pages", place)
    browser.press("Previous")
    browser.wait_text(".rows", "t/000100")
    search = browser.labelled("Keys that begin with")
    search.send_keys(f"t/{DOCUMENTS - 7:06}")
    browser.wait(lambda: len(browser.shown(".rows a")) == 1)
    screenshot(browser, "large-catalog")
    assert len(browser.driver.find_elements("css selector", "body *")) < 2000
    browser.shown(".rows a")[0].click()
    browser.wait_text("main", f"table {DOCUMENTS - 7}")
    print(f"{DOCUMENTS} documents: the list was there after {opened_s:.1f} s")


def test_a_large_document_stays_usable(browser: Browser, writer: Writer) -> None:
    """400 KB: the tree draws what is looked at, the patch is what was changed."""
    rows = [{"id": n, "name": f"row {n}", "tags": ["a", "b"]} for n in range(8_000)]
    writer.put("large", {"rows": rows})
    browser.open(writer.catalog, "large")
    browser.wait_text(".tree", "8000 items")
    assert len(browser.driver.find_elements("css selector", "[role=treeitem]")) < 500
    browser.press("Edit")
    browser.edit(('"row 5000"', '"changed"'))
    browser.wait_text(
        ".outgoing pre", '{"op":"replace","path":"/rows/5000/name","value":"changed"}'
    )
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 2.")


def test_the_page_asks_for_a_token_and_explains_a_refusal(
    browser: Browser,
    guarded: tuple[RunningGateway, Callable[..., str]],
    screenshot: Screenshot,
) -> None:
    running, issue = guarded
    writer = Writer(running.url, "shop", issue("root", "admin:*"))
    writer.put(T, TABLE)
    browser.begin(running.url)
    browser.open(wait=False)
    browser.wait_text("dialog", "Sign in")
    screenshot(browser, "sign-in")
    assert violations(browser) == []
    browser.sign_in("gwt_nobody")
    browser.wait_text("dialog", "The token was refused")
    browser.sign_in(issue("reader", "read:shop"))
    browser.wait_text("main", "shop")
    assert browser.run("return [Object.keys(localStorage), document.cookie]") == [
        ["metadata-gateway-details"],
        "",
    ]

    # Who one is, and nothing that one may not do.
    browser.wait_text("#state", "reader")
    title = "return document.querySelector('.who-am-i').title"
    assert browser.run(title) == "may read in shop"
    assert browser.find("main button") is None or "New" not in browser.text("main")
    browser.open("shop", T, "edit")
    browser.wait_text("main", "You may read this catalog, but not change it.")
    assert "Edit" not in browser.text(".tabs")
    assert "Delete" not in browser.text("main")
    screenshot(browser, "reader")
    browser.open("shop", T, "attributes")
    browser.wait_text(".body", "It has no attributes.")
    assert "Edit" not in browser.text(".body")
    browser.open("shop", None, "settings")
    browser.wait_text("main", "Only the role admin may change them.", "It has no settings.")
    browser.open("shop", T)
    # The token is that of the feed, too.
    writer.replace(T, "/owner", "bob", message="by root")
    browser.wait_text(".note.stale", "root changed this document", "by root")

    browser.run("location.hash = '#/catalog/secret'")
    browser.wait_text("main", "You are not allowed to do this", "secret")

    # A role isn't all that may be lacking.
    writer.set_attributes(T, {"acl": {"write": ["root"]}})
    browser.press("Sign out")
    browser.wait_text("dialog", "Sign in")
    browser.sign_in(issue("writer", "write:shop"))
    browser.wait_text("#state", "writer")
    browser.open("shop", T, "edit")
    browser.edit(('"bob"', '"me"'))
    browser.press("Send")
    browser.wait_text(".outgoing", "You are not allowed to do this", "forbidden")
    screenshot(browser, "forbidden")
    browser.press("Discard my edit")
    browser.press("Sign out")
    browser.wait_text("dialog", "Sign in")
