"""How many rooms a request passes: the files of the project whose functions run for it, and how
often it goes from one to another."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import gateway
from gateway.http import create_app
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService, ServiceLimits
from gateway.state import write_out
from tests.asking import wait_until
from tests.http.conftest import Catalog
from tests.memory_store import MemoryStore

ROOT = Path(gateway.__file__).parent.parent
ROOMS = tuple(f"{ROOT / name}/" for name in ("gateway", "patching"))


class Trip(NamedTuple):
    """``steps``: the files whose functions were called, in order, by thread, each as often as it
    was come to from another one."""

    steps: dict[int, list[str]]

    @property
    def files(self) -> list[str]:
        return sorted({file for passed in self.steps.values() for file in passed})

    @property
    def changes(self) -> int:
        return sum(len(passed) - 1 for passed in self.steps.values())

    def __str__(self) -> str:
        return "\n\n".join("\n".join(passed) for passed in self.steps.values())


Follow = Callable[..., Trip]


@pytest.fixture
def follow() -> Iterator[Follow]:
    """Calls something and tells its way through the files: in this thread, or in any."""
    called: list[tuple[int, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOMS):
            called.append((threading.get_ident(), frame.f_code.co_filename))

    def trip(call: Callable[[], Any], *, here: bool) -> Trip:
        called.clear()
        call()
        mine = threading.get_ident()
        steps: dict[int, list[str]] = {}
        for thread, file in called.copy():  # other threads go on
            name = Path(file).relative_to(ROOT).as_posix()
            passed = steps.setdefault(thread, [])
            if (thread == mine or not here) and passed[-1:] != [name]:
                passed.append(name)
        return Trip({thread: passed for thread, passed in steps.items() if passed})

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield trip
    finally:
        threading.setprofile(None)
        sys.setprofile(before)


class StandingStill(ThreadRuntime):
    """So the catalog was written a moment ago, however slow the machine is."""

    def monotonic(self) -> float:
        return 0.0


def test_a_write_passes_few_files_and_a_read_fewer(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """``pytest -s`` prints the way of a PATCH."""
    logging.disable(logging.INFO)  # an earlier test may have set up the log, as a service does
    request.addfinalizer(lambda: logging.disable(logging.NOTSET))
    monkeypatch.setattr(write_out, "_LINGER_S", 0.0)  # the clock stands still
    # Made here, so that its threads are watched too.
    store = MemoryStore()
    made = GatewayService(store, StandingStill(), ServiceLimits())
    catalog = Catalog(create_app(made).test_client(), "c")
    catalog.put({"n": 0})
    wait_until(lambda: bool(store.last_written({"c": [1]})))

    def patch() -> None:
        catalog.patch({"op": "replace", "path": "/n", "value": 1})
        wait_until(lambda: bool(store.last_written({"c": [2]})))

    patched = follow(patch, here=False)
    print(patched, f"{len(patched.files)} files, {patched.changes} changes of file", sep="\n\n")
    # Those of threads, too.
    assert {"gateway/commit/round.py", "gateway/state/write_out.py"} <= {*patched.files}
    assert len(patched.files) <= 37, patched.files
    assert patched.changes <= 230, str(patched)
    # A read has no thread but its own; what the write left to others goes on meanwhile.
    read = follow(catalog.get, here=True)
    assert len(read.files) <= 25, read.files
