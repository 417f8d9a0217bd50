"""Tasks that run twice at a time, and an executor that is lost: each row is applied once."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from patching.client import CatalogRoutes, Transport
from tests.service import RunningGateway
from tests.spark.conftest import ROOT
from tests.spark.processes import kill

_ROWS = 150


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", ["speculation", "executor"])
def test_each_row_is_applied_once(
    java: None,  # noqa: ARG001
    gateway: RunningGateway,
    catalog: str,
    routes: CatalogRoutes,
    tmp_path: Path,
    case: str,
) -> None:
    with Transport(gateway.url) as transport:
        for number in range(3):
            path = f"/v1/catalogs/{catalog}/documents/k{number}"
            transport.request("PUT", path, json={"log": []})
    ran = tmp_path / "ran"
    ran.mkdir()
    run(case, gateway.url, catalog, str(ran))
    documents = routes.export().documents
    for number in range(3):
        numbers = list(range(number * _ROWS, (number + 1) * _ROWS))
        assert documents[f"k{number}"] == {"log": numbers}
    attempts = {path.name for path in ran.iterdir() if path.is_file()}
    assert len(attempts) > 3, "something was to run twice"
    if case == "speculation":
        assert {"0-0", "0-1"} <= attempts


def run(*arguments: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_GATEWAY_PORT"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        (sys.executable, "-m", "tests.spark.cluster_script", *arguments),
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started = psutil.Process(process.pid)
    try:
        said, _ = process.communicate(timeout=240)
    finally:
        with suppress(psutil.NoSuchProcess):
            kill([*started.children(recursive=True), started])
    assert process.returncode == 0, said[-5000:]
