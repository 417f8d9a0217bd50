"""Whatever a person can set, call, run into, measure or type is documented, by its name."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator

import click
from flask import Flask

from gateway.access import Role
from gateway.cli.main import main as gateway_command
from gateway.http import create_app
from gateway.http.door.authorization import Need, need_of
from gateway.limits import ServiceLimits
from gateway.runtime import ThreadRuntime
from gateway.service import Gateway
from gateway.settings import SETTINGS
from gateway.store.memory import MemoryStore
from patching.spark.cli import main as spark_command
from tests.docs.pages import DOCS, Page, pages, table_rows
from tests.openapi.checks import problem_statuses

_HTTP = Page(DOCS / "http.md")
_SETTINGS = {row.flag for row in SETTINGS} | {
    f"--no-{row.flag.removeprefix('--')}" for row in SETTINGS
}
_OF_EVERY_COMMAND = {"--help", "-h", "--version"}


def _cells(page: Page) -> Iterator[tuple[str, ...]]:
    for row in table_rows(page.text):
        yield tuple(cell.strip("`") for cell in row)


def test_every_setting_is_documented() -> None:
    documented = {cells[:2] for cells in _cells(Page(DOCS / "settings.md"))}
    assert {(row.flag, row.variable) for row in SETTINGS} <= documented


def test_every_route_is_documented_with_the_role_that_it_needs() -> None:
    """In the table of docs/http.md. That openapi.yaml has them, other tests see to."""
    app: Flask = create_app(Gateway(MemoryStore(), ThreadRuntime(), ServiceLimits()))
    routes = {
        (method, re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), _shown(rule.endpoint, method))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD"}
    }
    documented = {
        (method, path, role)
        for path, methods, role, *_ in _cells(_HTTP)
        if path.startswith("/")
        for method in re.findall(r"[A-Z]{3,}", methods)
    }
    assert documented == routes


def _shown(endpoint: str, method: str) -> str:
    need = need_of(endpoint, method)
    if isinstance(need, Role):
        return need.name.lower()
    return {Need.NOTHING: "–", Need.TOKEN: "token", None: ""}[need]


def test_every_problem_code_is_documented_with_its_status() -> None:
    documented = {(cells[0], cells[1]) for cells in _cells(_HTTP) if cells[1].isdecimal()}
    assert documented == {(code, str(status)) for code, status in problem_statuses().items()}


def test_every_metric_is_documented() -> None:
    metrics = importlib.import_module("gateway.metrics.table").METRICS
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    missing = [each.name for each in metrics if f"`{each.name}`" not in text]
    assert not missing


def test_every_command_and_option_is_documented() -> None:
    """On one page: the command by its whole name, and each option that is no setting."""
    texts = [page.text for page in pages()]
    missing = []
    for name, command in (*_commands("gateway", gateway_command), *_spark_commands()):
        about = [text for text in texts if re.search(rf"{re.escape(name)}\b", text)]
        if not about:
            missing.append(name)
            continue
        for parameter in command.params:
            if not isinstance(parameter, click.Option) or parameter.hidden:
                continue
            flags = {*parameter.opts, *parameter.secondary_opts}
            if flags & (_SETTINGS | _OF_EVERY_COMMAND):
                continue
            long = max(parameter.opts, key=len)
            if not any(re.search(rf"{re.escape(long)}(?![\w-])", text) for text in about):
                missing.append(f"{name} {long}")
    assert not missing


def _spark_commands() -> Iterator[tuple[str, click.Command]]:
    return _commands("patching-spark", spark_command)


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Those below groups, by all words of their name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None, each
        if not found.hidden:
            yield from _commands(f"{name} {each}", found)
