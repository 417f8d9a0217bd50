"""A fresh machine needs one command, and the files that say so agree with each other."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings import SETTINGS

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
TARGETS = ("demo", "test", "test-fast", "lint", "bench", "serve", "clean")


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continued lines joined, comments left out."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text()).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line]


@pytest.mark.parametrize("target", TARGETS)
def test_make_knows_the_target_and_lists_it(target: str) -> None:
    dry = ("make", "--dry-run", "--directory", str(ROOT), target)
    assert subprocess.run(dry, capture_output=True, check=False).returncode == 0
    listed = subprocess.run(("make", "-C", str(ROOT), "help"), capture_output=True, text=True)
    assert re.search(rf"^{target} ", listed.stdout, re.MULTILINE)


@pytest.mark.parametrize("target", ["demo", "test", "bench", "serve"])
def test_what_needs_mongodb_installs_it_first(target: str) -> None:
    rule = re.search(rf"(?m)^{target}:([^#]*)", (ROOT / "Makefile").read_text())
    assert rule is not None
    installed = ["java", "chromium", "$(INSTALLED_SPARK)"] if target == "test" else ["$(INSTALLED)"]
    assert rule[1].split() == [*installed, "libraries"]


def test_ci_lints_and_tests_with_the_same_commands_as_people() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert [line.split(" <")[0] for line in lines if line.startswith("make")] == [
        "make lint",
        "make test",
    ]
    assert subprocess.run(("bash", "-n", str(script)), check=False).returncode == 0


def test_every_dependency_says_what_it_is_for() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    groups = PROJECT["project"]["optional-dependencies"]
    for requirement in (*PROJECT["project"]["dependencies"], *groups["dev"]):
        assert re.search(rf'"{re.escape(requirement)}", +# \S', text), requirement


def test_all_is_all_the_extras() -> None:
    groups = dict(PROJECT["project"]["optional-dependencies"])
    (everything,) = groups.pop("all")
    assert everything == f"metadata-gateway[{','.join(groups)}]"


def test_the_command_is_installed() -> None:
    (command,) = entry_points(group="console_scripts", name="gateway")
    assert command.value == "gateway.cli:main"
    assert callable(command.load())


def test_the_image_runs_the_gateway_as_an_unprivileged_user() -> None:
    steps = instructions()
    assert [value for name, value in steps if name == "FROM"][1:], "built in a stage of its own"
    assert dict(steps)["ENTRYPOINT"] == '["gateway", "serve"]'
    user = dict(steps)["USER"]
    assert user.isdecimal()
    assert user != "0"
    order = [name for name, _ in steps]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert "/livez" in dict(steps)["HEALTHCHECK"]
    assert "mongod" not in " ".join(value for _, value in steps)


def test_the_image_is_built_from_what_the_wheel_needs_alone() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert {"gateway", "patching", "pyproject.toml"} <= allowed
    assert not {"tests", ".git", ".venv", ".env"} & allowed


def test_compose_starts_a_replica_set_before_the_gateway() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    gateway, mongodb = services["gateway"], services["mongodb"]
    assert gateway["depends_on"] == {"mongodb": {"condition": "service_healthy"}}
    assert "--replSet" in mongodb["command"]
    assert "isWritablePrimary" in mongodb["healthcheck"]["test"][-1]
    assert set(gateway["environment"]) <= {row.variable for row in SETTINGS}
    graceful = next(row for row in SETTINGS if row.name == "graceful_timeout_s").make_default()
    assert int(gateway["stop_grace_period"].removesuffix("s")) > graceful


def test_container_files_give_variables_that_exist() -> None:
    known = {row.variable for row in SETTINGS}
    for name in ("Dockerfile", "compose.yaml"):
        for variable in re.findall(r"\bGATEWAY_[A-Z_]+\b", (ROOT / name).read_text()):
            assert variable in known, f"{name}: {variable}"


def test_hooks_use_the_tools_of_the_virtual_environment() -> None:
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in configuration["repos"]] == ["local"]
    hooks = {hook["id"]: hook for hook in configuration["repos"][0]["hooks"]}
    assert set(hooks) >= {"ruff-check", "ruff-format", "mypy"}
    for hook in hooks.values():
        assert hook["language"] == "system"
        assert ".venv/bin/" in hook["entry"]


def test_both_packages_carry_their_types() -> None:
    for package in ("gateway", "patching"):
        assert (ROOT / package / "py.typed").is_file()
