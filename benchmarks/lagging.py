"""`python -m benchmarks.lagging`: how long after its answer a write is in `documents`.

Patches one document again and again, and after each answer asks MongoDB for the stored document
until it has the revision of the answer. A process of its own, since the load generator has no time
for it. Prints one line of JSON: how many writes, and the delays.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from typing import Any

from pymongo import MongoClient

from benchmarks import wire
from benchmarks.measurement import measured

_PAUSE_S = 0.02
_LOST_S = 60.0


def main() -> None:
    """Arguments: port, MongoDB's URI, database, catalog, key, seconds, and a floor for values."""
    port, uri, database, catalog, key, seconds, floor = sys.argv[1:]
    path = wire.document_path(catalog, key)
    delays_s: list[float] = []
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=_LOST_S)
    with MongoClient[dict[str, Any]](uri) as client:
        documents = client[database].documents
        query = {"_id": f"{catalog}\0{key}"}
        end = time.perf_counter() + float(seconds)
        value = int(floor)
        while time.perf_counter() < end:
            value += 1
            patch = [{"op": "replace", "path": "/counters/c63", "value": value}]
            headers = {"Content-Type": wire.JSON_PATCH}
            connection.request("PATCH", path, json.dumps(patch), headers)
            answer = connection.getresponse()
            answered = time.perf_counter()
            body = answer.read()
            if answer.status != 200:
                raise SystemExit(f"{answer.status}: {body!r}")
            revision = int(answer.headers["Catalog-Revision"])
            while True:
                found = documents.find_one(query, {"state.revision": 1})
                now = time.perf_counter()
                if found is not None and found["state"]["revision"] >= revision:
                    break
                if now > answered + _LOST_S:
                    raise SystemExit(f"revision {revision} isn't there after {_LOST_S} s")
            delays_s.append(now - answered)
            time.sleep(_PAUSE_S)
    summary = measured(delays_s, float(seconds))
    print(json.dumps({n: getattr(summary, n) for n in ("operations", "p50_ms", "p99_ms")}))


if __name__ == "__main__":
    main()
