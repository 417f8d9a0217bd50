"""Messages between real processes: who lives, dies, stands still, ends, or is somebody else's."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any
from uuid import uuid4

import pytest

from gateway.server import neighbours
from gateway.server.neighbours import Neighbours
from tests.patience import WAIT_S

pytestmark = pytest.mark.skipif(
    not hasattr(__import__("socket"), "SO_PEERCRED"), reason="only Linux has such sockets"
)


class Unreadable:
    """It can't be unpickled by the process ``not_by``; 0: by none."""

    def __init__(self, not_by: int) -> None:
        self.not_by = not_by

    def __reduce__(self) -> Any:
        return unpickled, (self.not_by,)


def unpickled(not_by: int) -> Unreadable:
    if not_by in (0, os.getpid()):
        raise TypeError
    return Unreadable(not_by)


def answer(question: Any, worker: int) -> Any:
    if question == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if question == "fail":
        raise ValueError
    if question == "slow":
        time.sleep(0.5)
    return question, worker, os.getpid()


def serve(group: str, user: int | None, calls: Connection) -> None:
    if user is not None:
        os.setuid(user)
    neighbours = Neighbours(group)
    if user is not None:
        neighbours._prefix = neighbours._prefix.replace(f"-{user}-", "-0-")
    neighbours.listen(answer)
    calls.send("ready")
    calls.recv()
    neighbours.close()
    calls.send("closed")


class Other:
    def __init__(self, group: str, user: int | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self.calls, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(group, user, theirs), daemon=True)
        self.process.start()
        assert self.calls.recv() == "ready"
        self.pid = self.process.pid or 0


@pytest.fixture
def group() -> str:
    return uuid4().hex


@pytest.fixture
def other(group: str) -> Iterator[Other]:
    other = Other(group)
    yield other
    other.process.kill()


def until() -> float:
    return time.monotonic() + WAIT_S


def test_questions_are_answered_side_by_side(group: str, other: Other) -> None:
    ours = Neighbours(group)
    answers: list[Any] = []

    def ask(question: object) -> None:
        answers.append(ours.ask(other.pid, question, until()))

    threads = [threading.Thread(target=ask, args=(q,)) for q in ("slow", {"n": 1}, "x" * 1_000_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert answers[-1] == ("slow", os.getpid(), other.pid)
    assert len(answers) == 3


def test_a_worker_that_is_not_there_takes_nothing(group: str, other: Other) -> None:
    ours = Neighbours(group)
    assert ours.ask(os.getpid(), "x", until()) is None
    assert Neighbours("of others").ask(other.pid, "x", until()) is None


def test_what_a_worker_dies_with_is_an_error(
    group: str, other: Other, eventually: Callable[..., Any]
) -> None:
    ours = Neighbours(group)
    with pytest.raises(ConnectionResetError):
        ours.ask(other.pid, "die", until())
    eventually(lambda: ours.ask(other.pid, "x", until()) is None)


def test_a_question_that_can_not_be_answered_is_an_error(group: str, other: Other) -> None:
    ours = Neighbours(group)
    with pytest.raises(ConnectionResetError):
        ours.ask(other.pid, "fail", until())
    assert ours.ask(other.pid, "x", until())


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_message_that_cant_be_read_ends_the_connection_and_not_the_worker(
    group: str, other: Other, way: str
) -> None:
    """Whoever waits for an answer has an error at once, and the next connection is as good."""
    ours = Neighbours(group)
    with pytest.raises(ConnectionResetError):
        ours.ask(other.pid, Unreadable(os.getpid() if way == "back" else 0), until())
    assert ours.ask(other.pid, 1, until())[0] == 1


def test_a_worker_that_stands_still_is_asked_once(
    group: str, other: Other, eventually: Callable[..., Any]
) -> None:
    ours = Neighbours(group)
    assert ours.ask(other.pid, "x", until())
    os.kill(other.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        ours.ask(other.pid, "first", time.monotonic() + 0.1)
    eventually(lambda: ours._links[other.pid].takes_questions() is False)
    assert ours.ask(other.pid, "second", until()) is None
    os.kill(other.pid, signal.SIGCONT)
    eventually(lambda: ours.ask(other.pid, "third", until()) is not None)


def test_who_ends_answers_what_is_under_way_and_takes_no_more(
    group: str, other: Other, eventually: Callable[..., Any]
) -> None:
    ours = Neighbours(group)
    assert ours.ask(other.pid, "x", until())
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(ours.ask(other.pid, "slow", until())))
    thread.start()
    eventually(lambda: ours._links[other.pid]._questions or answers)
    other.calls.send("close")
    thread.join(WAIT_S)
    assert answers in ([("slow", os.getpid(), other.pid)], [None]), "None: it was closed before"
    assert other.calls.recv() == "closed"
    eventually(lambda: ours.ask(other.pid, "x", until()) is None)


def test_who_ends_knows_of_a_connection_that_is_just_taken(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that came by it would be lost, with its outcome unknown."""
    made = neighbours._Answering
    go_on = threading.Event()

    def slowly(*given: Any) -> Any:
        taken = made(*given)
        assert go_on.wait(WAIT_S)
        return taken

    monkeypatch.setattr(neighbours, "_Answering", slowly)
    ours, theirs = Neighbours(group), Neighbours(group)
    theirs.listen(answer)
    assert ours.ask(os.getpid(), "x", until())
    ending = threading.Thread(target=theirs.close)
    ending.start()
    ending.join(0.2)
    assert ending.is_alive()
    go_on.set()
    ending.join(WAIT_S)
    assert not ending.is_alive()
    assert ours.ask(os.getpid(), "x", until()) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_users_process_is_not_talked_to(group: str) -> None:
    """Under the very name of one of ours."""
    stranger = Other(group, user=65534)
    try:
        assert Neighbours(group).ask(stranger.pid, "x", until()) is None
    finally:
        stranger.process.kill()
