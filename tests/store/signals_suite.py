"""What every store must do: signal commits, and lease."""

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

    def test_commits_written_after_opening_are_signalled(
        self, store: Store, signals: CommitSignals
    ) -> None:
        store.write_commits([commit(2), commit(7, catalog="d/é")])
        assert signalled(signals, 2) == {"c": 2, "d/é": 7}
        assert signals.next(0.0) == {}

    def test_many_commits_are_signalled_as_the_newest_of_each_catalog(
        self, store: Store, signals: CommitSignals
    ) -> None:
        store.write_commits([commit(n) for n in range(2, 300)])
        store.write_commits([commit(1, catalog="d")])
        assert signalled(signals, 2) == {"c": 299, "d": 1}

    def test_existing_or_swept_commits_are_not_signalled(
        self, store: Store, signals: CommitSignals
    ) -> None:
        store.write_commits([commit(1)])
        store.sweep("c", [Swept(1, commit(1, changes=()))])
        store.sweep("c", [Swept(1, None)])
        store.write_commits([commit(5, catalog="d")])
        assert signalled(signals, 1) == {"d": 5}
        assert signals.next(0.0) == {}

    def test_a_wait_without_commits_ends_empty_at_its_timeout(self, signals: CommitSignals) -> None:
        begun = time.monotonic()
        assert signals.next(0.25) == {}
        assert time.monotonic() - begun > 0.2

    def test_a_waiting_reader_gets_a_signal_at_once(
        self, store: Store, signals: CommitSignals
    ) -> None:
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

    def test_every_open_reader_gets_the_signal(self, store: Store, signals: CommitSignals) -> None:
        other = store.commit_signals()
        store.write_commits([commit(2)])
        assert signalled(signals, 1) == signalled(other, 1) == {"c": 2}
        other.close()


class LeasesContract:
    """Subclasses give the fixture ``store``."""

    def test_a_lease_belongs_to_its_holder_until_it_is_over(self, store: Store) -> None:
        assert store.take_lease("l", "$ann", 60.0)
        assert not store.take_lease("l", "bob", 60.0)
        assert store.take_lease("l", "$ann", 60.0)
        assert store.take_lease("other", "bob", 60.0)
        assert store.take_lease("l", "$ann", 0.0)
        assert store.take_lease("l", "bob", 60.0)

    def test_an_expired_lease_can_be_taken(
        self, store: Store, eventually: Callable[..., Any]
    ) -> None:
        assert store.take_lease("l", "ann", 0.05)
        eventually(lambda: store.take_lease("l", "bob", 60.0))
        assert not store.take_lease("l", "ann", 60.0)

    def test_a_renewed_lease_expires_by_the_new_time(
        self, store: Store, eventually: Callable[..., Any]
    ) -> None:
        assert store.take_lease("l", "ann", 60.0)
        assert store.take_lease("l", "ann", 0.05)
        eventually(lambda: store.take_lease("l", "bob", 60.0))

    def test_exactly_one_of_several_racing_holders_gets_a_lease(self, store: Store) -> None:
        takers = [lambda n=n: store.take_lease("l", f"h{n}", 60.0) for n in range(8)]
        assert race(*takers).count(True) == 1


def signalled(signals: CommitSignals, catalogs: int) -> dict[str, int]:
    """The signals until that many catalogs had one."""
    everything: dict[str, int] = {}
    deadline = time.monotonic() + WAIT_S
    while len(everything) < catalogs and time.monotonic() < deadline:
        everything.update(signals.next(1.0))
    # In the order of writing: whatever else there was is here, too.
    everything.update(signals.next(0.0))
    return everything
