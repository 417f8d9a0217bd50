"""A test that breaks the shared Spark session fails alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.patience import RUN_S
from tests.spark.sessions import ROOT

_PYTEST = [
    *(sys.executable, "-m", "pytest", "-v", "-c", "/dev/null"),
    *("-p", "tests.spark.conftest", "-p", "no:cacheprovider"),
]
_TESTS = """
import pytest

def works(spark):
    rows = spark.range(3).selectExpr("concat('k', id) AS key", "id").collect()
    assert [(row.key, row.id) for row in rows] == [("k0", 0), ("k1", 1), ("k2", 2)]
    # The data source is registered: its own check refuses this.
    with pytest.raises(Exception, match="'url'"):
        spark.read.format("metadata").load()

@pytest.mark.timeout(1, func_only=True)
def test_torn_apart_within_a_call(spark):
    spark.sparkContext._jvm.java.lang.Thread.sleep(3_600_000)

def test_neighbour_of_the_torn(spark):
    works(spark)
    spark.stop()

def test_neighbour_of_the_stopped(spark, frame):
    works(spark)
    assert frame([("a", 1)], "key string, n int").count() == 1
"""


def test_a_session_that_a_test_broke_is_made_anew(java: None, tmp_path: Path) -> None:  # noqa: ARG001
    """One times out between a call of the JVM and its answer, one stops the session."""
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
        ("torn_apart_within_a_call", "FAILED"),
        ("neighbour_of_the_torn", "PASSED"),
        ("neighbour_of_the_stopped", "PASSED"),
    ], done.stdout
    assert "Timeout (>1.0s)" in done.stdout
