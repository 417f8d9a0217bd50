"""Tokens in the console: made by an admin, shown once, listed, revoked, and audited."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.console.axe import contrast_violations, violations
from tests.console.browser import PHONE, Browser
from tests.console.writer import Writer
from tests.service import RunningGateway

Screenshot = Callable[[Browser, str], None]


def test_an_admin_makes_a_token_and_revokes_it(
    browser: Browser,
    guarded: tuple[RunningGateway, Callable[..., str]],
    screenshot: Screenshot,
) -> None:
    """Shown once and then nowhere; what it may do is what was chosen; both are audited."""
    running, issue = guarded
    browser.begin(running.url)
    browser.open(wait=False)
    browser.sign_in(issue("root", "admin:*"))
    browser.press("Tokens")
    browser.wait_text(".tokens", "root", "administer everywhere", "never expires")
    browser.press("New token")
    browser.labelled("Whose is it?").send_keys("loader")
    browser.select("Role", "read and write")
    pattern = browser.labelled("In catalogs like")
    pattern.clear()
    pattern.send_keys("shop-*")
    browser.select("Valid for", "7 days")
    assert violations(browser) == []
    screenshot(browser, "token-new")
    browser.press("Create the token")
    browser.wait_text(".note.good", "The token of loader", "shown only once")
    browser.wait(lambda: browser.focused() == "The token of loader")
    secret = browser.text(".secret")
    assert secret.startswith("gwt_")
    browser.wait_text(".tokens", "loader", "read and write in shop-*", "expires")
    assert violations(browser) == []
    screenshot(browser, "view-tokens-light")
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    screenshot(browser, "view-tokens-dark")
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, "view-tokens-phone")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    Writer(running.url, "shop-1", secret).put("k", 1)
    with pytest.raises(AssertionError, match="forbidden"):
        Writer(running.url, "other", secret).put("k", 1)

    # It is nowhere any more.
    browser.press("I have saved it")
    assert secret not in browser.run("return document.documentElement.outerHTML")
    browser.driver.refresh()
    browser.wait_text(".tokens", "loader")
    assert secret not in browser.run("return document.documentElement.outerHTML")

    browser.run("document.querySelector('[aria-label=\"Revoke loader\"]').click()")
    browser.wait_text("dialog", "read and write in shop-*", "can't be undone")
    browser.wait(lambda: browser.focused() == "Cancel")
    assert violations(browser) == []
    browser.press("Revoke", within="dialog")
    browser.wait_text(".tokens .over", "loader", "revoked")
    audited = [json.loads(line) for line in running.log().splitlines() if '"issued_to"' in line]
    assert [each["issued_to"] for each in audited][-2:] == ["loader", "loader"]
    assert secret not in running.log()


def test_a_form_that_is_submitted_twice_makes_one_token(
    browser: Browser, guarded: tuple[RunningGateway, Callable[..., str]]
) -> None:
    running, issue = guarded
    browser.begin(running.url)
    browser.open(wait=False)
    browser.sign_in(issue("root", "admin:*"))
    browser.press("Tokens")
    browser.press("New token")
    browser.labelled("Whose is it?").send_keys("impatient")
    browser.run(
        """const form = document.querySelector("dialog form");
        form.requestSubmit();
        form.requestSubmit();"""
    )
    browser.wait_text(".note.good", "The token of impatient")
    browser.driver.refresh()
    browser.wait_text(".tokens", "impatient")
    assert browser.text(".tokens").count("impatient") == 1


def test_an_edit_is_not_lost_by_signing_out(
    browser: Browser, guarded: tuple[RunningGateway, Callable[..., str]]
) -> None:
    running, issue = guarded
    token = issue("root", "admin:*")
    Writer(running.url, "signing-out", token).put("k", {"owner": "ann"})
    browser.begin(running.url)
    browser.open("signing-out", "k", "edit", wait=False)
    browser.sign_in(token)
    browser.edit(('"ann"', '"me"'))
    browser.press("Sign out")
    browser.wait_text("dialog", "Leave your edit?")
    browser.press("Stay", within="dialog")
    assert '"me"' in browser.source
    browser.press("Sign out")
    browser.press("Discard my edit", within="dialog")
    browser.wait_text("dialog", "Sign in")


def test_only_an_admin_of_every_catalog_can_create_tokens(
    browser: Browser, guarded: tuple[RunningGateway, Callable[..., str]]
) -> None:
    running, issue = guarded
    browser.begin(running.url)
    browser.open(wait=False)
    browser.sign_in(issue("shopkeeper", "admin:shop"))
    browser.wait_text("#state", "shopkeeper")
    browser.wait_text("h1", "Catalogs")
    assert "Tokens" not in browser.text("main")
    browser.run("location.hash = '#/?tab=tokens'")
    browser.wait_text("main", "Only the role admin in every catalog may see")
    assert "New token" not in browser.text("main")
