"""A fresh machine needs one command, and the files that say so agree with each other."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gateway.cli.main import COMMANDS
from gateway.settings import SETTINGS
from tests.commandline.canned import Canned
from tests.installation import BASE, ROOT, distributions, installation
from tests.patience import WAIT_S

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
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
def test_a_target_that_needs_mongodb_installs_it_first(target: str) -> None:
    rule = re.search(rf"(?m)^{target}:([^#]*)", (ROOT / "Makefile").read_text())
    assert rule is not None
    installed = ["java", "chromium", "$(INSTALLED_SPARK)"] if target == "test" else ["$(INSTALLED)"]
    page = ["$(PAGE)"] if target in ("serve", "test") else []
    assert rule[1].split() == [*installed, *page, "libraries"]


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


def test_every_dependency_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for requirement in (*BASE, *EXTRAS["server"], *EXTRAS["otel"], *EXTRAS["dev"]):
        assert re.search(rf'"{re.escape(requirement)}", +# \S', text), requirement


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported: neither functions nor what is for type checkers."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING":
            each = ast.Module(body=each.orelse, type_ignores=[])
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield each
            yield from at_import(each)


def everywhere(node: ast.AST) -> Iterator[ast.AST]:
    """Imports within functions, too."""
    for each in ast.iter_child_nodes(node):
        if not (isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"):
            yield each
            yield from everywhere(each)


def imported(nodes: Iterator[ast.AST]) -> set[str]:
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@cache
def base_names() -> set[str]:
    """The names under which the base installation's own requirements are imported."""
    base = {canonicalize_name(Requirement(each).name) for each in BASE}
    found = packages_distributions().items()
    return {name for name, owners in found if base & set(map(canonicalize_name, owners))}


def test_the_library_imports_only_the_base_installation() -> None:
    """Neither at once nor later; Spark itself is there where the data source is asked for."""
    used = set()
    modules = [ROOT / f"{name}.py" for name in PROJECT["tool"]["setuptools"]["py-modules"]]
    for path in (*modules, *sorted((ROOT / "patching").rglob("*.py"))):
        tops = {name.split(".")[0] for name in imported(everywhere(ast.parse(path.read_text())))}
        of_spark = path in modules or path.parent.name == "spark"
        # What `pyspark[sql]` brings along.
        spark = {"pyspark", "py4j", "pyarrow", "numpy"} if of_spark else set()
        of_asyncio = {"httpx2"} if path.stem == "aio" else set()
        foreign = tops - sys.stdlib_module_names - {"patching"} - spark - of_asyncio
        assert foreign <= base_names(), path
        used |= foreign
    assert base_names() <= {*used, "_re2"}, "what of the base installation is for the service?"


def test_the_commands_over_http_import_only_the_base_installation() -> None:
    to_look_at = ["gateway.cli.main", *(entry.module for entry in COMMANDS.values())]
    seen: set[str] = set()
    while to_look_at:
        name = to_look_at.pop()
        path = ROOT.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in seen or not path.exists():  # a name in a module is none itself
            continue
        seen.add(name)
        names = imported(at_import(ast.parse(path.read_text())))
        foreign = {each.split(".")[0] for each in names} - sys.stdlib_module_names
        assert foreign - {"gateway", "patching"} <= base_names(), path
        parents = name.split(".")[:-1]
        to_look_at += [".".join(parents[:n]) for n in range(1, len(parents) + 1)]
        to_look_at += [each for each in names if each.startswith("gateway")]
    assert "gateway.settings.table" in seen


def test_a_client_needs_the_base_installation_alone(tmp_path: Path) -> None:
    python = installation(tmp_path / "base", *BASE)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (python, *arguments), cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S
        )

    there = "from importlib.util import find_spec as f; print(f('flask'), f('gevent'), f('rich'))"
    assert run("-c", there).stdout == "None None None\n", "it has no more than that"
    assert run("-c", "import patching, patching.client").stderr == ""
    with Canned(lambda asked: (200, {"method": asked.method})) as canned:
        asked = ("-m", "gateway.cli", "get", "c", "k", "--url", canned.url)
        assert run(*asked).stdout == '{"method":"GET"}\n'
    refused = run("-m", "gateway.cli", "serve", "--mongodb-uri", "mongodb://db1")
    assert refused.returncode == 1
    assert "serve needs the extra 'server'" in refused.stderr


