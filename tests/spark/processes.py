"""The processes that a Spark session runs Python in, so that tests can end them."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

_DAEMON = str(Path(__file__).with_name("daemon.py"))


def python_workers(spark: Any) -> list[psutil.Process]:
    """Those that run tasks: forks of the daemons below this session's own JVM."""
    found = []
    with suppress(psutil.NoSuchProcess):
        jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
        for each in jvm.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                parent = each.parent()
                if is_daemon(each) and parent is not None and is_daemon(parent):
                    found.append(each)
    return found


def is_daemon(process: psutil.Process) -> bool:
    """Also of its forks, which have its command line."""
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return _DAEMON in process.cmdline()
    return False


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
    """Leave a call of its JVM before the answer is there: the next call would be given it."""

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
