"""What a read takes outside of sections counts, too, and pages end before it is too much.

The store draws on the account of whoever asks it, as the signals do that a server gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from gateway import cpu
from gateway.access import Grant, Principal, Role
from gateway.cpu import TooMuchWork
from gateway.decide.edits import Put
from gateway.decide.owning import ApplyWanted
from gateway.limits import ServiceLimits
from gateway.model import DocumentRecord
from gateway.read.digests import Names
from gateway.read.losses import LossQuery
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.contract import Store
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS
from tests.without_http import put

EVE = Principal("eve", (Grant(Role.READ, "*"),))
ANN_ALONE = {"acl": {"read": ["ann"]}}
KEYS = [f"{folder}/k{number}" for folder in "ab" for number in range(8)]
LIMIT_S = 10.0


class _Costly(MemoryStore):
    """Each answer takes ``seconds`` of processor time to decode."""

    seconds = 0.0
    answers = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("scan_documents", "scan_digests", "documents", "changes_of"):
            return found

        def asked(*given: Any, **named: Any) -> Any:
            self.answers += 1
            cpu.draw(self.seconds)
            return found(*given, **named)

        return asked


@pytest.fixture
def store() -> Iterator[_Costly]:
    made = _Costly()
    yield made
    cpu.work_for(None)


@pytest.fixture
def gateway(store: _Costly) -> GatewayService:
    """Of its documents the one half is made after the other."""
    limits = ServiceLimits(deadline_ms=WAIT_MS, listing_page_documents=2)
    service = GatewayService(cast(Store, store), ThreadRuntime(), limits)
    for key in reversed(KEYS):
        service.write("c", key, put({"n": 1}))
    return service


Page = tuple[Sequence[str], str | None]


def listed(gateway: GatewayService, after: str, revision: int | None) -> Page:
    page = gateway.listing.page("c", _key, prefix="", after=after, limit=5, revision=revision)
    return page.documents, page.next_after


def digested(gateway: GatewayService, after: str, revision: int | None) -> Page:
    page = gateway.digests.page("c", prefix="", after=after, limit=5, revision=revision)
    return [each.key for each in page.documents], page.next_after


def in_folders(gateway: GatewayService, after: str, revision: int | None) -> Page:
    names = Names(delimiter="k")
    page = gateway.digests.page(
        "c", prefix="", after=after, limit=5, revision=revision, names=names
    )
    assert not page.documents
    return page.folders, page.next_after


def differing(gateway: GatewayService, after: str, revision: int | None) -> Page:
    reads = gateway.differences
    span = reads.span("c", 0, revision)
    page = reads.page(span, lambda each: each.key, after=after, limit=5)
    return page.documents, page.next_after


def _key(document: DocumentRecord) -> str:
    return document.key


def all_pages(of: Callable[[GatewayService, str, int | None], Page], *given: Any) -> list[str]:
    gateway, revision = given
    told: list[str] = []
    after: str | None = ""
    pages = 0
    while after is not None:
        cpu.begin(LIMIT_S)
        some, after = of(gateway, after, revision)
        told += some
        pages += 1
        assert pages <= 3 * len(KEYS), "the pages don't end"
    return told


@pytest.mark.parametrize("seconds", [0.0, LIMIT_S * 0.06, LIMIT_S * 0.12])
@pytest.mark.parametrize("revision", [None, 8])
@pytest.mark.parametrize("of", [listed, digested, in_folders, differing])
def test_short_pages_together_return_everything(
    gateway: GatewayService, store: _Costly, seconds: float, revision: int | None, of: Any
) -> None:
    store.seconds = seconds
    there = KEYS if revision is None else KEYS[-revision:]
    expected = there if of is not in_folders else sorted({f"{key[0]}/k" for key in there})
    assert all_pages(of, gateway, revision) == expected


def test_an_expensive_page_of_documents_that_did_not_exist_yet_ends_early(
    gateway: GatewayService, store: _Costly
) -> None:
    store.seconds = LIMIT_S * 0.1
    for of in (listed, digested):
        cpu.begin(LIMIT_S)
        store.answers = 0
        some, after = of(gateway, "", 1)
        assert (list(some), after is None) == ([], False)
        assert store.answers < len(KEYS)


def test_an_export_may_take_as_long_as_it_needs(gateway: GatewayService, store: _Costly) -> None:
    store.seconds = LIMIT_S * 0.3
    for revision, expected in ((None, KEYS), (1, KEYS[-1:])):
        cpu.begin(LIMIT_S)
        export = gateway.listing.export("c", _key, owner="p", revision=revision)
        assert [key for page in export.pages for key in page] == expected


def test_an_expensive_page_without_a_visible_key_is_refused(
    gateway: GatewayService, store: _Costly
) -> None:
    """There is no key to continue after."""
    for key in KEYS:
        gateway.write("c", key, Put({"n": 2}, 8, ANN_ALONE))
    viewer = gateway.acls.viewer(EVE, "c")
    more: dict[str, Any] = {"after": "", "limit": 1, "revision": None, "viewer": viewer}
    store.seconds = LIMIT_S * 0.4
    cpu.begin(LIMIT_S)
    with pytest.raises(TooMuchWork):
        gateway.listing.page("c", _key, prefix="", **more)
    cpu.begin(LIMIT_S)
    with pytest.raises(TooMuchWork):
        gateway.digests.page("c", prefix="", **more)


def test_a_page_of_losses_continues_where_the_last_one_was_cut(
    gateway: GatewayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in KEYS:
        gateway.write("c", key, ApplyWanted({"n": 5}, 8, "m", conflict="force"))
    for key in KEYS:
        gateway.write("c", key, put({"n": 6}))
    monkeypatch.setattr(cpu, "is_half_used", lambda: True)
    told: list[str] = []
    before: int | None = None
    after_key = ""
    for _ in range(3 * len(KEYS)):
        page = gateway.losses.page(LossQuery("c", "m", 1_000, before=before, after_key=after_key))
        assert len(page.losses) <= 1
        told += [each.key for each in page.losses]
        before, after_key = page.before, page.after_key
        if before is None:
            break
    assert told == KEYS[::-1]


def test_time_spent_outside_sections_is_charged_in_the_next_section() -> None:
    called: list[int] = []
    compute = cpu.in_section(lambda: called.append(1))
    cpu.begin(1.0)
    assert not cpu.draw(0.75)
    assert cpu.is_half_used()
    compute()
    assert not cpu.draw(0.5)
    for section in (compute, cpu.interruptible(lambda: called.append(2))):
        with pytest.raises(TooMuchWork):
            section()
    with pytest.raises(TooMuchWork), cpu.section(cpu.own_account()):
        called.append(3)
    assert called == [1]
    cpu.conclude()  # what is done is told
    assert not cpu.draw(5.0)
    compute()
    assert called == [1, 1]
