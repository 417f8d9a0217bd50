"""Python workers that are killed while they send: in the end it is what was wanted, done once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from patching.spark.sync import sync
from tests.service import RunningGateway
from tests.spark.passing import Passing
from tests.spark.processes import kill, local_pythons

from .test_sync import Catalog

DOCUMENTS = 200


@pytest.fixture
def there(spark: Any, gateway: RunningGateway, catalog: str) -> Any:
    found = Catalog(spark, gateway, catalog)
    yield found
    found.transport.close()


class KillOnce:
    """Kills all workers when the fifth bulk request is on the way, which gets through.
    ``killed_at``: how much was applied before."""

    def __init__(self, there: Catalog, passing: Passing) -> None:
        self.there, self.begun = there, there.head()
        self.killed_at = self.killed = self._count = 0
        self._lock = threading.Lock()
        passing.before = self._before

    def _before(self, _method: str, path: str, _port: int) -> None:
        with self._lock:
            self._count += path == "/v1/bulk"
            if path == "/v1/bulk" and self._count == 5:
                self.killed = kill(local_pythons().workers())
                self.killed_at = self.there.head() - self.begun


def test_a_sync_completes_although_workers_are_killed(there: Catalog, passing: Passing) -> None:
    before = {f"k/{number}": {"n": number, "same": "x"} for number in range(DOCUMENTS)}
    there.put(before)
    wanted = {
        key: {**value, "n": -1} for number, (key, value) in enumerate(before.items()) if number % 3
    } | {f"new/{number}": number for number in range(DOCUMENTS // 4)}
    begun = there.head()
    killing = KillOnce(there, passing)

    given = {"url": passing.url, "options": {"batchSize": 10, "partitions": 2}}
    report = sync(there.frame(wanted), there.name, delete=True, **given)

    assert killing.killed > 0
    assert 0 < killing.killed_at < report.sent
    assert there.documents() == wanted
    assert report.created == DOCUMENTS // 4
    assert report.deleted == len(before.keys() - wanted.keys())
    assert report.patched == len(before.keys() & wanted.keys())
    assert (report.in_step, report.guards_lost) == (True, 0)
    assert there.head() == begun + report.sent  # each was applied once
    assert there.pins() == []
