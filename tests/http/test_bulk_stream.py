"""How the lines of a bulk request are cut and queued, and its answers kept for a slow reader."""

from __future__ import annotations

import threading

import pytest

from gateway import cpu
from gateway.http.routes.bulk import Budget, LargeLines, LineQueue, Spool, Windows
from gateway.http.write.bulk_lines import BodyLine, LineSplitter
from tests.disk import files_of_at_most
from tests.patience import WAIT_S

MIB = 1024 * 1024


def windows(lines_max: int, bytes_max: int) -> Windows:
    made = Windows()
    made.lines_max, made.bytes_max = lines_max, bytes_max
    return made


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_the_body_is_cut_into_pieces(size: int) -> None:
    body = b"a\n\nbb\r\n \n" + b"c" * 12 + b"\n" + b"d" * 10 + b"\nlast"
    splitter = LineSplitter(10, 1_000)
    lines: list[BodyLine] = []
    for start in range(0, len(body), size):
        lines += splitter.feed(body[start : start + size])
    lines += splitter.finish()
    assert lines == [
        BodyLine(0, 1, b"a"),
        BodyLine(3, 3, b"bb\r", 1),
        BodyLine(9, 12, None, 1),
        BodyLine(22, 10, b"d" * 10),
        BodyLine(33, 4, b"last"),
    ]


def test_lines_wait_while_the_queue_is_full() -> None:
    queue = LineQueue(windows(2, 100))
    line = BodyLine(0, 60, b"x" * 60)
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


def test_a_complete_window_is_read_ahead_while_there_are_few_requests() -> None:
    among = Windows()
    among.count(1)
    line = BodyLine(0, 1, b"x")
    for reader in (LineQueue(among), LineQueue(among)):
        assert not reader.has_next()
        reader.put([line])
        assert not reader.has_next(), "it gathers while one is under way"
        reader.end()
        assert reader.has_next(), "more won't come"
        reader.take()
        assert not reader.has_next()
    full = LineQueue(among)
    full.put([line] * among.lines_max)
    assert full.has_next()
    for _ in range(3):
        among.count(1)
    assert full.has_next()
    among.count(1)
    assert not full.has_next(), "others are read meanwhile"


def test_a_spool_knows_whether_a_write_would_wait() -> None:
    budget = Budget(10)
    full, other = Spool(budget), Spool(budget)
    full.write(b"x" * 10)
    assert other.has_room(), "nothing of it waits to be read"
    other.write(b"a")
    assert not full.has_room()
    assert not other.has_room()
    assert other.write(b"b", waits=False)
    assert (other.read(5), other.has_room()) == (b"ab", True)


def test_closing_a_queue_or_spool_ends_every_wait_for_it() -> None:
    queue = LineQueue(windows(1, 1))
    spool = Spool(Budget(1))
    assert spool.write(b"xx")
    queue.put([BodyLine(0, 1, b"x")])
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(queue.put([BodyLine(0, 1, b"x")]))),
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


def test_a_spool_returns_everything_that_was_written() -> None:
    spool = Spool(Budget(200 * 1024 * 1024))
    block = bytes(range(256)) * 4096  # 1 MiB
    for _ in range(40):
        assert spool.write(block)
    spool.end()
    read = b"".join(iter(lambda: spool.read(300_000), b""))
    assert read == block * 40


@pytest.mark.parametrize("block_bytes", [100_003, 1_500_007, 4_500_001])
@pytest.mark.parametrize("disk_bytes", [0, 300_000, 3 << 20, 5_500_001])
def test_without_disk_space_the_writer_waits_for_the_reader_and_nothing_is_lost(
    disk_bytes: int, block_bytes: int
) -> None:
    budget = Budget(200 << 20)
    spool = Spool(budget, "ann")
    blocks = [bytes([number]) * block_bytes for number in range(10_000_000 // block_bytes + 1)]

    def write() -> None:
        for block in blocks:
            assert spool.write(block)
        spool.end()

    with files_of_at_most(disk_bytes):
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        read = list(iter(lambda: spool.read(30_000), b""))
        writer.join(WAIT_S)
    assert b"".join(read) == b"".join(blocks)
    assert budget.has_room("ann")


def test_a_writer_that_waits_for_disk_space_ends_when_the_spool_is_closed() -> None:
    spool = Spool(Budget(200 << 20))
    with files_of_at_most(0):
        assert spool.write(b"x" * (2 << 20))
        assert not spool.has_room()
        results: list[bool] = []
        writer = threading.Thread(target=lambda: results.append(spool.write(b"y")))
        writer.start()
        spool.close()
        writer.join(WAIT_S)
    assert results == [False]


def test_a_full_spool_waits_for_its_reader() -> None:
    spool = Spool(Budget(10))
    spool.write(b"x" * 10)
    done = threading.Event()
    threading.Thread(target=lambda: (spool.write(b"y"), spool.end(), done.set())).start()
    assert not done.wait(0.05)
    assert spool.read(4) + spool.read(6) == b"x" * 10
    assert done.wait(WAIT_S)
    assert spool.read(100) == b"y"


def test_spools_share_a_budget_and_each_reader_still_progresses() -> None:
    budget = Budget(10)
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
    budget = Budget(12)
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


def test_windows_shrink_as_requests_increase() -> None:
    made = Windows()
    sizes = []
    for _ in range(2048):
        made.count(1)
        sizes.append((made.lines_max, made.bytes_max))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == (512, 4 * MIB)
    assert sizes[-1] == (64, MIB // 16)
    for requests, (_, size) in enumerate(sizes, 1):
        assert requests * size <= 256 * MIB
    for _ in range(2048):
        made.count(-1)
    assert (made.lines_max, made.bytes_max) == sizes[0]


def test_long_lines_of_all_requests_share_one_budget() -> None:
    budget = Budget(20)
    first, second, third = (LargeLines(budget, None, 10) for _ in range(3))
    first.hold(0)
    first.hold(0)  # the same line goes on
    second.hold(7)
    held = threading.Event()
    waiting = threading.Thread(target=lambda: (third.hold(3), held.set()))
    waiting.start()
    first.let_go([9])  # another line
    assert not held.wait(0.05)
    first.let_go([0, 9])
    assert held.wait(WAIT_S)
    waiting.join(WAIT_S)


@pytest.mark.parametrize("gone", ["waiting", "holding"])
def test_a_finished_request_frees_its_room(gone: str) -> None:
    budget = Budget(10)
    holding, waiting = LargeLines(budget, None, 10), LargeLines(budget, None, 10)
    holding.hold(0)
    thread = threading.Thread(target=lambda: waiting.hold(0), daemon=True)
    thread.start()
    if gone == "waiting":
        waiting.close()
        thread.join(WAIT_S)
        holding.close()
    else:
        holding.close()
        thread.join(WAIT_S)
        waiting.close()
    done = threading.Event()
    third = LargeLines(budget, None, 10)
    threading.Thread(target=lambda: (third.hold(0), done.set()), daemon=True).start()
    assert done.wait(WAIT_S)


def test_cutting_lines_yields_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KiB of line ends take 50 ms, and forty clients may send them at once."""
    found: list[bool] = []
    cut = LineSplitter._end

    def seen(splitter: LineSplitter, end_bytes: int) -> BodyLine | None:
        found.append(cpu.draw(0.0))
        return cut(splitter, end_bytes)

    monkeypatch.setattr(LineSplitter, "_end", seen)
    LineSplitter(10, 1_000).feed(b"\n" * 10)
    assert found == [True] * 10
    assert not cpu.draw(0.0)
