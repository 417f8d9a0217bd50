"""The service that other tests start is a real one, and nothing of it is left behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from tests.patience import WAIT_S
from tests.service import RunningGateway, ServiceError, leaked_secrets, lives

Eventually = Callable[..., Any]


def get(url: str) -> Any:
    with urlopen(url, timeout=WAIT_S) as answer:
        return json.load(answer)


def test_it_serves_until_it_is_stopped(mongodb_uri: str, database_name: str) -> None:
    with RunningGateway(mongodb_uri, database_name, workers=2) as gateway:
        assert get(f"{gateway.url}/readyz") == {"status": "ready"}
        pids = gateway.worker_pids()
        assert len(pids) == 2
        processes = [psutil.Process(pid) for pid in (*pids, gateway.master_pid)]
        assert all(map(lives, processes))
        assert gateway.stop() == 0
    assert not any(map(lives, processes))


def test_a_killed_worker_is_replaced_and_a_stopped_one_does_not_outlive_it(
    mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    with RunningGateway(mongodb_uri, database_name, workers=2, graceful_timeout_s=1) as gateway:
        killed, stopped = gateway.worker_pids()
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in gateway.worker_pids() and len(gateway.worker_pids()) == 2)
        process = psutil.Process(stopped)
        process.suspend()
    eventually(lambda: not lives(process))


def test_a_service_that_cannot_start_says_why(mongodb_uri: str) -> None:
    gateway = RunningGateway(mongodb_uri, "no/database")
    with pytest.raises(ServiceError, match="database must be"):
        gateway.start()
    assert not gateway.is_running()


@pytest.mark.parametrize(
    "secret",
    [
        f"gwt_{'0a' * 6}_{'1b' * 32}",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJlLW9mLWl0",
        "mongodb://ann:s3cret@db1/",
    ],
)
def test_a_secret_in_a_log_is_found(secret: str) -> None:
    assert leaked_secrets(f'{{"event": "GET {secret}"}}\n')
    assert not leaked_secrets("gwt_0a0a revoked; Bearer [scrubbed]; mongodb://[scrubbed]@db1/")
