"""No test has a limit of time of its own: all are those of `tests.patience`."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

TESTS = Path(__file__).parent
# By virtual time, and what is never run.
_APART = ("simulation", "typing", "patience.py")
# Calls whose first argument is how long to wait, and whose argument of a name is.
_FIRST = {"join", "wait", "settimeout", "awaitTermination", "result"}
_SECOND = {"eventually", "wait_for"}
# A shorter one is no limit of a wait that is to end well: it is what the test is about.
_SHORT = {"timeout": 3, "read_timeout": 3, "timeout_ms": 5000}


def fixed_limits(source: str) -> Iterator[int]:
    """The lines that wait for so and so many seconds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            limits = [(each.value, each.arg) for each in node.keywords if each.arg in _SHORT]
            limits += [(each, "timeout") for each in node.args[:1] if name in _FIRST]
            limits += [(each, "timeout") for each in node.args[1:2] if name in _SECOND]
            if name != "changes" and any(_is_fixed(*each) for each in limits):  # its long poll's
                yield node.lineno
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.timeout":
            yield node.lineno


def _is_fixed(limit: ast.expr, name: str) -> bool:
    value = limit.value if isinstance(limit, ast.Constant) else None
    return isinstance(value, int | float) and value >= _SHORT[name]


def test_tests_take_time_limits_from_patience() -> None:
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        if path.relative_to(TESTS).parts[0] not in _APART:
            lines = path.read_text().splitlines()
            places = fixed_limits("\n".join(lines))
            found += [f"{path}:{number}: {lines[number - 1].strip()}" for number in places]
    assert not found, "take WAIT_S of tests/patience.py:\n" + "\n".join(found)


def test_no_setting_in_tests_exceeds_its_bound_at_any_patience() -> None:
    code = (
        "from gateway.settings import resolve; from tests.patience import UNHURRIED\n"
        "resolve({name: str(value) for name, value in UNHURRIED.items()})"
    )
    environment = os.environ | {"GATEWAY_TEST_PATIENCE": "1000", "PYTHONPATH": str(TESTS.parent)}
    subprocess.run((sys.executable, "-c", code), env=environment, check=True)
    unbounded = re.compile(r"--[a-z-]+=\{(int\()?WAIT")
    found = [str(path) for path in TESTS.rglob("*.py") if unbounded.search(path.read_text())]
    assert not found, "take UNHURRIED of tests/patience.py"


@pytest.mark.parametrize(
    ("line", "is_fixed"),
    [
        ("thread.join(30)", True),
        ("thread.join(WAIT_S)", False),
        ("', '.join(names)", False),
        ("urlopen(url, timeout=20)", True),
        ("eventually(lambda: done, 10)", True),
        ("eventually(lambda: done)", False),
        ("follower.wait_for(2, 0.01)", False),
        ("connect(uri, name, timeout_ms=10_000)", True),
        ("pytest.mark.timeout(300)(test)", True),
    ],
)
def test_a_fixed_time_limit_is_found(line: str, is_fixed: bool) -> None:
    assert bool(list(fixed_limits(line))) is is_fixed


@pytest.fixture
def begun() -> float:
    """When gevent's loop turned for the last time: an instant ago."""
    gevent.sleep(0)
    loop = gevent.get_hub().loop
    loop.update_now()
    begun: float = loop.now()
    time.sleep(0.2)
    return begun


def test_a_gevent_timeout_starts_with_the_test(begun: float) -> None:
    assert gevent.get_hub().loop.now() >= begun + 0.1
