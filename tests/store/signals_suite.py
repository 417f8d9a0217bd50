"""What every store must do: tell of commits, and lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.store.contract import CommitSignals, Store, Swept
from tests.patience import WAIT_S
from tests.store.contract_suite import commit
from tests.store.retention_suite import race


class SignalsContract:
    """Subclasses give the fixture ``store``."""

    @pytest.fixture
    def signals(self, store: Store) -> Iterator[CommitSignals]:
        store.write_commits([commit(1), commit(1, catalog="before")])
        opened = store.commit_signals()
        yield opened
        opened.close()

    def test_what_is_written_after_the_opening_is_told(
        self, store: Store, signals: CommitSignals
    ) -> None:
        store.write_commits([commit(2), commit(7, catalog="d/é")])
        assert told(signals, 2) == {"c": 2, "d/é": 7}
        assert signals.next(0.0) == {}

    def test_many_commits_are_told_as_the_newest_of_each_catalog(
        self, store: Store, signals: CommitSignals
    ) -> None:
        store.write_commits([commit(n) for n in range(2, 300)])
        store.write_commits([commit(1, catalog="d")])
        assert told(signals, 2) == {"c": 299, "d": 1}

    def test_commits_that_were_there_or_are_swept_are_not_told(
        self, store: Store, signals: CommitSignals
    ) -> None:
        store.write_commits([commit(1)])
        store.sweep("c", [Swept(1, commit(1, changes=()))])
        store.sweep("c", [Swept(1, None)])
        store.write_commits([commit(5, catalog="d")])
        assert told(signals, 1) == {"d": 5}
        assert signals.next(0.0) == {}

    def test_an_empty_answer_comes_when_the_time_is_up(self, signals: CommitSignals) -> None:
        begun = time.monotonic()
        assert signals.next(0.25) == {}
        assert time.monotonic() - begun > 0.2

    def test_whoever_waits_is_told_at_once(self, store: Store, signals: CommitSignals) -> None:
        asked = threading.Event()

        def write() -> None:
            asked.wait()
            store.write_commits([commit(2)])

        writer = threading.Thread(target=write)
        writer.start()
        asked.set()
        begun = time.monotonic()
        assert signals.next(WAIT_S) == {"c": 2}
        assert time.monotonic() - begun < WAIT_S
        writer.join()

    def test_each_of_several_is_told(self, store: Store, signals: CommitSignals) -> None:
        other = store.commit_signals()
        store.write_commits([commit(2)])
        assert told(signals, 1) == told(other, 1) == {"c": 2}
        other.close()


class LeasesContract:
    """Subclasses give the fixture ``store``."""

    def test_a_lease_is_its_holders_until_given_up(self, store: Store) -> None:
        assert store.take_lease("l", "$ann", 60.0)
        assert not store.take_lease("l", "bob", 60.0)
        assert store.take_lease("l", "$ann", 60.0)
        assert store.take_lease("other", "bob", 60.0)
        store.end_lease("l", "bob")
        assert not store.take_lease("l", "bob", 60.0)
        store.end_lease("l", "$ann")
        assert store.take_lease("l", "bob", 60.0)
        store.end_lease("none", "bob")

    def test_a_lease_that_is_over_can_be_taken(
        self, store: Store, eventually: Callable[..., Any]
    ) -> None:
        assert store.take_lease("l", "ann", 0.05)
        eventually(lambda: store.take_lease("l", "bob", 60.0))
        assert not store.take_lease("l", "ann", 60.0)

    def test_a_renewed_lease_lasts_from_then_on(
        self, store: Store, eventually: Callable[..., Any]
    ) -> None:
        assert store.take_lease("l", "ann", 60.0)
        assert store.take_lease("l", "ann", 0.05)
        eventually(lambda: store.take_lease("l", "bob", 60.0))

    def test_of_those_who_race_for_a_lease_one_has_it(self, store: Store) -> None:
        takers = [lambda n=n: store.take_lease("l", f"h{n}", 60.0) for n in range(8)]
        assert race(*takers).count(True) == 1


def told(signals: CommitSignals, catalogs: int) -> dict[str, int]:
    """What is told until that many catalogs were."""
    everything: dict[str, int] = {}
    deadline = time.monotonic() + WAIT_S
    while len(everything) < catalogs and time.monotonic() < deadline:
        everything.update(signals.next(1.0))
    # In the order of writing: whatever else there was is here, too.
    everything.update(signals.next(0.0))
    return everything
