"""Chromium without a window, and what a person does with the console in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.patience import WAIT_S

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
    "--disable-back-forward-cache",  # pages that are left would go on
)
# The page may draw itself anew between finding something in it and using it.
_MOVED = (
    StaleElementReferenceException,
    NoSuchElementException,
    ElementClickInterceptedException,
    ElementNotInteractableException,
)
_PRESSED = ("button", "a", "summary")
DESK = (1280, 900)
PHONE = (360, 740)
# A page that does nothing.
_BESIDE = "/console/icon.svg"


@contextmanager
def start_browser(executables: dict[str, str], profile: Path) -> Iterator[Browser]:
    options = Options()
    options.binary_location = executables["chromium"]
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(executables["chromedriver"]))
    try:
        driver.set_script_timeout(WAIT_S)
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _NETWORK})
        # Without the focus, a page isn't told what gets it; dialogs and other windows take it.
        driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
        yield Browser(driver)
    finally:
        driver.quit()


def _fragment(catalog: str | None, key: str | None, tab: str | None) -> str:
    path = "" if catalog is None else f"catalog/{quote(catalog, safe='')}"
    path += "" if key is None else f"/document/{quote(key, safe='')}"
    return f"#/{path}" if tab is None else f"#/{path}?tab={tab}"


class Browser:
    """One person's browser. Whatever is looked for is waited for."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self.url = ""
        self._opened = 0

    def begin(self, url: str) -> None:
        """As it is when it is new: no token, a desk's screen, light."""
        self.url = url
        self.screen(DESK)
        self.prefer(color_scheme="light")
        self._leave()
        self.run("sessionStorage.clear()")
        self.details(True)
        self.driver.get_log("browser")

    def details(self, on: bool) -> None:
        """Whether the page shows tokens, revisions and pointers, from the next page on."""
        self.run("localStorage.setItem('metadata-gateway-details', arguments[0])", "01"[on])

    def end(self) -> None:
        """What holds for all that was done: no defect, and no policy broken, which allows nothing
        from elsewhere."""
        entries = [entry["message"] for entry in self.driver.get_log("browser")]
        # Refused requests, and that nobody is asked about leaving, are what some tests are about.
        known = ("Failed to load resource", "beforeunload")
        faults = [entry for entry in entries if not any(each in entry for each in known)]
        # Leave the page: its feed ends, and an edit in it must hold nobody up.
        self.run(
            "stop(); addEventListener('beforeunload', (e) => e.stopImmediatePropagation(), true)"
        )
        self.driver.execute_cdp_cmd("Page.navigate", {"url": f"{self.url}{_BESIDE}"})
        assert not faults, faults

    def _leave(self) -> None:
        """Whatever page is there, for one of the same origin: another one would take a process of
        its own, whose start takes as long as a small test."""
        beside = f"{self.url}{_BESIDE}"
        if self.driver.current_url != beside:
            self.driver.get(beside)

    def screen(self, size: tuple[int, int]) -> None:
        width, height = size
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def prefer(self, *, color_scheme: str) -> None:
        """Without motion, so that the page doesn't change while it is examined."""
        features = {"prefers-color-scheme": color_scheme, "prefers-reduced-motion": "reduce"}
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": name, "value": value} for name, value in features.items()]},
        )

    def screenshot(self, path: Path) -> None:
        """If there is its folder: pictures of all views take an eighth of the time."""
        if path.parent.is_dir():
            self.driver.save_screenshot(str(path))

    def open(
        self,
        catalog: str | None = None,
        key: str | None = None,
        tab: str | None = None,
        *,
        wait: bool = True,
    ) -> None:
        """Go there, and wait until it is shown and (in a catalog) live."""
        # A query that no page had before: a fragment alone would keep what is there.
        self._opened += 1
        fragment = _fragment(catalog, key, tab)
        self.driver.get(f"{self.url}/console/?opened={self._opened}{fragment}")
        if wait:
            self.wait(lambda: self.find("h1"))
        if wait and catalog is not None:
            self.wait(lambda: self.find(".pulse.live"))

    def go(self, catalog: str, key: str | None = None, tab: str | None = None) -> None:
        """Go there by a link within the page, and wait until it is shown. Loading the page anew
        takes five times as long."""
        self.run(
            """const first = (selector) => document.querySelector(`main ${selector}`);
            window.testedLeft = first("nav.tabs a") ?? first("h1");
            location.hash = arguments[0]""",
            _fragment(catalog, key, tab),
        )
        shown = "return !testedLeft.isConnected && Boolean(document.querySelector('main h1'))"
        self.wait(lambda: self.run(shown))

    def outline(self) -> bool:
        """Whether what has the focus, or a part of it, is outlined."""
        return bool(
            self.run("""const place = document.activeElement;
            const seen = (e) => getComputedStyle(e).outlineStyle !== "none";
            return [place, ...place.children].some(seen)""")
        )

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> WebElement | None:
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found[0] if found else None

    def text(self, selector: str) -> str:
        """All of its text, even if it is scrolled out of view; "" if there is no such element."""
        return str(
            self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        )

    def wait(self, condition: Any, timeout_s: float = WAIT_S) -> Any:
        waiting = WebDriverWait(self.driver, timeout_s, 0.05)
        fault = ""

        def holds(_: Any) -> Any:
            nonlocal fault
            try:
                return condition()
            except _MOVED as error:
                fault = f"{type(error).__name__}: {error.msg}; "
                return False

        try:
            return waiting.until(holds)
        except TimeoutException as error:
            page = self.text("body")[:2000]
            raise AssertionError(f"not so; {fault}the page: {page}") from error

    def wait_text(self, selector: str, *texts: str) -> str:
        """Until that place says all of these; what it says."""
        self.wait(lambda: all(text in self.text(selector) for text in texts))
        return self.text(selector)

    def press(self, name: str, within: str = "body") -> None:
        """The button, link or fold of that name, by a click."""

        def click() -> bool:
            for each in self.shown(", ".join(f"{within} {tag}" for tag in _PRESSED), name):
                try:
                    each.click()
                except ElementClickInterceptedException:
                    # The head of the page stays: it isn't under that.
                    self.run("arguments[0].scrollIntoView({block: 'center'})", each)
                    return False
                return True
            return False

        self.wait(click)

    def choose(self, selector: str) -> None:
        """A checkbox or a radio button."""

        def click() -> bool:
            element = self.find(selector)
            if element is not None:
                element.click()
            return element is not None

        self.wait(click)

    def shown(self, selector: str, beginning: str = "") -> list[WebElement]:
        """The visible elements whose text begins with this, found in one call."""
        found: list[WebElement] = self.run(
            """return [...document.querySelectorAll(arguments[0])].filter((each) =>
              each.checkVisibility({visibilityProperty: true, opacityProperty: true})
              && each.innerText.trim().startsWith(arguments[1]))""",
            selector,
            beginning,
        )
        return found

    def select(self, label: str, option: str) -> None:
        """The option that begins with that text."""
        control = self.labelled(label)
        for each in control.find_elements(By.CSS_SELECTOR, "option"):
            if each.text.startswith(option):
                each.click()
                return
        raise AssertionError(f"{label}: no option {option!r}")

    def deafen(self) -> None:
        """From here on the page gets nothing from the feed, as if that were very late."""
        self.run("testedNetwork.deaf = true")

    def offline(self, on: bool) -> None:
        """Cut the network off, what is open included, or give it back."""
        self.run("testedNetwork.cut(arguments[0])", on)

    def sign_in(self, token: str) -> None:
        """In the dialog that asks for it."""
        self.labelled("Bearer token").send_keys(token, Keys.ENTER)

    def labelled(self, label: str) -> WebElement:
        """The control of that name, as a screen reader would call it."""

        def look() -> WebElement | None:
            controls = self.shown("input, textarea, select, [role=textbox]")
            return next((each for each in controls if each.accessible_name == label), None)

        found: WebElement = self.wait(look)
        return found

    def edit(self, *replacements: tuple[str, str]) -> None:
        """Change the text in the editor, as typing does, and until what will be sent is shown."""
        text = self.source
        for old, now in replacements:
            assert old in text, f"not in the text: {old}"
            text = text.replace(old, now, 1)
        self.write(text)

    def edit_field(self, pointer: str) -> None:
        """Go to the place in the document's view, and begin to edit the value there."""
        self.at_field(pointer, "Edit")

    def at_field(self, pointer: str, action: str) -> None:
        """Go to the place in the document's view, and press one of its buttons."""
        script = """const at = arguments[0];
            const rows = () => [...document.querySelectorAll(".body [role=treeitem]")];
            for (const row of rows()) {
              if (at.startsWith(row.pointer + "/") && !row.querySelector("ul")) row.unfold?.();
            }
            const item = rows().find((each) => each.pointer === at);
            if (!item) return false;
            item.scrollIntoView({block: "center"});
            item.focus();
            const found = [...item.querySelectorAll(":scope > .leaf button")]
              .find((each) => each.innerText.startsWith(arguments[1]));
            found?.click();
            return Boolean(found);"""
        self.wait(lambda: self.run(script, pointer, action))

    def fill_in(self, text: str) -> None:
        """Put it into the control that has the focus, in the place of what is there."""
        self.run(
            """const place = document.activeElement;
            if (place.tagName === "SELECT") {
              place.selectedIndex = [...place.options].findIndex((o) => o.text === arguments[0]);
            } else place.value = arguments[0];
            place.dispatchEvent(new Event("input", {bubbles: true}));""",
            text,
        )

    def hold_answers(self, part: str | None = None) -> None:
        """Those to what has ``part`` in its address, or to what is sent with a body, until they are
        let go."""
        self.run("testedNetwork.hold(arguments[0])", part)

    def let_answers_go(self) -> None:
        self.run("testedNetwork.release()")

    def sent_bodies(self) -> list[Any]:
        """What the page sent since it was opened, as JSON."""
        return [json.loads(each) for each in self.run("return testedNetwork.bodies")]

    def write(self, text: str) -> None:
        """Let the text in the editor be that one, as typing does."""
        self.wait_editor()
        self.run(
            """const {jsonText} = document.querySelector(".source");
            jsonText.value = arguments[0];
            jsonText.typed();""",
            text,
        )
        # The buttons below move as the preview grows.
        self.wait(lambda: not self.find("[aria-busy=true]"))

    def applied(self, revision: int) -> None:
        """Wait until the page says that the edit was applied, and shows the result."""
        self.wait_text("main", f"Applied, as revision {revision}.")
        self.wait(lambda: self.find(".tree"))

    @property
    def source(self) -> str:
        self.wait_editor()
        return str(self.run("return document.querySelector('.source').jsonText.value"))

    def wait_editor(self) -> None:
        """Until there is one for JSON, and what it is made of has been loaded."""
        self.wait(lambda: self.find(".source .cm-editor"))

    def selected(self, text: str) -> bool:
        """Whether the cursor of the editor that has the focus is before this text."""
        script = """const text = document.activeElement.closest(".source")?.jsonText;
            return text?.value.slice(text.selection[0]).startsWith(arguments[0]) ?? false"""
        return bool(self.run(script, text))

    def keys(self, *keys: str) -> None:
        """Typed to whatever has the focus."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def chord(self, modifier: str, key: str) -> None:
        ActionChains(self.driver).key_down(modifier).send_keys(key).key_up(modifier).perform()

    def focused(self) -> str:
        """The accessible name of what has the focus."""
        return str(self.driver.switch_to.active_element.accessible_name)

    def tab_to(self, name: str, steps_max: int = 60) -> None:
        """By the Tab key alone."""
        for _ in range(steps_max):
            if self.focused().startswith(name):
                return
            self.keys(Keys.TAB)
        raise AssertionError(f"Tab never came to {name!r}: {self.text('main')[:500]}")

    def logic(self, script: str, *arguments: Any) -> Any:
        """What ``script`` returns; ``m`` are the console's pure modules, ``a`` the arguments."""
        result = self.driver.execute_async_script(_LOGIC.replace("SCRIPT", script), *arguments)
        assert "error" not in result, result["error"]
        return result["value"]


