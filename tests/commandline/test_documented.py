"""docs/cli.md has every command and every option of it, and none that isn't there."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from gateway.cli.command import ClientCommand
from gateway.cli.main import main
from gateway.settings import SETTINGS

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
SECTIONS = {
    part.split("\n", 1)[0]: part.split("\n", 1)[1]
    for part in DOCS.read_text(encoding="utf-8").split("\n## ")[1:]
}
OF_ALL = {"--help"}
OF_SETTINGS = {row.flag for row in SETTINGS} | {f"--no-{row.flag[2:]}" for row in SETTINGS}


def commands() -> dict[str, click.Command]:
    context = click.Context(main, info_name="gateway")
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def options(command: click.Command) -> set[str]:
    """Long ones, also those of the commands in a group."""
    if isinstance(command, click.Group):
        return set().union(*map(options, command.commands.values()))
    return {
        text
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for text in (*parameter.opts, *parameter.secondary_opts)
        if text.startswith("--")
    }


def is_over_http(command: click.Command) -> bool:
    if isinstance(command, click.Group):
        return any(isinstance(each, ClientCommand) for each in command.commands.values())
    return isinstance(command, ClientCommand)


def common() -> set[str]:
    return options(ClientCommand("any"))


def documented(section: str) -> set[str]:
    """Options in tables and in the text; not in examples, which use those of other commands."""
    text = re.sub(r"(?s)```.*?```", "", section)
    return set(re.findall(r"`[^`]*?(--[a-z][a-z-]*)", text)) | set(
        re.findall(r"(?<=[` ])(--[a-z][a-z-]*)(?=[`:])", text)
    )


def test_every_command_has_its_section_and_every_section_its_command() -> None:
    named = {title.removeprefix("gateway ") for title in SECTIONS if title.startswith("gateway ")}
    assert named == set(commands())


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_is_documented_and_every_documented_one_exists(name: str) -> None:
    command = commands()[name]
    section = documented(SECTIONS[f"gateway {name}"])
    own = options(command) - OF_ALL
    if is_over_http(command):
        assert own >= common()
        own -= common()
        assert own <= section
        others = set().union(*map(options, commands().values()))
        assert section <= own | (section & common()) | (section & others & _named_elsewhere(name))
    else:
        assert own - OF_SETTINGS <= section
        assert section <= own


def _named_elsewhere(name: str) -> set[str]:
    """Options of other commands that a section speaks of."""
    return {"import": {"--prefix"}, "diff": {"--merge"}}.get(name, set())


def test_the_common_options_are_documented_with_their_variables() -> None:
    section = SECTIONS["Common options"]
    rows = dict(re.findall(r"(?m)^\| (`-[^|]*)\|([^|]*)\|", section))
    flags = {
        flag: variable for cell, variable in rows.items() for flag in re.findall("--[a-z-]+", cell)
    }
    assert set(flags) == common()
    for parameter in ClientCommand("any").params:
        if isinstance(parameter, click.Option) and parameter.envvar:
            assert flags[parameter.opts[0]].strip() == f"`{parameter.envvar}`"


def test_the_tables_at_the_top_list_all_commands() -> None:
    top = DOCS.read_text(encoding="utf-8").split("\n## ")[0]
    listed = re.findall(r"(?m)^\| \[`gateway (\w+)`\]\(#gateway-(\w+)\) \|", top)
    assert {name for name, anchor in listed if name == anchor} == set(commands())


def helps(command: click.Command) -> str:
    """Its whole help text, with the commands of a group."""
    texts = [command.help or "", command.get_short_help_str(1000)]
    texts += [getattr(each, "help", None) or "" for each in command.params]
    if isinstance(command, click.Group):
        texts += [helps(each) for each in command.commands.values()]
    return "\n".join(texts)


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_is_text_for_a_terminal(name: str) -> None:
    """No Markdown."""
    assert "`" not in helps(commands()[name])
