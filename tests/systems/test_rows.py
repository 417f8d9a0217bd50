"""Every row of the five systems has exactly one test that decides it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from tests.systems.rows import ROWS, row_of


def _tests() -> list[ast.FunctionDef]:
    modules = sorted(Path(__file__).parent.glob("test_*.py"))
    trees = [ast.parse(module.read_text(encoding="utf-8")) for module in modules]
    return [each for tree in trees for each in tree.body if isinstance(each, ast.FunctionDef)]


def test_every_row_has_exactly_one_test() -> None:
    named = Counter(row for each in _tests() if (row := row_of(each.name)))
    assert named == Counter(ROWS)


def test_the_test_of_every_row_has_a_docstring() -> None:
    untold = [each.name for each in _tests() if row_of(each.name) and not ast.get_docstring(each)]
    assert untold == []
