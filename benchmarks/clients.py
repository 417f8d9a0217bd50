"""The gateway's clients: one patches its own counter in documents, one reads a document."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import wire
from benchmarks.load import Answer, UnexpectedAnswer

REFUSED = (409, 429, 503)
"""What a server might answer instead of applying a patch that always fits; not applied."""

_REFUSED_PAUSE_S = 0.01


@dataclass(frozen=True)
class Target:
    """A document to patch; `head` is the request up to the number of its Content-Length."""

    catalog: str
    key: str
    path: str
    head: bytes


def target(catalog: str, key: str) -> Target:
    path = wire.document_path(catalog, key)
    return Target(catalog, key, path, wire.head_with_body("PATCH", path, wire.JSON_PATCH))


class PatchClient:
    """Replaces one integer by a larger one, each time in a document chosen at random.

    `pointer` defaults to the client's own counter, so that every client's last acknowledged
    value must be found there in the end, whatever the others did: `acknowledged`, per target.
    Values begin above `floor`; nothing it sends is a no-op as long as the document's are lower.
    """

    def __init__(
        self,
        number: int,
        targets: Sequence[Target],
        *,
        floor: int = 0,
        pointer: str | None = None,
    ) -> None:
        self.pointer = pointer or f"/counters/c{number}"
        self.acknowledged: dict[Target, int] = {}
        self._targets = targets
        self._rng = random.Random(number)
        self._value = floor
        self._prefix = b'[{"op":"replace","path":"%b","value":' % self.pointer.encode()
        self._choose()

    def request(self) -> bytes:
        return wire.with_body(self._target.head, b"%b%d}]" % (self._prefix, self._value))

    def answered(self, answer: Answer) -> float | None:
        if answer.status in REFUSED:
            return _REFUSED_PAUSE_S
        if not 200 <= answer.status < 300:
            raise UnexpectedAnswer(answer)
        self.acknowledged[self._target] = self._value
        self._choose()
        return None

    def _choose(self) -> None:
        self._target = self._targets[int(self._rng.random() * len(self._targets))]
        self._value += 1


class SteadyPatchClient(PatchClient):
    """Patches at a fixed rate, to be a load on what others do: none of its patches is counted.

    A patch that falls due while one is under way is left out.
    """

    def __init__(
        self, number: int, targets: Sequence[Target], *, floor: int, per_second: float
    ) -> None:
        super().__init__(number, targets, floor=floor)
        self._every_s = 1 / per_second
        self._due = 0.0

    def answered(self, answer: Answer) -> float | None:
        refused_s = super().answered(answer)
        if refused_s is not None:
            return refused_s
        now = time.perf_counter()
        self._due = max(self._due + self._every_s, now)
        return self._due - now


class ReadClient:
    """Reads one document again and again. With an ETag, 304 is the only accepted answer."""

    def __init__(self, path: str, etag: str | None = None) -> None:
        self._expected = 304 if etag else 200
        self._request = wire.get(path, If_None_Match=etag) if etag else wire.get(path)

    def request(self) -> bytes:
        return self._request

    def answered(self, answer: Answer) -> float | None:
        if answer.status != self._expected:
            raise UnexpectedAnswer(answer)
        return None
