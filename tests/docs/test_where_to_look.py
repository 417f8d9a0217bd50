"""Where to look, in docs/architecture.md: each row names symbols that its files define."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Page, table_rows

_FIRST_HEADING = "## Where to look"
_NAMED = re.compile(r"((?:`[\w.]+`(?:, | and )?)+) in \[([^]]+)\]\(([^)]+)\)")


def _rows() -> dict[str, str]:
    text = Page(DOCS / "architecture.md").text
    rows = table_rows(text.partition(_FIRST_HEADING)[2])
    return {row[0]: row[1] for row in rows if row[0] != "for"}


_ROWS = _rows()


@pytest.mark.parametrize("what", _ROWS)
def test_the_files_of_a_row_define_the_symbols_it_names(what: str) -> None:
    named = _NAMED.findall(_ROWS[what])
    assert len(named) == _ROWS[what].count("]("), "a file without a symbol"
    for symbols, shown, link in named:
        path = (DOCS / link).resolve()
        assert path.as_posix().endswith(shown)
        missing = set(re.findall(r"`([\w.]+)`", symbols)) - set(_defined(path))
        assert not missing, f"{shown} doesn't define them"


def test_the_table_has_rows() -> None:
    assert len(_ROWS) > 40


def _defined(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".js":
        yield from re.findall(r"^(?:export )?(?:async )?(?:function|class|const) (\w+)", text, re.M)
    else:
        yield from _names(ast.parse(text).body, "")


def _names(body: list[ast.stmt], within: str) -> Iterator[str]:
    for each in body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield within + each.name
        if isinstance(each, ast.ClassDef):
            yield from _names(each.body, f"{each.name}.")
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield within + each.target.id
        if isinstance(each, ast.Assign):
            yield from (within + to.id for to in each.targets if isinstance(to, ast.Name))
