"""Compactions, each in a process of its own, which kills itself at a step.

    python -m tests.failure.compact_and_die URI DATABASE

A line of standard input, ``CATALOG REVISION DIES_AT``, is a compaction, and DIES_AT the number of
the step. The names of all steps are printed as they come, in the end ``ended`` and the exit code.
The processes are forks of this one, so that what they import is imported once.
"""

from __future__ import annotations

import os
import signal
import sys

from gateway.store.mongodb import connect
from tests.patience import WAIT_MS
from tests.retention.history_checks import compaction_of


def compact(uri: str, database: str, catalog: str, revision: int, dies_at: int) -> None:
    count = 0

    def step(name: str) -> None:
        nonlocal count
        count += 1
        print(name, flush=True)
        if count == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store = connect(uri, database, timeout_ms=WAIT_MS)
    compaction_of(store, step=step).compact(catalog, revision, lambda: None)


def main() -> None:
    uri, database = sys.argv[1:]
    for line in sys.stdin:
        catalog, revision, dies_at = line.split()
        child = os.fork()
        if child == 0:
            compact(uri, database, catalog, int(revision), int(dies_at))
            return
        _, status = os.waitpid(child, 0)
        print("ended", os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
