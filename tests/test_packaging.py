"""A fresh machine needs one command, and the files that say so agree with each other."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

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
    assert command.value == "gateway.cli.main:main"
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


def build_context() -> set[Path]:
    """The files that the build of the image sees: of those in git, what .dockerignore lets in."""
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, check=True)
    files = [Path(name) for name in listed.stdout.decode().split("\0") if name]
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    # The last rule that names a file, or a folder above it, decides.
    return {file for file in files if not _is_left_out(file, rules)}


def _is_left_out(file: Path, rules: list[str]) -> bool:
    left_out = False
    for rule in rules:
        pattern = rule.removeprefix("!")
        folders = (file, *file.parents)
        if any(fnmatch(str(each), pattern) for each in folders if each != Path(".")):
            left_out = not rule.startswith("!")
    return left_out


def test_the_image_is_built_from_what_the_wheel_needs_alone() -> None:
    context = build_context()
    top = {file.parts[0] for file in context}
    files = {"LICENSE", "README.md", "openapi.yaml", "pyproject.toml", "requirements.lock"}
    assert top == {"gateway", "patching", *files}
    assert PROJECT["project"]["readme"] in files


def test_what_the_wheel_carries_is_in_the_build_context() -> None:
    context = build_context()
    for file in context:
        if (ROOT / file).is_symlink():  # a link to what isn't there is left out of the wheel
            assert (ROOT / file).resolve().relative_to(ROOT) in context, file
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        for pattern in patterns if package != "*" else ():
            folder = Path(*package.split("."))
            assert [file for file in context if file.match(f"{folder}/{pattern}")], pattern


def copied(steps: list[tuple[str, str]]) -> list[str]:
    """What is copied out of the build context, in order."""
    return [value.split()[0] for name, value in steps if name == "COPY" and "--from" not in value]


def test_the_image_installs_what_the_lock_file_names_and_nothing_else() -> None:
    steps = instructions()
    assert copied(steps) == ["requirements.lock", "."]
    installs = [value for name, value in steps if name == "RUN" and "pip install" in value]
    assert len(installs) == 2
    assert "--require-hashes --requirement requirements.lock" in " ".join(installs[0].split())
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(installs[1].split())
    # Both stages start from one base, which who builds can name by its digest.
    assert {value.split()[0] for name, value in steps if name == "FROM"} == {"${PYTHON_IMAGE}"}


def locked() -> dict[str, tuple[Version, int]]:
    """By name: the version that the lock file pins, and how many hashes it has."""
    text = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"(?m)^(\S+)==(\S+)[^\\\n]*((?:\\\n +--hash=sha256:[0-9a-f]{64} ?)*)$", text)
    assert len(pins) == len(re.findall(r"(?m)^\w", text)), "every requirement is pinned"
    return {
        canonicalize_name(name): (Version(version), hashes.count("--hash"))
        for name, version, hashes in pins
    }


def test_the_lock_file_has_every_dependency_at_a_version_that_is_allowed() -> None:
    pins = locked()
    build = PROJECT["build-system"]["requires"]
    for requirement in map(Requirement, (*PROJECT["project"]["dependencies"], *build)):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{name}: run `make lock`"
        assert requirement.specifier.contains(pins[name][0]), f"{name}: run `make lock`"
    assert [name for name, (_, hashes) in pins.items() if not hashes] == []


def test_the_lock_file_names_no_place_to_fetch_from() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()


@pytest.mark.parametrize("name", ["gevent", "gunicorn", "prometheus-client"])
def test_what_is_built_on_internals_has_an_upper_bound(name: str) -> None:
    found = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
    (requirement,) = [each for each in found if each.name == name]
    assert {each.operator for each in requirement.specifier} == {">=", "<"}


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
