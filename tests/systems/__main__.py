"""`python -m tests.systems`: run the rows' tests and print what became of each.

Arguments go to pytest; with `-k` only a part of the rows is judged. The exit code is 0 only where
every row has exactly one test and passed it, and the tests beside them passed too.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path

import pytest

from tests.systems.rows import ROWS, SYSTEMS, row_of

_WIDTH = 100
_INDENT = " " * 16


class Table:
    """The result of each row; a pytest plugin."""

    def __init__(self) -> None:
        self._tests: dict[str, list[str]] = {row: [] for row in ROWS}
        self._rules: dict[str, str] = {}
        self._results: dict[str, str] = {}
        self._selected: set[str] = set()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        row = row_of(item.name)
        if row is not None:
            self._tests.setdefault(row, []).append(item.name)
            rule = inspect.getdoc(getattr(item, "obj", None)) or ""
            self._rules[row] = " ".join(rule.split())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._selected = {row for item in session.items if (row := row_of(item.name))}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = row_of(report.nodeid.rpartition("::")[2])
        if row is None:
            return
        if report.failed or report.skipped:
            self._results[row] = "FAILED" if report.failed else "SKIPPED"
        elif report.when == "call":
            self._results.setdefault(row, "passed")

    def result_of(self, row: str) -> str:
        tests = self._tests[row]
        if len(tests) != 1:
            return "NO TEST" if not tests else f"{len(tests)} TESTS"
        if row not in self._selected:
            return "not run"
        return self._results.get(row, "NOT RUN")

    def is_sound(self) -> bool:
        """Whether nothing speaks against any row; one that was deselected doesn't."""
        return all(self.result_of(row) in ("passed", "not run") for row in ROWS)

    def lines(self) -> list[str]:
        shown = []
        for system, title in SYSTEMS.items():
            shown += ["", title]
            for row in (each for each in ROWS if each.startswith(system)):
                result = self.result_of(row)
                test = ", ".join(self._tests[row]) or "-"
                shown.append(f"  {row.upper():4} {result:8} {test}")
                shown += textwrap.wrap(
                    self._rules.get(row, ""),
                    _WIDTH,
                    initial_indent=_INDENT,
                    subsequent_indent=_INDENT,
                )
        results = [self.result_of(row) for row in ROWS]
        return [*shown, "", f"{results.count('passed')} of {len(ROWS)} rows pass"]


def main(arguments: list[str]) -> int:
    table = Table()
    place = str(Path(__file__).resolve().parent)
    code = pytest.main([place, "-q", *arguments], plugins=[table])
    print("\n".join(table.lines()))
    return int(code) or (0 if table.is_sound() else 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
