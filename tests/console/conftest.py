"""A real gateway, real browsers and an API writer beside them, shared by a session's tests."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.access.principal import parse_grant
from gateway.tokens.issued import Tokens
from tests.console.browser import Browser, start_browser
from tests.console.writer import Writer
from tests.patience import WAIT_MS
from tests.service import RunningGateway

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
_NEEDED = {"chromium": "chromium", "chromedriver": "chromium-driver"}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if SCREENSHOTS.is_dir():
        terminalreporter.write_line(f"screenshots of the console: {SCREENSHOTS}")


@pytest.fixture(scope="session")
def executables() -> dict[str, str]:
    """Never a skip: without a browser nothing here would be tested, and nobody would notice."""
    found = {name: shutil.which(name) for name in _NEEDED}
    missing = [_NEEDED[name] for name, path in found.items() if path is None]
    if missing:
        pytest.fail(f"the console's tests need a browser: apt-get install {' '.join(missing)}")
    return {name: path for name, path in found.items() if path is not None}


@pytest.fixture(scope="session")
def service(mongodb_uri: str) -> Iterator[RunningGateway]:
    """A gateway without access control, with a database of its own."""
    from pymongo import MongoClient

    database = f"test_{uuid.uuid4().hex}"
    with RunningGateway(mongodb_uri, database, workers=1) as running:
        yield running
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        client.drop_database(database)


@pytest.fixture(scope="session")
def a_browser(
    executables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[int], Browser]]:
    """Browsers by number, each with a profile of its own, started when first asked for."""
    started: list[Browser] = []
    with ExitStack() as stack:

        def browser(number: int) -> Browser:
            while len(started) <= number:
                profile = tmp_path_factory.mktemp("profile")
                started.append(stack.enter_context(start_browser(executables, profile)))
            return started[number]

        yield browser


@pytest.fixture
def browser(a_browser: Callable[[int], Browser], service: RunningGateway) -> Iterator[Browser]:
    yield from lent(a_browser(0), service)


@pytest.fixture
def second_browser(
    a_browser: Callable[[int], Browser], service: RunningGateway
) -> Iterator[Browser]:
    yield from lent(a_browser(1), service)


def lent(browser: Browser, service: RunningGateway) -> Iterator[Browser]:
    """A browser as it is when it is new, and what holds when it is given back."""
    browser.begin(service.url)
    yield browser
    browser.end()


@pytest.fixture
def writer(service: RunningGateway) -> Writer:
    """Writes through the API to a catalog that no other test has."""
    return Writer(service.url, f"shop-{uuid.uuid4().hex[:6]}")


@pytest.fixture(scope="session")
def screenshot() -> Callable[[Browser, str], None]:
    """`screenshot(browser, name)` keeps what it shows in `build/screenshots`, if there is that
    folder."""

    def keep(browser: Browser, name: str) -> None:
        browser.screenshot(SCREENSHOTS / f"{name}.png")

    return keep


@pytest.fixture(scope="session")
def guarded(mongodb_uri: str) -> Iterator[tuple[RunningGateway, Callable[..., str]]]:
    """A gateway with access control, and what issues tokens for it."""
    from pymongo import MongoClient

    from gateway.store.mongodb import connect

    database = f"test_{uuid.uuid4().hex}"

    def issue(name: str, grant: str) -> str:
        store = connect(mongodb_uri, database, timeout_ms=WAIT_MS)
        try:
            return Tokens(store.tokens()).issue(name, (parse_grant(grant),), None).text
        finally:
            store.close()

    with RunningGateway(mongodb_uri, database, workers=1, access=True) as running:
        yield running, issue
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        client.drop_database(database)
