"""The Spark session of the tests, which is thrown away where a test may have broken it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.patience import WAIT_S
from tests.spark.processes import kill, local_pythons

ROOT = Path(__file__).resolve().parent.parent.parent
# Four attempts for each task: without the second number, a local session has one.
MASTER = "local[2,4]"
# Of a JVM that lives for minutes, its second compiler and its collector take two fifths, and at its
# start verifying the classes of Spark takes another. It collects all whenever these have filled the
# room that it began with.
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def spark_settings(folder: Path) -> dict[str, str]:
    """Of a small session whose files are all below ``folder``."""
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A test that is about more partitions says how many: two tasks run at a time.
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        # Frames have a few rows: to make and compile code for each query takes longer than they do.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        # Each plan is described on a page that nobody reads: briefly.
        "spark.sql.ui.explainMode": "simple",
        "spark.shuffle.compress": "false",
        "spark.broadcast.compress": "false",
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.parquet.compression.codec": "uncompressed",
        "spark.python.worker.reuse": "true",
    }


class Sessions:
    """One at a time, with the data source registered, in a JVM of its own.

    A limit of time is raised wherever the test is, so also between a call of the JVM and its
    answer. The next call would be given that answer, and so on for ever: such a session can neither
    be used nor be stopped by calls.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._session: Any = None

    def running(self) -> Any:
        """The session, made anew where it was thrown away, stopped, or lost its JVM."""
        if self._session is None or not self._answers():
            self.discard()
        if self._session is None or not self._session.sparkContext._jsc:  # it was stopped
            self._session = self._make()
        return self._session

    def discard(self) -> None:
        """End its JVM and all that this started, and let PySpark forget it. Calls nothing of it."""
        self._session = None
        if "pyspark" not in sys.modules:
            return
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        gateway, context = SparkContext._gateway, SparkContext._active_spark_context
        if gateway is not None:
            with suppress(psutil.NoSuchProcess):
                jvm = psutil.Process(gateway.proc.pid)
                kill([*jvm.children(recursive=True), jvm])
            local_pythons().kill_all()
            gateway.proc.wait(WAIT_S)
            with suppress(Exception):
                gateway.close()
        if context is not None and context._accumulatorServer is not None:
            with suppress(OSError):
                context._accumulatorServer.shutdown()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None

    def _answers(self) -> bool:
        """Whether its JVM does, which may hold a context that it stopped by itself."""
        with suppress(Exception):
            jvm, context = self._session._jvm, self._session.sparkContext._jsc
            return jvm.System.nanoTime() > 0 and not (context and context.sc().isStopped())
        return False

    def _make(self) -> Any:
        from pyspark.sql import SparkSession

        from patching.spark import register

        os.environ |= local_pythons().variables
        path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if str(ROOT) not in path:
            os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, path)])
        builder = SparkSession.builder.master(MASTER).appName("metadata-tests")
        for name, value in spark_settings(self._folder).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        register(session)
        return session
