"""Clients that never give up: what a caller with an idempotency key does about broken answers."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.patience import WAIT_S

CATALOG = "urn:li:dataset:(hive,orders,PROD)"
KEY = "jobs/nightly"
DOCUMENT = f"/v1/catalogs/{quote(CATALOG, safe='')}/documents/{quote(KEY, safe='')}"
COMMITS = f"/v1/catalogs/{quote(CATALOG, safe='')}/commits"

# Answers that say: the same request may be sent again. 504 says so because it carries a key.
_TRY_AGAIN = {429, 503, 504}
_AGAIN_S = 0.02


@dataclass
class Tally:
    """The answers to the clients. ``progress`` is called after each acknowledged patch."""

    progress: Callable[[int], None] = lambda _: None
    acknowledged: list[str] = field(default_factory=list)
    broken: int = 0
    unexpected: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, entry: str) -> None:
        with self.lock:
            self.acknowledged.append(entry)
            count = len(self.acknowledged)
        self.progress(count)


def send(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    *,
    timeout_s: float = WAIT_S,
    **headers: str,
) -> tuple[int, Any]:
    """One request on a connection of its own; raises OSError or HTTPException when it breaks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        encoded = None if body is None else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, encoded, named)
        response = connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content else None
    finally:
        connection.close()


def append_until_answered(port: int, entry: str, tally: Tally, *, timeout_s: float) -> None:
    """Append ``entry`` to the log and put it under its client's name, as one patch, once."""
    client = entry.split("-")[0]
    patch = [
        {"op": "add", "path": "/log/-", "value": entry},
        {"op": "add", "path": f"/last/{client}", "value": entry},
    ]
    give_up = time.monotonic() + WAIT_S
    while time.monotonic() < give_up:
        try:
            status, answer = send(
                port,
                "PATCH",
                DOCUMENT,
                patch,
                timeout_s=timeout_s,
                Content_Type="application/json-patch+json",
                Idempotency_Key=entry,
            )
        except (OSError, http.client.HTTPException):
            tally.broken += 1
            time.sleep(_AGAIN_S)
            continue
        if status == 200:
            tally.acknowledge(entry)
            return
        if status not in _TRY_AGAIN:
            tally.unexpected.append(f"{entry}: {status} {answer}")
            return
        tally.broken += 1
        time.sleep(_AGAIN_S)
    tally.unexpected.append(f"{entry}: no answer in {WAIT_S:g} s")


def run_clients(
    port: int, tally: Tally, *, clients: int, turns: range, timeout_s: float = WAIT_S
) -> None:
    """``clients`` threads with an append for each of ``turns``, until all are acknowledged."""

    def client(number: int) -> None:
        for turn in turns:
            append_until_answered(port, f"c{number}-{turn}", tally, timeout_s=timeout_s)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def create(port: int) -> None:
    status, answer = send(
        port, "PUT", DOCUMENT, {"log": [], "last": {}}, Content_Type="application/json"
    )
    assert status == 201, answer


def check(port: int, tally: Tally, *, clients: int, patches: int) -> None:
    """Every acknowledged patch is there exactly once, in each client's order, and in the log."""
    assert tally.unexpected == []
    expected = [f"c{client}-{turn}" for client in range(clients) for turn in range(patches)]
    assert sorted(tally.acknowledged) == sorted(expected)
    status, document = send(port, "GET", DOCUMENT)
    assert status == 200
    assert sorted(document["log"]) == sorted(expected)
    for client in range(clients):
        mine = [entry for entry in document["log"] if entry.startswith(f"c{client}-")]
        assert mine == [f"c{client}-{turn}" for turn in range(patches)]
    assert document["last"] == {f"c{n}": f"c{n}-{patches - 1}" for n in range(clients)}
    commits = all_commits(port)
    assert [c["revision"] for c in commits] == list(range(1, len(commits) + 1))
    assert [c["idempotency_key"] for c in commits[1:]] == document["log"]
    times = [c["time"] for c in commits]
    assert times == sorted(set(times))


def _page(port: int, path: str, after: int) -> Any:
    """Read again where it is 503: a database that came back may close a last connection."""
    until = time.monotonic() + WAIT_S
    while True:
        status, page = send(port, "GET", f"{path}?after={after}&limit=500")
        if status != 503 or time.monotonic() > until:
            assert status == 200, page
            return page
        time.sleep(0.05)


def all_commits(port: int, path: str = COMMITS) -> list[Any]:
    commits: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = _page(port, path, after)
        commits += page["commits"]
        after = page["next"]
    return commits
