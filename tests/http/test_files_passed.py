"""How many rooms a request passes: the files of the project whose functions run for it, and how
often it goes from one to another."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from werkzeug.test import TestResponse

import gateway
from gateway.http import create_app
from gateway.http.wire.headers import APPLY, LINES
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService, ServiceLimits
from gateway.state import write_out
from tests.http.conftest import Catalog
from tests.memory_store import MemoryStore
from tests.without_http import wait_until

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


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def catalog(
    store: MemoryStore, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    """With a document {"n": 0} at 1. Made while it is followed, so that its threads are, too."""
    assert follow
    logging.disable(logging.INFO)  # an earlier test may have set up the log, as a service does
    monkeypatch.setattr(write_out, "_LINGER_S", 0.0)  # the clock stands still
    made = GatewayService(store, StandingStill(), ServiceLimits())
    catalog = Catalog(create_app(made).test_client(), "c")
    catalog.put({"n": 0})
    wait_until(lambda: bool(store.last_written({"c": [1]})))
    yield catalog
    logging.disable(logging.NOTSET)


def patch(catalog: Catalog) -> TestResponse:
    answer: TestResponse = catalog.patch({"op": "replace", "path": "/n", "value": 1})
    return answer


def apply(catalog: Catalog) -> TestResponse:
    path = catalog.document("k")
    return catalog.client.patch(
        path, json={"n": 1}, query_string="conflict=force", content_type=APPLY
    )


def bulk_line(catalog: Catalog) -> TestResponse:
    line = {"catalog": "c", "key": "k", "op": "merge", "value": {"n": 1}}
    return catalog.client.post("/v1/bulk", data=json.dumps(line) + "\n", content_type=LINES[0])


@pytest.mark.parametrize(
    ("write", "files_max", "changes_max"),
    [(patch, 34, 140), (apply, 39, 174), (bulk_line, 38, 218)],
)
def test_a_write_runs_code_of_few_files(
    follow: Follow,
    catalog: Catalog,
    store: MemoryStore,
    write: Callable[[Catalog], TestResponse],
    files_max: int,
    changes_max: int,
) -> None:
    """``pytest -s`` prints its way."""

    def call() -> None:
        assert write(catalog).status_code == 200
        wait_until(lambda: bool(store.last_written({"c": [2]})))

    trip = follow(call, here=False)
    print(
        trip,
        f"{write.__name__}: {len(trip.files)} files, {trip.changes} changes of file",
        sep="\n\n",
    )
    # Those of threads, too.
    assert {"gateway/commit/loop.py", "gateway/state/write_out.py"} <= {*trip.files}
    assert len(trip.files) <= files_max, trip.files
    assert trip.changes <= changes_max, str(trip)


def test_a_read_runs_code_of_fewer_files(follow: Follow, catalog: Catalog) -> None:
    read = follow(catalog.get, here=True)
    assert len(read.files) <= 25, read.files
