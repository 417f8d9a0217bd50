"""Names whose name server doesn't answer keep nobody else's from being resolved."""

from __future__ import annotations

import socket
import threading
from typing import Any

import gevent
import gevent.socket
import pytest

from gateway.server import resolving
from tests.patience import WAIT_S


def test_lookups_without_an_answer_leave_threads_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, answered = threading.Semaphore(0), threading.Event()

    def silent(*_: Any, **__: Any) -> list[Any]:
        begun.release()
        answered.wait()
        return []

    monkeypatch.setattr(resolving, "get_original", lambda *_: silent)
    threads = 2 * gevent.get_hub().threadpool.maxsize
    resolve = resolving.own_resolver(threads)
    asking = [gevent.spawn(resolve, "a.example", 443, type=1) for _ in range(threads)]
    try:
        with gevent.Timeout(WAIT_S):
            while not begun.acquire(blocking=False):
                gevent.sleep(0.01)
            found = gevent.socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
        assert found[0][4] == ("127.0.0.1", 80)
        assert not any(each.ready() for each in asking)
    finally:
        answered.set()
        gevent.joinall(asking, WAIT_S)
    assert all(each.get() == [] for each in asking)
