"""Shared by all tests: a real MongoDB for those that ask for it, and waiting without guessing."""

from __future__ import annotations

import gc
import os
import runpy
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage, rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from gevent._hub_local import get_hub_if_exists
from psutil import pid_exists, virtual_memory

from gateway import cpu
from gateway.store.embedded import EmbeddedMongod
from tests import background, routing
from tests.patience import TEST_S, WAIT_MS, WAIT_S, pause_s

if TYPE_CHECKING:
    from gateway.store.contract import Store

# A server to use instead of an embedded one. Its databases `test_…` are made and dropped.
EXTERNAL_URI = os.environ.get("GATEWAY_TEST_MONGODB_URI")


# Compiled code is kept, whatever the environment says: else each of the processes that share the
# tests would compile all of them, and each gateway that they start all of the product.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# However long a machine takes to draw an example: no test depends on speed.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

routing.urls_are_built_when_asked()

# What takes longest begins first, so that no process is left alone with it in the end.
SLOW = (
    "tests/spark/test_connect.py",
    "tests/spark/test_stream_sink.py",
    "tests/spark/test_sync.py",
    "tests/spark/",
    "tests/console/",
    "tests/failure/test_failover.py",
    "tests/failure/",
    "tests/openapi/",
    "tests/retention/",
    "tests/test_server.py",
    "tests/simulation/",
    "tests/store/test_mongodb.py",
    "tests/commit/test_claims.py",
    "tests/state/test_late_write_out.py",
    "tests/test_embedded.py",
    "tests/http/test_connections.py",
    "tests/http/test_feed_live.py",
    "tests/http/test_bulk_live.py",
    "tests/systems/",
    "tests/client/",
)


def _slowness(item: pytest.Item) -> int:
    place = item.nodeid.partition("::")[0]
    return next((rank for rank, each in enumerate(SLOW) if place.startswith(each)), len(SLOW))


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout looks
def pytest_configure(config: pytest.Config) -> None:
    """A test that hangs fails with a stack trace; `--timeout` says otherwise."""
    if config.getoption("timeout", None) is None:
        config.option.timeout = TEST_S
    # Not as the hooks of a conftest, which aren't told of the fixtures of a session.
    config.pluginmanager.register(background)
    if not hasattr(config, "workerinput"):  # not in the processes that share the tests
        _make_docs_page()


def _make_docs_page() -> None:
    """The page at /docs, as `make` and an installation do, where its sources are newer."""
    root = Path(__file__).parents[1]
    page, maker = root / "gateway/docs_page/index.html", root / "docs/api_page/build.py"
    made_from = (root / "openapi.yaml", *maker.parent.glob("*.*"))
    newest = max(each.stat().st_mtime for each in made_from)
    if not page.exists() or page.stat().st_mtime < newest:
        runpy.run_path(str(maker), run_name="__main__")


# What their tests share takes longer to start than the tests take: they go to one process.
TOGETHER = ("tests/console/", "tests/commandline/", "tests/systems/")
# Two sessions of Spark, as a machine has two processors; the tests of each take as long.
SPARK_ONE = tuple(
    f"tests/spark/test_{name}"
    for name in ("contention", "export", "feed", "history", "sync", "tokens")
)
# Of Spark's, those that start no session here: a cluster has its own.
SPARK_ALONE = ("tests/spark/test_options.py", "tests/spark/test_connect.py")


def group_of(nodeid: str) -> str:
    """Tests of one group run in one process; those of a file share what it starts."""
    place = nodeid.partition("::")[0]
    if place.startswith("tests/spark/") and place not in SPARK_ALONE:
        return "one spark" if place.startswith(SPARK_ONE) else "another spark"
    return next((each for each in TOGETHER if place.startswith(each)), place)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests have measured, and assert nothing about."""
    reports = [each for some in terminalreporter.stats.values() for each in some]
    measured = [
        f"{name}: {value}"
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if getattr(report, "when", "") == "call"
    ]
    if measured:
        terminalreporter.section("measured")
        for line in measured:
            terminalreporter.line(line)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is made now stays to the end, so the garbage collector needn't look at it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(50_000, 20, 20)  # as workers have it: a tenth of all that is computed


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole groups go to a process, in the order of the tests.

    By marks, as pytest-xdist 3.8 groups them, they would be lost with pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs MongoDB carries the marker that `make test-fast` leaves out."""
    items.sort(key=_slowness)
    for item in items:
        if {"mongod", "mongodb_uri"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.mongod)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Nothing is charged to a request that the test before has sent from this thread."""
    cpu.work_for(None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Bring gevent's clock up to date, which stands still while its loop does.

    A wait that begins on a loop that nobody used for minutes would be over at once.
    """
    if (hub := get_hub_if_exists()) is not None:
        hub.loop.update_now()


