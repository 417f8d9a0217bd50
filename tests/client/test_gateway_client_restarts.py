"""The client and a gateway whose workers die."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from patching.client import Gateway, Retry
from tests.patience import WAIT_S
from tests.service import RunningGateway


def test_writes_survive_the_death_of_a_worker(
    mongodb_uri: str, database_name: str, eventually: Callable[..., Any]
) -> None:
    """None is lost, none is done twice, whatever the connection was doing."""
    with (
        RunningGateway(mongodb_uri, database_name, workers=1) as running,
        Gateway(running.url, timeout_s=WAIT_S, retry=Retry(sends_max=10**6)) as gateway,
    ):
        catalog = gateway.catalog("c")
        catalog.put("k", [])
        done = threading.Event()

        def append() -> None:
            try:
                for number in range(60):
                    catalog.patch("k", [{"op": "add", "path": "/-", "value": number}])
            finally:
                done.set()

        writer = threading.Thread(target=append)
        writer.start()
        eventually(lambda: catalog.read().revision > 20 or done.is_set())
        for pid in running.worker_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        writer.join()
        assert catalog.get("k").value == list(range(60))
        assert catalog.read().revision == 61
