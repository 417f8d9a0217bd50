"""A compactor killed for real at each kind of step: the next finishes; nothing reads otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from gateway.store.mongodb import MongoStore, connect
from tests.patience import WAIT_MS
from tests.retention.history_checks import check_history, compaction_of
from tests.retention.test_compaction import KEYS, write_history

pytestmark = pytest.mark.mongod

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(mongodb_uri: str, database_name: str) -> Iterator[MongoStore]:
    real = connect(mongodb_uri, database_name, timeout_ms=WAIT_MS)
    yield real
    real.close()


Compact = Callable[[str, int, int], tuple[int, list[str]]]


@pytest.fixture
def compact_elsewhere(mongodb_uri: str, database_name: str) -> Iterator[Compact]:
    """`compact_elsewhere(catalog, revision, dies_at)`: in another process; its exit code, and the
    steps that it came to."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.failure.compact_and_die", mongodb_uri, database_name],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, told = process.stdin, process.stdout

        def compact(catalog: str, revision: int, dies_at: int) -> tuple[int, list[str]]:
            print(catalog, revision, dies_at, file=asked, flush=True)
            steps: list[str] = []
            for line in told:
                if line.startswith("ended "):
                    code = int(line.split()[1])
                    assert code in (0, -signal.SIGKILL)
                    return code, steps
                steps.append(line.strip())
            pytest.fail("the process that forks compactors has ended")

        yield compact


def test_a_compaction_killed_at_any_step_is_finished_by_the_next(
    store: MongoStore, compact_elsewhere: Compact
) -> None:
    """The first of each kind: at each single one, `tests/retention` ends them, in one process."""
    gateway = GatewayService(
        store, ThreadRuntime(), ServiceLimits(full_value_every=3, deadline_ms=WAIT_MS)
    )

    def killed(catalog: str, dies_at: int) -> tuple[Sequence[Any], int, list[str]]:
        states = write_history(gateway, store, catalog)
        compaction_of(store).compact(catalog, 5, lambda: None)
        return states, *compact_elsewhere(catalog, 11, dies_at)

    _, code, whole = killed("whole", 0)
    assert code == 0
    assert set(whole) == {
        *("raise_floor", "sweep_marker", "sweep_older", "sweep_window", "end_sweep"),
        *("purge_tombstones", "drop_replies"),
    }
    for name in dict.fromkeys(whole):
        catalog, dies_at = name, whole.index(name) + 1
        states, code, steps = killed(catalog, dies_at)
        assert (code, steps) == (-signal.SIGKILL, whole[:dies_at])
        assert check_history(store, catalog, states, KEYS) == 11
        compaction_of(store).compact(catalog, 12, lambda: None)
        assert check_history(store, catalog, states, KEYS) == 12
        retained = store.list_commits(catalog, 0, 12, 99, None, 10**9)
        assert [commit.revision for commit in retained] == [8, 9, 12]
        assert {key for _, key in store.documents({catalog: KEYS})} == {"a", "c"}
