"""Which mongod the gateway runs, and the message if there is none that runs."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from gateway.store import embedded as embedded_binary
from gateway.store.embedded import EmbeddedMongod, MongodError, MongodNotFound


@pytest.fixture(autouse=True)
def _no_mongod_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def test_a_mongod_on_the_path_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "mongod", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert embedded_binary.find_mongod() == tmp_path / "mongod"


@pytest.mark.parametrize(
    ("system", "machine", "advice"),
    [
        (
            "linux",
            "x86_64",
            "'.[embedded]' in the gateway's repository, and apt-get install libcurl4",
        ),
        ("linux", "aarch64", "https://www.mongodb.com/docs/manual/installation/"),
        ("darwin", "arm64", "--mongodb-uri"),
    ],
)
def test_without_a_mongod_the_error_says_what_to_install(
    system: str,
    machine: str,
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded_binary, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(MongodNotFound) as missing:
        EmbeddedMongod(tmp_path).start()
    assert advice in str(missing.value)


def test_a_packaged_mongod_is_made_executable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = script(tmp_path / "mongod", "")
    packaged.chmod(0o644)
    monkeypatch.setattr(embedded_binary, "_packaged_mongod", lambda: packaged)
    assert embedded_binary.find_mongod() == packaged
    assert packaged.stat().st_mode & stat.S_IXUSR


def test_a_mongod_of_another_owner_is_copied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = script(tmp_path / "mongod", "")
    packaged.chmod(0o644)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded_binary, "_packaged_mongod", lambda: packaged)
    change_mode = Path.chmod

    def owner_alone(path: Path, mode: int) -> None:
        if path == packaged:
            raise PermissionError
        change_mode(path, mode)

    monkeypatch.setattr(Path, "chmod", owner_alone)
    copy = embedded_binary.find_mongod()
    assert copy.is_relative_to(tmp_path / "cache")
    assert copy.read_bytes() == packaged.read_bytes()
    assert os.access(copy, os.X_OK)
    made = copy.stat().st_ino
    assert embedded_binary.find_mongod() == copy
    assert copy.stat().st_ino == made


def test_missing_libraries_are_named_with_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = "mongod: error while loading shared libraries: libcurl.so.4: cannot open"
    script(tmp_path / "mongod", f"echo '{lacking}' >&2; exit 127")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MongodNotFound, match=r"libcurl\.so\.4.*apt-get install libcurl4"):
        EmbeddedMongod(tmp_path / "data").start()


def test_a_data_directory_that_cannot_be_created_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "mongod", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MongodError, match="can't use the data directory"):
        EmbeddedMongod(tmp_path / "mongod" / "data").start()


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path
