"""The accounts of memory: what a request may hold, who waits for whom, and that nobody waits for
ever."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import bson
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import AboveLimit, MemoryFull
from gateway.limits import MIB, MemoryLimits
from gateway.memory import PARSED, Account, Memory, parsed_bytes
from gateway.runtime import ThreadRuntime
from tests.patience import WAIT_S

Eventually = Callable[..., Any]


def memory_of(total: int, part: int, patience_s: float = WAIT_S) -> Memory:
    return Memory(ThreadRuntime(), MemoryLimits(total * MIB, part * MIB, patience_s))


def held(memory: Memory) -> int:
    return memory.readings().held_bytes // MIB


def owned(memory: Memory, name: str) -> Account:
    account = memory.account()
    account.claim(name)
    return account


class Taking:
    """Takes so many MiB in the background."""

    def __init__(self, account: Account, size: int) -> None:
        self.account = account
        self.error: Exception | None = None
        self.done = threading.Event()
        self._size = size
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.account.take(self._size * MIB)
        except MemoryFull as error:
            self.error = error
        self.done.set()

    def wait(self) -> None:
        assert self.done.wait(WAIT_S)
        assert self.error is None


def test_released_memory_is_free_again() -> None:
    memory = memory_of(10, 10)
    account = memory.account()
    account.take(1 * MIB)
    with account.holding(4 * MIB):
        account.take(2 * MIB)
        assert (held(memory), account.held) == (7, 7 * MIB)
    assert held(memory) == 1
    account.close()
    account.close()
    assert held(memory) == 0


def test_a_request_above_its_part_is_refused_before_it_gets_the_memory() -> None:
    memory = memory_of(100, 10)
    account = memory.account()
    account.take(6 * MIB)
    with pytest.raises(AboveLimit) as refused:
        account.take(5 * MIB)
    assert (refused.value.limit, refused.value.actual) == ("request_memory_bytes_max", 11 * MIB)
    assert held(memory) == 6


def test_a_request_waits_until_there_is_room(eventually: Eventually) -> None:
    memory = memory_of(10, 10)
    first, second = memory.account(), memory.account()
    first.take(6 * MIB)
    waiting = Taking(second, 6)
    eventually(lambda: memory.readings().waiting == 1)
    assert held(memory) == 6
    first.close()
    waiting.wait()
    assert held(memory) == 6
    assert memory.readings().waited == 1


def test_room_can_be_checked_without_waiting(eventually: Eventually) -> None:
    memory = memory_of(10, 10)
    ann, bob = owned(memory, "ann"), owned(memory, "bob")
    assert ann.has_room(10 * MIB)
    bob.take(6 * MIB)
    assert ann.has_room(2 * MIB)
    assert not ann.has_room(5 * MIB)
    ann.take(MIB)
    waiting = Taking(memory.account(), 5)
    eventually(lambda: memory.readings().waiting == 1)
    assert not ann.has_room(MIB), "somebody was there before"
    bob.close()
    waiting.wait()
    assert held(memory) == 6


def test_a_smaller_request_does_not_overtake(eventually: Eventually) -> None:
    memory = memory_of(10, 10)
    first, second, third = (memory.account() for _ in range(3))
    first.take(6 * MIB)
    waiting = Taking(second, 6)
    eventually(lambda: memory.readings().waiting == 1)
    small = Taking(third, 1)
    eventually(lambda: memory.readings().waiting == 2)
    first.close()
    waiting.wait()
    small.wait()


def test_a_request_that_waits_too_long_is_refused_and_may_be_retried() -> None:
    memory = memory_of(10, 10, patience_s=0.01)
    first = memory.account()
    first.take(10 * MIB)
    with pytest.raises(MemoryFull):
        memory.account().take(MIB)
    assert (memory.readings().waiting, memory.readings().refused, held(memory)) == (0, 1, 10)


def test_the_longest_waiting_request_continues_when_all_wait_for_each_other() -> None:
    """All hold some and need more: without the rule they would wait until they are refused."""
    memory = memory_of(10, 8)
    accounts = [memory.account() for _ in range(5)]
    for each in accounts:
        each.take(2 * MIB)
    waiting = [Taking(each, 6) for each in reversed(accounts)][::-1]
    for each in waiting:  # the first one's end lets the second one go on, and so forth
        each.wait()
        assert held(memory) <= 10 + 8
        each.account.close()
    assert held(memory) == 0


def test_a_request_that_needs_nothing_more_does_not_wait(eventually: Eventually) -> None:
    """All that is held could be given back: nobody who holds some may wait for those who don't."""
    memory = memory_of(10, 10)
    first, second = memory.account(), memory.account()
    first.take(6 * MIB)
    second.take(4 * MIB)
    waiting = Taking(memory.account(), 6)
    eventually(lambda: memory.readings().waiting == 1)
    with second.holding():
        assert memory.readings().waiting == 1
    first.close()
    waiting.wait()


