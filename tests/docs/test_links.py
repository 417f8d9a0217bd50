"""Every relative link of the documentation leads somewhere, and every test that it names is one."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import DOCS, ROOT, Page, pages, table_rows
from tests.simulation.mutations import MUTATIONS

PAGES = pages()
WITH_LINKS = [*PAGES, Page(ROOT / "CHANGELOG.md")]
WITH_COMMANDS = [
    *PAGES,
    *(Page(ROOT / name / "README.md") for name in ("benchmarks", "tests/simulation")),
]
_test_name = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", WITH_LINKS, ids=[page.name for page in WITH_LINKS])
def test_relative_links_resolve(page: Page) -> None:
    broken = []
    for link in page.links():
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.path.parent / unquote(path)).resolve() if path else page.path
        is_there = target.exists() and target.is_relative_to(ROOT)
        if not is_there or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert not broken, f"{page.name}: {broken}"


def _anchors(target: Path) -> set[str]:
    return Page(target).anchors() if target.suffix == ".md" else set()


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_tests_that_are_named_exist(page: Page) -> None:
    for path, test in _test_name.findall(page.text):
        file = ROOT / path
        assert file.is_file(), f"{page.name}: {path}"
        assert not test or test in _functions(file), f"{page.name}: {path}::{test}"


def _functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=[page.name for page in WITH_COMMANDS])
def test_table_rows_and_commands_are_not_wrapped(page: Page) -> None:
    """What wraps lines as if they were text breaks tables and joins commands."""
    broken = [
        line
        for line in re.sub(r"(?ms)^```.*?^```", "", page.text).splitlines()
        if line.lstrip().startswith("|") != line.endswith("|")
    ]
    shell = [each.content for each in page.blocks() if each.language == "sh"]
    broken += re.findall(r".* # .*\b(?:make|python)(?: -m.*| tests/.*)?$", "\n".join(shell), re.M)
    assert not broken


def test_every_page_is_in_the_index() -> None:
    (index,) = (page for page in PAGES if page.name == "docs/README.md")
    linked = {(index.path.parent / link.partition("#")[0]).resolve() for link in index.links()}
    missing = [page.name for page in PAGES if page.path not in linked | {index.path}]
    assert not missing


def test_the_anchors_of_a_page_are_those_of_its_headings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# Two words, `code`\n\n## Twice\n\n## Twice\n\n<a id="own"></a>\n')
    assert Page(page).anchors() == {"two-words-code", "twice", "twice-1", "own"}


def test_every_rule_named_in_the_guarantees_has_a_mutation() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = {
        rule
        for rules in re.findall(r"\brules? ((?:`[a-z-]+`(?:, )?)+)", text)
        for rule in re.findall(r"`([a-z-]+)`", rules)
    }
    assert len(named) > 20
    assert named <= MUTATIONS.keys()


def test_every_guarantee_names_its_proof() -> None:
    rows = [row for row in table_rows(Page(DOCS / "guarantees.md").text) if row[0] != "promise"]
    assert len(rows) > 20
    for row in rows:
        assert _test_name.search(row[1]) or re.match(r"rules? `", row[1]), row[0]