# Memory that a file system holds, and how much must be free of it and of all memory to be used.
_RAM, _RAM_FREE = Path("/dev/shm"), 6 << 30


@contextmanager
def _data_folder(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In memory where there is plenty, for a disk takes most of the time that a write takes.

    What is there survives processes all the same; what a run that was killed left is removed.
    """
    if not _RAM.is_dir() or min(disk_usage(_RAM).free, virtual_memory().available) < _RAM_FREE:
        yield factory.mktemp("mongod")
        return
    for left in _RAM.glob("gateway-tests-*"):
        if not pid_exists(int(left.name.split("-")[2])):
            rmtree(left, ignore_errors=True)
    folder = Path(mkdtemp(prefix=f"gateway-tests-{os.getpid()}-", dir=_RAM))
    yield folder
    rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def unrouted() -> list[str]:
    found: list[str] = []
    routing.watch(found.append)
    return found


@pytest.fixture(autouse=True)
def _every_command_names_its_catalog(unrouted: list[str]) -> Iterator[None]:
    """Whatever a test is about: see `tests.routing`; for gateways, `tests.service`."""
    yield
    found, unrouted[:] = list(unrouted), []
    assert not found, f"commands that all shards would be asked: {found[:3]}"


@pytest.fixture(scope="session")
def mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMongod]:
    """A mongod that the tests share; one that stops or kills it has to `start` it again.

    Tests of what survives a crash of the database have one of their own, on disk.
    """
    with (
        _data_folder(tmp_path_factory) as folder,
        EmbeddedMongod(folder, start_timeout_s=WAIT_S) as running,
    ):
        yield running
        running.kill()  # to close its files, which nobody opens again, would take seconds


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For the mongods that the tests of a file share."""
    with _data_folder(tmp_path_factory) as folder:
        yield folder


@pytest.fixture(scope="session")
def mongodb_uri(request: pytest.FixtureRequest) -> str:
    """The connection string of the shared server, external or embedded."""
    return EXTERNAL_URI or str(request.getfixturevalue("mongod").uri)


@pytest.fixture(scope="session")
def drop_database(mongodb_uri: str) -> Iterator[Callable[[str], None]]:
    """By one client for all tests: to connect takes longer than to drop."""
    from pymongo import MongoClient
    from pymongo.errors import AutoReconnect

    with MongoClient[dict[str, Any]](mongodb_uri) as client:

        def drop(name: str) -> None:
            try:
                client.drop_database(name)
            except AutoReconnect:  # the test had the server start again
                client.drop_database(name)

        yield drop


@pytest.fixture
def database_name(drop_database: Callable[[str], None]) -> Iterator[str]:
    """A database that no other test has, dropped in the end."""
    name = f"test_{uuid.uuid4().hex}"
    yield name
    drop_database(name)


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    """`eventually(condition)` returns the first true result of calling it.

    It fails the test when there is none in WAIT_S. It pauses between looks, never instead of one.
    """

    def wait(condition: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
        begun = time.monotonic()
        while not (result := condition()):
            waited_s = time.monotonic() - begun
            if waited_s > timeout_s:
                pytest.fail(f"not within {timeout_s} s: {condition}")
            time.sleep(pause_s(waited_s))
        return result

    return wait


@pytest.fixture(params=["memory", pytest.param("mongodb", marks=pytest.mark.mongod)])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Empty; the one in memory, and MongoDB."""
    from gateway.store.mongodb import connect
    from tests.memory_store import MemoryStore

    if request.param == "memory":
        yield MemoryStore()
        return
    database = request.getfixturevalue("database_name")
    real = connect(request.getfixturevalue("mongodb_uri"), database, timeout_ms=WAIT_MS)
    yield real
    real.close()
