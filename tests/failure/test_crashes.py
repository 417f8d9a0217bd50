"""Nothing lost, nothing twice, whatever dies: real workers, a real MongoDB, real signals.

What happens when is driven by progress (so many patches acknowledged), not by the clock.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.store.embedded import EmbeddedMongod
from tests.failure.clients import DOCUMENT, Tally, check, create, run_clients
from tests.patience import WAIT_S
from tests.service import RunningGateway

pytestmark = pytest.mark.mongod

CLIENTS = 32


class Mishaps:
    """Calls ``happen(number)`` each time another ``every`` patches have been acknowledged.

    Clients wait for it where it lags two behind: mishaps are slower on some machines than patches.
    So at the end all have happened but two at most.
    ``happened`` counts the calls; ``once`` makes it one at the most.
    """

    def __init__(self, every: int, happen: Callable[[int], None], *, once: bool = False) -> None:
        self.happened = 0
        self._once = once
        self._every = every
        self._happen = happen
        self._due = threading.Semaphore(0)
        self._room = threading.Semaphore(2)
        self._stopped = False
        self._thread = threading.Thread(target=self._run)

    def progress(self, count: int) -> None:
        if count % self._every == 0:
            self._room.acquire(timeout=WAIT_S)
            self._due.release()

    def _run(self) -> None:
        try:
            while not (self._once and self.happened):
                self._due.acquire()
                if self._stopped:
                    return
                self._happen(self.happened)
                self.happened += 1
                self._room.release()
        finally:
            self._room.release(1_000_000)  # nobody waits for what won't happen

    def __enter__(self) -> Mishaps:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._due.release()
        self._thread.join()


def test_killed_workers_and_a_restarted_mongod_lose_nothing(tmp_path: Path) -> None:
    """Two workers, 32 clients, one document: SIGKILL after SIGKILL, and mongod too."""
    patches = 10
    luck = random.Random(7)
    limits = {"deadline_ms": 10_000, "store_timeout_ms": 5_000}
    with (
        EmbeddedMongod(tmp_path, start_timeout_s=WAIT_S) as mongod,
        RunningGateway(mongod.uri, "failure", **limits) as service,
    ):
        create(service.port)
        killed: list[int] = []

        def happen(number: int) -> None:
            if number % 4 == 3:
                mongod.kill()
                mongod.start()
            else:
                with suppress(ProcessLookupError):
                    victim = service.any_worker(luck)
                    os.kill(victim, signal.SIGKILL)
                    killed.append(victim)

        mishaps = Mishaps(CLIENTS, happen)
        tally = Tally(mishaps.progress)
        with mishaps:
            run_clients(service.port, tally, clients=CLIENTS, turns=range(patches))
        check(service.port, tally, clients=CLIENTS, patches=patches)
        assert len(killed) >= 6
        assert tally.broken > 0, "no client noticed anything: nothing was tested"


def test_a_worker_stopped_beyond_every_deadline_does_no_harm(
    mongodb_uri: str, database_name: str, eventually: Callable[..., Any]
) -> None:
    """SIGSTOP in the middle of whatever it does; others continue; SIGCONT; its late writes."""
    rounds, patches = 3, 8
    luck = random.Random(11)
    deadline_s = 0.5
    settings = {"deadline_ms": int(1000 * deadline_s), "store_timeout_ms": 500}
    with RunningGateway(mongodb_uri, database_name, **settings) as service:
        create(service.port)

        def happen(_: int) -> None:
            victim = service.any_worker(luck)
            os.kill(victim, signal.SIGSTOP)
            begun = time.monotonic()
            try:
                # Longer than any request may take; the other worker continues meanwhile.
                eventually(lambda: time.monotonic() - begun > 4 * deadline_s)
            finally:
                os.kill(victim, signal.SIGCONT)

        everything = Tally()
        for number in range(rounds):
            mishaps = Mishaps(CLIENTS * patches // 3, happen, once=True)
            tally = Tally(mishaps.progress)
            turns = range(number * patches, (number + 1) * patches)
            with mishaps:
                run_clients(service.port, tally, clients=CLIENTS, turns=turns, timeout_s=1.5)
            assert mishaps.happened == 1
            everything.acknowledged += tally.acknowledged
            everything.unexpected += tally.unexpected
        check(service.port, everything, clients=CLIENTS, patches=rounds * patches)


def test_a_worker_that_is_stopped_leaves_nothing_in_doubt(
    mongodb_uri: str, database_name: str
) -> None:
    """Neither requests of its own, nor those that the other worker has handed over to it."""
    clients, patches = 12, 40
    statuses: list[int] = []
    answered = itertools.count(1)
    with RunningGateway(mongodb_uri, database_name) as service:
        create(service.port)

        def happen(_: int) -> None:
            with suppress(ProcessLookupError):
                os.kill(service.worker_pids()[0], signal.SIGTERM)  # it is handed to, for its number

        with Mishaps(clients * patches // 4, happen) as mishaps:

            def client(number: int) -> None:
                connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=WAIT_S)
                headers = {"Content-Type": "application/json-patch+json"}
                for turn in range(patches):
                    body = json.dumps([{"op": "add", "path": f"/last/{number}", "value": turn}])
                    for fresh in (False, True):
                        try:
                            connection.request("PATCH", DOCUMENT, body, headers)
                            answer = connection.getresponse()
                            answer.read()
                            break
                        except (OSError, http.client.HTTPException):
                            assert not fresh, "a connection without a request under way may end"
                            connection.close()
                    statuses.append(answer.status)
                    mishaps.progress(next(answered))
                connection.close()

            threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert statuses == [200] * clients * patches
        assert mishaps.happened >= 2
