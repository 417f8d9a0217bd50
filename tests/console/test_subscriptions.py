"""A catalog's subscriptions in the console: how far they are, what went wrong, and their pauses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from gateway.access.principal import parse_grant
from gateway.tokens.issued import Tokens
from tests.console.browser import Browser
from tests.console.writer import Writer
from tests.patience import WAIT_MS
from tests.relay.receiver import Receiver
from tests.service import RunningGateway, own_database


def test_the_admin_sees_how_far_a_subscription_is_and_pauses_it(
    browser: Browser, writer: Writer
) -> None:
    writer.put("k", 1)
    with Receiver() as receiver:
        writer.subscribe("billing", receiver.url)
        browser.open(writer.catalog)
        browser.press("Subscriptions")
        browser.wait_text("h1", "Subscriptions of", writer.catalog)
        browser.wait_text(
            ".subscriptions", "billing", receiver.url, "active", "revision 1", "0 commits"
        )

        browser.press("Pause")
        browser.wait_text(".subscriptions", "paused")
        assert browser.focused() == "Resume billing", "who pressed it can press it again"
        writer.put("k", 2)
        browser.wait_text(".subscriptions", "revision 1", "1 commit")

        browser.press("Resume")
        browser.wait_text(".subscriptions", "active", "revision 2", "0 commits")
        receiver.answer = lambda _: 500
        writer.put("k", 3)
        browser.wait_text(
            ".subscriptions", "retrying", "revision 2", "1 commit", "Last error", "500", "Next try"
        )
        receiver.answer = lambda _: 204
        browser.press("Pause")
        browser.wait_text(".subscriptions", "paused")
        browser.press("Resume")  # at once, whatever failed
        browser.wait_text(".subscriptions", "active", "revision 3")
        assert "Last error" not in browser.text(".subscriptions")


@pytest.fixture
def guarded(mongodb_uri: str) -> Iterator[tuple[RunningGateway, str]]:
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, access=True, workers=1) as running,
    ):
        yield running, database


def test_who_is_no_admin_is_not_shown_them(
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
    browser.wait_text("main", "takes the role admin")
    refused = urllib3.request(
        "GET",
        f"{running.url}/v1/catalogs/shop/subscriptions",
        headers={"Authorization": f"Bearer {token}"},
    )
    assert refused.status == 403
    browser.end()
