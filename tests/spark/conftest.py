"""One Spark session for all tests, and a real gateway over a real MongoDB for each of them."""

from __future__ import annotations

import inspect
import os
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pytest

from patching.client.routes import CatalogRoutes
from patching.client.transport import Transport
from tests.service import RunningGateway
from tests.spark.passing import Passing
from tests.spark.sessions import Sessions
from tests.spark.written import Written


@pytest.fixture(scope="session")
def java() -> None:
    """Skips where Spark can't run; a machine that should be able to fails instead."""
    pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("SPARK TESTS SKIPPED: there is no Java on this machine")


@pytest.fixture(scope="session")
def sessions(
    java: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Sessions]:
    """Nothing is started before `running` is called."""
    made = Sessions(tmp_path_factory.mktemp("spark"))
    yield made
    made.discard()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test may have broken the session in any way: its neighbours have another one.

    At once, so that fixtures that end can't wait for the answers of one that gives none.
    """
    report = yield
    if report.failed and isinstance(item, pytest.Function) and "sessions" in item.fixturenames:
        sessions = item.funcargs.get("sessions")
        if sessions is not None:
            sessions.discard()
    return report


@pytest.fixture
def spark(sessions: Sessions) -> Any:
    """The session that all tests share, with the data source registered."""
    return sessions.running()


@pytest.fixture
def frame(spark: Any) -> Callable[..., Any]:
    """`frame(rows, "key string, …")`: the rows as JVM values, so that no Python makes them."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    def make(rows: Sequence[tuple[Any, ...]], schema: str) -> Any:
        kind = StructType.fromDDL(schema)
        # Before Spark 4.2 it is UTC, and can't be named.
        named = "timezone" in inspect.signature(to_arrow_schema).parameters
        arrow = to_arrow_schema(kind, **({"timezone": "UTC"} if named else {}))
        names = kind.fieldNames()
        members = [dict(zip(names, row, strict=True)) for row in rows]
        return spark.createDataFrame(pa.Table.from_pylist(members, schema=arrow), kind)

    return make


@pytest.fixture
def small_batches(spark: Any) -> Iterator[None]:
    """Python is handed one row at a time."""
    yield from _with_conf(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "1")


@pytest.fixture
def west(spark: Any) -> Iterator[None]:
    """The session is west of Greenwich, in a time zone by a name that Python doesn't know."""
    yield from _with_conf(spark, "spark.sql.session.timeZone", "GMT-8")


@pytest.fixture
def days_stay(spark: Any) -> Iterator[None]:
    """By default, a write with ``overwrite`` replaces only the folders in which it has rows."""
    yield from _with_conf(spark, "spark.sql.sources.partitionOverwriteMode", "dynamic")


def _with_conf(spark: Any, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    yield
    spark.conf.set(name, before)


@pytest.fixture(scope="session")
def shared_gateway(mongodb_uri: str) -> Iterator[RunningGateway]:
    """Started once; in a database of its own, which is dropped in the end."""
    from pymongo import MongoClient

    database = f"test_{uuid.uuid4().hex}"
    try:
        with RunningGateway(mongodb_uri, database) as running:
            yield running
    finally:
        with MongoClient[dict[str, Any]](mongodb_uri) as client:
            client.drop_database(database)


@pytest.fixture
def gateway(shared_gateway: RunningGateway) -> RunningGateway:
    """`gateway serve` with two workers. A test may kill workers, which are replaced; one that does
    more than that starts a gateway of its own."""
    assert shared_gateway.is_running(), shared_gateway.log()
    return shared_gateway


@pytest.fixture
def catalog() -> str:
    """A name that no other test has."""
    return f"c-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def routes(gateway: RunningGateway, catalog: str) -> Iterator[CatalogRoutes]:
    """The catalog, as the client library reads it."""
    with Transport(gateway.url) as transport:
        yield CatalogRoutes(transport, catalog)


@pytest.fixture
def written(shared_gateway: RunningGateway, catalog: str) -> Iterator[Written]:
    """A catalog of the shared gateway, to be written to beside Spark."""
    with Transport(shared_gateway.url) as transport:
        yield Written(shared_gateway.url, catalog, transport)


@pytest.fixture
def passing(shared_gateway: RunningGateway) -> Iterator[Passing]:
    """What Spark can be sent through, to do something while it reads."""
    with Passing(shared_gateway.port) as running:
        yield running
