"""edit, explain and the differences to files, on a real gateway."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.output import Output, ReaderGone
from patching.client import Catalog, Gateway
from patching.client.transport import segment
from tests.commandline.conftest import Commands


class Editor:
    """An editor whose n-th run does the n-th of its ``steps``, Python about the variable text."""

    def __init__(self, folder: Path, run: Commands, catalog: str) -> None:
        self._seen = folder / "seen.txt"
        self._script = folder / "editor.py"
        self._url = f"{run.url}/v1/catalogs/{segment(catalog)}/documents/k"

    def environment(self, *steps: str) -> dict[str, str]:
        lines = [
            "import json, pathlib, sys, urllib.request",
            f"seen = pathlib.Path({str(self._seen)!r})",
            "path = pathlib.Path(sys.argv[1])",
            "number = len(seen.read_text().split('-----')) - 1 if seen.exists() else 0",
            "text = path.read_text()",
            "seen.open('a').write(text + '-----')",
            "def put(value):",
            f"    request = urllib.request.Request({self._url!r}, json.dumps(value).encode(),",
            "        method='PUT', headers={'Content-Type': 'application/json'})",
            "    urllib.request.urlopen(request).read()",
            *(f"if number == {number}: {step}" for number, step in enumerate(steps)),
            "if text != path.read_text(): path.write_text(text)",
        ]
        self._script.write_text("\n".join(lines) + "\n")
        self._seen.unlink(missing_ok=True)
        return {"EDITOR": f"{sys.executable} {self._script}", "VISUAL": ""}

    def seen(self) -> list[str]:
        return self._seen.read_text().split("-----")[:-1]


@pytest.fixture
def editor(tmp_path: Path, run: Commands, catalog: str) -> Editor:
    return Editor(tmp_path, run, catalog)


def settings(run: Commands, catalog: str, value: dict[str, Any]) -> None:
    with Gateway(run.url) as gateway:
        gateway.catalog(catalog).settings.put(value)


def test_a_document_is_changed_in_an_editor(run: Commands, catalog: str, editor: Editor) -> None:
    run("put", catalog, "k", '{"tier": 1, "name": "x"}')
    shows = editor.environment("text = text.replace('1', '2')")
    done = run("edit", catalog, "k", "-m", "by hand", environment=shows).json()
    assert done["changed"] is True
    assert [json.loads(each) for each in editor.seen()] == [{"tier": 1, "name": "x"}]
    assert editor.seen()[0].count("\n") == 4
    last = run("log", catalog, "--last", "1").lines()[0]
    assert last["message"] == "by hand"
    assert last["changes"][0]["patch"] == [{"op": "replace", "path": "/tier", "value": 2}]


def test_an_unchanged_text_is_not_written(run: Commands, catalog: str, editor: Editor) -> None:
    run("put", catalog, "k", "1")
    for step in ("pass", "text = ' 1 '"):
        told = run("edit", catalog, "k", environment=editor.environment(step))
        assert "you changed nothing" in told.stderr
    run("edit", catalog, "absent", environment=editor.environment("pass"), code=3)
    made = editor.environment("text = '{\"n\": 1}'")
    assert run("edit", catalog, "absent", "--create", environment=made).json()["created"] is True


def test_text_that_is_not_json_is_opened_again(run: Commands, catalog: str, editor: Editor) -> None:
    run("put", catalog, "k", "1")
    shows = editor.environment("text = '{'", "text = '{}'")
    told = run("edit", catalog, "k", environment=shows)
    assert "isn't JSON" in told.stderr
    assert editor.seen()[1].strip() == "{"
    assert run("get", catalog, "k").json() == {}


def test_concurrent_changes_of_other_members_are_kept(
    run: Commands, catalog: str, editor: Editor
) -> None:
    run("put", catalog, "k", '{"a": 1, "b": 1}')
    shows = editor.environment("put({'a': 1, 'b': 2}); text = '{\"a\": 9, \"b\": 1}'")
    run("edit", catalog, "k", environment=shows)
    assert run("get", catalog, "k").json() == {"a": 9, "b": 2}


def test_a_conflict_reopens_the_editor_with_both_versions(
    run: Commands, catalog: str, editor: Editor
) -> None:
    run("put", catalog, "k", '{"a": 1, "b": 1}')
    shows = editor.environment(
        "put({'a': 2, 'b': 2}); text = '{\"a\": 9, \"b\": 1}'",
        'text = \'{"a": 9, "b": 2}\'',
    )
    told = run("edit", catalog, "k", environment=shows)
    assert "others changed the same places" in told.stderr
    assert editor.seen()[1].splitlines() == [
        "{",
        "<<<<<<< yours",
        '  "a": 9,',
        "=======",
        '  "a": 2,',
        ">>>>>>> now",
        '  "b": 2',
        "}",
    ]
    assert run("get", catalog, "k").json() == {"a": 9, "b": 2}
    undecided = editor.environment("put({'a': 4, 'b': 2}); text = '{\"a\": 5, \"b\": 2}'", "pass")
    told = run("edit", catalog, "k", environment=undecided, code=1)
    kept(told.stderr).unlink()
    assert run("get", catalog, "k").json() == {"a": 4, "b": 2}


def kept(told: str) -> Path:
    return Path(told.partition("your text is saved in ")[2].splitlines()[0])


def test_a_refused_edit_keeps_the_text(run: Commands, catalog: str, editor: Editor) -> None:
    run("put", catalog, "k", '{"n": 1}')
    settings(run, catalog, {"schemas": {"k": {"properties": {"n": {"maximum": 5}}}}})
    shows = editor.environment("text = '{\"n\": 9}'")
    refused = run("edit", catalog, "k", environment=shows, code=1)
    assert "schema_violation" in refused.stderr
    assert json.loads(kept(refused.stderr).read_text()) == {"n": 9}
    kept(refused.stderr).unlink()


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "that people know it by"},
        "tier": {"type": "integer", "enum": [1, 2, 3]},
        "fields": {"type": "array", "items": {"$ref": "#/$defs/field"}},
    },
    "$defs": {
        "field": {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"type": "string"}, "inside": {"$ref": "#/$defs/field"}},
        }
    },
}


def test_text_that_is_not_json_is_saved_when_editing_ends(
    run: Commands, catalog: str, editor: Editor
) -> None:
    """Left as it is when it is opened again, or by an editor that fails."""
    run("put", catalog, "k", "1")
    for given_up in ("pass", "sys.exit(1)"):
        shows = editor.environment('text = \'{"long": "work",}\'', given_up)
        told = run("edit", catalog, "k", environment=shows, code=1)
        path = Path(told.stderr.split("your text is saved in ")[1].splitlines()[0])
        assert path.read_text().rstrip("\n") == '{"long": "work",}'
        path.unlink()


@pytest.mark.parametrize(
    ("step", "is_kept"),
    [
        ("path.write_bytes(b'\\xe9'); sys.exit(0)", True),  # an editor that writes Latin-1
        ("path.write_text('2'); sys.exit(1)", True),
        ("path.unlink(); sys.exit(1)", False),
        ("path.unlink(); path.mkdir(); sys.exit(1)", False),
    ],
)
def test_the_text_of_a_failing_editor_is_saved(
    run: Commands, catalog: str, editor: Editor, step: str, is_kept: bool
) -> None:
    run("put", catalog, "k", "1")
    told = run("edit", catalog, "k", environment=editor.environment(step), code=1)
    assert ("your text is saved in" in told.stderr) is is_kept
    assert run("get", catalog, "k").json() == 1
    if is_kept:
        kept(told.stderr).unlink()


@pytest.mark.parametrize("step", ["path.unlink(); sys.exit(0)", "sys.exit(0)"])
def test_an_editor_that_saves_nothing_new_changes_nothing(
    run: Commands, catalog: str, editor: Editor, step: str
) -> None:
    run("put", catalog, "k", "1")
    told = run("edit", catalog, "k", environment=editor.environment(step))
    assert told.error() == "gateway: you changed nothing"


def test_an_editor_setting_with_unbalanced_quotes_is_named(run: Commands, catalog: str) -> None:
    run("put", catalog, "k", "1")
    told = run("edit", catalog, "k", environment={"EDITOR": "vi '", "VISUAL": ""}, code=1)
    assert "$EDITOR" in told.error()


def test_an_interrupted_edit_keeps_the_text(
    run: Commands, catalog: str, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is sent, which may take as long as the gateway is away."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    run("put", catalog, "k", "1")
    monkeypatch.setattr("gateway.cli.editing._Editing._send", interrupted)
    told = run("edit", catalog, "k", environment=editor.environment("text = '2'"), code=130)
    path = Path(told.stderr.split("your text is saved in ")[1].splitlines()[0])
    assert path.read_text().strip() == "2"
    path.unlink()


def test_fields_are_explained_by_the_schema(run: Commands, catalog: str) -> None:
    settings(run, catalog, {"schemas": {"tables/*": SCHEMA, "x": {}}})
    told = run("explain", catalog, "tables/orders").lines()
    assert [(each["pointer"], each["type"], each["required"]) for each in told] == [
        ("/name", "string", True),
        ("/tier", "integer", False),
        ("/fields", "array", False),
    ]
    assert told[0]["description"] == "that people know it by"
    assert told[1]["enum"] == [1, 2, 3]
    inside = run("explain", catalog, "tables/orders", "/fields/0").lines()
    assert [(each["pointer"], each["required"]) for each in inside] == [
        ("/fields/0/type", True),
        ("/fields/0/inside", False),
    ]
    whole = run("explain", catalog, "tables/orders", "-r").lines()
    assert "/fields/*/inside/type" in [each["pointer"] for each in whole]
    shown = run("explain", catalog, "tables/orders", "--output", "pretty").stdout
    assert "string, required" in shown
    assert "one of 1, 2, 3" in shown
    run("explain", catalog, "other", code=3)
    run("explain", catalog, "tables/orders", "/name", code=3)
    assert (
        "doesn't start with '/'" in run("explain", catalog, "tables/orders", "name", code=2).stderr
    )


def test_references_by_pointer_and_by_anchor_are_resolved(run: Commands, catalog: str) -> None:
    schema = {
        "properties": {
            "anchored": {"$ref": "#named"},
            "pointed": {"$ref": "#/$defs/a%20b~1c"},
            "listed": {"$ref": "#/allOf/0"},
        },
        "allOf": [{"title": "of a list"}],
        "$defs": {
            "named": {"$anchor": "named", "title": "by an anchor"},
            "a b/c": {"title": "by a pointer"},
        },
    }
    with Gateway(run.url) as client:
        client.catalog(catalog).settings.put({"schemas": {"*": schema}})
    told = {each["pointer"]: each.get("title") for each in run("explain", catalog, "k").lines()}
    assert told == {
        "/anchored": "by an anchor",
        "/pointed": "by a pointer",
        "/listed": "of a list",
    }


def test_drift_sets_the_exit_code(run: Commands, catalog: str, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/a.json").write_text('{"n": 1}')
    (tmp_path / "t/b.json").write_text('{"n": 1}')
    command = ("diff", catalog, "-f", str(tmp_path))
    missing = run(*command, code=1)
    assert missing.stdout.count('+  "n": 1') == 2
    run("apply", catalog, "-f", str(tmp_path), "--manager", "git")
    assert run(*command).stdout == ""
    run("patch", catalog, "t/a", '{"note": "x"}', "--merge")
    run("put", catalog, "t/c", "1")
    told = run(*command, "--patch", code=1)
    assert "2 of 3 documents differ" in told.stderr
    assert told.lines() == [
        {"key": "t/a", "patch": [{"op": "remove", "path": "/note"}]},
        {"key": "t/c", "patch": [{"op": "remove", "path": ""}]},
    ]
    assert run(*command, "--prefix", "t/b").stdout == ""
    assert run(*command, "--manager", "git").stdout == ""
    (tmp_path / "t/b.json").write_text('{"n": 2}')
    told = run(*command, "--manager", "git", code=1)
    assert '-  "n": 1' in told.stdout
    assert "1 of 2 documents differ" in told.stderr
    run("diff", catalog, "t/a", "-f", str(tmp_path), code=2)
    run("diff", catalog, "--manager", "git", "--from", "1", code=2)


def test_drift_is_what_an_apply_would_change_or_refuse(
    run: Commands, catalog: str, tmp_path: Path
) -> None:
    for key in ("a", "b", "c"):
        (tmp_path / f"{key}.json").write_text('{"n": 1}')
    applied = ("apply", catalog, "-f", str(tmp_path), "--manager", "git")
    run(*applied, "--prune")
    command = ("diff", catalog, "-f", str(tmp_path), "--manager", "git")
    run("apply", catalog, "a", '{"n": 2}', "--manager", "controller", "--conflict", "force")
    told = run(*command, code=1)
    assert "'a': /n has another value, and is owned by 'controller'" in told.stderr
    assert told.stdout == ""
    run(*applied, code=4)
    assert run(*command, "--conflict", "skip").stdout == ""
    run(*applied, "--conflict", "skip")
    assert '+  "n": 1' in run(*command, "--conflict", "force", code=1).stdout
    run(*applied, "--conflict", "force")
    assert run(*command).stdout == ""
    run("patch", catalog, "b", '{"note": "x"}', "--merge")
    for key in ("b", "c"):
        (tmp_path / f"{key}.json").unlink()
    assert run(*command).stdout == ""
    told = run(*command, "--prune", "--patch", code=1)
    assert "2 of 3 documents differ" in told.stderr
    assert told.lines() == [
        {"key": "b", "patch": [{"op": "remove", "path": "/n"}]},
        {"key": "c", "patch": [{"op": "remove", "path": ""}]},
    ]
    assert [each["key"] for each in run("get", catalog).lines()] == ["a", "b", "c"]
    run(*applied, "--prune")
    assert run(*command, "--prune").stdout == ""
    for wrong in (("--prune",), ("--conflict", "skip")):
        run("diff", catalog, "-f", str(tmp_path), *wrong, code=2)


def test_drift_of_a_document_that_others_write_meanwhile_is_of_one_state(
    run: Commands, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text('{"deep": {"x": 1}}')
    run("put", catalog, "a", "{}")
    apply = Catalog.apply

    def after_others(of: Catalog, key: str, *given: Any, **terms: Any) -> Any:
        of.merge(key, {"deep": {"y": 1}})  # after the command has read it
        return apply(of, key, *given, **terms)

    monkeypatch.setattr(Catalog, "apply", after_others)
    told = run("diff", catalog, "-f", str(tmp_path), "--manager", "git", "--patch", code=1)
    patch = [{"op": "add", "path": "/deep/x", "value": 1}]
    assert told.lines() == [{"key": "a", "patch": patch}]


def test_a_difference_sets_the_exit_code_even_if_its_output_is_cut_off(
    run: Commands, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise ReaderGone

    (tmp_path / "a.json").write_text('{"n": 1}')
    monkeypatch.setattr(Output, "raw", closed)
    run("diff", catalog, "-f", str(tmp_path), code=1)


def test_files_that_are_not_documents_are_named(
    run: Commands, catalog: str, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    for name in ("a.json", "b.yaml", "README.md", ".git/config", ".keep"):
        (tmp_path / name).write_text('{"n": 1}')
    for command in ("apply", "diff"):
        told = run(command, catalog, "-f", str(tmp_path), "--manager", "git")
        assert "2 files are left out, such as 'README.md'" in told.stderr
    quiet = run("apply", catalog, "-f", str(tmp_path), "--manager", "git", "-q")
    assert quiet.stderr == ""
