"""A token goes to the gateway and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.main import COMMANDS
from tests.commandline.canned import Asked, Canned, Reply, problem
from tests.commandline.conftest import Commands

SECRET = "gwt_abc_s3cret-S3CRET"
PAGE = {"catalogs": [], "next": None}


@pytest.fixture
def canned() -> Canned:
    return Canned(lambda _: (200, PAGE))


def test_the_token_comes_from_a_flag_a_variable_or_a_file(canned: Canned, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    by_file = {"GATEWAY_TOKEN_FILE": str(file)}
    both = {**by_file, "GATEWAY_TOKEN": "from-variable"}
    with canned:
        run = Commands(canned.url)
        run("get")
        run("get", environment=by_file)
        run("get", environment=both)
        run("get", "--token-file", str(file), environment={"GATEWAY_TOKEN": "from-variable"})
        run("get", "--token", "from-flag", environment=both)
    sent = [asked.headers.get("Authorization") for asked in canned.asked]
    assert sent == [
        None,
        "Bearer from-file",
        "Bearer from-variable",
        "Bearer from-file",
        "Bearer from-flag",
    ]


def test_a_file_is_read_again_for_each_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    def renew(asked: Asked) -> Reply:
        file.write_text("new")
        after = "after=" not in asked.path
        return 200, {"catalogs": [], "next": "x" if after else None}

    with Canned(renew) as canned:
        Commands(canned.url)("get", environment={"GATEWAY_TOKEN_FILE": str(file)})
    assert [each.headers["Authorization"] for each in canned.asked] == ["Bearer old", "Bearer new"]


def test_help_does_not_show_the_token() -> None:
    for name in COMMANDS:
        ran = Commands("http://127.0.0.1:1")(name, "--help", environment={"GATEWAY_TOKEN": SECRET})
        assert "s3cret" not in ran.stdout.lower()


@pytest.mark.parametrize("code", [401, 403, 404, 412, 503, 504])
def test_errors_do_not_show_the_token(code: int) -> None:
    with Canned(lambda _: problem(code, "x")) as canned:
        for arguments in (("put", "c", "k", "1"), ("get", "c", "k"), ("doctor", "c")):
            for output in ((), ("--output=json",)):
                result = Commands(canned.url).any(
                    *arguments, *output, "--timeout=0.1", environment={"GATEWAY_TOKEN": SECRET}
                )
                assert "s3cret" not in (result.stdout + result.stderr).lower()
        assert all(SECRET in asked.headers["Authorization"] for asked in canned.asked)


@pytest.mark.parametrize("wrong", ["s3cret\nX-Evil: 1", "s3cret two", "s3crét", "  "])
def test_an_invalid_token_is_refused_without_being_quoted(wrong: str, tmp_path: Path) -> None:
    run = Commands("http://127.0.0.1:1")
    file = tmp_path / "token"
    file.write_text(wrong)
    for environment in ({"GATEWAY_TOKEN": wrong}, {"GATEWAY_TOKEN_FILE": str(file)}):
        error = run("get", environment=environment, code=2).error()
        assert "token" in error
        assert "s3cr" not in error


def test_credentials_in_the_address_are_refused_without_being_quoted() -> None:
    for url in ("http://user:s3cret@h:1", "http://s3cret@h"):
        error = Commands(url)("get", code=2).error()
        assert "s3cret" not in error
        assert "credentials" in error


def test_a_missing_token_file_is_named() -> None:
    environment = {"GATEWAY_TOKEN_FILE": "/does/not/exist"}
    error = Commands("http://127.0.0.1:1")("get", environment=environment, code=2).error()
    assert "/does/not/exist" in error
