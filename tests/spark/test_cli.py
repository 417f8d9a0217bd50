"""The command ``patching-spark``: what it prints, and its exit codes. How `spark-submit` starts it:
`test_connect`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.patience import WAIT_S

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

import patching.spark.session
from patching.spark.cli import main
from patching.spark.session import JavaMissing, require_java
from tests.service import RunningGateway

from .test_sync import Catalog

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def there(spark: Any, gateway: RunningGateway, catalog: str) -> Any:
    found = Catalog(spark, gateway, catalog)
    yield found
    found.transport.close()


@pytest.fixture
def run(there: Catalog, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command on the session of the tests, which it must not stop."""

    @contextmanager
    def session(*_: Any) -> Iterator[Any]:
        yield there.spark

    monkeypatch.setattr(patching.spark.session, "command_session", session)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--url", there.url])

    return invoke


def lines(path: Path, documents: dict[str, Any]) -> str:
    path.write_text(
        "".join(json.dumps({"key": k, "document": v}) + "\n" for k, v in documents.items())
    )
    return str(path)


def test_the_command_syncs_a_catalog(there: Catalog, run: Any, tmp_path: Path) -> None:
    there.put({"a": 1, "gone": 1})
    source = lines(tmp_path / "wanted.jsonl", {"a": {"x": 1}, "ключ": [1]})

    result = run("sync", source, there.name, "--delete", "--message", "nightly")

    assert result.exit_code == 0, result.output
    assert there.documents() == {"a": {"x": 1}, "ключ": [1]}
    assert there.routes.commits(2).commits[0].message == "nightly"
    assert run("sync", source, there.name, "--delete").exit_code == 0


def test_a_plan_is_made_and_replayed(there: Catalog, run: Any, tmp_path: Path) -> None:
    there.put({"a": 1})
    source = lines(tmp_path / "wanted.jsonl", {"a": 2, "b": 2})
    plan = str(tmp_path / "plan")

    planned = run("sync", source, there.name, "--plan", plan, "--option", "partitions=2")
    assert planned.exit_code == 0
    assert len(list(Path(plan).glob("part-*"))) == 1, "a plan is there as a whole or not at all"
    assert there.documents() == {"a": 1}
    there.put({"a": 3})
    replayed = run("replay", plan)

    assert replayed.exit_code == 3
    assert "key 'a': precondition_failed" in replayed.output
    assert there.documents() == {"a": 3, "b": 2}


def test_the_command_exports_a_catalog_and_its_history(
    there: Catalog, run: Any, tmp_path: Path
) -> None:
    there.put({"a": 1})
    there.put({"a": 2})
    export, history = (str(tmp_path / name) for name in ("export", "history"))

    assert run("export", there.name, export).exit_code == 0
    assert run("export", there.name, history, "--history").exit_code == 0

    assert json.loads(next(Path(export).glob("part-*")).read_text()) == {"key": "a", "document": 2}
    assert list(Path(history).glob("date=*/*.parquet"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["sync", "{missing}.jsonl", "c"], 1, "does not exist"),
        (["sync", "{broken}", "c"], 1, "key 'a': 2 rows have this key"),
        (["sync", "{broken}", "c", "--option", "batchsise=1"], 1, "did you mean 'batchSize'"),
        (["sync", "{broken}", "c", "--option", "x"], 2, "write it as NAME=VALUE"),
        (
            ["replay", "x", "--remote", "sc://h", "--master", "local"],
            2,
            "given together with --remote",
        ),
        (["export", "c", "x", "--after", "1"], 2, "--after needs --history"),
        (["export", "no-such-catalog", "x"], 1, "there is no catalog 'no-such-catalog'"),
    ],
)
def test_an_error_is_one_line(
    run: Any, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"key": "a", "document": 1}\n' * 2)
    places = {"missing": str(tmp_path / "missing"), "broken": str(broken)}
    result = run(*(argument.format(**places) for argument in arguments))
    assert (result.exit_code, said in result.output) == (code, True), (
        result.output or result.exception
    )
    assert "Traceback" not in result.output


def java(folder: Path, version: str | None) -> dict[str, str]:
    """Variables by which Spark would find a Java that says so; none if it is None."""
    if version is not None:
        command = folder / "java"
        command.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        command.chmod(0o755)
    return {"PATH": str(folder)}


@pytest.mark.parametrize("version", [None, 'openjdk version "11.0.2" 2019-01-15'])
def test_without_java_the_command_says_what_to_install(tmp_path: Path, version: str | None) -> None:
    """Nothing is started: neither Java nor Spark."""
    done = subprocess.run(
        [sys.executable, "-m", "patching.spark", "replay", "x", "--url", "http://127.0.0.1:1"],
        env={**java(tmp_path, version), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith(
        "apt-get install openjdk-17-jre-headless (Debian 13: openjdk-21-jre-headless)\n"
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("spark", "version", "said"),
    [
        ("4.1.4", "17.0.21.1", None),
        ("4.1.4", "21", None),
        ("4.1.4", "22.0.1", r"^warning: .* is Java 22; Spark 4\.1\.4 needs Java 17 or 21$"),
        ("4.1.4", "25.0.3", "is Java 25; Spark 4.1.4 needs Java 17 or 21: apt-get"),
        ("4.2.1", "25.0.3", None),
        ("4.3.0.dev0", "25.0.2", r"is Java 25\.0\.2, which may damage .* update it to 25\.0\.3"),
        ("4.3.0", "25", r"is Java 25\.0\.0, which may damage"),
        ("4.3.0", "26-ea", r"^warning: .* is Java 26; Spark 4\.3\.0 needs Java 17, 21 or 25$"),
        ("4.3.0", "1.8.0_452", r"is Java 8; Spark 4\.3\.0 needs Java 17, 21 or 25: apt-get"),
    ],
)
def test_an_unsupported_java_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: str,
    version: str,
    said: str | None,
) -> None:
    """What fails, or may write damaged data, is refused; of any other there is a warning."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for name, value in java(tmp_path, f'openjdk version "{version}" 2026-01-20').items():
        monkeypatch.setenv(name, value)
    if said is not None and not said.startswith("^"):
        with pytest.raises(JavaMissing, match=said):
            require_java(spark)
        return
    require_java(spark)
    warned = capsys.readouterr().err
    assert re.match(said, warned) if said is not None else not warned
