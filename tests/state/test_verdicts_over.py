"""Verdicts that are over when they are written out: their keys may have decided again since."""

from __future__ import annotations

import pytest

from gateway.model import Verdict
from gateway.runtime import ThreadRuntime, moment
from gateway.state.write_out import Tail, write_out
from tests.memory_store import MemoryStore
from tests.store.contract_suite import commit, move
from tests.store.verdicts_suite import judging, verdict

KEPT_S = 1000  # as far apart as the verdicts are


class Later(ThreadRuntime):
    def __init__(self, now_s: int) -> None:
        self._now_s = now_s

    def now_us(self) -> int:
        return self._now_s * 1_000_000


@pytest.mark.parametrize(
    ("now_s", "written"), [(1_500, [1, 2]), (2_000, [2]), (2_999, [2]), (3_000, [])]
)
def test_an_expired_verdict_is_not_written_out(now_s: int, written: list[int]) -> None:
    store, runtime, found = MemoryStore(), Later(now_s), list[Verdict]()
    store.move_heads([move(commit(1))])
    store.move_heads([judging(verdict(1), verdict(2))])
    store.write_verdicts = lambda verdicts, _: found.extend(verdicts)  # type: ignore[method-assign]
    tail = Tail(moment(runtime), 1, [], [verdict(1), verdict(2)])
    write_out(store, runtime, {"c": tail}, 1.0, KEPT_S)
    assert [each.number for each in found] == written
