"""One Spark session for all tests, and a real gateway over a real MongoDB for each of them."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from patching.client import CatalogRoutes, Transport
from tests.service import RunningGateway
from tests.spark.passing import Passing
from tests.spark.written import Written

ROOT = Path(__file__).resolve().parent.parent.parent
# Four attempts for each task: without the second number, a local session has one.
MASTER = "local[2,4]"


def spark_settings(folder: Path) -> dict[str, str]:
    """Of a small session whose files are all below ``folder``."""
    return {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.python.worker.reuse": "true",
    }


@pytest.fixture(scope="session")
def java() -> None:
    """Skips where Spark can't run; a machine that should be able to fails instead."""
    pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("SPARK TESTS SKIPPED: there is no Java on this machine")


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:  # noqa: ARG001
    """The session that all tests share, with the data source registered."""
    from pyspark.sql import SparkSession

    from patching.spark import register

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    builder = SparkSession.builder.master(MASTER).appName("metadata-tests")
    for name, value in spark_settings(tmp_path_factory.mktemp("spark")).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def frame(spark: Any) -> Callable[..., Any]:
    """`frame(rows, "key string, …")`: the rows as JVM values, so that no Python makes them."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    def make(rows: Sequence[tuple[Any, ...]], schema: str) -> Any:
        kind = StructType.fromDDL(schema)
        arrow = to_arrow_schema(kind, timezone="UTC")
        names = kind.fieldNames()
        members = [dict(zip(names, row, strict=True)) for row in rows]
        return spark.createDataFrame(pa.Table.from_pylist(members, schema=arrow), kind)

    return make


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
