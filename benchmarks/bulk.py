"""Bulk requests: made, sent, and their answers checked line by line."""

from __future__ import annotations

import http.client
from collections.abc import Sequence

import msgspec

from benchmarks.clients import Target


class BulkRefused(Exception):
    """A line of a bulk wasn't applied; the run is void."""


def bulk_lines(targets: Sequence[Target], count: int, *, floor: int = 0) -> list[bytes]:
    """Patches of one counter, each with a larger number, over the targets in turn."""
    return [
        msgspec.json.encode(
            {
                "catalog": target.catalog,
                "key": target.key,
                "op": "patch",
                "patch": [{"op": "replace", "path": "/counters/c0", "value": floor + number + 1}],
            }
        )
        for number, target in ((n, targets[n % len(targets)]) for n in range(count))
    ]


def send_bulk(port: int, lines: Sequence[bytes]) -> None:
    """Send the lines in one request and check that every one was applied."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        post(connection, lines)
    finally:
        connection.close()


def post(connection: http.client.HTTPConnection, lines: Sequence[bytes]) -> None:
    body = b"\n".join(lines) + b"\n"
    connection.request("POST", "/v1/bulk", body, {"Content-Type": "application/x-ndjson"})
    answer = connection.getresponse()
    answered = answer.read().splitlines()
    if answer.status != 200 or len(answered) != len(lines):
        raise BulkRefused(f"{answer.status}, {len(answered)} lines: {answered[:2]!r}")
    for line in answered:
        if msgspec.json.decode(line)["status"] != 200:
            raise BulkRefused(line.decode())
