"""`python -m benchmarks.watching`: many watchers of one or of many catalogs, in one process.

A process of its own, since the load generator has no time for them. Says `watching` on a line of
its own when every feed is open, and at the end of its input one line of JSON: how many events the
first watcher of each busy catalog saw, and how late each was.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from datetime import datetime
from typing import Any

from benchmarks.measurement import measured

_DISCARD_BYTES = 1 << 20
_RECEIVE_BYTES = 1 << 18


def main() -> None:
    """Arguments: port, and by ``catalog=watchers`` how many are to watch it."""
    port = int(sys.argv[1])
    feeds: dict[int, socket.socket] = {}
    examined: dict[int, bytes] = {}
    for argument in sys.argv[2:]:
        catalog, _, count = argument.rpartition("=")
        for number in range(int(count)):
            feed = _open(port, catalog)
            feeds[feed.fileno()] = feed
            if number == 0:
                examined[feed.fileno()] = b""
    print("watching", flush=True)
    delays: list[float] = []
    with select.epoll() as poll:
        poll.register(sys.stdin.fileno(), select.EPOLLIN)
        for number in feeds:
            poll.register(number, select.EPOLLIN)
        while True:
            ready = [number for number, _ in poll.poll()]
            if sys.stdin.fileno() in ready:
                break
            for number in ready:
                if number in examined:
                    received = feeds[number].recv(_RECEIVE_BYTES)
                    examined[number] = _examine(examined[number] + received, delays)
                elif not feeds[number].recv(_DISCARD_BYTES, socket.MSG_TRUNC):
                    poll.unregister(number)
                    print("a feed was ended", file=sys.stderr)
    summary = measured(delays, 1.0)
    print(json.dumps({"events": len(delays), "p50_ms": summary.p50_ms, "p99_ms": summary.p99_ms}))


def _open(port: int, catalog: str) -> socket.socket:
    """A feed from the catalog's head on."""
    head = json.loads(_answer(port, f"/v1/catalogs/{catalog}"))["revision"]
    feed = socket.create_connection(("127.0.0.1", port))
    path = f"/v1/catalogs/{catalog}/changes?after={head}"
    feed.sendall(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    started = feed.recv(_RECEIVE_BYTES)
    if not started.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"no feed: {started!r}")
    return feed


def _answer(port: int, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        received = b""
        while part := connection.recv(_RECEIVE_BYTES):
            received += part
    return received.partition(b"\r\n\r\n")[2]


def _examine(buffer: bytes, delays: list[float]) -> bytes:
    """Note how old each whole event is; what is left of ``buffer`` behind the last one."""
    now = time.time()
    *events, rest = buffer.split(b"\n\n")
    for event in events:
        start = event.find(b"data: ")
        if start < 0 or b"event: commit" not in event:
            continue
        commit: dict[str, Any] = json.loads(event[start + 6 :].partition(b"\n")[0])
        made = datetime.fromisoformat(commit["time"]).timestamp()
        delays.append(max(0.0, now - made))
    return rest


if __name__ == "__main__":
    main()
