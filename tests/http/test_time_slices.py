"""What one request computes, others don't wait for: attacks on a real worker, one at a time.

No time is measured from outside. The worker counts the processor time between two looks at its
sockets (``gateway_longest_slice_seconds``): that is how long anybody waited for somebody else.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from gateway.server.time_slices import LONG_S
from tests.http.served import Answered, Server
from tests.patience import WAIT_S
from tests.service import RunningGateway, own_database

# A busy machine takes several times as much processor time for the same. What is measured here is
# 0.02 to 0.07 s on a quiet one, and was 2 to 34 s before there were slices.
_SLOWER = 4
JSON = [("Content-Type", "application/json")]
LINES = [("Content-Type", "application/x-ndjson")]
EXTENDED = [("Content-Type", "application/vnd.metadata.patch+json")]


class Worker(Server):
    """A gateway with a single worker, so that its metrics are those of whoever serves."""

    def metric(self, name: str) -> float:
        text = self.send("GET", "/metrics").body.decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found, name
        return float(found[1])

    def sends(self, method: str, path: str, value: Any) -> Answered:
        return self.send(method, path, json.dumps(value).encode(), JSON)

    def bulk(self, lines: list[dict[str, Any]]) -> None:
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        answered = self.send("POST", "/v1/bulk", body, LINES)
        refused = [line for line in answered.body.splitlines() if b'"problem"' in line]
        assert not refused, refused[:1]

    def flood(
        self,
        path: str,
        headers: list[tuple[str, str]],
        pieces: Iterable[bytes],
        method: str = "POST",
        *,
        encoded: bool = False,
    ) -> tuple[Answered, int]:
        """Send a chunked body as fast as the server takes it, until there is an answer. Returns the
        answer, and how many pieces were sent. ``encoded``: the pieces are chunks already."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.putrequest(method, path)
        for name, value in [*headers, ("Transfer-Encoding", "chunked")]:
            connection.putheader(name, value)
        connection.endheaders()
        sent = 0
        with suppress(BrokenPipeError, ConnectionResetError), closing(connection):
            for piece in pieces:
                connection.send(piece if encoded else b"%x\r\n%b\r\n" % (len(piece), piece))
                sent += 1
            connection.send(b"0\r\n\r\n")
            answer = connection.getresponse()
            return Answered(answer.status, answer.headers, answer.read()), sent
        return Answered(0, http.client.HTTPMessage(), b""), sent

    def transaction(self, catalog: str, actions: list[dict[str, Any]], **more: Any) -> Answered:
        return self.sends("POST", f"/v1/catalogs/{catalog}/transactions", {"then": actions, **more})


@pytest.fixture(scope="module")
def worker(mongodb_uri: str) -> Iterator[Worker]:
    """Each attack has a catalog of its own."""
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, workers=1) as running,
    ):
        yield Worker(running.port)


def blank_lines(worker: Worker) -> Answered:
    """They are read no further than as many refused ones would be."""
    answered, sent = worker.flood("/v1/bulk", LINES, (b"\n" * 65_536 for _ in range(2_000)))
    assert sent < 2_000
    return answered


def small_chunks(worker: Worker) -> Answered:
    """A body that comes a byte a chunk, as fast as the network is."""
    head = [*JSON, ("If-None-Match", "*")]
    chunks = (b"1\r\n \r\n" * 10_000 for _ in range(100))
    return worker.flood("/v1/catalogs/c/documents/k", head, chunks, "PUT", encoded=True)[0]


def one_long_line(worker: Worker) -> Answered:
    answered, _ = worker.flood("/v1/bulk", LINES, (b"x" * 65_536 for _ in range(1_500)))
    return answered


def owners(worker: Worker) -> Answered:
    """Many managers of many leaves, and many applies to them."""
    wanted = {"n": {f"m{n}": n for n in range(9_900)}}
    managers = [
        {"catalog": "o", "key": "k", "op": "apply", "value": wanted, "manager": f"m{n}"}
        for n in range(20)
    ]
    worker.bulk(managers)
    mine = {"action": "apply", "key": "k", "manager": "mine", "value": {"n": {"m0": 0}}}
    return worker.transaction("o", [mine] * 300, dry_run=True)


def fan_out(worker: Worker) -> Answered:
    """The many owners of an array are those of each member of a set."""
    arrays = [{"keys": "s", "pointer": "/tags", "set": True}]
    assert worker.sends("PUT", "/v1/catalogs/f", {"arrays": arrays}).status == 201
    wanted = {"tags": list(range(3_000))}
    worker.bulk(
        [
            {"catalog": "f", "key": "draft", "op": "apply", "value": wanted, "manager": f"m{n}"}
            for n in range(90)
        ]
    )
    moved = [{"action": "move", "from": "draft", "to": "s"}]
    let_go = [{"action": "let_go", "key": "s", "manager": f"m{n}"} for n in range(60)]
    return worker.transaction("f", moved + let_go, dry_run=True)


def patterns(worker: Worker) -> Answered:
    classes = r"(?i)[" + r"\PL" * 320 + "]a"
    put = worker.sends("PUT", "/v1/catalogs/p/documents/k", {"a": "x"})
    assert put.status == 201
    tests = [{"op": "matches", "path": "/a", "value": f"{classes}{n}"} for n in range(300)]
    body = json.dumps({"patch": tests}).encode()
    return worker.send("PATCH", "/v1/catalogs/p/documents/k", body, EXTENDED)


def schema_patterns(worker: Worker) -> Answered:
    properties = {f"p{n}": {"pattern": rf"(\pL|\pN){{1,5}}x{n}"} for n in range(1_000)}
    return worker.sends("PUT", "/v1/catalogs/s", {"schemas": {"*": {"properties": properties}}})


