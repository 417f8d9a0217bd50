"""Messages between real processes: that live, die, stop, end, or belong to another user."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, cast
from uuid import uuid4

import pytest

from gateway.server import neighbours
from gateway.server.neighbours import Neighbours, _Channel
from tests import forking
from tests.patience import WAIT_S
from tests.without_http import wait_until

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "SO_PEERCRED"), reason="only Linux has such sockets"
)


SECRET = b"s" * 32


def answer(question: bytes, worker: int) -> bytes:
    if question == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    if question == b"fail":
        raise ValueError
    if question == b"slow":
        time.sleep(0.5)
    return answer_to(question, worker, os.getpid())


def answer_to(question: bytes, worker: int, other: int) -> bytes:
    return b"%b %d %d" % (question, worker, other)


def serve(group: str, secret: bytes, user: int | None, calls: Connection) -> None:
    if user is not None:
        os.setuid(user)
    neighbours = Neighbours(group, secret)
    if user is not None:
        neighbours._prefix = neighbours._prefix.replace(f"-{user}-", "-0-")
    neighbours.listen(answer)
    calls.send("ready")
    calls.recv()
    neighbours.close()
    calls.send("closed")


class Other:
    def __init__(self, group: str, user: int | None = None, secret: bytes = SECRET) -> None:
        context = forking.functions()
        self.calls, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(group, secret, user, theirs), daemon=True
        )
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


def connected(group: str, *others: int, to: tuple[int, ...] = ()) -> Neighbours:
    """With connections to ``others`` and ``to``; it knows of ``others`` that they are there."""
    ours = Neighbours(group, SECRET, lambda: others)
    for other in (*others, *to):
        wait_until(lambda: ours.ask(other, b"hello", until()) is not None)  # noqa: B023
    return ours


def test_questions_are_answered_concurrently(group: str, other: Other) -> None:
    ours = connected(group, other.pid)
    answers: list[Any] = []

    def ask(question: bytes) -> None:
        answers.append(ours.ask(other.pid, question, until()))

    threads = [threading.Thread(target=ask, args=(q,)) for q in (b"slow", b"", b"x" * 1_000_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert answers[-1] == answer_to(b"slow", os.getpid(), other.pid)
    assert len(answers) == 3


def test_an_absent_worker_accepts_nothing(group: str, other: Other) -> None:
    others = Neighbours("of others", SECRET)
    for ours, worker in ((others, other.pid), (Neighbours(group, SECRET), os.getpid())):
        assert ours.ask(worker, b"x", until()) is None
        wait_until(lambda: ours._peers[worker].failed)  # noqa: B023
        assert ours.ask(worker, b"x", until()) is None


def test_a_question_lost_with_a_worker_is_an_error(group: str, other: Other) -> None:
    ours = connected(group, other.pid)
    with pytest.raises(ConnectionResetError):
        ours.ask(other.pid, b"die", until())
    wait_until(lambda: ours.ask(other.pid, b"x", until()) is None and ours.others() == [])


def test_a_question_that_cannot_be_answered_is_an_error(group: str, other: Other) -> None:
    """Whoever waits has an error at once, and the next connection is as good."""
    ours = connected(group, other.pid)
    with pytest.raises(ConnectionResetError):
        ours.ask(other.pid, b"fail", until())
    wait_until(lambda: ours.ask(other.pid, b"x", until()) is not None)


def test_a_stopped_worker_is_asked_only_once(group: str, other: Other) -> None:
    ours = connected(group, other.pid)
    os.kill(other.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        ours.ask(other.pid, b"first", time.monotonic() + 0.1)
    wait_until(lambda: ours.others() == [])
    assert ours.ask(other.pid, b"second", until()) is None
    os.kill(other.pid, signal.SIGCONT)
    wait_until(lambda: ours.others() == [other.pid])
    assert ours.ask(other.pid, b"third", until()) is not None


def test_nobody_waits_for_a_worker_that_never_answered(
    group: str, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each caller waited a second for it to answer, one after the other; links to other workers
    waited, too."""
    monkeypatch.setattr(neighbours, "SILENT_S", WAIT_S)
    another = Other(group)
    os.kill(other.pid, signal.SIGSTOP)
    ours = Neighbours(group, SECRET, lambda: (other.pid, another.pid))
    for _ in range(8):
        assert ours.ask(other.pid, b"x", until()) is None
    assert ours._peers[other.pid].connecting, "it is still being tried, once"
    wait_until(lambda: ours.ask(another.pid, b"x", until()) is not None)
    another.process.kill()
    os.kill(other.pid, signal.SIGCONT)
    wait_until(lambda: ours.ask(other.pid, b"x", until()) is not None)


def test_a_worker_that_could_not_be_connected_to_is_avoided_for_a_while(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    ours = Neighbours(group, SECRET, lambda: (1,))
    monkeypatch.setattr(ours, "_connected", tries.append)
    monkeypatch.setattr(neighbours, "_AGAIN_S", WAIT_S)
    assert ours.others() == [1], "nothing is known to the contrary"
    assert ours.ask(1, b"x", until()) is None
    wait_until(lambda: ours.others() == [])
    for _ in range(8):
        assert ours.ask(1, b"x", until()) is None
    assert tries == [1]
    ours._peers[1].not_before = 0.0
    assert ours.others() == [1], "it may be there by now"


def test_an_ending_worker_answers_pending_questions_and_accepts_no_more(
    group: str, other: Other
) -> None:
    ours = connected(group, other.pid)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(ours.ask(other.pid, b"slow", until())))
    thread.start()
    link = ours._peers[other.pid].link
    assert link is not None
    wait_until(lambda: bool(link._questions or answers))
    other.calls.send("close")
    thread.join(WAIT_S)
    slow = answer_to(b"slow", os.getpid(), other.pid)
    assert answers in ([slow], [None]), "None: it was closed before"
    assert other.calls.recv() == "closed"
    wait_until(lambda: ours.ask(other.pid, b"x", until()) is None and ours.others() == [])


