"""The documentation names exactly what the code's tables have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import click
import pytest

from gateway.access import Role
from gateway.cli.main import settings_markdown
from gateway.http import create_app
from gateway.http.context import Need
from gateway.limits import ServiceLimits
from gateway.metrics.definitions import markdown as metrics_markdown
from gateway.runtime import ThreadRuntime
from gateway.service import GatewayService
from patching.extended import EXTENDED_OPERATIONS
from patching.spark.cli import main as spark_command
from patching.spark.options import OPTIONS
from tests.docs.pages import DOCS, ROOT, Page, table_rows
from tests.memory_store import MemoryStore
from tests.openapi.checks import problem_statuses
from tests.openapi.document import load

Row: TypeAlias = tuple[str, ...]
Rows: TypeAlias = set[Row]


def rows(page: str) -> Iterator[Row]:
    for row in table_rows(Page(DOCS / page).text):
        yield tuple(cell.strip("`") for cell in row)


def whole(page: str, printed: str) -> tuple[Rows, Rows]:
    """A page that a command prints."""
    return {tuple(Page(DOCS / page).text.splitlines())}, {tuple(printed.splitlines())}


def routes() -> tuple[Rows, Rows]:
    """With the role that each needs. Other tests compare openapi.yaml with the routes."""
    app = create_app(GatewayService(MemoryStore(), ThreadRuntime(), ServiceLimits()))
    there = {
        (
            method,
            re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule),
            _shown(app.needs[rule.endpoint, method]),
        )
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD"}
    }
    documented = {
        (method, path, role)
        for path, methods, role, *_ in rows("http.md")
        if path.startswith("/")
        for method in re.findall(r"[A-Z]{3,}", methods)
    }
    return documented, there


def _shown(need: Role | Need) -> str:
    if isinstance(need, Role):
        return need.name.lower()
    return {
        Need.NOTHING: "–",
        Need.TOKEN: "token",
        Need.EVERYTHING: "admin of every catalog",
    }[need]


def codes() -> tuple[Rows, Rows]:
    documented = {row[:2] for row in rows("http.md") if row[1].isdecimal()}
    return documented, {(code, str(status)) for code, status in problem_statuses().items()}


def operations() -> tuple[Rows, Rows]:
    """Of the extended patch, besides those of RFC 6902."""
    text = Page(DOCS / "catalogs.md").text.partition("## The extended patch")[2]
    listed = " ".join(
        re.findall(r"(?s)- \*\*(?:Predicates|Changes[^*]*|Stamps)\*\*.*?(?=\n- )", text)
    )
    schema = load()["components"]["schemas"]["ExtendedOperation"]["description"]
    of_rfc_6902 = {"add", "remove", "replace", "move", "copy", "test"}
    others = {"apply", "create_parents", "if_exists", "once", "max_length"}  # members
    others |= {"value", "time", "revision", "author"}  # of a stamp
    documented = {
        (place, name)
        for place, words in (("page", listed), ("openapi.yaml", schema))
        for name in set(re.findall(r"`(\w+)`", words)) - others - of_rfc_6902
    }
    return documented, {
        (at, each) for at in ("page", "openapi.yaml") for each in EXTENDED_OPERATIONS
    }


def spark_options() -> tuple[Rows, Rows]:
    there = {
        (
            f"`{each.name}`",
            f"`{each.default}`" if each.default else "",
            ", ".join(each.uses),
            each.help,
        )
        for each in OPTIONS
    }
    names = {row[0] for row in there}
    shown = table_rows(Page(DOCS / "spark.md").text)
    return {tuple(row) for row in shown if row[0] in names and len(row) == 4}, there


def spark_commands() -> tuple[Rows, Rows]:
    text = Page(DOCS / "spark-sync.md").text
    assert isinstance(spark_command, click.Group)
    there = {
        (name, max(parameter.opts, key=len))
        for name, command in spark_command.commands.items()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
    }
    return {each for each in there if all(f"{word}" in text for word in each)}, there


TABLES: dict[str, Callable[[], tuple[Rows, Rows]]] = {
    "settings": lambda: whole("settings.md", settings_markdown()),
    "metrics": lambda: whole("metrics.md", metrics_markdown()),
    "routes": routes,
    "problem codes": codes,
    "operations of the extended patch": operations,
    "options of the Spark data source": spark_options,
    "options of patching-spark": spark_commands,
}


@pytest.mark.parametrize("table", TABLES)
def test_documented_equals_the_table(table: str) -> None:
    documented, there = TABLES[table]()
    assert documented == there


def test_the_figures_of_the_readme_are_measured_ones() -> None:
    measured = {*_ratios(DOCS / "figures.md")}
    shown = {*_ratios(ROOT / "README.md")}
    assert shown
    assert shown <= measured


def _ratios(path: Path) -> Iterator[str]:
    for row in table_rows(Page(path).text):
        yield from re.findall(r"\b\d+\.\d+x", " ".join(row[1:]))
