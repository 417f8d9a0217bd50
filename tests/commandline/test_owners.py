"""apply and owners on a real gateway."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commandline.conftest import Commands


def write_folder(folder: Path, documents: dict[str, object]) -> str:
    for key, value in documents.items():
        file = folder / f"{key}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))
    return str(folder)


def test_a_folder_is_applied_owned_and_pruned(run: Commands, catalog: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {"tables/a": {"tier": 1}, "tables/b": {"tier": 1}})
    command = ("apply", catalog, "-f", folder, "--manager", "nightly")
    told = run(*command).json()
    assert (told["read"], told["changed"], told["refused"]) == (2, 2, 0)
    assert run(*command).json()["changed"] == 0
    assert run("owners", catalog, "tables/a").lines() == [
        {"pointer": "/tier", "owners": [{"manager": "nightly", "since": 1, "plain": False}]}
    ]
    run("put", catalog, "people", '{"mine": 1}')
    run("patch", catalog, "tables/a", '[{"op": "add", "path": "/note", "value": "x"}]')
    (tmp_path / "tables/b.json").unlink()
    (tmp_path / "tables/a.json").write_text("{}")
    dry = run(*command, "--prune", "--dry-run").json()
    assert (dry["changed"], dry["pruned"]) == (1, 1)
    told = run(*command, "--prune").json()
    assert (told["changed"], told["pruned"]) == (1, 1)
    assert [each["key"] for each in run("get", catalog).lines()] == ["people", "tables/a"]
    assert run("get", catalog, "tables/a").json() == {"note": "x"}


def test_a_conflict_is_named_and_the_others_are_applied(run: Commands, catalog: str) -> None:
    run("apply", catalog, "-f", "-", "--manager", "a", stdin='{"key": "k", "value": {"x": 1}}\n')
    lines = '{"key": "k", "value": {"x": 2}}\n{"key": "l", "value": {"x": 2}}\n'
    failed = run("apply", catalog, "-f", "-", "--manager", "b", "--prune", stdin=lines, code=4)
    assert "owned_by_others" in failed.stderr
    assert "nothing is pruned" in failed.stderr
    assert (failed.json()["changed"], failed.json()["refused"]) == (1, 1)
    skipped = run("apply", catalog, "-f", "-", "--manager", "b", "--conflict", "skip", stdin=lines)
    assert skipped.json()["skipped"] == 1
    assert "'k': /x is left to a" in skipped.stderr
    run("apply", catalog, "-f", "-", "--manager", "b", "--conflict", "force", stdin=lines)
    assert run("get", catalog, "k").json() == {"x": 2}


def test_owners_are_told_as_they_were(run: Commands, catalog: str) -> None:
    run("apply", catalog, "-f", "-", "--manager", "a", stdin='{"key": "k", "value": {"x": 1}}\n')
    run("put", catalog, "k", '{"x": 2}')
    then = run("owners", catalog, "k", "--revision", "1").lines()
    assert then[0]["owners"][0]["manager"] == "a"
    assert run("owners", catalog, "k").lines()[0]["owners"][0]["plain"] is True
    run("owners", catalog, "absent", code=3)


def test_what_cant_be_read_is_refused(run: Commands, catalog: str, tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text('{"a": 1, "a": 2}')
    failed = run("apply", catalog, "-f", str(tmp_path), "--manager", "a", code=1)
    assert "k.json" in failed.stderr
    run("apply", catalog, "-f", str(tmp_path / "absent"), "--manager", "a", code=2)
