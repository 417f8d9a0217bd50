"""The home page of a catalog: what is in it, what is done with it, and what needs a look."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.console.axe import contrast_violations, violations
from tests.console.browser import DESK, PHONE, Browser
from tests.console.writer import Writer
from tests.ports import own_port

Screenshot = Callable[[Browser, str], None]
ACTIVITY = """
const commit = (revision, author, time, changes) => ({revision, author, time, changes});
const commits = [
  commit(4, "bob", "2026-11-04", [{key: "b", managers: ["nightly"]}]),
  commit(3, "ann", "2026-11-03", [{key: "a"}, {key: null}]),
  commit(2, "ann", "2026-11-02", [{key: "a", managers: ["hourly"]}]),
  commit(1, "ann", "2026-11-01", [{key: "a", managers: ["hourly"]}, {key: "b"}]),
];
const days = m.daysUntil(new Date(2026, 2, 2, 15), 3);
return {
  most: m.mostChanged(commits), who: m.byWhom(commits), pipelines: m.pipelinesIn(commits),
  days: days.map((day) => [day.getFullYear(), day.getMonth() + 1, day.getDate(), day.getHours()]),
  between: m.between([null, 0, 5, 5, 9]),
};
"""


def test_the_home_page_summarizes_a_catalog(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    """Documents, commits a day, most changed, by whom, pipelines and what they lost, deliveries."""
    writer.put("tables/orders", {"rows": 1}, author="ann")
    for number in range(3):
        writer.put("tables/items", {"n": number}, author="bob")
    writer.apply("tables/orders", {"tier": "gold", "owner": "sales"}, "nightly")
    writer.replace("tables/orders", "/tier", "silver")
    writer.subscribe("billing", f"http://127.0.0.1:{own_port()}/in")
    browser.details(False)
    browser.open()
    browser.labelled("Names that begin with").send_keys(writer.catalog)
    browser.wait_text("#said", "1 on this page")
    browser.press(writer.catalog)
    browser.wait_text("h1", writer.catalog)
    cards = """return Object.fromEntries([...document.querySelectorAll(".card")]
        .map((each) => [each.querySelector("h2").innerText, each.innerText]))"""
    browser.wait(lambda: "Subscriptions" in browser.run(cards))
    told = browser.run(cards)
    assert "2" in told["Documents"].split("\n")
    assert "6 in 14 days" in told["Commits"]
    assert "tables/items" in told["Most changed"].split("3× by bob")[0]
    assert "ann" in told["By whom"]
    assert "3 commits" in told["By whom"]
    assert "nightly" in told["Pipelines"]
    assert "lost 1 field" in told["Pipelines"]
    assert "taken over by anonymous" in told["Pipelines"]
    assert "billing" in told["Subscriptions"]
    browser.wait_text(".bound", "come from the latest 6 commits, all that are kept")
    assert violations(browser) == []
    screenshot(browser, "view-home-light")
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    screenshot(browser, "view-home-dark")
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, "view-home-phone")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    browser.screen(DESK)

    # It goes on, and leads on: to what somebody changed, and to what a pipeline owns.
    writer.put("tables/new", 1, author="carla")
    browser.wait_text(".cards", "carla", "tables/new")
    browser.press("carla", within=".cards")
    browser.wait_text(".rows", "tables/new", "carla, just now")
    assert len(browser.shown("a.row")) == 1
    browser.driver.back()
    browser.press("nightly", within=".cards")
    browser.wait_text(".rows", "tables/orders")
    assert len(browser.shown("a.row")) == 1


def test_an_empty_catalog_shows_how_to_begin(browser: Browser, writer: Writer) -> None:
    browser.open(writer.catalog, None, "home", wait=False)
    browser.wait_text("main", "There is no such catalog. Its first document creates it.")
    writer.put("k", 1)
    writer.delete("k")
    browser.wait_text(".cards", "There are none yet. New document creates the first one.")
    browser.wait_text(".cards", "None has applied anything lately")
    assert violations(browser) == []


def test_activity_is_counted_by_document_author_pipeline_and_day(browser: Browser) -> None:
    found = browser.logic(ACTIVITY)
    assert found["most"] == [
        {"key": "a", "count": 3, "authors": ["ann"]},
        {"key": "b", "count": 2, "authors": ["bob", "ann"]},
    ]
    assert found["who"][0] == {"author": "ann", "count": 3, "time": "2026-11-03"}
    assert json.dumps([each["manager"] for each in found["pipelines"]]) == '["nightly", "hourly"]'
    assert found["days"] == [[2026, 2, 28, 0], [2026, 3, 1, 0], [2026, 3, 2, 0], [2026, 3, 2, 15]]
    assert found["between"] == [None, 5, 0, 4]


# A catalog larger than what the page looks at, whose history is gone but for today.
_LARGE = """
const now = Date.now();
const at = (revision) => new Date(now - (900 - revision) * 100).toISOString();
const commit = (revision, managers) => ({revision, author: "ann", time: at(revision),
  message: null, changes: [{key: `k${revision}`, action: "put", patch: [], managers}]});
const asked = {};
const api = {
  count: async (catalog, max) => ({count: asked.count = max, isAll: false}),
  history: async (catalog, key, {limit}) => ({
    commits: [...Array(asked.commits = limit).keys()].map((n) => commit(900 - n, [`job-${n}`])),
    next: 700,
  }),
  revisionAt: async (catalog, moment) => (moment.getHours() ? 900 : null),
  catalog: async () => ({revision: 900}),
  losses: async (catalog, manager, limit) => {
    (asked.losses ??= []).push([manager, limit]);
    const field = {pointer: "/rows", owners: []};
    const loss = (key) => ({key, author: "bob", time: new Date().toISOString(), fields: [field]});
    return {losses: [...Array(limit).keys()].map((n) => loss(`k${n}`)), isAll: false};
  },
};
const live = {started: null, recent: [], state: "live", isMissing: false, listen: () => () => {}};
const who = async () => ({name: "ann", grants: [{role: "read", pattern: "*"}]});
return (async () => {
  const {HomeView} = await import("/console/views/home.js");
  const view = new HomeView({api, live, route: {catalog: "large"}, who});
  document.body.append(await view.open());
  const cards = [...document.querySelectorAll(".card")];
  const told = cards.map((each) => [each.querySelector("h2").innerText, each.innerText]);
  const bound = document.querySelector(".bound").innerText;
  return {asked, bound, cards: Object.fromEntries(told)};
})();
"""


def test_a_large_catalog_is_summarized_in_part_and_the_page_says_so(
    browser: Browser,
) -> None:
    """10,000 keys, 200 commits, the latest five losses of five pipelines; days without history."""
    browser.open()
    found = browser.logic(_LARGE)
    asked, cards = found["asked"], found["cards"]
    assert (asked["count"], asked["commits"]) == (10_000, 200)
    assert asked["losses"] == [[f"job-{number}", 5] for number in range(5)]
    assert "10,000 or more" in cards["Documents"]
    assert "History of the first of these days is no longer kept." in cards["Commits"]
    assert cards["Pipelines"].count("lost 5 fields or more") == 5
    assert cards["Most changed"].count("1× by ann") == 6
    assert "come from the latest 200 commits, back to just now." in found["bound"]
