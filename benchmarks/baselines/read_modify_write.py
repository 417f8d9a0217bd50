"""The loop in the client: pymongo `find_one` and a `replace_one` conditional on the version.

One thread per client, in one or several processes; majority and journaled. `measure` starts
the processes; each runs this module with its share of the clients.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

from benchmarks.baselines.backoff import Backoff
from benchmarks.measurement import Measurement, UpdateLost, measured


@dataclass(frozen=True)
class Job:
    """What one process does: its clients, by number, loop for `warmup_s` and then `seconds`."""

    uri: str
    database: str
    clients: Sequence[int]
    backoff: Backoff
    warmup_s: float
    seconds: float


@dataclass
class Outcome:
    """Latencies and attempts of the window; per client, the last acknowledged number."""

    latencies_s: list[float]
    attempts: int
    acknowledged: dict[str, int]


def measure(
    uri: str,
    database: str,
    document: dict[str, Any],
    *,
    clients: int,
    processes: int,
    backoff: Backoff,
    seconds: float,
    warmup_s: float,
) -> Measurement:
    """Let the clients loop on one fresh document. Raises UpdateLost when one got lost."""
    with MongoClient[dict[str, Any]](uri) as client:
        documents = _documents(client, database)
        new = {"version": 0, "content": document}
        documents.replace_one({"_id": "hot"}, new, upsert=True)
        shares = [list(range(clients))[number::processes] for number in range(processes)]
        jobs = [Job(uri, database, share, backoff, warmup_s, seconds) for share in shares if share]
        outcomes = _run_processes(jobs)
        stored = documents.find_one({"_id": "hot"}) or {}
    for outcome in outcomes:
        for counter, number in outcome.acknowledged.items():
            if stored["content"]["counters"][counter] != number:
                raise UpdateLost(f"{counter}: acknowledged {number}, stored {stored}")
    latencies_s = [latency for outcome in outcomes for latency in outcome.latencies_s]
    return measured(latencies_s, seconds, sum(outcome.attempts for outcome in outcomes))


def _run_processes(jobs: Sequence[Job]) -> list[Outcome]:
    """Start a process per job, let all begin together once all are connected."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        for job in jobs:
            command = [sys.executable, "-m", __name__, msgspec.json.encode(job).decode()]
            children.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            )
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()  # "ready"
        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            child.stdin.flush()
        outputs = [child.communicate()[0] for child in children]
        if any(child.returncode for child in children):
            raise RuntimeError("a process of the read-modify-write loop failed, see above")
        return [msgspec.json.decode(output, type=Outcome) for output in outputs]
    finally:
        for child in children:
            child.kill()
            child.wait()


def _documents(client: MongoClient[dict[str, Any]], database: str) -> Collection[dict[str, Any]]:
    return client[database].get_collection(
        "documents", write_concern=WriteConcern(w="majority", j=True)
    )


def _loop(documents: Collection[dict[str, Any]], job: Job, number: int, outcome: Outcome) -> None:
    """One client: update after update until the end, into its outcome."""
    rng = random.Random(number)
    counter = f"c{number}"
    begun = time.perf_counter()
    window = begun + job.warmup_s
    end = window + job.seconds
    attempt = 0
    while True:
        attempt += 1
        found = documents.find_one({"_id": "hot"})
        assert found is not None
        version, content = found["version"], found["content"]
        content["counters"][counter] = outcome.acknowledged[counter] + 1
        result = documents.replace_one(
            {"_id": "hot", "version": version}, {"version": version + 1, "content": content}
        )
        now = time.perf_counter()
        if result.matched_count:
            outcome.acknowledged[counter] += 1
            if window <= now < end:
                outcome.latencies_s.append(now - begun)
                outcome.attempts += attempt
            begun, attempt = now, 0
        elif job.backoff.base_ms:
            time.sleep(job.backoff.pause_s(attempt, rng))
        if now >= end:
            return


def _main(job: Job) -> Outcome:
    outcomes = [Outcome([], 0, {f"c{number}": 0}) for number in job.clients]
    with MongoClient[dict[str, Any]](job.uri, maxPoolSize=len(job.clients)) as client:
        documents = _documents(client, job.database)
        documents.find_one({"_id": "hot"})
        print("ready", flush=True)
        sys.stdin.readline()
        threads = [
            threading.Thread(target=_loop, args=(documents, job, number, outcome), daemon=True)
            for number, outcome in zip(job.clients, outcomes, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return Outcome(
        [latency for outcome in outcomes for latency in outcome.latencies_s],
        sum(outcome.attempts for outcome in outcomes),
        {name: number for outcome in outcomes for name, number in outcome.acknowledged.items()},
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_main(msgspec.json.decode(sys.argv[1], type=Job))))
