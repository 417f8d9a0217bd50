"""A test that breaks the shared Spark session fails alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.patience import RUN_S
from tests.spark.sessions import ROOT, Sessions


class TooLate(BaseException):
    """As a limit of time has it, it is raised wherever the test is."""


def works(spark: Any) -> None:
    rows = spark.range(3).selectExpr("concat('k', id) AS key", "id").collect()
    assert [(row.key, row.id) for row in rows] == [("k0", 0), ("k1", 1), ("k2", 2)]
    # The data source is registered: its own check refuses this.
    with pytest.raises(Exception, match="'url'"):
        spark.read.format("metadata").load()


def test_one_that_a_test_broke_is_made_anew(sessions: Sessions) -> None:
    """It is torn apart between a call of the JVM and its answer; its successor is stopped."""

    def tear(*_: object) -> None:
        raise TooLate

    torn = sessions.living()
    before = signal.signal(signal.SIGUSR1, tear)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(TooLate):
            torn.sparkContext._jvm.java.lang.Thread.sleep(3_600_000)
    finally:
        signal.signal(signal.SIGUSR1, before)
    sessions.throw_away()
    works(sessions.living())
    sessions.living().stop()
    works(sessions.living())


_PYTEST = [
    *(sys.executable, "-m", "pytest", "-v", "-c", "/dev/null"),
    *("-p", "tests.spark.conftest", "-p", "no:cacheprovider"),
]
_TESTS = """
import pytest

thrown = []

class Noted:
    def throw_away(self):
        thrown.append(self)

@pytest.fixture(scope="session")
def sessions():
    return Noted()

def test_that_passes(sessions):
    assert not thrown

def test_that_fails(sessions):
    assert thrown

def test_neighbour(sessions):
    assert thrown == [sessions]
"""


def test_a_test_that_fails_throws_its_session_away(tmp_path: Path) -> None:
    (tmp_path / "test_breaking.py").write_text(_TESTS)
    done = subprocess.run(
        [*_PYTEST, "--rootdir", tmp_path, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert re.findall(r"::test_(\w+) (\w+)", done.stdout)[:3] == [
        ("that_passes", "PASSED"),
        ("that_fails", "FAILED"),
        ("neighbour", "PASSED"),
    ], done.stdout
