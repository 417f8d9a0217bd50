"""A steward's day: no JSON, no mouse, and nothing lost."""

from __future__ import annotations

from collections.abc import Callable

from selenium.webdriver import Keys

from tests.console.axe import violations
from tests.console.browser import Browser
from tests.console.writer import Writer

Screenshot = Callable[[Browser, str], None]
T = "tables/orders"
ORDERS = {
    "columns": [
        {"name": "id", "type": "bigint", "comment": ""},
        {"name": "total", "type": "decimal", "comment": ""},
    ],
    "tier": "silver",
    "rows": 12,
}
SETTINGS = {
    "schemas": {
        "tables/*": {
            "properties": {
                "tier": {"enum": ["gold", "silver"], "description": "How much depends on it."}
            }
        }
    },
    "arrays": [{"keys": "tables/*", "pointer": "/columns", "item_key": ["name"]}],
}


class Steward:
    """By the keyboard, as what is read out says where one is."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.typed = ""

    def type(self, *keys: str) -> None:
        self.typed += "".join(keys)
        self.browser.keys(*keys)

    def use(self, name: str) -> None:
        """Go to the control of that name, and press it."""
        self.browser.tab_to(name, 120)
        self.type(Keys.ENTER)

    def go_to(self, pointer: str) -> None:
        """In the tree, from wherever one is."""
        self.into_the_tree()
        for key, way in [(Keys.HOME, ""), (Keys.ARROW_DOWN, pointer)]:
            for _ in range(60):
                at = self.browser.run("return document.activeElement.pointer")
                if at == way:
                    break
                # What encloses the place is opened on the way.
                if at and pointer.startswith(f"{at}/"):
                    self.type(Keys.ARROW_RIGHT)
                    self.browser.keys(Keys.ARROW_DOWN)
                else:
                    self.type(key)
        assert self.browser.run("return document.activeElement.pointer") == pointer

    def into_the_tree(self) -> None:
        for _ in range(120):
            if self.browser.run("return document.activeElement.pointer !== undefined"):
                return
            self.type(Keys.TAB)
        raise AssertionError("Tab never came to the tree")

    def looks(self) -> None:
        assert violations(self.browser) == []


def test_a_stewards_day(browser: Browser, writer: Writer, screenshot: Screenshot) -> None:
    writer.set_settings(SETTINGS)
    writer.put_together({f"views/{n}": {} for n in range(30)})
    writer.apply(T, ORDERS, "nightly")
    steward = Steward(browser)

    # Finds the document.
    browser.open(writer.catalog)
    steward.looks()
    browser.tab_to("Keys that begin with")
    steward.type("tables/")
    browser.wait(lambda: "prefix=tables" in browser.driver.current_url)
    browser.wait(lambda: len(browser.shown("a.row")) == 1)
    steward.use(T)
    browser.wait_text("h1", T)
    browser.wait_text(".tree", "nightly")
    steward.looks()
    screenshot(browser, "steward-1-document")

    # Describes a column; the list has keys, so that the next run leaves it where it is.
    steward.go_to("/columns/1/comment")
    steward.type(Keys.ENTER, "what the order costs", Keys.ENTER)
    browser.wait_text(".unsaved", "nightly owns 1 place")
    browser.tab_to("Take over: it becomes mine")
    steward.type(Keys.SPACE)
    browser.tab_to("Message")
    steward.type("asked the finance team")
    steward.looks()
    screenshot(browser, "steward-2-describes")

    # Somebody else did, too.
    writer.patch(
        T,
        {"op": "test", "path": "/columns/1/name", "value": "total"},
        {"op": "replace", "path": "/columns/1/comment", "value": "net"},
        message="quick",
    )
    browser.wait_text(".note.stale", "you changed this too")
    steward.looks()
    screenshot(browser, "steward-3-conflict")
    steward.use("Re-apply my edit on top")
    browser.wait_text("dialog", '"net"', '"what the order costs"')
    steward.looks()
    assert browser.focused().startswith("Mine")
    steward.type(Keys.SPACE)
    steward.use("Use this")
    browser.wait_text("main", "on top of what is there now")
    browser.chord(Keys.CONTROL, Keys.ENTER)
    browser.wait_text("main", "Applied, as revision 5.")
    assert writer.read(T)["columns"][1]["comment"] == "what the order costs"

    # Takes a field over, with one of the schema's choices.
    steward.go_to("/tier")
    steward.use("Take over tier")
    browser.wait_text("dialog", "nightly keeps tier up to date")
    steward.looks()
    steward.use("Change it")
    browser.wait(lambda: browser.focused() == "tier")
    steward.type(Keys.ARROW_UP)
    browser.chord(Keys.CONTROL, Keys.ENTER)
    browser.wait_text("main", "Applied, as revision 6.")
    assert writer.read(T)["tier"] == "gold"
    assert writer.owners(T)["/tier"] == ["anonymous*"]

    # Gives it back.
    steward.go_to("/tier")
    steward.use("Give back tier")
    browser.wait_text("dialog", "You took it over")
    steward.looks()
    steward.use("Give back")
    browser.wait_text("main", "Given back, as revision 7.")
    writer.apply(T, {**ORDERS, "columns": writer.read(T)["columns"]}, "nightly")
    browser.wait_text(".note.stale", "changed this document", "/tier")
    steward.use("Reload")
    browser.wait_text(".tree", '"silver"')
    assert writer.owners(T)["/tier"] == ["nightly"]

    # Asks who changed it.
    steward.go_to("/columns")
    steward.use("Who changed columns")
    browser.wait_text("dialog", "Who changed columns?", "asked the finance team", "quick", '"net"')
    steward.looks()
    screenshot(browser, "steward-4-who")
    steward.type(Keys.ESCAPE)

    # Undoes it.
    steward.use("History")
    browser.wait_text("main", "From revision")
    steward.looks()
    steward.use("Undo …")
    browser.wait_text("dialog", "What would change", "/tier")
    steward.looks()
    steward.use("Undo")
    browser.wait_text("main", "Undone, as revision 9.")
    assert writer.read(T)["tier"] == "gold"
    assert not set(steward.typed) & set("{}[]"), "not a single brace"
