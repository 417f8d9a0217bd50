"""How many rooms a request passes: the files of the project whose functions run for it."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import gateway
from gateway.http import create_app
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService, ServiceLimits
from gateway.state import write_out
from tests.http.conftest import Catalog
from tests.memory_store import MemoryStore

ROOT = Path(gateway.__file__).parent.parent
ROOMS = tuple(f"{ROOT / name}/" for name in ("gateway", "patching"))
Passed = Callable[..., list[str]]


@pytest.fixture
def passed() -> Iterator[Passed]:
    """Calls something and tells the files that it passes: in this thread, or in any."""
    found: set[tuple[int, str]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOMS):
            found.add((threading.get_ident(), frame.f_code.co_filename))

    def files(call: Callable[[], Any], *, here: bool) -> list[str]:
        found.clear()
        call()
        mine = threading.get_ident()
        # Of a copy: other threads go on.
        files = {file for thread, file in found.copy() if thread == mine or not here}
        return sorted(Path(each).relative_to(ROOT).as_posix() for each in files)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        threading.setprofile(None)
        sys.setprofile(before)


class StandingStill(ThreadRuntime):
    """So the catalog was written a moment ago, however slow the machine is."""

    def monotonic(self) -> float:
        return 0.0


def test_a_write_passes_few_files_and_a_read_fewer(
    passed: Passed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_out, "_LINGER_S", 0.0)  # the clock stands still
    # Made here, so that its threads are watched too.
    made = GatewayService(MemoryStore(), StandingStill(), ServiceLimits())
    catalog = Catalog(create_app(made).test_client(), "c")
    catalog.put({"n": 0})
    patched = passed(lambda: catalog.patch({"op": "replace", "path": "/n", "value": 1}), here=False)
    assert {"gateway/commit/round.py", "gateway/state/write_out.py"} <= {*patched}  # of threads
    # Also where an earlier test of this process has set up the log, as a service does.
    assert len(patched) <= 49, json.dumps(patched, indent=1)
    # A read has no thread but its own; what the write left to others goes on meanwhile.
    assert len(read := passed(catalog.get, here=True)) <= 25, json.dumps(read, indent=1)
