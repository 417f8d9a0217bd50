"""Whoever is no longer let in gets nothing more, also of a request that was let in before.

The answer to a look at the token is changed while a request is under way, and each look is a real
one here; how often a running gateway looks, ``test_served`` shows.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient

from gateway.access import Grant, Principal, Role
from gateway.decide.edits import Put
from gateway.errors import Unauthenticated
from gateway.http import create_app
from gateway.http.door import authorization
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from tests.access.service import catalog_path, document_path
from tests.memory_store import MemoryStore
from tests.patience import WAIT_S

C = catalog_path("c")
BYTES = "application/octet-stream"
MEDIA_TYPES = {"patch": "application/json-patch+json", "a part": BYTES}


class Door:
    """Lets ann in until it is shut, or has let her in so many times."""

    def __init__(self) -> None:
        self.is_shut = False
        self.looks = 0
        self.looks_max = 1_000_000

    def __call__(self, _: str | None) -> Principal:
        self.looks += 1
        if self.is_shut or self.looks > self.looks_max:
            raise Unauthenticated("the token was revoked", presented=True)
        return Principal("ann", (Grant(Role.ADMIN, "*"),))


class Body(BytesIO):
    """Its sender is shut out while it is on its way."""

    def __init__(self, content: Any, door: Door) -> None:
        super().__init__(content if isinstance(content, bytes) else json.dumps(content).encode())
        self._door = door

    def read(self, size: int | None = -1) -> bytes:
        self._door.is_shut = True
        return super().read(size)

    def readinto(self, buffer: Any) -> int:
        self._door.is_shut = True
        return super().readinto(buffer)


class Ann:
    def __init__(self) -> None:
        self.door = Door()
        self.gateway = GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits())
        self.client: FlaskClient = create_app(self.gateway, authenticate=self.door).test_client()
        assert self.client.put(document_path("c"), json=1).status_code == 201

    def head(self) -> int:
        return self.gateway.listing.head("c").revision

    def commit(self, key: str, value: Any = 2) -> None:
        """By somebody else."""
        put = Put(value, len(json.dumps(value)))
        self.gateway.write("c", key, put, author="bob")


@pytest.fixture
def ann(monkeypatch: pytest.MonkeyPatch) -> Ann:
    monkeypatch.setattr(authorization, "RECHECK_S", 0.0)
    return Ann()


def upload(ann: Ann) -> str:
    opened = ann.client.post(f"{C}/uploads", json={"key": "k"})
    assert opened.status_code == 201, opened.text
    path = f"{C}/uploads/{opened.get_json()['upload']}"
    part = ann.client.put(f"{path}/parts/1", data=b"7", content_type=BYTES)
    assert part.status_code in (200, 201), part.text
    return path


# Each write that has a body: method, path and body.
WRITES: dict[str, Callable[[Ann], tuple[str, str, Any]]] = {
    "put": lambda _: ("PUT", document_path("c"), 2),
    "patch": lambda _: ("PATCH", document_path("c"), [{"op": "replace", "path": "", "value": 2}]),
    "attributes": lambda _: ("PUT", f"{C}/attributes/k", {"a": 1}),
    "transaction": lambda _: (
        "POST",
        f"{C}/transactions",
        {"then": [{"action": "put", "key": "k", "value": 2}]},
    ),
    "settings": lambda _: ("PUT", C, {"require_precondition": True}),
    "open an upload": lambda _: ("POST", f"{C}/uploads", {"key": "k"}),
    "a part": lambda ann: ("PUT", f"{upload(ann)}/parts/2", 8),
    "commit an upload": lambda ann: ("POST", f"{upload(ann)}/commit", {"parts": [1]}),
    "pin": lambda _: ("POST", f"{C}/pins", {"seconds": 9}),
    "compact": lambda _: ("POST", f"{C}/compactions", {"revision": 1}),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_body_that_ends_after_its_sender_was_shut_out_changes_nothing(
    ann: Ann, name: str
) -> None:
    method, path, content = WRITES[name](ann)
    head, open_pins = ann.head(), ann.gateway.retention.pins("c")
    answer = ann.client.open(
        path,
        method=method,
        input_stream=Body(content, ann.door),
        content_length=len(json.dumps(content)),
        content_type=MEDIA_TYPES.get(name, "application/json"),
    )
    assert (answer.status_code, answer.get_json()["applied"]) == (401, "no")
    assert (ann.head(), ann.gateway.retention.pins("c")) == (head, open_pins)


def test_bulk_lines_after_the_revocation_are_refused(ann: Ann) -> None:
    line = json.dumps({"catalog": "c", "op": "put", "key": "k", "value": 2}).encode() + b"\n"
    answer = ann.client.post(
        "/v1/bulk",
        input_stream=Body(line, ann.door),
        content_length=len(line),
        content_type="application/x-ndjson",
    )
    assert [json.loads(each)["status"] for each in answer.text.splitlines()] == [401]
    assert ann.head() == 1


def test_a_refused_principal_is_refused_again_at_the_next_check_however_soon(
    ann: Ann, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accepted token is not checked again for a moment; bulk lines arrive faster than that."""
    contexts: list[Any] = []
    admit = authorization.Authorization.admit

    def kept(*given: Any) -> Any:
        contexts.append(admit(*given))
        return contexts[-1]

    now_s = 100.0
    monkeypatch.setattr(authorization, "RECHECK_S", 1.5)
    monkeypatch.setattr(authorization, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(authorization.Authorization, "admit", kept)
    assert ann.client.get(document_path("c")).status_code == 200
    (context,) = contexts
    ann.door.is_shut = True
    now_s = 101.0
    context.require_still_let_in()
    for at_s in (102.0, 102.1):
        now_s = at_s
        with pytest.raises(Unauthenticated):
            context.require_still_let_in()


def test_a_long_poll_returns_nothing_committed_after_the_revocation(ann: Ann) -> None:
    answers: list[Any] = []
    looked = ann.door.looks
    polling = threading.Thread(
        target=lambda: answers.append(
            ann.client.get(f"{C}/changes?after=1&timeout={int(min(WAIT_S, 60))}")
        )
    )
    polling.start()
    while ann.door.looks == looked:  # until it was let in
        polling.join(0.01)
    ann.door.is_shut = True
    ann.commit("unseen")
    polling.join(WAIT_S)
    (answer,) = answers
    assert answer.status_code == 401
    assert "unseen" not in answer.text


READS = (
    document_path("c"),
    f"{document_path('c')}?revision=1",
    f"{C}/attributes/k",
    f"{C}/documents",
    f"{C}/documents?key=k",
    f"{C}/commits",
    f"{C}/commits/1",
    f"{C}/export",
    f"{C}/pins",
    C,
    "/v1/catalogs",
)


@pytest.mark.parametrize("path", READS)
def test_a_read_that_overlaps_the_revocation_is_withheld(ann: Ann, path: str) -> None:
    """Only a principal that may still be let in at the end gets the answer."""
    assert ann.client.get(path).status_code == 200
    ann.door.looks_max = ann.door.looks + 1
    answer = ann.client.get(path)
    assert (answer.status_code, answer.get_json()["code"]) == (401, "unauthenticated")
    assert not ann.gateway.retention.pins("c")


def large_catalog(ann: Ann) -> None:
    for number in range(40):
        ann.commit(f"k{number:02}", "x" * 50_000)


def broken_off(pieces: Iterator[bytes], door: Door) -> list[bytes]:
    """The pieces after the first one, after which the principal is shut out."""
    next(pieces)
    door.is_shut = True
    told: list[bytes] = []
    with suppress(Unauthenticated):
        told.extend(pieces)
    return told


def test_an_export_is_broken_off(ann: Ann) -> None:
    large_catalog(ann)
    answer = ann.client.get(f"{C}/export", buffered=False)
    pieces = iter(answer.response)
    assert broken_off(pieces, ann.door) == []
    answer.close()
    assert not ann.gateway.retention.pins("c")


def test_a_feed_with_a_slow_reader_is_broken_off(ann: Ann) -> None:
    """Commits that were already gathered for it are not sent either."""
    large_catalog(ann)
    answer = ann.client.get(
        f"{C}/changes?after=0", headers={"Accept": "text/event-stream"}, buffered=False
    )
    pieces = iter(answer.response)
    told = broken_off(pieces, ann.door)
    assert b"xxxx" not in b"".join(told)
    answer.close()
