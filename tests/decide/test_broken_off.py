"""A request that is broken off while it is decided leaves nothing behind, wherever that was.

``cpu.draw`` is called before every line that is executed in a section, as a signal might; the
account lasts for so many lines. So each test is the same on every machine.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from gateway import cpu
from gateway.cpu import BrokenOff, CpuAccount, TooMuchWork
from gateway.decide.compares import IsAbsent
from gateway.decide.decide import decide
from gateway.decide.edits import KeyEdit, MoveKey
from gateway.decide.owning import ApplyWanted
from gateway.decide.request import Applied, Decision, Refused, Request, View
from gateway.errors import MemoryFull
from gateway.http.wire import body
from gateway.http.write import bulk_lines
from gateway.model import SETTINGS_KEY, Idempotency
from tests.without_http import NOW, RULES, ask, document, extended, put, refused, run, view

LINES_MAX = 100_000


@contextmanager
def drawn_at_each_line() -> Iterator[None]:
    """Each line of a section costs a second."""

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if event == "line":
            cpu.draw(1.0, frame.f_code)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def a_request(**fields: Any) -> Request:
    """One that does a bit of everything: it compares, patches, applies, moves, under a schema."""
    edits = (
        KeyEdit("k", extended({"op": "add", "path": "/f", "value": [{"id": 1}, {"id": 2}]})),
        KeyEdit("k", ApplyWanted({"mine": {"a": 1}}, 16, "m")),
        KeyEdit("a", put({"n": 1})),
        KeyEdit("b", MoveKey("c")),
    )
    idempotency = Idempotency("p", "key", "print")
    given = {"compare": (IsAbsent("a"),), "idempotency": idempotency, "once": True, **fields}
    return ask(put(0), **given | {"edits": edits})


def a_view() -> View:
    settings = {
        "schemas": {"*": {"type": "object"}},
        "arrays": [{"keys": "*", "pointer": "/f", "item_key": ["id"]}],
    }
    return view(
        document({"f": []}, "k"),
        document({"x": 1}, "b"),
        document(settings, SETTINGS_KEY),
        keys="kabcxy",
    )


def decided(*requests: Request, accounts: list[CpuAccount | None]) -> Decision:
    with drawn_at_each_line():
        return decide(
            a_view(), requests, [1] * len(requests), now_us=NOW, rules=RULES, accounts=accounts
        )


def lines_of(request: Request) -> int:
    """How many lines it takes to decide it, when the settings are compiled."""
    run(a_view(), request)
    account = CpuAccount(LINES_MAX)
    decided(request, accounts=[account])
    return int(account.limit_s - account.left_s)


NEIGHBOURS = (ask(put({"before": 1}), "x"), ask(put({"after": 1}), "y"))


def a_batch(middle: Request) -> tuple[Request, ...]:
    return NEIGHBOURS[0], middle, NEIGHBOURS[1]


@pytest.mark.parametrize("refuses", [False, True], ids=["applied", "refused"])
def test_a_request_broken_off_at_any_point_has_no_effect(refuses: bool) -> None:
    """Or it is decided to its end: then it is what it would have been anyway."""
    compare = (IsAbsent("k"),) if refuses else (IsAbsent("a"),)
    heavy = a_request(compare=compare)
    lines = lines_of(heavy)
    assert lines > 300
    whole = run(a_view(), *a_batch(heavy))
    alone = run(a_view(), *NEIGHBOURS)
    luck = random.Random(29)
    broken = 0
    for at in [*range(20), *(luck.randrange(lines) for _ in range(60)), *range(lines - 20, lines)]:
        decision = decided(*a_batch(heavy), accounts=[None, CpuAccount(at), None])
        outcome = decision.outcomes[1]
        if isinstance(outcome, Refused) and isinstance(outcome.error, TooMuchWork):
            broken += 1
            assert (decision.commits, decision.documents) == (alone.commits, alone.documents), at
            assert decision.verdicts == alone.verdicts == (), at
            assert [decision.outcomes[0], decision.outcomes[2]] == list(alone.outcomes), at
        else:
            assert decision.commits == whole.commits, at
            assert decision.documents == whole.documents, at
            assert [each.number for each in decision.verdicts] == [1] * refuses, at
    assert broken > 90


def test_the_key_of_a_broken_off_request_decides_nothing() -> None:
    """Sent again in the same batch, it is decided again."""
    heavy = a_request()
    twice = decided(heavy, a_request(), accounts=[CpuAccount(5), None])
    refused(twice.outcomes[0], TooMuchWork)
    outcome = twice.outcomes[1]
    assert isinstance(outcome, Applied)
    assert not outcome.replayed


def test_an_account_covers_all_tries() -> None:
    """A request that loses races again and again gets no more time."""
    heavy = a_request()
    account = CpuAccount(lines_of(heavy) * 2.5)
    outcomes = [decided(heavy, accounts=[account]).outcomes[0] for _ in range(3)]
    assert [isinstance(each, Applied) for each in outcomes] == [True, True, False]


def test_a_section_that_catches_all_exceptions_is_still_broken_off() -> None:
    done: list[str] = []

    @cpu.in_section
    def stubborn() -> None:
        try:
            cpu.draw(2.0)
        except Exception:  # noqa: BLE001 - what is to be shown
            done.append("swallowed")
        done.append("went on")

    cpu.begin(1.0)
    with pytest.raises(TooMuchWork):
        stubborn()
    assert done == []
    assert not cpu.draw(1.0)  # it is no section any more


def test_an_uninterrupted_section_is_neither_interrupted_nor_broken_off() -> None:
    with cpu.section(CpuAccount(1.0)), cpu.uninterrupted():
        assert cpu.draw(100.0) is False
    assert cpu.draw(100.0) is False


def test_a_section_inside_an_uninterrupted_one_belongs_to_it() -> None:
    cpu.begin(1.0)
    with cpu.section(cpu.own_account()), cpu.uninterrupted():
        assert cpu.in_section(lambda: cpu.draw(100.0))() is False


def test_a_request_with_its_result_yields_but_is_not_broken_off() -> None:
    with cpu.section(CpuAccount(1.0)):
        cpu.conclude()
        assert cpu.draw(100.0) is True


def test_reading_for_a_request_uses_its_account_and_reading_for_the_process_none() -> None:
    cpu.begin(1.0)
    assert cpu.interruptible(lambda: cpu.draw(0.6))() is True
    with pytest.raises(TooMuchWork):
        cpu.interruptible(lambda: cpu.draw(0.6))()
    before = cpu.work_for(None)
    assert cpu.interruptible(lambda: cpu.draw(100.0))() is True
    assert cpu.in_section(lambda: cpu.draw(100.0))() is False, "it isn't interrupted either"
    cpu.work_for(before)
    with pytest.raises(TooMuchWork):
        cpu.in_section(lambda: cpu.draw(0.1))()


def test_a_concluded_request_is_not_broken_off() -> None:
    cpu.begin(1.0)
    cpu.conclude()  # it was decided
    assert cpu.in_section(lambda: cpu.draw(100.0))() is True
    assert cpu.interruptible(lambda: cpu.draw(100.0))() is True


def computing() -> None:
    cpu.draw(2.0)


def used_up_at_the_end() -> None:
    account = cpu.own_account()
    assert account is not None
    account.charge(2.0)


def without_memory() -> None:
    used_up_at_the_end()
    raise MemoryError


def failing() -> None:
    used_up_at_the_end()
    raise KeyError


def in_a_statement(compute: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        with cpu.section(cpu.own_account()):
            compute()

    return call


@pytest.mark.parametrize("compute", [computing, used_up_at_the_end, without_memory, failing])
@pytest.mark.parametrize("as_section", [cpu.in_section, cpu.interruptible, in_a_statement])
def test_nothing_is_broken_off_at_the_edges_of_a_section(
    as_section: Callable[[Callable[[], None]], Callable[[], None]], compute: Callable[[], None]
) -> None:
    """A signal may come before any instruction: of the refusal that is made, too."""
    account = CpuAccount(1.0)
    signals = 0
    broken_off: list[str] = []

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        nonlocal signals
        frame.f_trace_opcodes = True
        if event == "return" and frame.f_code is compute.__code__:
            signals = 1
        elif event == "opcode" and signals and frame.f_code.co_filename != __file__:
            signals += 1
            try:
                cpu.draw(0.0, frame.f_code)
            except BrokenOff:
                broken_off.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        return trace

    before = sys.gettrace()
    for _ in range(2):  # of code that is traced for the first time, Python 3.12 leaves some out
        account.left_s, signals = account.limit_s, 0
        cpu.work_for(account)
        sys.settrace(trace)
        with suppress(TooMuchWork, MemoryFull, KeyError):
            as_section(compute)()
        sys.settrace(before)
    assert account.left_s < 0
    assert signals > 5
    assert broken_off == []
    assert not cpu.draw(1.0)  # it is no section any more


@pytest.mark.parametrize(
    "read",
    [
        body.decode_value,
        body.decode_document,
        body.read_patch,
        bulk_lines.line_request,
        body.document_bytes,
    ],
)
def test_every_reader_of_a_body_is_a_section(read: Callable[..., object]) -> None:
    """Others have their turn in its midst, and it is broken off."""
    assert read.__code__ in cpu._EDGES
