"""A standalone cluster of Spark whose one application is a server of Spark Connect."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.patience import WAIT_S
from tests.spark.processes import kill
from tests.spark.sessions import spark_settings

_SERVER_AT = re.compile(r"the server of Spark Connect is at (sc://[\d.]+:\d+)")
_STANDALONE = Path(__file__).with_name("standalone.py")


@contextmanager
def connect_server(
    folder: Path, options: Sequence[str], env: Mapping[str, str], application: Sequence[str]
) -> Iterator[str]:
    """The `sc://` address of a server that was submitted with these options and variables in this
    folder, once its application has run; ended with its cluster of two workers."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {"PATH": os.environ["PATH"], "SPARK_HOME": str(home), **env}
    environment |= {k: os.environ[k] for k in ("JAVA_HOME",) if k in os.environ}
    command = [str(home / "bin" / "spark-submit"), *_settings(folder), *options]
    log = folder / "connect.log"
    with log.open("wb") as output:
        process = psutil.Popen(
            [*command, str(_STANDALONE), str(folder), *application],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + WAIT_S
        while not (match := _SERVER_AT.search(text := log.read_text(errors="replace"))):
            assert process.poll() is None, f"it has ended: {text[-3000:]}"
            assert time.monotonic() < deadline, f"it says nothing: {text[-3000:]}"
            time.sleep(0.1)
        yield match[1]
    finally:
        with suppress(psutil.NoSuchProcess):
            kill([*process.children(recursive=True), process])
        process.wait()


def _settings(folder: Path) -> list[str]:
    """Of an application that takes a core of each worker."""
    settings = spark_settings(folder) | {
        "spark.master": "spark://127.0.0.1:0",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.cores.max": "2",
        "spark.default.parallelism": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        # A task that takes much longer than the others is run a second time, on the other worker.
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "2s",
    }
    return [f"--conf={name}={value}" for name, value in settings.items()]
