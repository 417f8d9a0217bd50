"""What may be sent twice is done once: several times, in any order, amid killed workers."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest

from patching.client import ClientError, Gateway
from tests.service import RunningGateway, own_database

pytestmark = pytest.mark.mongod

MARKS = range(40)


def operations(number: int) -> list[dict[str, Any]]:
    options: dict[str, Any] = {"create_parents": True}
    return [
        {"op": "max", "path": "/watermark/high", "value": number, **options},
        {"op": "min", "path": "/watermark/low", "value": number, **options},
        {"op": "add_to_set", "path": "/seen", "value": number, **options},
        {"op": "set", "path": f"/parts/p{number}", "value": {"n": number}, **options},
        {"op": "append_text", "path": "/log", "value": f"<{number}>", "once": True, **options},
        {"op": "stamp", "path": "/by/revision", "value": "revision", **options},
    ]


def send_all(url: str, seed: int) -> None:
    """Each patch twice at least, in an order of this client's own."""
    todo = [*MARKS, *MARKS]
    random.Random(seed).shuffle(todo)
    with Gateway(url) as gateway:
        for number in todo:
            while True:
                with suppress(ClientError):
                    gateway.catalog("c").patch("k", operations(number))
                    break


def test_n17_repeatable_operations_take_effect_once(mongodb_uri: str) -> None:
    """N17: `set`, `max`, `min`, `append_text` with `once` and `stamp` come to the same, however
    often and in whatever order they are sent, also by clients that know of no answer."""
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database) as service,
        Gateway(service.url) as gateway,
    ):
        catalog = gateway.catalog("c")
        catalog.put("k", {})
        clients = [
            threading.Thread(target=send_all, args=(service.url, seed), daemon=True)
            for seed in range(4)
        ]
        for each in clients:
            each.start()
        for pid in service.worker_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for each in clients:
            each.join()
        value: Any = catalog.get("k").value
        commits = [each for each in catalog.commits(key="k") if each.changes]
    assert value["watermark"] == {"high": max(MARKS), "low": min(MARKS)}
    assert sorted(value["seen"]) == list(MARKS)
    assert value["parts"] == {f"p{number}": {"n": number} for number in MARKS}
    assert sorted(value["log"].split(">")) == sorted(["", *(f"<{number}" for number in MARKS)])
    # Each patch changed something once; all others changed nothing, and stamped nothing.
    assert len(commits) == 1 + len(MARKS)
    assert value["by"] == {"revision": commits[-1].revision}
