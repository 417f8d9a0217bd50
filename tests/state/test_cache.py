"""The cache keeps to its bound, whatever fills it."""

from __future__ import annotations

import random
import threading
from typing import Any, cast

import pytest
from msgspec.json import decode, encode

from gateway import cpu
from gateway.limits import ServiceLimits
from gateway.memory import parsed_bytes
from gateway.model import (
    Action,
    ChangeRecord,
    CommitRecord,
    DocumentRecord,
    Head,
    HeadMove,
    Idempotency,
    Verdict,
)
from gateway.runtime import ThreadRuntime
from gateway.state.cache import Cache, Weight, weight_of
from gateway.state.replay import advance
from patching import Json
from tests.patience import WAIT_S
from tests.state.sleeping import Noted

MIB = 1024 * 1024
# What a reply of so many bytes takes by the cache's estimate is six times as much.
LARGE = 100_000
ID = "0" * 32


def cache_of(bytes_max: int = 8 * MIB) -> Cache:
    return Cache(ThreadRuntime(), ServiceLimits(cache_bytes_max=bytes_max))


def commit(catalog: str, revision: int, size_bytes: int = LARGE) -> CommitRecord:
    change = ChangeRecord("k", "put", 1, value="x", size_bytes=size_bytes)
    return CommitRecord(
        catalog, revision, revision, ID, "a", None, None, 1, (change,), size_bytes=size_bytes
    )


def verdict(catalog: str, number: int) -> Verdict:
    asked = Idempotency("p", f"{number}", "f")
    return Verdict(catalog, number, 1, 1, ID, asked, 1, {}, size_bytes=LARGE)


def document(key: str, size_bytes: int = 10) -> DocumentRecord:
    return DocumentRecord(key, "x" * (size_bytes - 2), 1, 1, ID, 1, size_bytes=size_bytes)


def head(catalog: str, *, commits: int = 1, verdicts: int = 0) -> Head:
    tail = tuple(commit(catalog, n + 1) for n in range(commits))
    told = tuple(verdict(catalog, n + 1) for n in range(verdicts))
    return Head(catalog, commits, 1, 0, tail=tail, judged=verdicts, verdicts=told)


@pytest.mark.parametrize("what", [{"commits": 1}, {"commits": 1, "verdicts": 1}])
def test_tails_read_with_heads_stay_within_the_bound(what: dict[str, int]) -> None:
    """Another worker has imported many catalogs; this one looks at each once."""
    cache = cache_of()
    for n in range(300):
        cache.begin(head(f"c{n}", **what))
        assert cache.readings().bytes <= 8 * MIB
    assert cache.revision("c299") == 1
    assert cache.revision("c0") is None


def nested(levels: int, width: int) -> Json:
    value: Json = 1
    for _ in range(levels):
        value = [value]
    return [value] * width


def test_documents_count_with_their_size_in_memory() -> None:
    """Nested arrays take 44 times the length of their text."""
    cache = cache_of()
    cache.begin(head("c"))
    for n in range(100):
        content = decode(encode(nested(90, 20)))
        size_bytes = len(encode(content))
        cache.learn("c", 1, {f"d{n}": DocumentRecord(f"d{n}", content, 1, 1, ID, 1, 0, size_bytes)})
    seen = cache.view("c", [f"d{n}" for n in range(100)])
    assert seen is not None
    assert 0.8 < len(seen.documents) * 90 * 20 * 88 / (8 * MIB) <= 1
    assert cache.readings().bytes <= 8 * MIB


@pytest.mark.parametrize("member", ["patch", "attributes"])
@pytest.mark.parametrize("first_bytes", [2_000, 100_000])
def test_a_document_is_weighed_again_before_it_has_grown_by_much(
    first_bytes: int, member: str
) -> None:
    cache = cache_of(64 * MIB)
    cache.begin(head("c", commits=0))
    content: list[Json] = ["x" * first_bytes]
    attributes: dict[str, Json] = {}
    for revision in range(1, 100):
        more = decode(encode(nested(90, 10)))
        if member == "patch":
            content = [*content, more]
            made: Any = {"patch": [{"op": "add", "path": "/-", "value": more}]}
        else:
            made = {"attributes": (attributes := {**attributes, f"{revision}": more})}
        size_bytes = len(encode(content))
        change = ChangeRecord("k", cast(Action, member), 1, size_bytes=size_bytes, **made)
        made_by = CommitRecord("c", revision, revision, ID, "a", None, None, 1, (change,))
        move = HeadMove("c", revision - 1, (made_by,), 0, last="" if revision == 1 else ID)
        document = DocumentRecord(
            *("k", content, revision, 1, ID, 1, 0, size_bytes), attributes=attributes
        )
        cache.replace(move, {"k": document})
        cache.mark_written("c", revision)
        exact = parsed_bytes(content, attributes)
        assert exact <= cache.readings().bytes <= 1.25 * exact + 10_000


