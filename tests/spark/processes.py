"""The processes that a Spark session runs Python in, so that tests can end them."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from tests.spark import pythons
from tests.spark.pythons import ADDRESS

_ROOT = Path(__file__).resolve().parents[2]


class Pythons:
    """What forks the processes that Spark starts as Python: see `pythons`."""

    def __init__(self, python: str, path: str = "") -> None:
        self._folder = TemporaryDirectory(prefix="pythons-")
        address = f"{self._folder.name}/asked"
        # The settings of Spark. The driver's Python has the data sources that nobody registered.
        asks = str(Path(__file__).with_name("python"))
        self.variables = {"PYSPARK_PYTHON": asks, "PYSPARK_DRIVER_PYTHON": asks}
        self.variables |= {"TESTS_SPARK_PYTHON": python, ADDRESS: address}
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONHASHSEED": "0",  # as spark-submit has it
            "PYTHONUNBUFFERED": "YES",  # as Spark has it
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(128)
            self._process = psutil.Popen(
                (python, "-P", pythons.__file__, "--forks", str(listening.fileno())),
                stdin=subprocess.PIPE,
                env=environment,
                pass_fds=[listening.fileno()],
                start_new_session=True,
            )

    def workers(self) -> list[psutil.Process]:
        """Those that run tasks or plan them: forks of the daemons."""
        found = []
        for daemon in self._process.children():
            with suppress(psutil.NoSuchProcess):
                found += daemon.children()
        return found

    def kill_all(self) -> None:
        """This session and a new one can be used."""
        kill(self._process.children(recursive=True))

    def close(self) -> None:
        self.kill_all()
        self._process.communicate()  # it ends with its input
        self._folder.cleanup()


@cache
def local_pythons() -> Pythons:
    """For the sessions of this process, one after the other."""
    made = Pythons(sys.executable, str(_ROOT))
    atexit.register(made.close)
    return made


def kill(processes: list[psutil.Process]) -> int:
    """By SIGKILL; how many there still were."""
    killed = 0
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.kill()
            killed += 1
    return killed


class TooLate(BaseException):
    """As a limit of time has it, it is raised wherever the test is."""


def tear(spark: Any) -> None:
    """Leave a call of its JVM before its answer comes, so that the next call would get that
    answer."""

    def leave(*_: object) -> None:
        raise TooLate

    before = signal.signal(signal.SIGUSR1, leave)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        spark.sparkContext._jvm.java.lang.Thread.sleep(3_600_000)
    except TooLate:
        pass
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
