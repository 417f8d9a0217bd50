"""A test that breaks the shared Spark session fails alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.patience import RUN_S
from tests.spark.processes import local_pythons
from tests.spark.sessions import ROOT, Sessions


def works(spark: Any) -> None:
    rows = spark.range(3).selectExpr("concat('k', id) AS key", "id").collect()
    assert [(row.key, row.id) for row in rows] == [("k0", 0), ("k1", 1), ("k2", 2)]
    # The data source is registered: its own check refuses this.
    with pytest.raises(Exception, match="'url'"):
        spark.read.format("metadata").load()


def test_a_stopped_session_is_replaced(sessions: Sessions) -> None:
    """That one that was torn apart is, `test_a_killed_driver_starts_again_where_it_was` shows."""
    sessions.running().stop()
    works(sessions.running())


_PYTEST = [
    *(sys.executable, "-m", "pytest", "-v", "-c", "/dev/null"),
    *("-p", "tests.spark.conftest", "-p", "no:cacheprovider"),
]
_TESTS = """
import pytest

thrown = []

class Noted:
    def discard(self):
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


def test_a_failed_test_discards_its_session(tmp_path: Path) -> None:
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


_TOLD = """
import json, os, sys

here = {"argv": sys.argv[1:], "folder": os.getcwd(), "path": sys.path[:2], "x": os.environ["X"]}
here |= {"given": sys.stdin.read(), "main": vars(sys.modules["__main__"]) is globals()}
print(json.dumps(here), flush=True)
sys.exit(3)
"""


def test_a_forked_python_runs_like_a_new_one(tmp_path: Path) -> None:
    """Its arguments, variables, folder, modules' path, files and exit code."""
    (tmp_path / "told.py").write_text(_TOLD)
    variables = {"X": "y", "PATH": os.environ["PATH"], "PYTHONPATH": "../elsewhere"}
    of_forks = local_pythons().variables
    told = []
    for python, more in ((sys.executable, {}), (of_forks["PYSPARK_PYTHON"], of_forks)):
        done = subprocess.run(
            (python, "-m", "told", "a", "b"), cwd=tmp_path, env={**variables, **more},
            input="given", capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
        assert done.returncode == 3, done.stderr
        told.append(json.loads(done.stdout))
    assert told[1] == told[0]


def test_a_forked_python_ends_with_its_parent(tmp_path: Path, eventually: Any) -> None:
    (tmp_path / "waits.py").write_text("import os, time; print(os.getpid()); time.sleep(3600)")
    of_forks = local_pythons().variables
    with subprocess.Popen(
        (of_forks["PYSPARK_PYTHON"], "-m", "waits"), cwd=tmp_path, env={**os.environ, **of_forks},
        stdout=subprocess.PIPE, text=True,
    ) as asking:  # fmt: skip
        assert asking.stdout is not None
        fork = psutil.Process(int(asking.stdout.readline()))
        asking.kill()
    eventually(lambda: not fork.is_running())
