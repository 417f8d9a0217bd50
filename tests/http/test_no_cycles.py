"""What a request had goes with its answer, not when somebody looks for cycles: it may be hundreds
of megabytes, and who looks through those for cycles holds up everybody.

The requests are sent in a process of their own, whose garbage is theirs alone.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import uuid
from typing import Any, Final

import pytest

from gateway.access import Principal
from gateway.errors import Unauthenticated
from gateway.http import create_app
from gateway.http.wire.problems import encode_refusal
from gateway.limits import ConnectionLimits, ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.server.broken_requests import CheckedBodies
from gateway.service import GatewayService
from tests.memory_store import MemoryStore
from tests.test_exchange import exchange
from tests.test_layers import ROOT

_LISTED: Final = {"op": "add", "path": "/n", "value": [1, 2]}
_TESTED: Final = {"key": "k", "test": [{"op": "test", "path": "/l", "value": [1]}]}
_FALSE: Final = {"key": "k", "test": [{"op": "test", "path": "/l", "value": []}]}
_PATCHED: Final = {"action": "patch", "key": "k", "patch": [_LISTED]}
REQUESTS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("PUT", "/documents/k", {"n": 7}),
    ("PUT", "/documents/k?dry_run=true", {"n": 7}),
    ("PUT", "/documents/k?resource_version=999", {}),
    ("PUT", "/documents/k", b"{"),
    ("PUT", "/documents/k", b'{"a": 1, "a": 2}'),
    ("PATCH", "/documents/k", [_LISTED]),
    ("PATCH", "/documents/k", [{"op": "test", "path": "/n", "value": 7}]),
    ("PATCH", "/documents/k", [{"op": "no"}]),
    ("PATCH", "/documents/k", {"patch": [_LISTED], "array_primary_keys": {"/*/l": ["id"]}}),
    ("DELETE", "/documents/k", None),
    ("PUT", "/attributes/k", {"labels": {"a": 1}}),
    ("POST", "/transactions", {"compare": [_TESTED], "then": [_PATCHED]}),
    ("POST", "/transactions", {"compare": [_FALSE], "then": [_PATCHED]}),
    ("POST", "/transactions?dry_run=true", {"compare": [_TESTED], "then": [_PATCHED]}),
    ("POST", "/transactions", {"then": [{**_PATCHED, "when": [_TESTED]}]}),
    ("POST", "/reverts?dry_run=true", {"to": 1}),
    ("POST", "/reverts", {"revisions": [2]}),
    ("POST", "/uploads", {"key": "k"}),
    ("POST", "/pins", {"seconds": 60}),
    ("PUT", "/applications/a", {"version": 1}),
    ("POST", "/nothing", {}),
    *(
        ("GET", read, None)
        for read in (
            *("/documents/k", "/documents/absent", "/documents/k?revision=1", "/documents?limit=1"),
            *("/documents?select=digest", "/owners/k", "/attributes/k", "/commits", "/export", ""),
            *("/differences?from=0", "/partitions?count=2", "/applications", "/pins", "/nothing"),
        )
    ),
)
# Without a token, where one is needed.
REFUSED: Final = (("GET", "/documents/k"), ("GET", "/nothing"), ("DELETE", "/commits"))
_JSON: Final = "application/json"
_KINDS: Final = {"PATCH": "application/json-patch+json", "PUT": _JSON, "POST": _JSON}
_EXTENDED: Final = "application/vnd.metadata.patch+json"
# Werkzeug's search for a route is a function that calls itself: some hundred bytes.
_OF_WERKZEUG: Final = {"cell", "function", "set", "tuple"}


class Served:
    """Answers requests as the server does, from their bytes on."""

    def __init__(self, application: Any) -> None:
        self._application = CheckedBodies(application, ConnectionLimits())

    def send(self, method: str, path: str, given: Any) -> int:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
        body = given if isinstance(given, bytes) else json.dumps(given).encode()
        if given is None:
            body = b""
        else:
            kind = _EXTENDED if isinstance(given, dict) and "patch" in given else _KINDS[method]
            head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        sent, _ = exchange(head.encode() + b"\r\n" + body, self._application)
        return int(sent[0].split(b" ", 2)[1])


def left() -> list[str]:
    """The types of what is there by nobody's reference but its own."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return sorted({type(each).__qualname__ for each in gc.garbage} - _OF_WERKZEUG)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def sent(served: Served, method: str, path: str, body: Any) -> tuple[int, list[str]]:
    """The status, and what was left of the request."""
    catalog = f"/v1/catalogs/cycles-{uuid.uuid4().hex}"
    for n in range(2):
        assert served.send("PUT", f"{catalog}/documents/k", {"n": n, "l": [1]}) < 300
    left()
    return served.send(method, catalog + path, body), left()


def main() -> None:
    limits = ServiceLimits()
    gateway = GatewayService(MemoryStore(), ThreadRuntime(), limits, encode_refusal=encode_refusal)
    served = Served(create_app(gateway))
    strict = Served(create_app(gateway, authenticate=_refuse))
    gc.disable()  # nobody looks for cycles meanwhile but the test
    gc.freeze()  # and that not among all that was imported
    told = [sent(served, *each) for each in REQUESTS]
    told += [
        (strict.send(method, f"/v1/catalogs/c{path}", None), left()) for method, path in REFUSED
    ]
    print(json.dumps(told))


def _refuse(_: str | None) -> Principal:
    raise Unauthenticated("nobody is let in", presented=False)


@pytest.fixture(scope="module")
def cycles() -> list[tuple[int, list[str]]]:
    script = f"from {__name__} import main; main()"
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=True, cwd=ROOT
    )
    return list(json.loads(done.stdout))


_ALL: Final = (*REQUESTS, *REFUSED)


@pytest.mark.parametrize("number", range(len(_ALL)), ids=lambda n: f"{_ALL[n][:2]} {n}")
def test_a_request_leaves_no_cycles(number: int, cycles: list[tuple[int, list[str]]]) -> None:
    status, types = cycles[number]
    assert status != 500
    assert types == []
