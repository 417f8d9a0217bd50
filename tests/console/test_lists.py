"""A catalog's list by change, by whom, since when and whose; and what it has not looked at."""

from __future__ import annotations

from collections.abc import Callable

from selenium.webdriver import Keys

from tests.console.axe import contrast_violations, violations
from tests.console.browser import DESK, PHONE, Browser
from tests.console.writer import Writer
from tests.service import RunningGateway

Screenshot = Callable[[Browser, str], None]


def _names(browser: Browser) -> list[str]:
    found: list[str] = browser.run(
        "return [...document.querySelectorAll('.rows .name')].map((each) => each.textContent)"
    )
    return found


def test_a_list_can_be_ordered_by_change_and_filtered_by_author_time_and_manager(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    """The latest change first; by an author; since a day; of a pipeline; kept in the address."""
    writer.put("tables/a", {"tier": "gold"}, author="ann")
    writer.put("tables/b", {"tier": "silver"}, author="bob")
    writer.put("views/c", {"tier": "none"}, author="ann")
    writer.put("tables/gone", 1, author="ann")
    writer.delete("tables/gone")
    writer.replace("tables/a", "/tier", "bronze")
    writer.apply("tables/b", {"rows": 1}, "nightly")
    browser.open(writer.catalog)
    browser.press("Order and filter")
    browser.select("Order", "latest change first")
    browser.wait(lambda: _names(browser) == ["tables/b", "tables/a", "views/c"])
    browser.wait_text(".bound", "all that have changed since history begins")
    browser.wait_text(".rows", "anonymous, just now", "ann, just now")
    assert violations(browser) == []
    screenshot(browser, "list-changed-light")
    folders = "return document.querySelector('.tools input[type=checkbox]').disabled"
    assert browser.run(folders), "changes are in no order of folders, and it isn't ignored"

    # What comes is told, and read where one wants it.
    writer.put("views/c", {}, author="bob")
    browser.wait_text(".note.stale", "views/c")
    browser.press("Read again")
    browser.wait(lambda: _names(browser)[0] == "views/c")

    # By somebody: also what others changed later, but not what is gone.
    browser.labelled("Changed by").send_keys("ann", Keys.TAB)
    browser.wait(lambda: _names(browser) == ["views/c", "tables/a"])
    browser.wait_text(".filters summary", "latest change first", "by ann")
    browser.labelled("Keys that begin with").send_keys("tables/")
    browser.wait(lambda: _names(browser) == ["tables/a"])
    browser.driver.refresh()
    browser.wait(lambda: _names(browser) == ["tables/a"])
    browser.labelled("Changed by").clear()
    browser.keys(Keys.TAB)
    browser.wait(lambda: _names(browser) == ["tables/b", "tables/a"])

    # Whose: of a pipeline, in either order.
    browser.labelled("Owned by").send_keys("nightly", Keys.TAB)
    browser.wait(lambda: _names(browser) == ["tables/b"])
    browser.select("Order", "by key")
    browser.wait_text(".filters summary", "owned by nightly")
    browser.driver.refresh()
    browser.wait(lambda: _names(browser) == ["tables/b"])
    browser.labelled("Members to show").send_keys("tier", Keys.ENTER)
    browser.wait_text(".rows", "silver")
    browser.labelled("Owned by").clear()
    browser.keys(Keys.TAB)
    browser.wait(lambda: _names(browser) == ["tables/a", "tables/b"])

    # Since a moment, or in the last hour.
    browser.select("Changed", "since …")
    since = browser.labelled("Changed since")
    times = [
        ("2099-01-01T10:30", []),
        (_local_minute(browser, 10), []),
        (_local_minute(browser, -10), ["tables/b", "tables/a"]),
    ]
    for time, found in times:
        browser.run(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))",
            since,
            time,
        )
        browser.wait(lambda found=found: _names(browser) == found)
        browser.wait_text(".filters summary", f"since {time.replace('T', ' ')}")
    browser.driver.refresh()
    browser.wait(lambda: _names(browser) == ["tables/b", "tables/a"])
    assert browser.labelled("Changed since").get_attribute("value") == times[-1][0]
    browser.select("Changed", "in the last hour")
    browser.wait_text(".filters summary", "in the last hour")
    assert "since=1h" in browser.driver.current_url
    browser.wait(lambda: not browser.shown("input[type=datetime-local]"))
    browser.wait(lambda: _names(browser) == ["tables/b", "tables/a"])
    order = "const {value, disabled} = document.querySelector('.filters select')"
    assert browser.run(f"{order}; return [value, disabled]") == ["changed", True]
    browser.wait_text(".rows", "bronze")
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    screenshot(browser, "list-changed-dark")
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, "list-changed-phone")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    browser.screen(DESK)

    # The keyboard moves in it and opens.
    browser.labelled("Keys that begin with").click()
    browser.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    browser.wait_text("h1", "tables/a")


def _local_minute(browser: Browser, minutes: int) -> str:
    """So many minutes from now by the browser's clock, as its control of a time takes it."""
    script = """const minutes = arguments[0] - new Date().getTimezoneOffset();
        return new Date(Date.now() + minutes * 60000).toISOString().slice(0, 16)"""
    return str(browser.run(script, minutes))


