"""Python workers that are killed while they send: in the end it is what was wanted, done once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from tests.service import RunningGateway
from tests.spark.processes import kill, python_workers

from .test_sync import Catalog

DOCUMENTS = 2000


@pytest.fixture
def there(spark: Any, gateway: RunningGateway, catalog: str) -> Any:
    found = Catalog(spark, gateway, catalog)
    yield found
    found.transport.close()


class KillOnce(threading.Thread):
    """Kills all workers when some of what is sent was applied. ``killed_at``: how much."""

    def __init__(self, there: Catalog, begun: int) -> None:
        super().__init__(daemon=True)
        self.there, self.begun = there, begun
        self.killed_at: int | None = None
        self.killed = 0

    def __call__(self, stage: str) -> None:
        if stage.startswith("sending") and self.killed_at is None:
            self.start()

    def run(self) -> None:
        while self.there.head() <= self.begun + 50:
            pass
        self.killed = kill(python_workers(self.there.spark))
        self.killed_at = self.there.head() - self.begun


def test_killed_workers_are_made_good(there: Catalog) -> None:
    before = {f"k/{number}": {"n": number, "same": "x"} for number in range(DOCUMENTS)}
    there.put(before)
    wanted = {
        key: {**value, "n": -1} for number, (key, value) in enumerate(before.items()) if number % 3
    } | {f"new/{number}": number for number in range(DOCUMENTS // 4)}
    begun = there.head()
    killing = KillOnce(there, begun)

    report = there.sync(wanted, delete=True, progress=killing, options={"batchSize": 10})

    killing.join()
    assert killing.killed > 0
    assert killing.killed_at is not None
    assert killing.killed_at < report.sent, "they were killed when all was sent already"
    assert there.documents() == wanted
    assert report.created == DOCUMENTS // 4
    assert report.deleted == len(before.keys() - wanted.keys())
    assert report.patched == len(before.keys() & wanted.keys())
    assert (report.in_step, report.guards_lost) == (True, 0)
    assert there.head() == begun + report.sent  # each was applied once
    assert there.pins() == []
