"""How the lines of a bulk request are cut and queued, and its answers kept for a slow reader."""

from __future__ import annotations

import threading

import pytest

from gateway.http.write.bulk_stream import Line, LineQueue, LineSplitter, Spool, SpoolBudget
from tests.patience import WAIT_S


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_in_whatever_pieces_they_come(size: int) -> None:
    body = b"a\n\nbb\r\n \n" + b"c" * 12 + b"\n" + b"d" * 10 + b"\nlast"
    splitter = LineSplitter(10)
    lines: list[Line] = []
    for start in range(0, len(body), size):
        lines += splitter.feed(body[start : start + size])
    lines += splitter.finish()
    assert lines == [
        Line(0, 1, b"a"),
        Line(3, 3, b"bb\r"),
        Line(9, 12, None),
        Line(22, 10, b"d" * 10),
        Line(33, 4, b"last"),
    ]


def test_lines_wait_while_the_queue_is_full() -> None:
    queue = LineQueue(2, 100)
    line = Line(0, 60, b"x" * 60)
    assert queue.put([line] * 3)  # a piece is put as a whole
    done = threading.Event()
    waiting = threading.Thread(target=lambda: (queue.put([line]), queue.end(), done.set()))
    waiting.start()
    assert not done.wait(0.05)
    assert len(queue.take()) == 2
    waiting.join(WAIT_S)
    assert done.is_set()
    assert len(queue.take()) == 2
    assert queue.take() == []


def test_nobody_waits_for_what_nobody_takes() -> None:
    queue = LineQueue(1, 1)
    spool = Spool(SpoolBudget(1))
    assert spool.write(b"xx")
    queue.put([Line(0, 1, b"x")])
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(queue.put([Line(0, 1, b"x")]))),
        threading.Thread(target=lambda: results.append(spool.write(b"x"))),
    ]
    for thread in threads:
        thread.start()
    queue.close()
    spool.close()
    for thread in threads:
        thread.join(WAIT_S)
    assert results == [False, False]
    assert (queue.take(), spool.read(1)) == ([], b"")


def test_a_spool_gives_back_what_was_written_however_much() -> None:
    spool = Spool(SpoolBudget(200 * 1024 * 1024))
    block = bytes(range(256)) * 4096  # 1 MiB
    for _ in range(40):
        assert spool.write(block)
    spool.end()
    read = b"".join(iter(lambda: spool.read(300_000), b""))
    assert read == block * 40


def test_a_spool_that_is_full_waits_for_its_reader() -> None:
    spool = Spool(SpoolBudget(10))
    spool.write(b"x" * 10)
    done = threading.Event()
    threading.Thread(target=lambda: (spool.write(b"y"), spool.end(), done.set())).start()
    assert not done.wait(0.05)
    assert spool.read(4) + spool.read(6) == b"x" * 10
    assert done.wait(WAIT_S)
    assert spool.read(100) == b"y"


def test_spools_have_one_budget_and_each_reader_gets_on_all_the_same() -> None:
    budget = SpoolBudget(10)
    full, other = Spool(budget), Spool(budget)
    full.write(b"x" * 10)
    assert other.write(b"a")  # nothing of it waits to be read
    second, third = threading.Event(), threading.Event()
    threading.Thread(target=lambda: (other.write(b"b"), second.set())).start()
    assert not second.wait(0.05)
    assert other.read(1) == b"a"
    assert second.wait(WAIT_S)
    threading.Thread(target=lambda: (other.write(b"c"), third.set())).start()
    assert not third.wait(0.05)
    full.close()
    assert third.wait(WAIT_S)
    assert other.read(2) == b"bc"


def test_the_spools_of_a_principal_leave_room_to_others() -> None:
    budget = SpoolBudget(12)
    ann = [Spool(budget, "ann") for _ in range(2)]
    for spool in ann:
        spool.write(b"xxx")
    done = threading.Event()
    threading.Thread(target=lambda: (ann[0].write(b"x"), done.set())).start()
    assert not done.wait(0.05)
    bob = Spool(budget, "bob")
    for _ in range(3):
        assert bob.write(b"x")
    assert not done.is_set()
    ann[1].close()
    assert done.wait(WAIT_S)
