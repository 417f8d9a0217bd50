"""Python's bytecodes of a request, in one process over the store in memory: the same however busy
the machine is. They say nothing of what MongoDB, the server and C take.

    PYTHONSAFEPATH=1 PYTHONPATH=<folder of a checkout> python benchmarks/bytecodes.py
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

_WARM = 200
_COUNTED = 50
# What is written out behind an answer is another thread's; here it is done before the next request.
_PAUSE_S = 0.02
_PATH = "/v1/catalogs/c/documents/k"


def of(tree: Path) -> int | None:
    """Of a PATCH of one field of a 2 KB document without owners, by the code of that checkout; None
    where that code is put together in another way."""
    command = (sys.executable, __file__)
    environment = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else None


def _patch() -> Callable[[int], None]:
    from gateway.http import create_app
    from gateway.limits import ServiceLimits
    from gateway.runtime import ThreadRuntime

    service, store = _service_and_store()
    client = create_app(service(store(), ThreadRuntime(), ServiceLimits())).test_client()

    def patch(number: int) -> None:
        body = json.dumps([{"op": "replace", "path": "/n", "value": number}])
        answer = client.patch(_PATH, data=body, content_type="application/json-patch+json")
        assert answer.status_code == 200, answer.text

    answer = client.put(_PATH, json={"n": -1, "text": "x" * 2000})
    assert answer.status_code == 201, answer.text
    return patch


def _service_and_store() -> tuple[Any, Any]:
    """Their classes, also where a checkout has them under their former names."""
    service = import_module("gateway.service")
    try:
        store = import_module("tests.memory_store")
    except ModuleNotFoundError:
        store = import_module("gateway.store.memory")
    return getattr(service, "GatewayService", None) or service.Gateway, store.MemoryStore


def _counted(act: Callable[[], None]) -> int:
    count = 0

    def opcode(_frame: FrameType, event: str, _given: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return opcode

    def call(frame: FrameType, _event: str, _given: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return opcode

    sys.settrace(call)
    try:
        act()
    finally:
        sys.settrace(None)
    return count


def main() -> None:
    logging.disable(logging.CRITICAL)
    patch = _patch()
    for number in range(_WARM):
        patch(number)
    counts = []
    for number in range(_WARM, _WARM + _COUNTED):
        time.sleep(_PAUSE_S)
        counts.append(_counted(partial(patch, number)))
    print(min(counts))


if __name__ == "__main__":
    main()
