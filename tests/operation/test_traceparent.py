"""W3C Trace Context, level 1: what isn't well formed is as if it weren't there."""

from __future__ import annotations

import pytest

from gateway.http.door.observation import trace_id

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.mark.parametrize(
    "header",
    [
        f"00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-00",
        f"00-{TRACE}-{PARENT}-ff",
        f"01-{TRACE}-{PARENT}-01",
        f"cc-{TRACE}-{PARENT}-01-what-is-to-come",
    ],
)
def test_a_valid_header_gives_its_trace(header: str) -> None:
    assert trace_id(header) == TRACE


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00",
        TRACE,
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-01-",
        f"00-{TRACE}-{PARENT}-01-more",
        f"01-{TRACE}-{PARENT}-01more",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE[:-1]}-{PARENT}-01",
        f"00-{TRACE}0-{PARENT}-01",
        f" 00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01\n",
        f"00-{'٠' * 32}-{PARENT}-01",
        f"0g-{TRACE}-{PARENT}-01",
    ],
)
def test_any_other_header_is_ignored(header: str | None) -> None:
    assert trace_id(header) is None
