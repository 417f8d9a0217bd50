"""Ozone: what of its behaviour a person sees, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.console.browser import Browser
from tests.console.conftest import lent
from tests.service import RunningGateway
from tests.systems.service import Catalog

KEY = "vol/bucket/key"
STALE = ".note.stale"


@pytest.fixture
def browser(a_browser: Callable[[int], Browser], gateway: RunningGateway) -> Iterator[Browser]:
    yield from lent(a_browser(0), gateway)


def test_o11_an_owners_attributes_are_shown_and_edited_in_the_console(
    browser: Browser, catalog: Catalog
) -> None:
    """An owner's attributes are shown and edited in the console."""
    catalog.put(KEY, {"v": 1})
    catalog.put_attributes(KEY, {"custom": {"team": "sales"}, "tier": 2**53 + 1}).done()
    browser.open(catalog.name, KEY, "attributes")
    browser.wait_text(".body .tree", "custom", '"sales"', "9007199254740993")

    # By a patch, on the condition that the document is what was seen; its content stays.
    browser.edit(('"sales"', '"ops"'))
    browser.wait_text(".outgoing", "/custom/team", "1 operation")
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 3.")
    browser.wait_text(".body .tree", '"ops"')
    assert catalog.get_attributes(KEY).done() == {"custom": {"team": "ops"}, "tier": 2**53 + 1}
    (change,) = catalog.commit(3)["changes"]
    assert (change["action"], change["key"]) == ("attributes", KEY)
    assert catalog.get(KEY).done() == {"v": 1}

    # A wrong acl is told with its place, and nothing is changed.
    browser.edit(('{\n  "custom"', '{\n  "acl": {"read": 7},\n  "custom"'))
    browser.wait_text(".outgoing", "/acl", "1 operation")
    browser.press("Send")
    browser.wait_text(".outgoing", "invalid_attributes", "/acl/read")
    browser.press("Go there")
    assert browser.selected("7")
    assert catalog.revision == 3

    # What another changes meanwhile is shown, and isn't lost.
    browser.edit(('"read": 7', '"read": ["hive"]'))
    now = catalog.get_attributes(KEY).done()
    catalog.put_attributes(KEY, {**now, "custom": {"team": "theirs"}, "more": True}).done()
    browser.wait_text(STALE, "changed its attributes", "/custom/team", "/more")
    browser.press("Re-apply my edit on top")
    browser.wait_text("dialog", "None of your 1 change", "/acl")
    browser.press("Use this", within="dialog")
    browser.wait_text("main", "on top of what is there now")
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 5.")
    assert catalog.get_attributes(KEY).done() == {
        "acl": {"read": ["hive"]},
        "custom": {"team": "theirs"},
        "tier": 2**53 + 1,
        "more": True,
    }

    # An edit of either part is kept while one looks at the other; an own write makes none stale.
    browser.edit(('"theirs"', '"mine"'))
    browser.press("Edit")
    browser.edit(('"v": 1', '"v": 2'))
    browser.press("Send")
    browser.applied(6)
    browser.press("Attributes")
    assert '"mine"' in browser.source
    browser.press("Send")
    browser.wait_text("main", "Applied, as revision 7.")
    assert catalog.get_attributes(KEY).done()["custom"] == {"team": "mine"}
    assert catalog.get(KEY).done() == {"v": 2}
