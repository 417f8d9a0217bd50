"""Data flows one way: http -> commits -> store, and ``patching`` knows nothing of the gateway."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Folder (or file) -> what nothing in it may import.
FORBIDDEN = {
    "patching": ["gateway", "pymongo", "flask"],
    "gateway/model.py": ["gateway", "pymongo", "flask", "bson"],
    "gateway/commits": ["gateway.http", "gateway.store.mongodb", "flask", "pymongo", "bson"],
    "gateway/http": ["gateway.store", "pymongo", "bson"],
    "gateway/access": [
        "gateway.http",
        "gateway.commits",
        "gateway.store.mongodb",
        "flask",
        "pymongo",
    ],
    "gateway/store": ["gateway.http", "gateway.commits", "flask"],
}
# Time, randomness, ids and waiting come through gateway.commits.runtime.
CLOCKS = {"time", "random", "os", "uuid", "threading", "datetime", "secrets"}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files(place: str) -> list[Path]:
    path = ROOT / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


@pytest.mark.parametrize("place", FORBIDDEN)
def test_imports_point_one_way(place: str) -> None:
    found = files(place)
    assert found
    for path in found:
        for module in imports(path):
            for forbidden in FORBIDDEN[place]:
                assert not f"{module}.".startswith(f"{forbidden}."), f"{path} imports {module}"


def test_only_the_store_speaks_to_mongodb() -> None:
    for path in files("gateway"):
        if "gateway/store/" not in path.as_posix():
            assert not [m for m in imports(path) if m.split(".")[0] in {"pymongo", "bson"}], path


def test_the_commit_loop_is_handed_its_clock_and_its_luck() -> None:
    for path in files("gateway/commits"):
        if path.name != "runtime.py":
            assert not [m for m in imports(path) if m.split(".")[0] in CLOCKS], path
