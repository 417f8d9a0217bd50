"""A standalone cluster of Spark and a Connect server, processes of their own on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.patience import WAIT_S
from tests.spark.processes import kill
from tests.spark.sessions import JAVA, spark_settings

_MASTER_AT = re.compile(r"the master is at (spark://[\d.]+:\d+)")
_SERVER_AT = re.compile(r"Spark Connect server started at: .*:(\d+)")
_STANDALONE = Path(__file__).with_name("standalone.py")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def started(
    folder: Path, name: str, command: Sequence[str], said: re.Pattern[str], env: Mapping[str, str]
) -> Iterator[re.Match[str]]:
    """A process of Spark's, when its log says so; ended with all that it started."""
    log = folder / f"{name}.log"
    environment = {"PATH": os.environ["PATH"], "SPARK_HOME": str(spark_home()), **env}
    environment |= {k: os.environ[k] for k in ("JAVA_HOME",) if k in os.environ}
    with log.open("wb") as output:
        process = psutil.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + WAIT_S
        while not (match := said.search(text := log.read_text(errors="replace"))):
            assert process.poll() is None, f"{name} has ended: {text[-3000:]}"
            assert time.monotonic() < deadline, f"{name} says nothing: {text[-3000:]}"
            time.sleep(0.1)
        yield match
    finally:
        kill([*process.children(recursive=True), process])
        process.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers, which take themselves for two machines; the master's URL."""
    command = (sys.executable, str(_STANDALONE), str(folder), JAVA)
    with started(folder, "master", command, _MASTER_AT, {}) as ready:
        yield ready[1]


def submit(master: str, folder: Path, options: Sequence[str]) -> list[str]:
    """`spark-submit` with these options, of an application that takes a core of each worker."""
    settings = spark_settings(folder) | {
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        # A task that takes much longer than the others is run a second time, on the other worker.
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "2s",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    given = [f"--conf={name}={value}" for name, value in settings.items()]
    return [str(spark_home() / "bin" / "spark-submit"), "--master", master, *given, *options]


@contextmanager
def connect_server(
    master: str, folder: Path, options: Sequence[str], env: Mapping[str, str]
) -> Iterator[str]:
    """A server of Spark Connect whose executors are the cluster's; its `sc://` address."""
    command = [*submit(master, folder, options), "--class", SERVER]
    with started(folder, "connect", command, _SERVER_AT, env) as match:
        yield f"sc://127.0.0.1:{match[1]}"
