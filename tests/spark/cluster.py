"""A standalone cluster of Spark and a Connect server, processes of their own on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from tests.patience import WAIT_S
from tests.spark.processes import kill
from tests.spark.sessions import JAVA, spark_settings

_MASTER_AT = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_SERVER_AT = re.compile(r"Spark Connect server started at: .*:(\d+)")
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
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
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
    run = str(spark_home() / "bin" / "spark-class")
    env = {"SPARK_DAEMON_JAVA_OPTS": JAVA, "SPARK_DAEMON_MEMORY": "256m"}
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        master = (run, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", "0")
        ready = started(folder, "master", (*master, "--webui-port", "0"), _MASTER_AT, env)
        url = stack.enter_context(ready)[1]
        for host in ("127.0.0.2", "127.0.0.3"):
            worker = (run, f"{deploy}.worker.Worker", "--host", host, "--webui-port", "0")
            sized = (*worker, "--cores", "2", "--memory", "2g", "--work-dir", str(folder / host))
            stack.enter_context(started(folder, host, (*sized, url), _REGISTERED, env))
        yield url


def submit(master: str, folder: Path, options: Sequence[str]) -> list[str]:
    """`spark-submit` with these options, of an application that takes a core of each worker."""
    settings = spark_settings(folder) | {
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
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
