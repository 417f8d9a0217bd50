"""Imports of packages run one way, and ``patching`` knows nothing of the gateway."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.http.context import KEY

ROOT = Path(__file__).parent.parent

# Package -> which others it imports, in order, upwards. It is a package or a module of the
# gateway or of its ``http``, or one of the three of ``patching``.
MAY_IMPORT = {
    "patching": "",
    "settings": "",
    "limits": "patching settings",
    "model": "patching",
    "runtime": "",
    "outgoing": "",
    "conflict": "model patching",
    "errors": "conflict model patching",
    "cpu": "errors",
    "access": "errors model patching",
    "memory": "access cpu errors limits runtime",
    "store": "cpu errors memory model patching",
    "decide": "access conflict cpu errors limits model patching",
    "meters": "decide errors memory",
    "state": "cpu errors limits memory meters model patching runtime store",
    "commit": "conflict cpu decide errors limits memory meters model patching runtime state store",
    "read": "access cpu decide errors limits memory meters model patching runtime state store",
    "feed": "access cpu errors limits memory meters model read runtime state store",
    "retention": "decide errors limits meters model patching runtime state store",
    "uploads": "access decide errors limits model patching runtime store",
    "catalogs": "conflict cpu decide errors limits model read runtime state store",
    "relay": "cpu errors feed limits memory meters model outgoing runtime state store",
    "service": "catalogs commit decide feed limits memory meters model read relay retention runtime"
    " state"
    " store uploads",
    "tokens": "access cpu errors model outgoing store",
    "client": "patching",
    "spark": "client patching",
    "logs": "",
    "metrics": "cpu errors meters store",
    "context": "access decide memory",
    "wire": "access conflict context cpu decide errors feed limits memory model patching read",
    "door": "access context decide errors limits logs memory wire",
    "write": "access context cpu decide door errors limits model patching read service wire",
    "routes": "access context cpu decide door errors feed limits logs memory model"
    " patching read relay service uploads wire write",
    "app": "access context cpu door errors limits memory routes service wire",
    "tracing": "context meters",
    "observability": "context cpu door meters metrics runtime service store wire",
    "server": "access cpu limits logs memory metrics settings store",
    "assembly": "access app commit door limits metrics observability runtime server service wire"
    " settings store tokens",
    "cli": "access client errors limits model patching retention runtime server settings state"
    " store tokens",
}
# What is below HTTP.
INNER = list(MAY_IMPORT)[: list(MAY_IMPORT).index("service") + 1]
OF_HTTP = ("context", "wire", "door", "write", "routes")  # and app
# Folder (or file) -> what nothing in it may import.
FORBIDDEN = {
    "patching": ["gateway", "pymongo", "flask"],
    "gateway/model.py": ["gateway", "pymongo", "flask", "bson"],
    "gateway/http": ["gateway.store", "pymongo", "bson"],
    **{
        f"gateway/{package}": ["gateway.store.mongodb", "flask", "pymongo", "bson"]
        for package in (
            "decide",
            "state",
            "commit",
            "read",
            "feed",
            "relay",
            "retention",
            "access",
            "tokens",
        )
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


def test_only_the_store_imports_mongodb_packages() -> None:
    for path in files("gateway"):
        if "gateway/store/" not in path.as_posix():
            assert not [m for m in imports(path) if m.split(".")[0] in {"pymongo", "bson"}], path


def test_the_commit_loop_gets_clock_and_randomness_passed_in() -> None:
    places = [name for name in INNER if name not in {"access", "settings", "store", "runtime"}]
    for place in places:
        for path in package(place):
            used = {module.split(".")[0] for module in imports(path)} & CLOCKS
            if path == ROOT / "patching/values.py":
                assert ".now(" not in path.read_text()
                used.discard("datetime")  # it writes moments that it is given
            if path == ROOT / "patching/command_line.py":
                used.discard("os")  # it opens the streams of commands, and no loop knows of it
            assert not used, path


def test_the_server_uses_its_app_through_the_protocol_only() -> None:
    """Not by names in strings, which no type checker follows."""
    tree = ast.parse((ROOT / "gateway/server/exchange.py").read_text())
    (protocol,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name == "ServedApp"
    ]
    names = {each.name for each in protocol.body if isinstance(each, ast.FunctionDef)}
    names |= {"extensions", "holder", "memory"}
    for path in files("gateway/server"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in {*names, KEY}, f"{path}:{node.lineno}: {node.value}"


def package(name: str) -> list[Path]:
    if name == "patching":
        return sorted((ROOT / "patching").glob("*.py"))
    if name in ("client", "spark"):
        return files(f"patching/{name}")
    if name == "app":
        return [*files("gateway/http/app.py"), *files("gateway/http/__init__.py")]
    if name in OF_HTTP:
        return files(f"gateway/http/{name}") or files(f"gateway/http/{name}.py")
    return files(f"gateway/{name}" if (ROOT / "gateway" / name).is_dir() else f"gateway/{name}.py")


def package_of(module: str) -> str | None:
    """The package of a module; None: it is neither the gateway's nor of ``patching``."""
    top, name, below = f"{module}..".split(".")[:3]
    if (top, name) == ("gateway", "http"):
        return below if below in OF_HTTP else "app"
    if top == "patching":
        return name if name in ("client", "spark") else top
    return name if top == "gateway" and name else None


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_a_package_imports_exactly_what_its_row_says(name: str) -> None:
    imported = {package_of(module) for path in package(name) for module in imports(path)}
    found = imported - {name, None}
    assert found == set(MAY_IMPORT[name].split())
    above = list(MAY_IMPORT)[list(MAY_IMPORT).index(name) :]
    assert not found & set(above)


def test_every_package_has_a_row() -> None:
    modules = {*files("gateway"), *files("patching")}
    of_rows = {path for name in MAY_IMPORT for path in package(name)}
    without = {path.relative_to(ROOT).as_posix() for path in modules - of_rows}
    assert without == {"gateway/__init__.py", "gateway/console/__init__.py"}


def below(name: str) -> set[str]:
    """All packages that ``name`` imports, or that these import."""
    direct = MAY_IMPORT[name].split()
    return {*direct, *(each for other in direct for each in below(other))}


def test_the_picture_shows_the_imports() -> None:
    """An arrow of docs/architecture.md is an import that follows from no other two arrows."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = text.partition("```mermaid")[2].partition("```")[0]
    shown = re.findall(r"^ *(\w+) --> (.+)$", picture, re.MULTILINE)
    drawn = {(name, other) for name, others in shown for other in others.split(" & ")}
    needed = {
        (name, other)
        for name, others in MAY_IMPORT.items()
        for other in others.split()
        if not any(other in below(third) for third in others.split())
    }
    assert drawn == needed
    named = re.findall(r"^\| `(\w+)`", text.partition("## Packages")[2], re.MULTILINE)
    assert sorted(named) == sorted(MAY_IMPORT)


@pytest.mark.parametrize("place", ["gateway", "patching"])
def test_functions_are_short(place: str) -> None:
    for path in files(place):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 50, f"{path}: {node.name}"