DEPTH = 98
LONG_MOVES = {
    "action": "patch",
    "key": "k",
    "patch": [
        {"op": "move", "from": "/a" * DEPTH, "path": "/b" * (DEPTH - 1) + f"/{n}"}
        for n in range(1_000)
    ],
    "array_primary_keys": {"/*" * n: ["id"] for n in range(1, DEPTH + 1)},
}


def keyed_rules(worker: Worker) -> Answered:
    """Long addresses under many rules."""
    return worker.transaction("r", [LONG_MOVES] * 5)


def removals(worker: Worker) -> Answered:
    """Items that are removed one by one from a long list with keys."""
    arrays = [{"keys": "*", "pointer": "/f", "item_key": ["a", "b"]}]
    assert worker.sends("PUT", "/v1/catalogs/l", {"arrays": arrays}).status == 201
    items = [{"a": "s", "b": str(n)} for n in range(100_000)]
    assert worker.sends("PUT", "/v1/catalogs/l/documents/k", {"f": items}).status == 201
    patches = [
        {
            "action": "patch",
            "key": "k",
            "patch": [
                {"op": "remove", "path": f"/f/s␟{n}", "if_exists": True}
                for n in range(at, at + 140)
            ],
        }
        for at in range(0, 560, 140)
    ]
    return worker.transaction("l", patches, dry_run=True)


def large_numbers(worker: Worker) -> Answered:
    """Numbers that are long when all their digits are written, as members of a set."""
    arrays = [{"keys": "*", "pointer": "/s", "set": True}]
    assert worker.sends("PUT", "/v1/catalogs/d", {"arrays": arrays}).status == 201
    members = ",".join(f"[{','.join(['1e300'] * 100)},{n}]" for n in range(5_000))
    return worker.send("PUT", "/v1/catalogs/d/documents/k", f'{{"s":[{members}]}}'.encode(), JSON)


def stored_numbers(worker: Worker) -> Answered:
    """Numbers that take long to decode, in a commit that is read again."""
    body = b"[" + b"1e300," * 500_000 + b"1]"
    assert worker.send("PUT", "/v1/catalogs/n/documents/k", body, JSON).status == 201
    for where in ("commits", "differences?from=0", "documents?select=digest"):
        answered = worker.send("GET", f"/v1/catalogs/n/{where}")
    return answered


ATTACKS: dict[Callable[[Worker], Answered], tuple[int, ...]] = {
    blank_lines: (0, 200),
    small_chunks: (400,),
    one_long_line: (0, 200),
    owners: (200, 413, 422),
    fan_out: (200, 413, 422),
    patterns: (409, 413, 422),
    schema_patterns: (201, 422),
    keyed_rules: (404, 409, 413, 422),
    removals: (200, 413, 422),
    large_numbers: (201, 422),
    stored_numbers: (200, 422),
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_heavy_request_blocks_no_other(
    worker: Worker, attack: Callable[[Worker], Answered]
) -> None:
    before = worker.metric("gateway_longest_slice_seconds")  # if an attack before it was too long
    answered = attack(worker)
    assert answered.status in ATTACKS[attack], answered.body[:500]
    longest = worker.metric("gateway_longest_slice_seconds")
    assert longest == before or longest < _SLOWER * LONG_S


def test_others_are_answered_while_a_heavy_request_is_computed(worker: Worker) -> None:
    answered, turns = 0, worker.metric("gateway_turns_total")
    heavy = threading.Thread(target=keyed_rules, args=(worker,))
    heavy.start()
    while heavy.is_alive() and not answered:
        assert worker.send("GET", "/livez").status == 200
        if worker.metric("gateway_turns_total") > turns and heavy.is_alive():
            answered += 1
    heavy.join()
    assert answered


def test_a_request_that_is_too_heavy_is_refused_and_its_key_decides_nothing(
    mongodb_uri: str,
) -> None:
    with (
        own_database(mongodb_uri) as database,
        RunningGateway(mongodb_uri, database, workers=1, request_cpu_ms=50) as running,
    ):
        worker = Worker(running.port)
        body = json.dumps({"then": [LONG_MOVES] * 5}).encode()
        headers = [*JSON, ("Idempotency-Key", "heavy")]
        refused = worker.send("POST", "/v1/catalogs/r/transactions", body, headers)
        problem = refused.json()
        assert (refused.status, problem["code"]) == (422, "too_much_work")
        assert (problem["applied"], problem["retryable"]) == ("no", False)
        assert worker.send("GET", "/v1/catalogs/r/outcomes/heavy").status == 404
        assert worker.sends("PUT", "/v1/catalogs/r/documents/k", 1).status == 201
        assert worker.metric("gateway_broken_off_total") >= 1


def test_a_read_that_is_too_heavy_is_refused(mongodb_uri: str) -> None:
    body = b"[" + b"1e300," * 500_000 + b"1]"
    with own_database(mongodb_uri) as database:
        with RunningGateway(mongodb_uri, database, workers=1) as running:
            worker = Worker(running.port)
            assert worker.send("PUT", "/v1/catalogs/r/documents/large", body, JSON).status == 201
            assert worker.sends("PUT", "/v1/catalogs/r/documents/k1", 1).status == 201
        with RunningGateway(mongodb_uri, database, workers=1, request_cpu_ms=50) as running:
            worker = Worker(running.port)
            for about in ("documents?select=digest", "differences?from=0"):
                refused = worker.send("GET", f"/v1/catalogs/r/{about}")
                problem = refused.json()
                assert (refused.status, problem["code"]) == (422, "too_much_work"), about
            assert worker.send("GET", "/v1/catalogs/r/documents/k1").status == 200
