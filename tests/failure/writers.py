"""Writers that keep account: what each was told of every request, unknown outcomes resolved.

Half of the appenders send a refused patch again, under its idempotency key; the others give it up,
so that it must never show. A writer with compare-and-set gives up whatever was refused, too.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.failure.clients import COMMITS, DOCUMENT, send
from tests.patience import WAIT_S

COUNTER: Final = DOCUMENT.rsplit("/", 1)[0] + "/counter"
OUTCOMES: Final = COMMITS.replace("/commits", "/outcomes")
_REFUSED: Final = {412, 429, 503}


@dataclass
class Account:
    """``progress`` is called after each acknowledgement; names are idempotency keys."""

    progress: Callable[[int], None] = lambda _: None
    acknowledged: dict[str, int] = field(default_factory=dict)  # name: revision
    refused: set[str] = field(default_factory=set)
    resolved: dict[str, str] = field(default_factory=dict)  # name: how it came to be known
    unexpected: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, name: str, revision: int) -> None:
        with self.lock:
            self.acknowledged[name] = revision
            count = len(self.acknowledged)
        self.progress(count)


class Writer:
    """Sends a request until its outcome is known: acknowledged, or refused."""

    def __init__(self, port: int, account: Account) -> None:
        self._port = port
        self._account = account

    def append(self, name: str) -> bool:
        patch = [{"op": "add", "path": "/log/-", "value": name}]
        return self._settle(
            name, "PATCH", DOCUMENT, patch, Content_Type="application/json-patch+json"
        )

    def count(self, name: str) -> bool:
        """Read the counter and put it back one higher, if nobody else did meanwhile."""
        try:
            status, page = send(self._port, "GET", f"{_listing()}?key=counter")
        except (OSError, http.client.HTTPException):
            return False
        if status != 200:
            return False
        found = page["documents"][0]
        value = {"count": found["value"]["count"] + 1, "by": name}
        return self._settle(
            name,
            "PUT",
            COUNTER,
            value,
            Content_Type="application/json",
            If_Match=f'"{found["etag"]}"',
        )

    def _settle(self, name: str, method: str, path: str, body: Any, **headers: str) -> bool:
        """Whether it was applied. What is unknown is asked for, and sent again if not there."""
        give_up = time.monotonic() + WAIT_S
        in_doubt = False
        status, answer = 0, "no answer"
        while time.monotonic() < give_up:
            if in_doubt and self._is_told(name):
                return True
            try:
                status, answer = send(
                    self._port,
                    method,
                    path,
                    body,
                    Idempotency_Key=name,
                    **headers,  # type: ignore[arg-type]
                )
            except (OSError, http.client.HTTPException):
                in_doubt = True
                continue
            if status in (200, 201):
                if in_doubt:
                    self._account.resolved[name] = "replay"
                self._account.acknowledge(name, answer["revision"])
                return True
            if status in _REFUSED and answer["applied"] == "no":
                if in_doubt and status != 412:
                    continue  # this one was not applied; the one before may have been
                self._account.refused.add(name)
                return False
            if status == 504 and answer["applied"] == "unknown":
                in_doubt = True
                continue
            break
        self._account.unexpected.append(f"{name}: {status} {answer}")
        return False

    def _is_told(self, name: str) -> bool:
        try:
            status, answer = send(self._port, "GET", f"{OUTCOMES}/{name}")
        except (OSError, http.client.HTTPException):
            return False
        if status != 200:
            return False
        self._account.resolved[name] = "outcome"
        self._account.acknowledge(name, answer["revision"])
        return True


def _listing() -> str:
    return DOCUMENT.rsplit("/", 1)[0]


def create(port: int) -> None:
    for path, value in ((DOCUMENT, {"log": []}), (COUNTER, {"count": 0, "by": None})):
        status, answer = send(port, "PUT", path, value, Content_Type="application/json")
        assert status == 201, answer


def run_writers(
    port: int,
    account: Account,
    *,
    appenders: int,
    counters: int,
    each: int,
    until: Callable[[], bool],
) -> None:
    """Side by side, until ``until()`` and every writer has then had ``each`` acknowledged."""

    def run(writer: str, once: Callable[[str], bool], *, tries_again: bool) -> None:
        attempt = applied = 0
        try:
            while applied < each and not account.unexpected:
                counts = until()
                done = once(f"{writer}-{attempt}")
                applied += done and counts
                attempt += done or not tries_again
        except Exception as error:  # noqa: BLE001 - told by the test
            account.unexpected.append(f"{writer}: {error!r}")

    writer = Writer(port, account)
    threads = [
        threading.Thread(
            target=run, args=(f"a{number}", writer.append), kwargs={"tries_again": number % 2 == 0}
        )
        for number in range(appenders)
    ]
    threads += [
        threading.Thread(
            target=run, args=(f"c{number}", writer.count), kwargs={"tries_again": False}
        )
        for number in range(counters)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