def test_a_small_patch_is_weighed_instead_of_its_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weighed: list[Json] = []

    def noted(*values: Json) -> int:
        weighed.extend(values)
        return parsed_bytes(*values)

    monkeypatch.setattr("gateway.state.cache.parsed_bytes", noted)
    content: Json = {f"{n}": n for n in range(300)}
    patch: list[dict[str, Json]] = [{"op": "replace", "path": "/1", "value": 7}]
    document = DocumentRecord("k", content, 1, 1, ID, 1, size_bytes=len(encode(content)))
    before = weight_of(document)
    after = weight_of(document, before, (ChangeRecord("k", "patch", 1, patch=patch),))
    assert weighed == [content, patch]
    assert after.weighed_bytes == before.weighed_bytes < after.memory_bytes
    weight_of(document, before, (ChangeRecord("k", "put", 1, value=content),))
    assert weighed == [content, patch, content]


def test_bare_entries_are_counted_too() -> None:
    cache = cache_of(1_000_000)
    for n in range(10_000):
        cache.begin(Head(f"c{n}", 1, 1, 1, tail=(), verdicts=()))
    assert cache.readings().bytes <= 4 * MIB
    assert cache.revision("c0") is None
    assert cache.revision("c9999") == 1


def test_documents_in_use_outlast_tails_not_in_use() -> None:
    cache = cache_of()
    cache.begin(head("ours"))
    cache.learn("ours", 1, {"d": document("d")})
    for n in range(300):
        cache.begin(head(f"c{n}"))
        cache.learn("ours", 1, {"e": document("e")})
        seen = cache.view("ours", ["d", "e"])
        assert seen is not None
        assert seen.documents.keys() == {"d", "e"}


def test_old_documents_are_evicted_before_an_entry_in_use() -> None:
    cache = cache_of()
    cache.begin(head("ours", commits=1))
    for n in range(300):
        cache.learn("ours", 1, {f"d{n}": document(f"d{n}", LARGE)})
    seen = cache.view("ours", ["d0", "d299"])
    assert seen is not None
    assert seen.documents.keys() == {"d299"}
    assert cache.readings().bytes <= 8 * MIB


def test_the_newest_entry_stays_however_large() -> None:
    cache = cache_of(0)
    for n in range(3):
        cache.begin(head(f"c{n}", commits=10))
    assert [cache.revision(f"c{n}") for n in range(3)] == [None, None, 10]
    cache.learn("c2", 10, {"d": document("d")})
    seen = cache.view("c2", ["d"])
    assert seen is not None
    assert seen.tail
    assert seen.documents == {}


def test_the_entries_of_a_batch_stay_however_small_the_bound() -> None:
    """Else each of its catalogs would be decided by itself."""
    cache = cache_of(0)
    for n in range(1_000):
        cache.begin(Head(f"c{n}", 1, 1, 1, tail=(), verdicts=()))
    assert all(cache.view(f"c{n}") for n in range(1_000))


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_counted_once_every_entry_is_forgotten(seed: int) -> None:
    """After any history nothing is counted of entries that are forgotten."""
    rng = random.Random(seed)
    cache = cache_of(2 * MIB)
    names = [f"c{n}" for n in range(6)]
    for n in range(1, 400):
        name = rng.choice(names)
        revision = cache.revision(name)
        match rng.randrange(7):
            case 0:
                cache.begin(head(name, commits=n, verdicts=rng.randrange(2)))
            case 1 if revision is not None:
                cache.learn(
                    name, revision, {rng.choice("abc"): document("a", rng.randrange(LARGE))}
                )
            case 2 if revision is not None:
                cache.advance(name, [commit(name, revision + 1, rng.randrange(LARGE))])
            case 3 if revision is not None:
                cache.mark_written(name, rng.randint(0, revision))
            case 4:
                cache.view(name, "abc")
            case 5 if revision is not None:
                seen = cache.view(name)
                assert seen is not None
                made = commit(name, revision + 1, rng.randrange(LARGE))
                cache.replace(
                    HeadMove(
                        name, revision, (made,), 0, seen.judged, (verdict(name, seen.judged + 1),)
                    ),
                    {"a": document("a")},
                )
            case 6 if revision is not None and rng.random() < 0.5:
                cache.changed_under(name, "", revision, revision)
            case 6 if rng.random() < 0.2:
                cache.forget(name)
    for name in names:
        cache.forget(name)
    assert cache.readings().bytes == 0


