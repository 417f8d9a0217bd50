"""Each command imports what it needs and no more, counted in modules: load makes no difference."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from gateway.cli.main import COMMANDS, main
from tests.patience import WAIT_S

# The packages of the extra `server`, which the base installation lacks.
OF_THE_SERVICE = (
    "bson",
    "dotenv",
    "environs",
    "flask",
    "gevent",
    "gunicorn",
    "jsonpatch",
    "jsonschema_rs",
    "jwt",
    "marshmallow",
    "prometheus_client",
    "pymongo",
    "rich",
    "structlog",
    "werkzeug",
)
OF_THE_CLIENT = ("ijson", "urllib3")
_RUN = """
import json, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
from gateway.cli.main import main
try:
    main({arguments!r})
except SystemExit as ended:
    print(json.dumps([ended.code, sorted(sys.modules)]))
"""


def run_without(missing: tuple[str, ...], *arguments: str) -> tuple[int, list[str], str]:
    """Exit code, modules and output of a process in which these packages aren't installed."""
    code = _RUN.format(missing=set(missing), arguments=list(arguments))
    done = subprocess.run(
        (sys.executable, "-c", code),
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.stdout, done.stderr
    *output, last = done.stdout.splitlines()
    exit_code, modules = json.loads(last)
    return exit_code, modules, "\n".join([*output, done.stderr])


def test_help_imports_neither_the_service_nor_the_client() -> None:
    code, modules, output = run_without((), "--help")
    assert code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in output
    tops = {module.split(".")[0] for module in modules}
    assert not tops & {*OF_THE_SERVICE, *OF_THE_CLIENT}
    assert len(modules) < 260, "what does the help need all this for?"


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "--timeout=0.1"),
        ("put", "c", "k", "1", "--timeout=0.1"),
        ("export", "c", "--timeout=0.1"),
        ("watch", "c", "--timeout=0.1"),
    ],
)
def test_a_client_needs_no_package_of_the_service(arguments: tuple[str, ...]) -> None:
    url = "--url=http://127.0.0.1:1"
    code, _, output = run_without(OF_THE_SERVICE, *arguments, url)
    assert code == 6, output


def test_the_doctor_names_the_checks_it_skipped() -> None:
    url = "--url=http://127.0.0.1:1"
    code, _, output = run_without(OF_THE_SERVICE, "doctor", url)
    assert code == 1
    assert "ok    settings: not checked: environs isn't installed" in output
    assert "FAIL  livez: " in output


@pytest.mark.parametrize(
    "arguments", [("serve", "--embedded"), ("settings",), ("verify", "--all"), ("token", "list")]
)
def test_a_command_of_the_service_says_what_to_install(arguments: tuple[str, ...]) -> None:
    code, _, output = run_without(OF_THE_SERVICE, *arguments)
    assert code == 1
    assert output.startswith(f"gateway: {arguments[0]} needs the extra 'server', without which ")
    assert output.endswith("pip install '.[server]' in the gateway's repository\n")
    assert output.count("\n") == 1


def test_help_of_patching_spark_works_without_spark() -> None:
    missing = {"pyspark", "pyarrow", "pandas", *OF_THE_SERVICE}
    code = _RUN.format(missing=missing, arguments=["--help"])
    code = code.replace("gateway.cli.main", "patching.spark.cli")
    done = subprocess.run(
        (sys.executable, "-c", code), capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert "sync  " in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1].startswith("[0, ")


def test_the_summaries_in_help_match_the_commands() -> None:
    context = click.Context(main, info_name="gateway")
    for name, entry in COMMANDS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert (command.help or "").split("\n")[0] == entry.help
    assert set(COMMANDS) <= set(main.list_commands(context))