def test_the_service_needs_the_extra_server_alone(tmp_path: Path) -> None:
    python = installation(tmp_path / "server", *BASE, *EXTRAS["server"])
    files = [path.relative_to(ROOT) for path in sorted((ROOT / "gateway").rglob("*.py"))]
    of_agents = [Path("gateway/cli/agent_server.py"), Path("gateway/cli/agent_tools.py")]
    of_other_extras = [Path("gateway/tracing.py"), *of_agents]
    names = [".".join(path.with_suffix("").parts) for path in files if path not in of_other_extras]
    names = [name for name in names if not name.endswith("__")]
    names += ["gunicorn.workers.ggevent", "jsonpatch"]  # which are only imported when they are used
    done = subprocess.run(
        (python, "-c", f"import {', '.join(names)}"), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_an_installation_has_few_packages() -> None:
    """Base: 8 packages at the most, the project's own among them. The server has as many as it had
    before there were agents and Kafka, and none of theirs."""
    base, server = distributions(BASE), distributions([*BASE, *EXTRAS["server"]])
    assert len(base) + 1 <= 8, sorted(base)
    assert len(server) + 1 <= 32, sorted(server)
    extras = [*EXTRAS["mcp"], *EXTRAS["kafka"], *EXTRAS["asyncio"]]
    others = distributions(extras).keys() - server.keys() - base.keys()
    assert {"mcp", "confluent-kafka", "httpx2"} <= others


def test_an_executor_needs_the_base_installation_and_its_spark(tmp_path: Path) -> None:
    """Of all modules of the data source: who runs in which process isn't to be remembered."""
    pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")
    python = installation(tmp_path / "base", *BASE, *EXTRAS["spark"])
    found = [path.stem for path in (ROOT / "patching" / "spark").glob("*.py")]
    names = [f"patching.spark.{stem}" for stem in found if not stem.startswith("__")]
    done = subprocess.run(
        (python, "-c", f"import {', '.join(names)}"), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_extra_all_contains_every_other_extra() -> None:
    groups = dict(EXTRAS)
    (everything,) = groups.pop("all")
    assert everything == f"metadata-gateway[{','.join(groups)}]"


def test_the_command_is_installed() -> None:
    (command,) = entry_points(group="console_scripts", name="gateway")
    assert command.value == "gateway.cli.main:main"
    assert callable(command.load())


def test_the_image_runs_the_gateway_as_an_unprivileged_user() -> None:
    steps = instructions()
    assert [value for name, value in steps if name == "FROM"][1:], "built in a stage of its own"
    assert dict(steps)["ENTRYPOINT"] == '["gateway"]'  # so that it runs all its commands
    assert dict(steps)["CMD"] == '["serve"]'
    user = dict(steps)["USER"]
    assert user.isdecimal()
    assert user != "0"
    order = [name for name, _ in steps]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert "gateway.cli.liveness" in dict(steps)["HEALTHCHECK"]
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


def test_the_image_is_built_only_from_files_the_wheel_needs() -> None:
    context = build_context()
    top = {file.parts[0] for file in context}
    files = {"LICENSE", "README.md", "openapi.yaml", "pyproject.toml", "requirements.lock"}
    files |= {"setup.py"}  # makes the page at /docs
    modules = {f"{name}.py" for name in PROJECT["tool"]["setuptools"]["py-modules"]}
    assert top == {"docs", "gateway", "patching", *modules, *files}
    assert PROJECT["project"]["readme"] in files


def test_every_file_of_the_wheel_is_in_the_build_context() -> None:
    context = build_context()
    for file in context:
        if (ROOT / file).is_symlink():  # a link to what isn't there is left out of the wheel
            assert (ROOT / file).resolve().relative_to(ROOT) in context, file
    made = {Path("gateway/docs_page/index.html")}  # by the build
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        for pattern in patterns if package != "*" else ():
            folder = Path(*package.split("."))
            assert [file for file in context | made if file.match(f"{folder}/{pattern}")], pattern


def copied(steps: list[tuple[str, str]]) -> list[str]:
    """What is copied out of the build context, in order."""
    return [value.split()[0] for name, value in steps if name == "COPY" and "--from" not in value]


def test_the_image_installs_only_packages_of_the_lock_file() -> None:
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
    for requirement in map(Requirement, (*BASE, *EXTRAS["server"], *build)):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{name}: run `make lock`"
        assert requirement.specifier.contains(pins[name][0]), f"{name}: run `make lock`"
    assert [name for name, (_, hashes) in pins.items() if not hashes] == []


def test_the_lock_file_names_no_package_index() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()


@pytest.mark.parametrize("name", ["gevent", "gunicorn", "prometheus-client"])
def test_dependencies_whose_internals_are_used_have_an_upper_bound(name: str) -> None:
    found = [Requirement(each) for each in EXTRAS["server"]]
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


def test_container_files_set_existing_variables() -> None:
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
