"""A compaction in a process of its own, which kills itself at a step.

    python -m tests.failure.compact_and_die URI DATABASE CATALOG REVISION

``COMPACTOR_DIES_AT`` is the number of the step; the names of all steps are printed as they come.
"""

from __future__ import annotations

import os
import signal
import sys

from gateway.store.mongodb import connect
from tests.patience import WAIT_MS
from tests.retention.history_checks import compaction_of


def main() -> None:
    uri, database, catalog, revision = sys.argv[1:]
    dies_at = int(os.environ["COMPACTOR_DIES_AT"])
    count = 0

    def step(name: str) -> None:
        nonlocal count
        count += 1
        print(name, flush=True)
        if count == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store = connect(uri, database, timeout_ms=WAIT_MS)
    compaction_of(store, step=step).compact(catalog, int(revision), lambda: None)


if __name__ == "__main__":
    main()
