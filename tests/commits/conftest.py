"""What the tests of the commit loop share: small bounds, a way to ask, a clock that is set."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

import patching
from gateway.decide.conditions import NO_CONDITIONS
from gateway.decide.request import ApplyPatch, Bounds, Edit, KeyEdit, Put, Request
from gateway.model import Document
from patching import ABSENT

Ask = Callable[..., Request]


@pytest.fixture
def bounds() -> Bounds:
    return Bounds(
        limits=patching.DEFAULT_LIMITS,
        attributes_bytes_max=1_000,
        full_value_every=3,
        batch_bytes_max=1_000_000,
        stored_bytes_max=5_000_000,
        stored_bytes=lambda content: len(msgspec.json.encode(content)),
    )


def put(value: object) -> Put:
    return Put(value, len(msgspec.json.encode(value)))  # type: ignore[arg-type]


def patch(*operations: dict[str, object]) -> ApplyPatch:
    return ApplyPatch(patching.parse(list(operations)))


def replace(path: str, value: object) -> ApplyPatch:
    return patch({"op": "replace", "path": path, "value": value})


@pytest.fixture
def ask() -> Ask:
    made = 0

    def request(edit: Edit, key: str = "k", **fields: object) -> Request:
        nonlocal made
        made += 1
        given = {
            "catalog": "c",
            "edits": (KeyEdit(key, edit),),
            "conditions": NO_CONDITIONS,
            "commit_id": f"{made:032x}",
            "deadline": 1e9,
            "size_bytes": 10,
            **fields,
        }
        return Request(**given)  # type: ignore[arg-type]

    return request


def document(content: object, *, revision: int = 5, key: str = "k", patches: int = 0) -> Document:
    return Document(
        key=key,
        content=content,  # type: ignore[arg-type]
        revision=revision,
        create_revision=2,
        commit_id="ab" * 16,
        time_us=1_700_000_000_000_000,
        patches=patches,
        size_bytes=0 if content is ABSENT else len(msgspec.json.encode(content)),
    )
