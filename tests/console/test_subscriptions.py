"""A catalog's subscriptions in the console: how far they are, what went wrong, and their pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3
from selenium.webdriver import Keys

from gateway.access.principal import parse_grant
from gateway.tokens.issued import Tokens
from tests.console.axe import contrast_violations, violations
from tests.console.browser import PHONE, Browser
from tests.console.writer import Writer
from tests.patience import WAIT_MS
from tests.relay.receiver import Receiver, is_signed
from tests.service import RunningGateway, own_database

Screenshot = Callable[[Browser, str], None]
OWN = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_an_admin_sees_the_progress_of_a_subscription_and_pauses_it(
    browser: Browser, writer: Writer
) -> None:
    writer.put("k", 1)
    with Receiver() as receiver:
        writer.subscribe("billing", receiver.url)
        browser.open(writer.catalog)
        browser.press("Subscriptions")
        browser.wait_text("h1", "Subscriptions of", writer.catalog)
        browser.wait_text(
            ".subscriptions", "billing", receiver.url, "active", "up to date, to revision 1"
        )

        browser.press("Pause")
        browser.wait_text(".subscriptions", "paused")
        # Who pressed it can press it again.
        browser.wait(lambda: browser.focused() == "Resume billing")
        writer.put("k", 2)
        browser.wait_text(".subscriptions", "1 commit behind, to revision 1")

        browser.press("Resume")
        browser.wait_text(".subscriptions", "active", "up to date, to revision 2")
        receiver.answer = lambda _: 500
        writer.put("k", 3)
        browser.wait_text(
            ".subscriptions", "retrying", "1 commit behind", "Last error", "500", "Next try"
        )
        receiver.answer = lambda _: 204
        browser.press("Try now")
        browser.wait_text(".subscriptions", "active", "revision 3")
        assert "Last error" not in browser.text(".subscriptions")


def test_a_steward_makes_changes_and_deletes_one_by_the_keyboard(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    """Without a word of JSON; the secret is shown once, and deliveries are signed with it."""
    writer.put("tables/a", 1)
    writer.put("views/a", 2)
    with Receiver() as receiver:
        browser.open(writer.catalog, None, "subscriptions")
        browser.wait_text("main", "Nothing is delivered yet")
        browser.tab_to("New subscription")
        browser.keys(Keys.ENTER)
        browser.wait(lambda: browser.focused() == "Name")
        browser.keys("search")
        browser.tab_to("Deliver to")
        browser.keys(receiver.url)
        browser.tab_to("Keys that begin with")
        browser.keys("tables/")
        browser.tab_to("with what changes from now on")
        browser.keys(Keys.ARROW_DOWN)
        assert violations(browser) == []
        screenshot(browser, "subscription-new-light")
        browser.tab_to("Create the subscription")
        browser.keys(Keys.ENTER)
        browser.wait_text(".note.good", "The secret of search", "shown only once")
        browser.wait(lambda: browser.focused() == "The secret of search")
        secret = browser.text(".secret")
        assert violations(browser) == []
        receiver.wait_for(lambda it: it.of("document") and it.of("synced"))
        assert [each["data"]["key"] for each in receiver.of("document")] == ["tables/a"]
        assert is_signed(receiver.posts[0], secret)
        browser.tab_to("I have saved it")
        browser.keys(Keys.ENTER)
        browser.wait(lambda: browser.focused() == "Change … search")
        assert secret not in browser.run("return document.documentElement.outerHTML")
        browser.wait_text(".subscriptions", "search", "up to date", "tables/", "one event in each")

        # A change leaves alone what isn't changed, and goes on where it was.
        browser.keys(Keys.ENTER)
        browser.wait(lambda: browser.focused() == "Deliver to")
        assert browser.labelled("Deliver to").get_attribute("value") == receiver.url
        browser.tab_to("Keys that begin with")
        browser.keys("tables/a")
        browser.tab_to("Set it")
        browser.keys(Keys.ENTER)
        browser.wait_text(".subscriptions", "tables/a")
        browser.wait(lambda: browser.focused() == "Change … search")
        assert browser.find(".secret") is None
        writer.put("tables/a", 3)
        receiver.wait_for_commits(3)
        assert len(receiver.of("document")) == 1
        assert is_signed(receiver.posts[-1], secret)

        browser.tab_to("Delete … search")
        browser.keys(Keys.ENTER)
        browser.wait_text("dialog", "Delete search?", receiver.url)
        browser.wait(lambda: browser.focused() == "Cancel")
        assert violations(browser) == []
        browser.tab_to("Delete", 3)
        browser.keys(Keys.ENTER)
        browser.wait_text("main", "Nothing is delivered yet")


def test_a_subscription_can_be_restarted_at_a_revision_with_a_new_secret(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    writer.put("k", 1)
    writer.put("k", 2)
    with Receiver() as receiver:
        writer.subscribe("cache", receiver.url)
        receiver.wait_for_commits(2)
        browser.open(writer.catalog, None, "subscriptions")
        for choose, wanted in [("since", [1, 2]), ("from", [2])]:
            receiver.events.clear()
            browser.press("Change …")
            browser.choose(f"dialog input[value={choose}]")
            if choose == "since":
                since = "arguments[0].value = '2020-01-01T00:00:00'"
                browser.run(since, browser.labelled("Since"))
                browser.choose("dialog input[data-of=secret][value=made]")
                browser.select("The old one stays valid for", "not at all")
            else:
                browser.labelled("Revision").send_keys("1")
                browser.choose("dialog input[data-of=secret][value=own]")
                browser.labelled("Secret").send_keys(OWN)
            screenshot(browser, f"subscription-change-{choose}")
            browser.press("Set it")
            receiver.wait_for_commits(2)
            assert receiver.revisions == wanted
            if choose == "since":
                secret = browser.wait_text(".secret", "whsec_")
                assert is_signed(receiver.posts[-1], secret)
                assert "signed by" not in browser.text(".subscriptions").lower()
        assert is_signed(receiver.posts[-1], OWN)
        browser.wait_text(".subscriptions", "2 secrets")


def test_a_refusal_is_shown_at_its_field(
    browser: Browser, writer: Writer, screenshot: Screenshot
) -> None:
    writer.put("k", 1)
    writer.subscribe("taken", "https://search.example.com/in")
    browser.open(writer.catalog, None, "subscriptions")
    browser.press("New subscription")

    def refused(label: str, text: str, reason: str) -> None:
        control = browser.labelled(label)
        control.clear()
        control.send_keys(text)
        browser.press("Create the subscription")
        browser.wait_text("dialog .fault", reason)
        at = "return document.getElementById(arguments[0].id + '-fault')?.innerText"
        assert reason in browser.run(at, control)
        assert control.get_attribute("aria-invalid") == "true"
        browser.wait(lambda: browser.focused() == label)

    browser.labelled("Deliver to").send_keys("https://search.example.com/in")
    refused("Name", "a name", "letters, digits, _ and -")
    refused("Name", "taken", "There is already a subscription with this name.")
    browser.labelled("Name").clear()
    browser.labelled("Name").send_keys("free")
    refused("Deliver to", "https://10.0.0.1/in", "isn't a public internet address")
    assert violations(browser) == []
    screenshot(browser, "subscription-refused-light")
    browser.prefer(color_scheme="dark")
    assert contrast_violations(browser) == []
    screenshot(browser, "subscription-refused-dark")
    browser.prefer(color_scheme="light")
    browser.screen(PHONE)
    screenshot(browser, "subscription-refused-phone")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    refused("Deliver to", "http://search.example.com/in", "use https")
    browser.labelled("Deliver to").clear()
    browser.labelled("Deliver to").send_keys("https://search.example.com/in")
    browser.choose("dialog input[value=from]")
    refused("Revision", "99", "revision 99 doesn't exist".capitalize())
    browser.choose("dialog input[value=now]")
    browser.choose("dialog input[value=own]")
    refused("Secret", "whsec_short", "base64 of 24 to 64 bytes")
    browser.labelled("Secret").clear()
    browser.labelled("Secret").send_keys(OWN)
    browser.press("Create the subscription")
    browser.wait_text(".subscriptions", "free")
    assert browser.find(".secret") is None, "it is the person's own"
    for number in range(18):
        writer.subscribe(f"more-{number}", "https://search.example.com/in")
    browser.press("New subscription")
    browser.labelled("Deliver to").send_keys("https://search.example.com/in")
    refused("Name", "one-more", "has 20 subscriptions; the limit is 20")


def test_a_change_does_not_overwrite_an_unseen_one(browser: Browser, writer: Writer) -> None:
    writer.put("k", 1)
    writer.subscribe("cache", "https://search.example.com/in")
    browser.open(writer.catalog, None, "subscriptions")
    browser.press("Change …")
    browser.labelled("Deliver to").clear()
    browser.labelled("Deliver to").send_keys("https://mine.example.com/in")
    writer.subscribe("cache", "https://theirs.example.com/in")
    browser.press("Set it")
    browser.wait_text("dialog .fault", "Somebody has changed it since you opened it")
    browser.press("Cancel")
    browser.wait_text(".subscriptions", "https://theirs.example.com/in")


@pytest.fixture
def guarded(mongodb_uri: str) -> Iterator[tuple[RunningGateway, str]]:
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, access=True, workers=1) as running,
    ):
        yield running, database


def test_only_admins_see_subscriptions(
    a_browser: Any, guarded: tuple[RunningGateway, str], mongodb_uri: str
) -> None:
    """Nor asked for by the page: the gateway would refuse it."""
    from gateway.store.mongodb import connect

    running, database = guarded
    store = connect(mongodb_uri, database, timeout_ms=WAIT_MS)
    try:
        token = Tokens(store.tokens()).issue("wes", [parse_grant("write:*")], None).text
    finally:
        store.close()
    Writer(running.url, "shop", token).put("k", 1)
    browser = a_browser(0)
    browser.begin(running.url)
    browser.run(f"sessionStorage.setItem('metadata-gateway-token', '{token}')")
    browser.open("shop")
    browser.wait_text(".rows", "k")
    assert "Subscriptions" not in browser.text("main")
    browser.open("shop", None, "subscriptions")
    browser.wait_text("main", "Only the role admin may see them.")
    refused = urllib3.request(
        "GET",
        f"{running.url}/v1/catalogs/shop/subscriptions",
        headers={"Authorization": f"Bearer {token}"},
    )
    assert refused.status == 403
    browser.end()
