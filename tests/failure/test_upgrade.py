"""A gateway of the format before runs on beside one of this format, in either order of starting.

The earlier one is the last commit of format 3, from this repository's history, as processes of its
own. Where the history isn't there (a shallow clone, an archive), `tests/store/test_format_3.py` has
what such a gateway sends and left.
"""

from __future__ import annotations

import http.client
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.store.mongodb.format import FORMAT
from tests import forking
from tests.patience import WAIT_S
from tests.service import RunningGateway, verify

Eventually = Callable[..., Any]

pytestmark = pytest.mark.mongod

ROOT = Path(__file__).parents[2]
# The last one before format 4.
EARLIER = "73a7d472839fb3a03878478cbd9835ed79b5c784"
REFUSED = f"the database has format {FORMAT}, this gateway knows up to 3"
CATALOGS = ("one", "two")
# What is lost to the format isn't tried for minutes.
DEADLINE_MS = 2_000
# Between two appends: while a gateway starts, hundreds of them would tell no more than some do.
PAUSE_S = 0.02


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the earlier code."""
    folder = tmp_path_factory.mktemp("earlier")
    archived = subprocess.run(
        ["git", "-C", str(ROOT), "archive", EARLIER, "gateway", "patching"],
        capture_output=True,
        check=False,
    )
    if archived.returncode:
        pytest.skip(f"the history isn't there, commit {EARLIER[:7]}: {archived.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class EarlierGateway(RunningGateway):
    """One of the earlier code."""

    def __init__(self, folder: Path, uri: str, database: str) -> None:
        super().__init__(uri, database, workers=1, deadline_ms=DEADLINE_MS)
        self._folder = folder

    def _spawn(
        self, arguments: Sequence[str], stderr: int, environment: Mapping[str, str]
    ) -> forking.Fork:
        process = subprocess.Popen(
            (sys.executable, "-m", "gateway.cli", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=self._folder,
            env={**environment, "PYTHONPATH": str(self._folder)},
            start_new_session=True,
        )
        return cast(forking.Fork, process)


def ask(
    gateway: RunningGateway, method: str, path: str, body: object = None, key: str = ""
) -> tuple[int, Any]:
    """The status and the body; 0 where there is no whole answer."""
    headers = {
        "Content-Type": "application/json-patch+json" if method == "PATCH" else "application/json"
    }
    if key:
        headers["Idempotency-Key"] = key
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()
    return answer.status, json.loads(text) if text else None


class Client:
    """Appends numbers to a document of each catalog, one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count()
        self.told: dict[tuple[str, str], int] = {}  # by catalog and number, the status

    def append(self, gateway: RunningGateway, catalog: str) -> int:
        number = f"{self._name}-{next(self._numbers)}"
        self.told[catalog, number] = status = append(gateway, catalog, number)
        return status

    def applied(self) -> set[tuple[str, str]]:
        return {each for each, status in self.told.items() if status in (200, 201)}


def document(catalog: str) -> str:
    return f"/v1/catalogs/{catalog}/documents/k"


def append(gateway: RunningGateway, catalog: str, number: str) -> int:
    patch = [{"op": "add", "path": "/-", "value": number}]
    return ask(gateway, "PATCH", document(catalog), patch, key=number)[0]


def make(gateway: RunningGateway, *catalogs: str) -> None:
    for catalog in catalogs:
        assert ask(gateway, "PUT", document(catalog), [])[0] == 201


def content(gateway: RunningGateway, catalog: str) -> list[str]:
    status, found = ask(gateway, "GET", document(catalog))
    assert status == 200
    return cast(list[str], found)


@contextmanager
def appending(gateway: RunningGateway, client: Client) -> Iterator[None]:
    """It continues until the end, or until no gateway answers."""
    over = threading.Event()

    def go_on() -> None:
        for catalog in itertools.cycle(CATALOGS):
            if over.wait(PAUSE_S) or not client.append(gateway, catalog):
                return

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def check(gateway: RunningGateway, *clients: Client) -> None:
    """What was acknowledged is there once, and what wasn't can be sent again."""
    applied = set().union(*(client.applied() for client in clients))
    others = set().union(*(client.told for client in clients)) - applied
    for catalog in CATALOGS:
        found = content(gateway, catalog)
        assert {number for of, number in applied if of == catalog} <= set(found)
    for catalog, number in others:
        assert append(gateway, catalog, number) == 200
    for catalog in CATALOGS:
        asked = {number for of, number in applied | others if of == catalog}
        assert sorted(content(gateway, catalog)) == sorted(asked)


@pytest.mark.parametrize("then", ["runs on", "sleeps", "is killed"])
def test_a_gateway_of_this_format_takes_over_from_an_earlier_one(
    earlier: Path, mongodb_uri: str, database_name: str, then: str, eventually: Eventually
) -> None:
    """The earlier one is written to all the time. What it acknowledged is there, and then it
    acknowledges nothing any more."""
    theirs, refused, new = Client("theirs"), Client("refused"), Client("new")
    with ExitStack() as running:
        old = running.enter_context(EarlierGateway(earlier, mongodb_uri, database_name))
        make(old, *CATALOGS)
        with appending(old, theirs):
            eventually(lambda: len(theirs.applied()) > 20)
            if then == "sleeps":
                os.killpg(old.master_pid, signal.SIGSTOP)
            elif then == "is killed":
                old.kill()
            ours = RunningGateway(mongodb_uri, database_name, workers=1)
            running.enter_context(ours)
            for number in range(20):
                assert new.append(ours, CATALOGS[number % 2]) == 200
            if then == "sleeps":
                os.killpg(old.master_pid, signal.SIGCONT)
            if then != "is killed":
                for catalog in CATALOGS:
                    assert refused.append(old, catalog) == 503
                    assert ask(old, "GET", document(catalog))[0] == 500
        assert not refused.applied()
        check(ours, theirs, refused, new)
        if then != "is killed":
            takes_over_what_is_made(old, ours)
    verify(mongodb_uri, database_name)


def takes_over_what_is_made(old: RunningGateway, ours: RunningGateway) -> None:
    """An earlier gateway that runs on can still make catalogs, and write them until one of this
    format has seen them."""
    make(old, "new")
    assert append(old, "new", "theirs") == 200
    assert content(ours, "new") == ["theirs"]
    assert append(old, "new", "refused") == 503
    assert append(ours, "new", "ours") == 200
    assert content(ours, "new") == ["theirs", "ours"]


def test_an_earlier_gateway_is_not_ready_beside_one_of_this_format(
    earlier: Path, mongodb_uri: str, database_name: str, eventually: Eventually
) -> None:
    new = Client("new")
    with RunningGateway(mongodb_uri, database_name, workers=1) as ours:
        make(ours, *CATALOGS)
        with appending(ours, new):
            old = EarlierGateway(earlier, mongodb_uri, database_name)
            old.begin()
            try:
                eventually(lambda: REFUSED in old.log())
                so_far = len(new.told)
                eventually(lambda: len(new.told) > so_far + 20)
                assert "gateway: ready" not in old.log()
            finally:
                old.stop()
        assert set(new.told.values()) == {200}
        check(ours, new)
    verify(mongodb_uri, database_name)
