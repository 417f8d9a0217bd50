"""Imports of packages run one way, and ``patching`` knows nothing of the gateway."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Package -> which others of the gateway it may import; the order is that of the house, upwards.
MAY_IMPORT = {
    "model": "",
    "runtime": "",
    "conflict": "model",
    "errors": "conflict model",
    "store": "model",
    "access": "errors model store",
    "decide": "access conflict errors model",
    "meters": "decide errors",
    "state": "errors meters model runtime store",
    "commit": "decide errors meters model runtime state store",
    "read": "access commit errors model runtime state store",
    "feed": "access errors meters model read runtime state store",
    "retention": "decide errors meters model runtime state store",
    "uploads": "access decide errors model runtime state store",
    "catalogs": "decide errors model read runtime state",
    "service": "catalogs commit decide feed meters model read retention runtime state store"
    " uploads",
}
# Folder (or file) -> what nothing in it may import.
FORBIDDEN = {
    "patching": ["gateway", "pymongo", "flask"],
    "gateway/model.py": ["gateway", "pymongo", "flask", "bson"],
    "gateway/http": ["gateway.store", "pymongo", "bson"],
    **{
        f"gateway/{package}": ["gateway.store.mongodb", "flask", "pymongo", "bson"]
        for package in ("decide", "state", "commit", "read", "feed", "retention", "access")
    },
}
# Time, randomness, ids and waiting come through gateway.runtime.
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
    places = [p for p in MAY_IMPORT if p not in {"access", "store", "runtime"}]
    for place in places:
        for path in package(place):
            assert not [m for m in imports(path) if m.split(".")[0] in CLOCKS], path


def package(name: str) -> list[Path]:
    return files(f"gateway/{name}" if (ROOT / "gateway" / name).is_dir() else f"gateway/{name}.py")


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_a_package_imports_only_what_is_below_it(name: str) -> None:
    allowed = {name, *MAY_IMPORT[name].split()}
    assert not allowed & (
        MAY_IMPORT.keys() - set(list(MAY_IMPORT)[: [*MAY_IMPORT].index(name) + 1])
    )
    for path in package(name):
        for module in imports(path):
            parts = module.split(".")
            if parts[0] == "gateway" and len(parts) > 1:
                assert parts[1] in allowed, f"{path} imports {module}"
