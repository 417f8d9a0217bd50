"""One gateway for all commands, and commands run against it within the test's process."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from pymongo import MongoClient

from gateway.cli.main import main
from tests.service import RunningGateway


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        return json.loads(self.stdout)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    def error(self) -> str:
        """The one line on stderr."""
        assert self.stderr.count("\n") == 1, self.stderr
        return self.stderr.rstrip("\n")


class Commands:
    """`commands("get", "c", "k")`; fails where the exit code isn't ``code``."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(
        self,
        *arguments: str,
        code: int = 0,
        stdin: str | bytes | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Ran:
        ran = self.any(*arguments, stdin=stdin, environment=environment)
        assert ran.code == code, ran
        return ran

    def any(
        self,
        *arguments: str,
        stdin: str | bytes | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Ran:
        """Whatever comes of it."""
        variables: dict[str, str | None] = {
            name: None for name in os.environ if name.startswith("GATEWAY_")
        }
        variables |= {"GATEWAY_URL": self.url, **(environment or {})}
        result = CliRunner().invoke(main, arguments, input=stdin, env=variables)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="session")
def commandline_database(mongodb_uri: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    yield name
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        client.drop_database(name)


@pytest.fixture(scope="session")
def gateway(mongodb_uri: str, commandline_database: str) -> Iterator[RunningGateway]:
    with RunningGateway(mongodb_uri, commandline_database, workers=1) as running:
        yield running


@pytest.fixture(scope="session")
def run(gateway: RunningGateway) -> Commands:
    return Commands(gateway.url)


@pytest.fixture
def catalog(request: pytest.FixtureRequest) -> str:
    """A name that no other test has, of the kind that needs care."""
    return f"{re.sub(r'[^a-z_]', '', request.node.name)[5:40]}/é {uuid.uuid4().hex[:8]}"
