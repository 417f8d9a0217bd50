"""Digests of contents that were stored without one, or have moved on since the revision."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.limits import ServiceLimits
from gateway.model import Digested
from gateway.read import digests
from gateway.read.digests import KeyDigestPage
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Scanned
from patching import digest
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS
from tests.without_http import put


class _WrittenBefore(MemoryStore):
    """Its documents under ``a`` were written by a version that stored no digests."""

    def scan_digests(
        self,
        catalog: str,
        after: str,
        prefix: str,
        limit: int,
        *,
        above: int = 0,
        parts: bool = False,
    ) -> Scanned[Digested]:
        found = super().scan_digests(catalog, after, prefix, limit, above=above, parts=parts)
        return Scanned(
            (replace(d, digest=None, parts=None) if d.key.startswith("a") else d for d in found),
            is_whole=found.is_whole,
        )


def gateway_on(store: MemoryStore) -> GatewayService:
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
    for number in range(6):
        gateway.write("c", f"a{number}", put({"n": number}))
        gateway.write("c", f"b{number}", put({"n": number}))
    return gateway


def listed(gateway: GatewayService, revision: int | None = None) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    page = KeyDigestPage(0, [], "")
    while page.next_after is not None:
        after = page.next_after
        page = gateway.digests.page("c", prefix="", after=after, limit=5, revision=revision)
        assert len(page.documents) <= 5
        assert page.documents or page.next_after is None
        found |= {each.key: (each.token, each.digest) for each in page.documents}
    assert list(found) == sorted(found)
    return found


@pytest.mark.parametrize("few", [1, 2, 500])
def test_stored_and_computed_digests_are_equal(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Nor how few contents are read for a page."""
    monkeypatch.setattr(digests, "_CONTENTS_MAX", few)
    now, before = gateway_on(MemoryStore()), gateway_on(_WrittenBefore())
    for gateway in (now, before):
        gateway.write("c", "a1", put({"n": 1.0, "more": True}))
        gateway.write("c", "b1", put([]))
    for revision in (1, 4, 12, 13, None):
        found = listed(before, revision)
        values = {key: value for key, (_, value) in found.items()}
        assert values == {key: value for key, (_, value) in listed(now, revision).items()}
    expected = {f"{kind}{n}": digest({"n": n}) for kind in "ab" for n in range(6)}
    changed = {"a1": digest({"n": 1, "more": True}), "b1": digest([])}
    assert values == expected | changed
    assert {key: value for key, (_, value) in listed(before, 12).items()} == expected


def test_a_page_ends_before_it_reads_too_many_contents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(digests, "_CONTENTS_BYTES_MAX", 10)
    before = gateway_on(_WrittenBefore())
    page = before.digests.page("c", prefix="", after="", limit=50, revision=None)
    assert [each.key for each in page.documents] == ["a0"]
    rest = before.digests.page("c", prefix="", after="a5", limit=50, revision=None)
    assert len(rest.documents) == 6
    alone = before.digests.page("c", prefix="", after="", limit=50, revision=12, digests=False)
    assert [each.token for each in alone.documents] == [each for each, _ in listed(before).values()]
    assert alone.next_after is None, "keys alone need no content"
