"""The same lines in more and more bulk requests at once: none is refused, and it gets no slower."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Sequence
from functools import partial

import msgspec

from benchmarks import rounds, stored
from benchmarks.bulk import BulkRefused, bulk_lines
from benchmarks.clients import Target
from benchmarks.measurement import Measurement, measured
from benchmarks.results import LOAD_COLUMNS, Figure, Result, Table, load_rows
from benchmarks.rig import Rig

LINES = 40_000
LINES_QUICK = 8_000
STREAMS = (1, 8, 64, 200)
# These are on catalogs of one document each.
MANY_STREAMS, MANY_CATALOGS = 1_000, 100


def run(rig: Rig) -> Result:
    names = {
        f"bulk, {STREAMS[-1]} streams on one catalog / {STREAMS[1]} streams": 0.9,
        f"bulk, {MANY_STREAMS:,} streams on {MANY_CATALOGS} catalogs / {STREAMS[1]} on one": None,
    }
    if not rig.with_gateway:
        return Result(figures=[Figure(n, ">=", bound, None) for n, bound in names.items()])
    port, serial = rig.gateway(), rig.serial()
    one = stored.put_many_documents(port, f"streams-{serial}")
    many = stored.put_many_catalogs(port, f"streams-{serial}")[:MANY_CATALOGS]
    variants = {str(streams): partial(_streams, rig, one, streams) for streams in STREAMS}
    variants[f"{MANY_STREAMS}"] = partial(_streams, rig, many, MANY_STREAMS)
    results = rounds.interleave(variants, rig.rounds, rig.progress, "streams: ")
    few = results[str(STREAMS[1])]
    compared = (results[str(STREAMS[-1])], results[f"{MANY_STREAMS}"])
    rows = [
        row
        for name, each in results.items()
        for row in load_rows(int(name), {_variant(name): each})
    ]
    return Result(
        [
            Table(
                "Lines by streams of bulk (latency: to a stream's first answer)", LOAD_COLUMNS, rows
            )
        ],
        [
            Figure(name, ">=", bound, rounds.ratio(each, few))
            for (name, bound), each in zip(names.items(), compared, strict=True)
        ],
    )


def _variant(streams: str) -> str:
    return f"{MANY_CATALOGS} catalogs" if int(streams) == MANY_STREAMS else "one catalog"


def _streams(rig: Rig, targets: Sequence[Target], streams: int) -> Measurement:
    """All lines, dealt out to streams that begin together."""
    count = LINES_QUICK if rig.quick else LINES
    lines = bulk_lines(targets, count, floor=rig.serial() * 1_000_000)
    bodies = [b"\n".join(lines[n::streams]) + b"\n" for n in range(streams)]
    begin = threading.Barrier(streams + 1)
    sending = [_Stream(rig.gateway(), body, begin) for body in bodies]
    for stream in sending:
        stream.start()
    begin.wait()
    begun = time.perf_counter()
    for stream in sending:
        stream.join()
    seconds = time.perf_counter() - begun
    for stream in sending:
        if stream.failed is not None:
            raise stream.failed
    window = measured([stream.first_answer_s for stream in sending], seconds)
    return Measurement(count, seconds, window.p50_ms, window.p99_ms, window.max_ms)


class _Stream(threading.Thread):
    """One bulk request; what it raised is ``failed``."""

    def __init__(self, port: int, body: bytes, begin: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._body = body
        self._begin = begin
        self.first_answer_s = 0.0
        self.failed: Exception | None = None

    def run(self) -> None:
        self._begin.wait()
        begun = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        try:
            connection.request(
                "POST", "/v1/bulk", self._body, {"Content-Type": "application/x-ndjson"}
            )
            answer = connection.getresponse()
            answered = answer.readline()
            self.first_answer_s = time.perf_counter() - begun
            answered += answer.read()
            self._require_applied(answer.status, answered)
        except Exception as error:  # noqa: BLE001 - the run tells it
            self.failed = error
        finally:
            connection.close()

    def _require_applied(self, status: int, answered: bytes) -> None:
        lines = answered.splitlines()
        statuses = [msgspec.json.decode(line)["status"] for line in lines]
        if status != 200 or statuses != [200] * self._body.count(b"\n"):
            raise BulkRefused(f"{status}, {len(lines)} lines: {answered[:500]!r}")
