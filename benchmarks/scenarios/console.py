"""How long until the console shows a view of a catalog of 10,000 documents, in Chromium."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import rounds
from benchmarks.results import Figure, Result, Table
from benchmarks.rig import Rig

DOCUMENTS = 10_000
LOADS = 5  # of each view in a round
_AT_ONCE = 1_000
_LOST_S = 60.0
# By view: where it is, what is there once it is shown, and its bound in ms.
VIEWS: dict[str, tuple[str, str, float | None]] = {
    "list": ("", ".rows a.row", 500.0),
    "list as folders": ("?folders=1", ".rows a.row", 500.0),
    "list, latest change first": ("?sort=changed", ".rows a.row", None),
    "home": ("?tab=home", ".cards", None),
    "edit page": ("/document/t%2F005000", ".fields [role=treeitem]", 300.0),
    "edit page, as JSON": ("/document/t%2F005000?tab=edit", ".cm-content .cm-line", None),
}
# Tells when the first frame was drawn that has what is waited for, from when one went there.
_WATCH = """
const place = SELECTOR;
const look = () => {
  if (window.shownAfterMs || !document.querySelector(place)) return;
  requestAnimationFrame(() => setTimeout(() => { window.shownAfterMs ??= performance.now(); }));
};
new MutationObserver(look).observe(document, { subtree: true, childList: true });
"""


_COLUMNS = ("", "round", "first load ms", "median of the others ms", "its thread works ms")


class Unshown(Exception):
    """A view didn't come; the run is void."""


def run(rig: Rig) -> Result:
    """The first load of a view in a browser fetches the page's files; the others ask whether they
    are still the same."""
    found: dict[str, list[float]] = {name: [] for name in VIEWS}
    rows: list[list[str]] = []
    if rig.with_gateway:
        port, catalog = rig.gateway(), f"console-{rig.serial()}"
        _fill(port, catalog)
        for number in range(1, rig.rounds + 1):
            for name, (place, selector, _) in VIEWS.items():
                rig.progress(f"{name}, round {number}/{rig.rounds}")
                url = f"http://127.0.0.1:{port}/console/#/catalog/{catalog}{place}"
                loads = _loads(url, selector)
                first, *others = (shown_ms for shown_ms, _ in loads)
                median_ms = rounds.spread(others).median
                busy_ms = rounds.spread([busy_ms for _, busy_ms in loads[1:]]).median
                found[name].append(median_ms)
                told = (first, median_ms, busy_ms)
                rows.append([name, str(number), *(f"{each:,.0f}" for each in told)])
    title = f"Until the console shows a view of {DOCUMENTS:,} documents"
    return Result(
        [Table(title, _COLUMNS, rows)],
        [
            Figure(
                f"console, {name}",
                "<=",
                bound,
                rounds.spread(found[name]) if found[name] else None,
                " ms",
            )
            for name, (_, _, bound) in VIEWS.items()
        ],
    )


def _fill(port: int, catalog: str) -> None:
    fields = {f"field{number}": f"what it is, {number}" for number in range(40)}
    for start in range(0, DOCUMENTS, _AT_ONCE):
        lines = [
            {"catalog": catalog, "key": f"t/{n:06}", "op": "put", "value": {"n": n, **fields}}
            for n in range(start, start + _AT_ONCE)
        ]
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/bulk",
            "\n".join(map(json.dumps, lines)).encode(),
            {"Content-Type": "application/x-ndjson"},
        )
        with urllib.request.urlopen(request, timeout=_LOST_S) as answer:
            answers = [json.loads(line) for line in answer]
        if any(each["status"] >= 300 for each in answers):
            raise Unshown(str(answers[:3]))


def _loads(url: str, selector: str) -> list[tuple[float, float]]:
    """Of LOADS loads by a browser that has nothing yet: the milliseconds until the view is shown,
    and those that the page's main thread was busy."""
    with _browser() as driver:
        watch = _WATCH.replace("SELECTOR", json.dumps(selector))
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": watch})
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        return [_load(driver, url) for _ in range(LOADS)]


def _load(driver: Any, url: str) -> tuple[float, float]:
    driver.get("about:blank")
    before_ms = _busy_ms(driver)
    driver.get(url)
    until = time.monotonic() + _LOST_S
    while (shown_ms := driver.execute_script("return window.shownAfterMs ?? null")) is None:
        if time.monotonic() > until:
            raise Unshown(f"{url}: {driver.execute_script('return document.body.innerText')}")
        time.sleep(0.02)
    # Another page may have another process, whose count begins anew.
    busy_ms = _busy_ms(driver)
    return float(shown_ms), busy_ms - before_ms if busy_ms >= before_ms else busy_ms


def _busy_ms(driver: Any) -> float:
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1000 * next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


@contextmanager
def _browser() -> Iterator[Any]:
    from selenium.webdriver import Chrome
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    with TemporaryDirectory(prefix="benchmark-chromium-") as profile:
        for flag in (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--window-size=1280,900"),
            f"--user-data-dir={profile}",
        ):
            options.add_argument(flag)
        driver = Chrome(options=options, service=Service(shutil.which("chromedriver") or ""))
        try:
            yield driver
        finally:
            driver.quit()
