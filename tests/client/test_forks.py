"""A process that was forked shares no connection, and waits for no thread, of the one it came from.

Two processes on one connection get each other's answers: a change is lost, or made twice.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from patching.client import Follower
from patching.client._batching import Batcher
from patching.client.errors import FollowerStopped, RevisionUnknown
from patching.client.transport import HttpAnswer, Transport
from tests.client.conftest import Followed
from tests.client.test_transport import Server, server, transport  # noqa: F401 - fixtures
from tests.patience import WAIT_S

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")


def in_fork(run: Callable[[], object]) -> int:
    """The exit code of a forked process: 0 where ``run`` returns, 1 where it raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(int(WAIT_S))
            run()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def under_way(call: Callable[[], object], begun: Callable[[], bool]) -> Iterator[list[object]]:
    """``call`` in another thread, and in the end its result."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    while not begun():
        pass
    yield results
    thread.join(WAIT_S)


def test_a_fork_has_its_own_connections(server: Server, transport: Transport) -> None:  # noqa: F811
    transport.request("GET", "/parent")
    assert in_fork(lambda: transport.request("GET", "/child")) == 0
    transport.request("GET", "/parent")
    first, forked, again = server.peers
    assert (first == again, first == forked) == (True, False)


def test_closing_a_client_in_a_fork_breaks_no_request_of_the_parent(
    server: Server,  # noqa: F811
    transport: Transport,  # noqa: F811
) -> None:
    server.hold.clear()
    with under_way(lambda: transport.request("GET", "/"), lambda: bool(server.asked)) as results:
        assert in_fork(transport.close) == 0
        server.hold.set()
    (answer,) = results
    assert isinstance(answer, HttpAnswer)


def test_a_lock_held_at_the_fork_is_free_in_the_child(transport: Transport) -> None:  # noqa: F811
    with transport._connections._lock:
        assert in_fork(lambda: transport.request("GET", "/")) == 0


def test_a_fork_does_not_wait_for_a_batch_of_the_parent(transport: Transport) -> None:  # noqa: F811
    batcher = Batcher(transport, 0.001)
    asked, ended = threading.Event(), threading.Event()

    def alone(_: float) -> HttpAnswer:
        asked.set()
        ended.wait(WAIT_S)
        return HttpAnswer(200, {}, b"{}")

    def forked() -> None:
        batcher.send(b"{}", "", WAIT_S, lambda _: HttpAnswer(200, {}, b"{}"))
        batcher.close()

    with under_way(lambda: batcher.send(b"{}", "", WAIT_S, alone), asked.is_set):
        assert in_fork(forked) == 0
        ended.set()


def test_a_follower_is_stopped_in_the_child(gateway: Followed) -> None:
    """No thread updates its copy there, so waiting would never end."""
    gateway.put(a=1)
    follower = gateway.follow()
    listening = follower.subscribe(lambda _: None)
    copy = follower._copy
    versions = copy._loaded()

    def forked() -> None:
        assert follower.current().documents == {"a": 1}
        with pytest.raises(FollowerStopped, match="before the fork"):
            follower.wait_for(2)
        with pytest.raises(FollowerStopped, match="before the fork"):
            follower.subscribe(lambda _: None)
        with pytest.raises(RevisionUnknown):
            follower.at_time(datetime.now(UTC) + timedelta(seconds=1))
        assert isinstance(listening.error, FollowerStopped)
        assert listening.stop(WAIT_S)
        follower.stop()

    with copy._changed, versions._lock, listening._changed:  # as its threads hold them at times
        assert in_fork(forked) == 0
    gateway.put(a=2)
    follower.wait_for(2, WAIT_S)
    gateway.eventually(lambda: listening.position == 2)


def test_a_follower_not_started_before_the_fork_can_be_started_in_the_child(
    gateway: Followed,
) -> None:
    follower = Follower(gateway.url, "c")
    gateway.put(a=1)

    def forked() -> None:
        with follower:
            follower.wait_for(1, WAIT_S)

    assert in_fork(forked) == 0
    with follower:
        assert follower.current().documents == {"a": 1}