def test_an_account_that_held_nothing_is_never_the_longest() -> None:
    """Otherwise, it would stay the first for ever, and no other would be let on."""
    memory = memory_of(10, 8)
    for nothing in memory.account(), memory.own_account():
        with nothing.holding():
            pass
    accounts = [memory.account() for _ in range(5)]
    for each in accounts:
        each.take(2 * MIB)
    waiting = [Taking(each, 6) for each in reversed(accounts)][::-1]
    for taking in waiting:
        taking.wait()
        taking.account.close()


def test_one_principal_leaves_room_for_others(eventually: Eventually) -> None:
    memory = memory_of(16, 16)
    anns = [owned(memory, "ann") for _ in range(3)]
    for each in anns[:2]:
        each.take(4 * MIB)
    waiting = Taking(anns[2], 4)
    eventually(lambda: memory.readings().waiting == 1)
    owned(memory, "bob").take(4 * MIB)  # who overtakes her
    anns[0].close()
    waiting.wait()


def test_only_the_answer_counts_while_it_waits_to_be_sent() -> None:
    memory = memory_of(10, 10)
    account = memory.account()
    account.take(8 * MIB)
    account.keep(3 * MIB)
    readings = memory.readings()
    assert (readings.held_bytes, readings.unsent_bytes) == (3 * MIB, 3 * MIB)
    account.take(2 * MIB)  # of an answer that is made while it is sent
    assert (held(memory), memory.readings().unsent_bytes) == (5, 0)
    account.keep(100)
    assert memory.readings().held_bytes == 0, "small ones aren't counted"


def test_unsent_answers_do_not_let_the_process_exceed_its_bound(
    eventually: Eventually,
) -> None:
    memory = memory_of(10, 10)
    asked: list[None] = []
    memory.when_short = lambda: asked.append(None)
    unread = [memory.account() for _ in range(11)]
    for each in unread:
        each.keep(1 * MIB)
    waiting = Taking(memory.account(), 4)
    eventually(lambda: memory.readings().waiting == 1)
    eventually(lambda: asked)  # clients that take nothing are cut off
    assert held(memory) == 11
    for each in unread:
        each.close()
    waiting.wait()


def test_if_unsent_answers_leave_little_room_one_request_at_a_time_continues() -> None:
    memory = memory_of(10, 8)
    unread = memory.account()
    unread.keep(9 * MIB)
    for _ in range(3):
        account = memory.account()
        account.take(8 * MIB)
        account.close()
    assert held(memory) == 9


def test_an_estimate_leaves_room_for_known_sizes() -> None:
    account = memory_of(100, 40).account()
    account.take_record(50 * MIB)
    account.take_chain([b"[]," * MIB])
    with account.holding(8 * MIB):
        assert account.held == 38 * MIB


def test_decoded_data_counts_with_its_real_size() -> None:
    account = memory_of(100, 40).account()
    account.take(MIB)
    held = account.held
    account.take_record(100_000)
    account.settle(held, ["x" * 99_000])
    assert MIB + 99_000 <= account.held <= MIB + 100_000
    held = account.held
    account.settle(held, [[]] * 10_000)
    assert account.held >= held + 800_000