_LOGIC = """
const done = arguments[arguments.length - 1];
const names = ["json", "pointers", "differences", "merge", "event_stream", "routes", "concerns",
  "sending", "schema", "lists", "field_patch", "changed", "activity", "since", "api",
  "document_model", "live", "views/changes"];
Promise.all(names.map((name) => import(`/console/${name}.js`)))
  .then((modules) => Object.assign({}, ...modules))
  .then((m) => ((m, a) => { SCRIPT })(m, [...arguments].slice(0, -1)))
  .then((value) => done({value: value ?? null}))
  .catch((error) => done({error: String(error.stack ?? error)}));
"""


# Between the page and the network: the feed can be held back, and everything cut off.
_NETWORK = """
const testedNetwork = {
  deaf: false, isCut: false, feeds: new Set(), bodies: [], held: null, waiting: 0,
  holds: () => false,
  hold(part = null) {
    this.holds = (target, { body } = {}) => (part === null ? body : String(target).includes(part));
    this.held = new Promise((resolve) => {
      this.release = resolve;
    });
  },
  cut(on) {
    this.isCut = on;
    if (on) for (const feed of this.feeds) feed.error(new TypeError("cut off"));
    this.feeds.clear();
  },
};
const fetched = window.fetch;
window.fetch = async (target, options) => {
  if (testedNetwork.isCut) throw new TypeError("cut off");
  if (options?.body) testedNetwork.bodies.push(options.body);
  const answer = await fetched(target, options);
  if (testedNetwork.holds(target, options)) {
    testedNetwork.waiting += 1;
    await testedNetwork.held;
  }
  if (!new URL(target).pathname.endsWith("/changes")) return answer;
  const body = answer.body.pipeThrough(new TransformStream({
    start: (feed) => testedNetwork.feeds.add(feed),
    transform: (bytes, feed) => testedNetwork.deaf || feed.enqueue(bytes),
  }));
  return new Response(body, { status: answer.status, headers: answer.headers });
};
"""
