"""apply and owners on a real gateway."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.commandline.conftest import Commands


def write_folder(folder: Path, documents: dict[str, object]) -> str:
    for key, value in documents.items():
        file = folder / f"{key}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))
    return str(folder)


def test_an_unreadable_file_in_a_folder_stops_the_whole_apply(
    run: Commands, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner.json").mkdir()
    (tmp_path / "inner.json" / "a.json").write_text('{"n": 1}')
    (tmp_path / "b.json").write_text('{"n": 1}')
    command = ("apply", catalog, "-f", str(tmp_path), "--manager", "m", "--prune")
    assert run(*command).json()["changed"] == 2  # the folder is one, whatever it is called
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    assert "gone.json" in run(*command, code=2).stderr
    assert "gone.json" in run("diff", catalog, "-f", str(tmp_path), code=2).stderr
    (tmp_path / "gone.json").unlink()
    list_folder = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("inner.json"):
            raise PermissionError(13, "Permission denied", str(path))
        return list_folder(path)

    with monkeypatch.context() as context:
        context.setattr(os, "scandir", refuse)
        assert "Permission denied" in run(*command, code=2).stderr
    assert [each["key"] for each in run("get", catalog).lines()] == ["b", "inner.json/a"]


def test_an_empty_folder_lets_go_of_nothing_without_allow_empty(
    run: Commands, catalog: str, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}')
    command = ("apply", catalog, "-f", str(tmp_path), "--manager", "m")
    run(*command)
    (tmp_path / "a.json").unlink()
    assert "--allow-empty" in run(*command, "--prune", code=1).stderr
    assert run(*command).json()["read"] == 0
    assert run(*command, "--allow-empty", code=2)
    assert [each["key"] for each in run("get", catalog).lines()] == ["a"]
    assert run(*command, "--prune", "--allow-empty").json()["pruned"] == 1
    assert run("get", catalog).stdout == ""


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
    assert "contested '/x': it is 1, wanted 2" in failed.stderr
    assert "nothing was pruned" in failed.stderr
    assert (failed.json()["changed"], failed.json()["refused"]) == (1, 1)
    skipped = run("apply", catalog, "-f", "-", "--manager", "b", "--conflict", "skip", stdin=lines)
    assert skipped.json()["skipped"] == 1
    assert "'k': /x is left to 'a', by an apply, since revision 1" in skipped.stderr
    run("apply", catalog, "-f", "-", "--manager", "b", "--conflict", "force", stdin=lines)
    assert run("get", catalog, "k").json() == {"x": 2}


def test_owners_can_be_read_at_an_earlier_revision(run: Commands, catalog: str) -> None:
    run("apply", catalog, "-f", "-", "--manager", "a", stdin='{"key": "k", "value": {"x": 1}}\n')
    run("put", catalog, "k", '{"x": 2}')
    then = run("owners", catalog, "k", "--revision", "1").lines()
    assert then[0]["owners"][0]["manager"] == "a"
    assert run("owners", catalog, "k").lines()[0]["owners"][0]["plain"] is True
    run("owners", catalog, "absent", code=3)


def test_an_unreadable_file_is_refused(run: Commands, catalog: str, tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text('{"a": 1, "a": 2}')
    failed = run("apply", catalog, "-f", str(tmp_path), "--manager", "a", code=1)
    assert "k.json" in failed.stderr
    run("apply", catalog, "-f", str(tmp_path / "absent"), "--manager", "a", code=2)


def test_one_document_can_be_applied_from_the_command_line(run: Commands, catalog: str) -> None:
    told = run("apply", catalog, "k", '{"rows": 1}', "--manager", "nightly").json()
    assert (told["read"], told["changed"]) == (1, 1)
    assert run("get", catalog, "k").json() == {"rows": 1}
    run("apply", catalog, "k", "-", "--manager", "nightly", stdin='{"rows": 2}')
    assert run("get", catalog, "k").json() == {"rows": 2}
    for wrong in (("k",), (), ("k", "{}", "-f", "-"), ("k", "{}", "--prune"), ("k", "[1]x")):
        run("apply", catalog, *wrong, "--manager", "nightly", code=2)
    run("apply", catalog, "k", "[1]", "--manager", "nightly", code=1)


def test_a_field_that_was_taken_over_is_found_and_given_back(run: Commands, catalog: str) -> None:
    """Undone or given back: the manager's next apply succeeds."""
    applied = ("apply", catalog, "k", '{"rows": 1, "n": 1}', "--manager", "nightly")
    run(*applied)
    run("patch", catalog, "k", '[{"op": "replace", "path": "/rows", "value": 2}]', "-m", "by hand")
    skipped = run(*applied, "--conflict", "skip")
    assert "/rows is left to 'anonymous', by a plain write, since revision 2" in skipped.stderr
    (lost,) = run("owners", "lost", catalog, "nightly").lines()
    assert (lost["key"], lost["revision"], lost["message"]) == ("k", 2, "by hand")
    shown = run("owners", "lost", catalog, "nightly", "--output", "pretty").stdout
    assert shown.split()[-4:] == ["/rows", "anonymous", "(plain)", "since", "2"][-4:]
    dry = run("owners", "give-back", catalog, "k", "/rows", "--dry-run").json()
    assert (dry["dry_run"], dry["changed"]) == (True, True)
    given_back = run("owners", "give-back", catalog, "k", "/rows")
    assert (given_back.json()["changed"], given_back.stderr) == (True, "")
    again = run("owners", "give-back", catalog, "k", "/rows")
    assert "no plain write owns anything there" in again.stderr
    assert run("owners", "lost", catalog, "nightly").lines() == []
    run(*applied)
    assert run("get", catalog, "k").json() == {"rows": 1, "n": 1}
    run("patch", catalog, "k", '{"rows": 3}', "--merge")
    revision = run("log", catalog, "--last", "1").lines()[0]["revision"]
    run("revert", catalog, str(revision))
    assert run("owners", "show", catalog, "k").lines()[1]["owners"][0]["manager"] == "nightly"
    run(*applied)
    run("owners", "give-back", catalog, "k", code=2)
