"""Keys found by a part of them, and as folders: by page, of any revision, by what one sees."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.access import Grant, Principal, Role
from gateway.decide.edits import Delete, EditAttributes, KeyEdit, Put
from gateway.limits import ServiceLimits
from gateway.read import digests
from gateway.read.digests import KeyDigestPage, Names
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.memory_store import MemoryStore
from tests.patience import WAIT_MS
from tests.without_http import applied, put

EVE = Principal("eve", (Grant(Role.READ, "*"),))
LAST = "\U0010ffff"
PARTS = ["a", "B", "ab", "é", "É", "", LAST, "x.y"]


@dataclass
class History:
    """Random documents under random keys; what was there at each revision, and what eve sees."""

    gateway: GatewayService
    states: list[dict[str, int]]
    closed: set[str]


@pytest.fixture(scope="module")
def history() -> History:
    rng = random.Random(20261123)
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
    found = History(gateway, [{}], set())
    now: dict[str, int] = {}
    while len(found.states) < 220:
        key = "/".join(rng.choice(PARTS) for _ in range(rng.randrange(1, 4)))
        step: Any = put(rng.random()) if rng.random() < 0.6 else Delete()
        if key and (key in now or step != Delete()):
            applied(gateway.write("c", key, step).outcome)
            now = {**now, key: len(found.states)}
            if step == Delete():
                del now[key]
            found.states.append(now)
    for key in list(now)[::3]:
        attributes = EditAttributes(Put({"acl": {"read": ["ann"]}}, 30))
        applied(gateway.write("c", key, attributes).outcome)
        now = {**now, key: len(found.states)}
        found.states.append(now)
        found.closed.add(key)
    return found


def pages(
    history: History, names: Names, *, by: Principal | None, limit: int, **asked: Any
) -> tuple[list[str], list[str]]:
    """The keys and the folders of all pages."""
    viewer = None if by is None else history.gateway.acls.viewer(by, "c")
    keys: list[str] = []
    folders: list[str] = []
    page: KeyDigestPage | None = None
    while page is None or page.next_after is not None:
        after = "" if page is None else page.next_after
        page = history.gateway.digests.page(
            "c", after=after or "", limit=limit, viewer=viewer, names=names, **asked
        )
        assert len(page.documents) + len(page.folders) <= limit
        keys += [each.key for each in page.documents]
        folders += page.folders
        for each in page.documents:
            assert each.revision == history.states[page.revision][each.key]
    return keys, folders


def _visible(history: History, revision: int | None, by: Principal | None) -> set[str]:
    at = len(history.states) - 1 if revision is None else revision
    # An acl is about the document that there is now, not about one before it under the same key.
    own = {key for key in history.closed if all(key in state for state in history.states[at:])}
    return set(history.states[at]) - (own if by else set())


@pytest.mark.parametrize("by", [None, EVE])
@pytest.mark.parametrize("revision", [None, 60, 150])
@pytest.mark.parametrize(("limit", "looked_at"), [(1, 1), (3, 7), (1000, 10_000)])
def test_keys_are_found_by_any_part_of_them(
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    by: Principal | None,
    revision: int | None,
    limit: int,
    looked_at: int,
) -> None:
    """In either case of letters, each once, however few keys a page looks at."""
    monkeypatch.setattr(digests, "_KEYS_MAX", looked_at)
    for prefix, text in (("", "a"), ("", "AB"), ("a", "/"), ("a/", "É"), ("", "."), ("", "no")):
        visible = _visible(history, revision, by)
        expected = [
            key for key in visible if key.startswith(prefix) and text.casefold() in key.casefold()
        ]
        asked = {"prefix": prefix, "revision": revision}
        found, _ = pages(history, Names(contain=text), by=by, limit=limit, **asked)
        assert found == sorted(expected)


@pytest.mark.parametrize("by", [None, EVE])
@pytest.mark.parametrize("revision", [None, 60, 150])
@pytest.mark.parametrize(("limit", "seeks"), [(1, 1), (3, 2), (1000, 200)])
def test_keys_are_listed_as_folders(
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    by: Principal | None,
    revision: int | None,
    limit: int,
    seeks: int,
) -> None:
    """A folder is listed, once, if something visible is in it."""
    monkeypatch.setattr(digests, "_SEEKS_MAX", seeks)
    monkeypatch.setattr(digests, "_STEP", 2)
    for prefix, delimiter in (
        ("", "/"),
        ("a/", "/"),
        ("a", "/"),
        ("/", "/"),
        ("", "b/"),
        ("", "é"),
    ):
        within = {key for key in _visible(history, revision, by) if key.startswith(prefix)}
        rests = {key: key[len(prefix) :].partition(delimiter) for key in within}
        direct = [key for key, (_, between, _) in rests.items() if not between]
        folders = {f"{prefix}{first}{between}" for first, between, _ in rests.values() if between}
        asked = {"prefix": prefix, "revision": revision}
        keys, found = pages(history, Names(delimiter=delimiter), by=by, limit=limit, **asked)
        assert keys == sorted(direct)
        # One whose keys are beyond U+10FFFF may come again.
        assert list(dict.fromkeys(found)) == sorted(folders)
        if LAST not in "".join(within):
            assert len(found) == len(folders)


def test_a_large_folder_is_skipped_without_reading_its_contents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    gateway = GatewayService(store, ThreadRuntime(), ServiceLimits(deadline_ms=WAIT_MS))
    edits = [KeyEdit(f"a/{n:04}", put(n)) for n in range(500)] + [KeyEdit("b", put(1))]
    applied(gateway.commit(gateway.request("c", tuple(edits))).outcome)
    scanned: list[int] = []
    scan = store.scan_digests

    def counted(*asked: Any, **named: Any) -> Any:
        scanned.append(len(found := scan(*asked, **named)))
        return found

    monkeypatch.setattr(store, "scan_digests", counted)
    page = gateway.digests.page(
        "c", prefix="", after="", limit=100, revision=None, names=Names(delimiter="/")
    )
    assert ([each.key for each in page.documents], page.folders) == (["b"], ["a/"])
    assert page.next_after is None
    assert sum(scanned) <= 21
