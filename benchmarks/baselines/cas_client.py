"""The read-modify-write loop of a client of the compare-and-set application."""

from __future__ import annotations

import random

import msgspec

from benchmarks import wire
from benchmarks.baselines.backoff import Backoff
from benchmarks.load import Answer, UnexpectedAnswer
from benchmarks.measurement import UpdateLost


class CasClient:
    """Sets `/counters/c<number>` to 1, 2, 3, ...: GET, change, PUT If-Match, on 412 again.

    `acknowledged` is the last value that the server confirmed (0: none).
    """

    def __init__(self, number: int, path: str, backoff: Backoff) -> None:
        self.acknowledged = 0
        self._counter = f"c{number}"
        self._path = path
        self._get = wire.get(path)
        self._backoff = backoff
        self._rng = random.Random(number)
        self._lost = 0
        self._put: bytes | None = None

    def request(self) -> bytes:
        return self._put or self._get

    def answered(self, answer: Answer) -> float | None:
        if self._put is None:
            if answer.status != 200:
                raise UnexpectedAnswer(answer)
            document = msgspec.json.decode(answer.body)
            document["counters"][self._counter] = self.acknowledged + 1
            etag = wire.header(answer.head, "ETag")
            self._put = wire.put(self._path, document, If_Match=etag)
            return 0.0
        self._put = None
        if answer.status == 412:
            self._lost += 1
            return self._backoff.pause_s(self._lost, self._rng)
        if answer.status != 200:
            raise UnexpectedAnswer(answer)
        self._lost = 0
        self.acknowledged += 1
        return None

    def verify(self, answer: Answer) -> None:
        """Hold the document, as read after the run, to `acknowledged`. Raises UpdateLost."""
        stored = msgspec.json.decode(answer.body)["counters"][self._counter]
        if stored != self.acknowledged:
            raise UpdateLost(f"{self._counter}: acknowledged {self.acknowledged}, stored {stored}")
