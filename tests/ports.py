"""Ports that stay one test's own while nobody listens at them.

A port that the system chose (`bind` to 0) is anybody's again once its listener is gone: the next
connection out of this machine may begin at it. What comes back at its address needs another one.
"""

from __future__ import annotations

import os
import random
import socket

# Below those that systems choose from, where nobody changed that (Linux 32768, others 49152).
_FIRST, _LAST = 20_000, 26_999

# Each process of a run of the tests has its own ports.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_left = list(range(_FIRST + _worker, _LAST + 1, _workers))
random.Random(os.urandom(8)).shuffle(_left)  # other runs have other ones


def own_port() -> int:
    """A port of 127.0.0.1 at which nobody listens, and which no other test or connection gets."""
    while True:
        port = _left.pop()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # a program of this machine has it
                continue
        return port


def refusing_url(scheme: str = "http") -> str:
    """Where connections are refused."""
    return f"{scheme}://127.0.0.1:{own_port()}"
