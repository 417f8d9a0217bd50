"""Documents in the gateway: put there before a measurement, and checked after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks import documents, load, wire
from benchmarks.clients import PatchClient, Target, target
from benchmarks.measurement import UpdateLost

MANY = 1000


def put(port: int, catalog: str, contents: Sequence[dict[str, Any]]) -> list[Target]:
    """One catalog with these documents."""
    targets = [target(catalog, f"dataset/{number}") for number in range(len(contents))]
    requests = [wire.put(one.path, content) for one, content in zip(targets, contents, strict=True)]
    load.send_all(port, requests)
    return targets


def put_one(port: int, catalog: str) -> list[Target]:
    return put(port, catalog, [documents.dataset()])


def put_many_documents(port: int, catalog: str) -> list[Target]:
    """One catalog of MANY documents."""
    return put(port, catalog, [documents.dataset(number) for number in range(MANY)])


def put_many_catalogs(port: int, prefix: str) -> list[Target]:
    """MANY catalogs of one document each."""
    targets = [target(f"{prefix}-{number}", "dataset") for number in range(MANY)]
    requests = [wire.put(one.path, documents.dataset(number)) for number, one in enumerate(targets)]
    load.send_all(port, requests)
    return targets


def verify(port: int, clients: Sequence[PatchClient]) -> None:
    """Every client's last acknowledged value must be in the document. Raises UpdateLost."""
    expected: dict[Target, dict[str, int]] = {}
    for client in clients:
        for one, value in client.acknowledged.items():
            expected.setdefault(one, {})[client.pointer] = value
    for one, values in expected.items():
        answer = load.ask(port, wire.get(one.path))
        content = msgspec.json.decode(answer.body)
        for pointer, value in values.items():
            if (found := _at(content, pointer)) != value:
                raise UpdateLost(f"{one.path} {pointer}: acknowledged {value}, stored {found}")


def _at(content: Any, pointer: str) -> Any:
    """Pointers of the benchmark's own documents: no escapes."""
    for token in pointer.split("/")[1:]:
        content = content[int(token)] if isinstance(content, list) else content[token]
    return content