def test_since_accepts_a_span_or_a_point_in_time(browser: Browser) -> None:
    """An address keeps the name of a span: it ends when it is opened. A day is its beginning."""
    read = browser.logic(
        """const given = ["1h", "7d", "2026-11-26", "2026-11-26T07:30", "", null, "2026-99-99",
          "yesterday", "toString", "2026-11-26T07:30:00Z"];
        return given.map(m.readSince)"""
    )
    assert read == ["1h", "7d", "2026-11-26T00:00", "2026-11-26T07:30", "", "", "", "", "", ""]
    told = browser.logic(
        """const now = Date.UTC(2026, 10, 26, 12);
        return [m.sinceTime("1h", now), m.sinceTime("1d", now), m.sinceTime("7d", now),
          m.sinceWords("1d"), m.sinceWords("2026-11-26T07:30"),
          m.sinceTime("2026-11-26T07:30", now) === new Date(2026, 10, 26, 7, 30).toISOString()]"""
    )
    assert told == [
        "2026-11-26T11:00:00.000Z",
        "2026-11-25T12:00:00.000Z",
        "2026-11-19T12:00:00.000Z",
        "in the last 24 hours",
        "since 2026-11-26 07:30",
        True,
    ]


def test_a_search_by_prefix_without_matches_offers_a_search_by_any_part(
    browser: Browser, writer: Writer
) -> None:
    """A person knows the name of a table, and not in which folder it is."""
    writer.put("sales/emea/orders", 1)
    browser.open(writer.catalog)
    browser.labelled("Keys that begin with").send_keys("orders")
    browser.wait_text(".empty", "No key begins with that.")
    assert violations(browser) == []
    browser.press("Look for “orders” in any part of the keys")
    browser.wait(lambda: _names(browser) == ["sales/emea/orders"])
    assert browser.labelled("Keys that contain").get_attribute("value") == "orders"
    assert browser.run("return document.querySelector('input[value=contain]').checked")
    browser.labelled("Keys that contain").send_keys("-of-nobody")
    browser.wait_text(".empty", "No key contains that.")
    assert not browser.shown(".empty button")


def test_a_list_says_what_it_has_not_searched(browser: Browser, service: RunningGateway) -> None:
    """A page looks through 1,000 commits at most; the next one goes on where it ended, and tells
    nothing twice, nor what was deleted. The history here is made up: 3,000 commits, of which
    only the last 250 are of different documents."""
    del service
    pages = browser.logic(_LOOKS)
    assert [page["rows"] for page in pages] == [100, 100, 50, 0, 0]
    assert [page["reads"] for page in pages] == [1, 1, 10, 10, 8]
    assert [page["isWhole"] for page in pages] == [False, False, False, False, True]
    keys = [key for page in pages for key in page["keys"]]
    assert len(keys) == len(set(keys)) == 250
    assert "gone" not in keys


# Revision n changed "n" above 2,750, else "old"; revision 2,800 deleted "gone", which 2,700 made.
_LOOKS = """
const changes = (n) => (n === 2800 || n === 2700
  ? [{ key: "gone", action: n === 2800 ? "delete" : "put" }]
  : [{ key: n > 2750 ? `${n}` : "old", action: "put" }]);
let reads = 0;
const api = { history: async (catalog, key, { before, limit }) => {
  reads += 1;
  const first = (before ?? 3001) - 1;
  const last = Math.max(1, first - limit + 1);
  const commits = [...Array(first - last + 1).keys()].map((at) => first - at)
    .map((revision) => ({ revision, changes: changes(revision), time: `${revision}` }));
  return { commits, next: last > 1 ? last : null };
} };
const there = async (keys) => new Map(keys.map((key) => [key, { key }]));
return (async () => {
  const pages = [];
  let start = null;
  do {
    reads = 0;
    const page = await m.changedDocuments(api, "c", { shows: () => true, there, start });
    const keys = page.rows.map(({ key }) => key);
    pages.push({ rows: keys.length, keys, reads, isWhole: page.isWhole });
    start = page.next;
  } while (start);
  return pages;
})();
"""


def test_one_unreadable_document_does_not_hide_the_others(browser: Browser) -> None:
    """The gateway refuses a read of several documents if one of them may not be read."""
    keys = [f"{'k' * 900}{number}" for number in range(20)]
    found, asked = browser.logic(_FORBIDDEN, keys, [keys[3], keys[11]])
    assert found == [key for key in keys if key not in (keys[3], keys[11])]
    assert max(asked) <= 6, "an address has a length"


_FORBIDDEN = """
const [keys, secret] = a;
const asked = [];
const api = new m.Api({ token: { get: () => null }, root: location.href });
api.request = async (url, { query: { key } }) => {
  asked.push(key.length);
  if (key.some((each) => secret.includes(each))) throw new m.Problem(403, {});
  const documents = key.map((each) => ({ key: each, etag: "1" }));
  return { text: async () => JSON.stringify({ documents }) };
};
return api.several("c", keys).then((found) => [[...found.keys()], asked]);
"""


def test_a_change_made_while_a_list_is_read_is_marked_in_it(
    browser: Browser, writer: Writer
) -> None:
    for key in ("a1", "a2", "b1"):
        writer.put(key, 1)
    browser.open(writer.catalog)
    browser.wait_text(".documents", "a1", "b1")
    browser.hold_answers("prefix=a")
    browser.labelled("Keys that begin with").send_keys("a")
    browser.wait(lambda: browser.run("return testedNetwork.waiting > 0"))
    writer.put("a1", 2)
    browser.wait_text(".feed", "a1", "r4")
    browser.let_answers_go()
    browser.wait(lambda: "b1" not in browser.text(".documents"))
    browser.wait_text(".documents .is-changed", "a1", "changed")
    browser.wait_text(".news", "replaced a1")