def test_a_document_that_is_not_the_base_of_a_commit_is_forgotten_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the rest of the catalog: it was of the same reading."""
    meters = Noted()
    cache = Cache(ThreadRuntime(), ServiceLimits(), meters)
    cache.begin(Head("c", 1, 1, 1, tail=(), verdicts=()))
    cache.learn("c", 1, {"k": document("k"), "other": document("other")})
    made = ChangeRecord(
        "k", "attributes", 1, attributes={"a": 1}, base_revision=1, base_id="f" * 32
    )
    following = CommitRecord("c", 2, 2, ID, "a", None, None, 1, (made,))
    cache.advance("c", [following])
    assert cache.view("c", ["k", "other"]) is None
    assert cache.readings().bytes == 0
    assert (meters.refused, meters.went_back) == (1, 0)
    assert "the change of 'k' at 2 wasn't made from the document at revision 1" in caplog.text


def test_a_document_with_a_change_reduced_by_compaction_is_forgotten() -> None:
    cache = cache_of()
    cache.begin(Head("c", 1, 1, 1, tail=(), verdicts=()))
    cache.learn("c", 1, {"k": document("k")})
    cache.advance(
        "c", [CommitRecord("c", 2, 2, ID, "a", None, None, 1, (ChangeRecord("k", "patch", 1),))]
    )
    assert cache.view("c") is None
    assert cache.readings().bytes == 0


def test_documents_are_weighed_outside_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take long, and everybody asks the cache."""
    cache = cache_of()
    locked: list[bool] = []

    def weighed(*given: Any) -> Weight:
        locked.append(cache._lock.locked())  # type: ignore[attr-defined]
        return weight_of(*given)

    monkeypatch.setattr("gateway.state.cache.weight_of", weighed)
    cache.begin(Head("c", 1, 1, 1))
    cache.learn("c", 1, {"k": document("k"), "absent": None})
    move = HeadMove("c", 1, (commit("c", 2),), 1)
    cache.replace(move, {"k": document("k", 20)})
    assert locked == [False] * 3
    seen = cache.view("c", ["k"])
    assert seen is not None
    assert seen.documents == {"k": document("k", 20)}


def test_a_read_of_a_catalog_that_has_moved_on_is_not_cached() -> None:
    cache = cache_of()
    cache.begin(Head("c", 2, 1, 2))
    cache.learn("c", 1, {"k": document("k")})
    seen = cache.view("c", ["k"])
    assert seen is not None
    assert seen.documents == {}


def test_the_cache_shrinks_a_megabyte_at_a_time_least_recently_used_first() -> None:
    cache = cache_of(64 * MIB)
    cache.begin(Head("c", 1, 1, 1))
    for n in range(8):
        cache.learn("c", 1, {f"k{n}": document(f"k{n}", MIB)})
    steps = 1
    while not cache.shrink(2 * MIB):
        steps += 1
    assert steps >= 5
    seen = cache.view("c", [f"k{n}" for n in range(8)])
    assert seen is not None
    assert "k7" in seen.documents
    assert "k0" not in seen.documents
    assert cache.shrink(0) or cache.shrink(0)


def test_what_others_committed_is_replayed_interruptibly_and_without_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A patch of a thousand operations on a large list held the other worker up. What is learned
    meanwhile is moved on, too."""
    cache = cache_of()
    cache.begin(head("c", commits=0))
    cache.learn("c", 0, {"a": None})
    made = tuple(ChangeRecord(key, "put", 1, value=key) for key in "ab")
    theirs = CommitRecord("c", 1, 1, ID, "a", None, None, 1, made)
    replayed: list[str] = []

    def noted(document: Any, commit: CommitRecord, change: ChangeRecord) -> Any:
        assert cpu.draw(0.0)
        if not replayed:
            cache.learn("c", 0, {"b": None})
        replayed.append(change.key)
        return advance(document, commit, change)

    monkeypatch.setattr("gateway.state.cache.advance", noted)
    cpu.begin(0.0)
    cpu.draw(1.0)  # the request that happens to ask first pays nothing for it
    try:
        cache.advance("c", [theirs])
    finally:
        cpu.work_for(None)
    assert replayed == ["a", "a", "b"]
    seen = cache.view("c", "ab")
    assert seen is not None
    assert {key: each and each.content for key, each in seen.documents.items()} == {
        "a": "a",
        "b": "b",
    }


def test_callers_at_one_moment_replay_a_commit_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them computed it anew, and all of them together got ready late."""
    cache = cache_of()
    cache.begin(head("c", commits=0))
    cache.learn("c", 0, {"a": None})
    change = ChangeRecord("a", "put", 1, value="a")
    theirs = CommitRecord("c", 1, 1, ID, "a", None, None, 1, (change,))
    begun, go_on = threading.Event(), threading.Event()
    replayed: list[str] = []

    def noted(document: Any, commit: CommitRecord, change: ChangeRecord) -> Any:
        replayed.append(change.key)
        begun.set()
        assert go_on.wait(WAIT_S)
        return advance(document, commit, change)

    monkeypatch.setattr("gateway.state.cache.advance", noted)
    threads = [threading.Thread(target=cache.advance, args=("c", [theirs])) for _ in range(5)]
    threads[0].start()
    assert begun.wait(WAIT_S)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert replayed == ["a"]
    assert cache.revision("c") == 1