def test_an_ending_worker_waits_for_a_connection_being_accepted(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that came by it would be lost, with its outcome unknown."""
    made = neighbours.Answering
    go_on = threading.Event()

    def slowly(*given: Any) -> Any:
        taken = made(*given)
        assert go_on.wait(WAIT_S)
        return taken

    monkeypatch.setattr(neighbours, "Answering", slowly)
    theirs = Neighbours(group, SECRET)
    theirs.listen(answer)
    ours = connected(group, to=(os.getpid(),))
    ending = threading.Thread(target=theirs.close)
    ending.start()
    ending.join(0.2)
    assert ending.is_alive()
    go_on.set()
    ending.join(WAIT_S)
    assert not ending.is_alive()
    assert ours.ask(os.getpid(), b"x", until()) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_process_of_another_user_is_refused(group: str) -> None:
    """Under the very name of one of ours."""
    stranger = Other(group, user=65534)
    try:
        refused(Neighbours(group, SECRET), stranger.pid)
    finally:
        stranger.process.kill()


def refused(ours: Neighbours, worker: int) -> None:
    assert ours.ask(worker, b"x", until()) is None
    wait_until(lambda: ours._peers[worker].failed)
    assert ours._peers[worker].link is None


@pytest.mark.parametrize("knows", ["who asks", "who answers", "both"])
def test_a_process_without_the_secret_is_refused(group: str, knows: str) -> None:
    """A process of the same user in another container of the network, for example."""
    wrong = b"w" * 32
    other = Other(group, secret=wrong if knows == "who asks" else SECRET)
    try:
        ours = Neighbours(group, wrong if knows == "who answers" else SECRET)
        if knows == "both":
            wait_until(lambda: ours.ask(other.pid, b"x", until()) is not None)
        else:
            refused(ours, other.pid)
    finally:
        other.process.kill()


def raw_connection(group: str, worker: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(WAIT_S)
    connection.connect(f"{Neighbours(group, SECRET)._prefix}{worker}")
    return connection


@pytest.mark.parametrize("sent", [b"", b"x" * 63, b"x" * 64, b"x" * 10_000])
def test_nothing_is_read_from_an_unauthenticated_process(
    group: str, other: Other, sent: bytes
) -> None:
    """Not even if it repeats the proof of another connection, because each has its own
    challenge."""
    with raw_connection(group, other.pid) as stranger:
        assert len(stranger.recv(100)) == 32, "the challenge"
        stranger.sendall(sent)
        stranger.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    connected(group, other.pid)


def test_a_proof_is_valid_for_one_connection_only(group: str, other: Other) -> None:
    ours, sent = Neighbours(group, SECRET), []

    class Tapped:
        def __init__(self, connection: socket.socket) -> None:
            self.recv = connection.recv
            self._connection = connection

        def sendall(self, data: bytes) -> None:
            sent.append(data)
            self._connection.sendall(data)

    with raw_connection(group, other.pid) as first:
        assert ours._proves_itself(Tapped(first))  # type: ignore[arg-type]
    with raw_connection(group, other.pid) as second:
        assert len(second.recv(100)) == 32
        second.sendall(sent[0])
        assert second.recv(100) == b""


@pytest.mark.parametrize("answers", ["anything", "what it was told"])
def test_a_process_that_answers_without_the_secret_is_asked_nothing(
    group: str, answers: str
) -> None:
    """Not even where it repeats the proof of who asks."""
    ours = Neighbours(group, SECRET)
    asking, stranger = socket.socketpair()
    with asking, stranger:
        asking.settimeout(WAIT_S)
        stranger.sendall(b"c" * 32 + (b"x" * 32 if answers == "anything" else b""))
        if answers == "anything":
            assert not ours._proves_itself(asking)
            return
        told: list[bool] = []
        proving = threading.Thread(target=lambda: told.append(ours._proves_itself(asking)))
        proving.start()
        sent = stranger.recv(64, socket.MSG_WAITALL)
        stranger.sendall(sent[32:])
        proving.join(WAIT_S)
        assert told == [False]


def test_a_waiting_caller_learns_of_a_lost_connection_whatever_the_send_error() -> None:
    reading = threading.Event()

    class Broken:
        def sendall(self, _: bytes) -> None:
            raise ZeroDivisionError

        def recv(self, _: int) -> bytes:
            reading.wait(WAIT_S)
            return b""

        def shutdown(self, _: int) -> None:
            reading.set()

        def close(self) -> None: ...

    lost = threading.Event()
    channel = _Channel(cast(socket.socket, Broken()), lambda *_: None, lost.set)
    channel.send(1, b"x")
    assert lost.wait(WAIT_S / 2)
    with pytest.raises(BrokenPipeError):
        channel.send(2, b"x")