def test_memory_that_requests_wait_for_is_counted_and_never_waits() -> None:
    memory = memory_of(10, 10)
    memory.account().take(10 * MIB)
    own = memory.own_account()
    own.take(6 * MIB)
    assert held(memory) == 16
    with pytest.raises(AboveLimit):
        own.take(5 * MIB)  # more than a request may
    other = memory.own_account()
    other.take(4 * MIB)  # the first piece is always there
    with pytest.raises(MemoryFull):
        other.take(1 * MIB)  # beyond the bound, and a part: at once
    own.close()
    other.take(1 * MIB)
    assert held(memory) == 15


def test_a_pause_waits_for_requests_that_hold_memory_and_blocks_new_ones(
    eventually: Eventually,
) -> None:
    memory = memory_of(10, 8)
    first, second = memory.account(), memory.account()
    first.take(4 * MIB)
    held_then: list[int] = []

    def pause() -> None:
        assert memory.pause(MIB, WAIT_S)
        held_then.append(held(memory))

    pausing = threading.Thread(target=pause, daemon=True)
    pausing.start()
    eventually(lambda: not memory._fits(memory.account(), 1))
    waiting = Taking(second, 2)
    eventually(lambda: memory.readings().waiting == 1)
    first.take(2 * MIB)  # who has begun goes on
    assert not held_then
    first.keep(3 * MIB)  # an answer that is to be sent is no object
    waiting.wait()
    pausing.join(WAIT_S)
    assert held_then == [3 + 2]  # with what was given to whom it let go on


def test_a_pause_that_takes_too_long_is_abandoned() -> None:
    memory = memory_of(10, 8)
    account = memory.account()
    account.take(4 * MIB)
    assert not memory.pause(MIB, 0.01)
    memory.account().take(MIB)


JSON = st.recursive(
    st.none() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=6), inner, max_size=6)
    ),
    max_leaves=30,
)


def size_of(value: Any) -> int:
    """What the value takes, and all in it but what all share."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(size_of(name) + size_of(each) for name, each in value.items())
    if isinstance(value, list):
        return size + sum(map(size_of, value))
    return size


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_parsed_json_takes_no_more_memory_than_estimated(value: Any) -> None:
    many = msgspec.json.decode(msgspec.json.encode([value] * 20))
    assert size_of(many) <= 1.1 * parsed_bytes(many) + 200


def nested(levels: int, name: str | None) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if name is None else {name: value}
    return value


WORST = [
    [[]] * 1000,
    [{}] * 1000,
    [f"{number:05}" for number in range(1000)],
    [{"a": {"a": {"a": {"a": 1}}}}] * 1000,
    [nested(90, None)] * 100,
    [nested(90, "")] * 100,
    [nested(90, "ab")] * 100,
    ["\N{GRINNING FACE}" + "a" * 1000] * 100,
    list(range(1000, 2000)),
    {f"{number:x}": None for number in range(2**13 // 3 * 2 + 2)},  # its table has just grown
    [{f"{number:x}": None for number in range(6)}] * 200,
]


@pytest.mark.parametrize("value", WORST)
def test_the_costliest_json_takes_no_more_memory_than_estimated(value: Any) -> None:
    text = msgspec.json.encode(value)
    decoded = msgspec.json.decode(text)
    assert size_of(decoded) <= 1.1 * parsed_bytes(decoded)
    assert size_of(decoded) <= 1.1 * PARSED * len(text)


@pytest.mark.parametrize("value", WORST)
def test_a_record_takes_no_more_memory_than_estimated_from_its_length(value: Any) -> None:
    record = bson.encode({"content": value})
    account = memory_of(1000, 1000).account()
    account.take_record(len(record))
    assert size_of(bson.decode(record)) <= 1.1 * account.held
