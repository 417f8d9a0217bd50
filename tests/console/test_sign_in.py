"""Somebody signs in at a provider of OpenID Connect, in another tab, and goes on in the first."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.access.provider import Provider
from tests.console.axe import violations
from tests.console.browser import Browser
from tests.service import RunningGateway


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(claims={"ann": {"grants": ["admin:*"]}}).serving() as running:
        yield running


@pytest.fixture(scope="module")
def signing_in(mongodb_uri: str, provider: Provider) -> Iterator[RunningGateway]:
    from pymongo import MongoClient

    database = f"test_{uuid.uuid4().hex}"
    settings = {
        "jwt_issuer": provider.url,
        "jwt_jwks_url": f"{provider.url}/keys",
        "jwt_audience": provider.client_id,
        "jwt_subject_prefix": "-",
        "oidc_client_id": provider.client_id,
    }
    with RunningGateway(mongodb_uri, database, workers=1, access=True, **settings) as running:
        provider.redirect_uri = f"{running.url}/console/"
        yield running
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        client.drop_database(database)


def test_a_person_can_sign_in_at_the_provider_and_sign_out(
    a_browser: Callable[[int], Browser],
    signing_in: RunningGateway,
    provider: Provider,
    screenshot: Callable[[Browser, str], None],
) -> None:
    browser = a_browser(0)
    browser.begin(signing_in.url)
    browser.open("shop", wait=False)
    browser.wait_text("dialog", "Sign in at 127.0.0.1")
    assert violations(browser) == []
    screenshot(browser, "sign-in-by-provider")

    # Whoever doesn't want to, may try again.
    _answer(browser, "", "no")
    browser.wait_text("dialog", "access_denied")
    browser.press("Try again", within="dialog")
    browser.wait_text("dialog", "Sign in at 127.0.0.1")

    _answer(browser, "ann", "yes")
    browser.wait_text("#state", "ann")
    browser.wait_text("main", "shop")
    assert "code=" not in browser.run("return location.href")

    browser.press("Sign out")
    browser.wait_text("dialog", "Sign in at 127.0.0.1")
    assert provider.ended == 1
    assert browser.run("return sessionStorage.length") == 0


def _answer(browser: Browser, name: str, button: str) -> None:
    """In the tab of the provider's page, which ends by itself or says that it is over."""
    driver = browser.driver
    here = driver.current_window_handle
    before = set(driver.window_handles)
    browser.choose("dialog a.button")
    (opened,) = browser.wait(lambda: set(driver.window_handles) - before)
    driver.switch_to.window(opened)
    browser.wait(lambda: driver.find_elements("name", "name"))
    driver.find_element("name", "name").send_keys(name)
    driver.find_element("css selector", f"button[value={button}]").click()
    browser.wait(lambda: opened not in driver.window_handles or "other tab" in _text(driver))
    if opened in driver.window_handles:
        driver.close()
    driver.switch_to.window(here)


def _text(driver: Any) -> str:
    return str(driver.execute_script("return document.body.innerText"))
