"""Reads that come at the same time share a call, and none is older than who asked for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import pytest

from gateway.runtime import ThreadRuntime
from gateway.state.sharing import SharedReads
from gateway.store.contract import StoreUnreachable
from tests.patience import WAIT_S


class Shelf:
    """What is read; the first call waits until it may go on."""

    def __init__(self) -> None:
        self.calls: list[set[str]] = []
        self.value = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.reachable = True

    def read_from_store(self, names: Collection[str]) -> dict[str, int]:
        self.calls.append(set(names))
        value = self.value  # as it is when the call begins
        if len(self.calls) == 1:
            self.begun.set()
            assert self.go_on.wait(WAIT_S)
        if not self.reachable:
            raise StoreUnreachable("x")
        return {name: value for name in names if name != "missing"}


def gathering(reads: SharedReads[str, int]) -> set[str]:
    return {name for group in reads._together._gathering for name in group.names}


def test_reads_requested_during_a_read_share_the_next_one(
    eventually: Callable[..., Any],
) -> None:
    shelf = Shelf()
    reads = SharedReads(shelf.read_from_store, ThreadRuntime())
    found: dict[str, dict[str, int]] = {}

    def ask(*names: str) -> threading.Thread:
        thread = threading.Thread(target=lambda: found.update({names[0]: reads.read(names)}))
        thread.start()
        return thread

    threads = [ask("first")]
    assert shelf.begun.wait(WAIT_S)
    shelf.value = 1
    threads += [ask("a", "missing"), ask("b", "a"), ask("c")]
    waiting = {"a", "missing", "b", "c"}
    eventually(lambda: gathering(reads) == waiting)
    shelf.go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert shelf.calls == [{"first"}, waiting]
    assert found == {"first": {"first": 0}, "a": {"a": 1}, "b": {"b": 1, "a": 1}, "c": {"c": 1}}


def test_readers_of_many_names_share_no_call(eventually: Callable[..., Any]) -> None:
    """A call for the names of a hundred readers held their worker up."""
    shelf = Shelf()
    reads = SharedReads(shelf.read_from_store, ThreadRuntime())
    names = [[f"{reader}/{number}" for number in range(900)] for reader in "abcde"]
    asked = [["first"], *names, names[-1]]
    found: list[dict[str, int]] = []
    threads = []
    for count, each in enumerate(asked):
        threads.append(threading.Thread(target=lambda: found.append(reads.read(each))))  # noqa: B023
        threads[-1].start()
        expected = {name for each in asked[1 : count + 1] for name in each}
        eventually(lambda: shelf.begun.is_set() and gathering(reads) == expected)  # noqa: B023
    shelf.go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert [len(call) for call in shelf.calls] == [1, 1_800, 1_800, 900]
    assert sorted(map(sorted, found)) == sorted(map(sorted, asked))


def test_an_error_is_raised_in_every_reader_of_the_shared_read_and_in_no_other() -> None:
    shelf = Shelf()
    shelf.go_on.set()
    shelf.reachable = False
    reads = SharedReads(shelf.read_from_store, ThreadRuntime())
    with pytest.raises(StoreUnreachable):
        reads.read(["a"])
    shelf.reachable = True
    assert reads.read(["a"]) == {"a": 0}


def test_an_unreadable_record_fails_only_its_own_readers(
    eventually: Callable[..., Any],
) -> None:
    shelf = Shelf()

    def read_from_store(names: Collection[str]) -> dict[str, int]:
        found = shelf.read_from_store(names)
        if "bad" in names:
            raise KeyError("bad")
        return found

    reads = SharedReads(read_from_store, ThreadRuntime())
    found: dict[str, object] = {}

    def read(name: str) -> None:
        try:
            found[name] = reads.read([name])
        except KeyError as error:
            found[name] = error

    threads = [threading.Thread(target=read, args=(name,)) for name in ("first", "a", "bad", "c")]
    threads[0].start()
    assert shelf.begun.wait(WAIT_S)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(gathering(reads)) == 3)
    shelf.go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert isinstance(found.pop("bad"), KeyError)
    assert found == {"first": {"first": 0}, "a": {"a": 0}, "c": {"c": 0}}


def test_a_reader_killed_during_a_shared_read_makes_the_others_read_again(
    eventually: Callable[..., Any],
) -> None:
    """They don't find that nothing is stored: they read again."""
    shelf = Shelf()

    def read_from_store(names: Collection[str]) -> dict[str, int]:
        found = shelf.read_from_store(names)
        if len(shelf.calls) == 2:
            raise SystemExit
        return found

    reads = SharedReads(read_from_store, ThreadRuntime())
    found: dict[str, dict[str, int]] = {}

    def read(name: str) -> None:
        with suppress(SystemExit):
            found[name] = reads.read([name])

    def ask(name: str) -> threading.Thread:
        thread = threading.Thread(target=read, args=(name,))
        thread.start()
        return thread

    threads = [ask("first")]
    assert shelf.begun.wait(WAIT_S)
    for number, name in enumerate(("ended", "a")):
        threads.append(ask(name))
        eventually(lambda: len(gathering(reads)) == number + 1)  # noqa: B023
    shelf.go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert found == {"first": {"first": 0}, "a": {"a": 0}}
