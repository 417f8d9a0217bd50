"""get, put, patch, delete, diff and transaction on a real gateway."""

from __future__ import annotations

import json
from pathlib import Path

from patching.client import Gateway
from tests.commandline.conftest import Commands

ORDERS = {"name": "orders", "fields": ["id"], "owner": None}


def put(run: Commands, catalog: str, key: str, value: object, *options: str) -> str:
    """The new token."""
    answer = run("put", catalog, key, json.dumps(value), *options).json()
    return str(answer["etag"])


def test_a_document_is_read_back_as_it_was_put(run: Commands, catalog: str, tmp_path: Path) -> None:
    key = "urn:(a,b)/ü?#%2F"
    for value in (ORDERS, "text", 1, None, [], 2**63 - 1, 1.5, "\u009b\u2028"):
        put(run, catalog, key, value)
        assert run("get", catalog, key).json() == value
        pretty = run("get", catalog, key, "--output=pretty")
        assert pretty.json() == value
        assert pretty.stdout.replace("\n", "").isprintable()
    file = tmp_path / "value.json"
    file.write_text('{"from": "a file"}')
    run("put", catalog, key, f"@{file}")
    assert run("get", catalog, key).json() == {"from": "a file"}
    run("put", catalog, key, "-", stdin='{"from": "stdin"}')
    assert run("get", catalog, key).json() == {"from": "stdin"}
    run("put", catalog, "dash", "--", "-5")
    assert run("get", catalog, "dash").json() == -5


def test_a_write_prints_its_outcome(run: Commands, catalog: str) -> None:
    created = run("put", catalog, "k", "1", "-m", "first ü").json()
    assert (created["catalog"], created["key"]) == (catalog, "k")
    assert (created["created"], created["changed"], created["revision"]) == (True, True, 1)
    same = run("put", catalog, "k", "1").json()
    assert (same["changed"], same["etag"]) == (False, created["etag"])
    assert run("put", catalog, "k", "2", "--quiet").stdout == ""
    dry = run("put", catalog, "k", "3", "--dry-run").json()
    assert (dry["dry_run"], dry["changed"]) == (True, True)
    assert run("get", catalog, "k").json() == 2
    assert [each["message"] for each in run("log", catalog).lines()] == ["first ü", None]


def test_a_write_can_be_sent_again_under_its_key(run: Commands, catalog: str) -> None:
    increment = '[{"op": "increment", "path": "/n"}]'
    put(run, catalog, "k", {"n": 1})
    for _ in range(2):
        run("patch", catalog, "k", increment, "--idempotency-key", "once")
    assert run("get", catalog, "k").json() == {"n": 2}
    run("patch", catalog, "k", increment)
    run("patch", catalog, "k", increment)
    assert run("get", catalog, "k").json() == {"n": 4}


def test_a_put_with_a_false_condition_is_refused(run: Commands, catalog: str) -> None:
    token = put(run, catalog, "k", 1, "--if-absent")
    run("put", catalog, "k", "2", "--if-absent", code=4)
    newer = put(run, catalog, "k", 2, "--if-match", token)
    error = run("put", catalog, "k", "3", "--if-match", token, code=4).error()
    assert error.startswith("gateway: 412 precondition_failed")
    assert newer in error
    assert run("get", catalog, "k").json() == 2
    with_token = run("get", catalog, "k", "--with-token").json()
    assert with_token == {
        "catalog": catalog,
        "key": "k",
        "etag": newer,
        "catalog_revision": 2,
        "value": 2,
    }


def test_a_test_can_name_a_member_with_an_equals_sign(run: Commands, catalog: str) -> None:
    put(run, catalog, "k", {"a=b": {"c=": "d=1"}, "a": "b=2"})
    add = '[{"op": "add", "path": "/n", "value": 1}]'
    tests = ('/a=b/c=="d=1"', '/a="b=2"', '={"a=b": {"c=": "d=1"}, "a": "b=2"}')
    run("patch", catalog, "k", add, *(each for test in tests for each in ("--test", test)))
    error = run("patch", catalog, "k", add, "--test", "/a=b=1", code=4).error()
    assert "pointer '/a=b'" in error
    assert "'b=x' isn't JSON" in run("patch", catalog, "k", add, "--test", "/a=b=x", code=2).error()


def test_a_patch_is_applied_or_not_at_all(run: Commands, catalog: str) -> None:
    put(run, catalog, "k", ORDERS)
    add = '[{"op": "add", "path": "/fields/-", "value": "total"}]'
    run("patch", catalog, "k", add, "--test", '/name="orders"', "--test", "/owner=null")
    error = run("patch", catalog, "k", add, "--test", '/name="other"', code=4).error()
    assert "409 test_failed" in error
    assert "pointer '/name'" in error
    run("patch", catalog, "k", '{"owner": "ana"}', "--merge")
    extended = {
        "patch": [{"op": "add", "path": "/tags/pii", "value": {"id": "pii"}}],
        "array_primary_keys": {"/tags": ["id"]},
    }
    run("patch", catalog, "k", '[{"op": "add", "path": "/tags", "value": []}]')
    run("patch", catalog, "k", "-", stdin=json.dumps(extended))
    assert run("get", catalog, "k").json() == {
        "name": "orders",
        "fields": ["id", "total"],
        "owner": "ana",
        "tags": [{"id": "pii"}],
    }


def test_repeatable_operations_are_sent_unchanged(run: Commands, catalog: str) -> None:
    put(run, catalog, "k", {"high": 1})
    operations = [
        {"op": "max", "path": "/high", "value": 7},
        {"op": "min", "path": "/low", "value": 3, "create_parents": True},
        {"op": "set", "path": "/owner", "value": "ana"},
        {"op": "append_text", "path": "/log", "value": "+", "once": True, "create_parents": True},
        {"op": "stamp", "path": "/by", "value": "revision"},
    ]
    for changed in (True, False):
        answer = run("patch", catalog, "k", json.dumps(operations)).json()
        assert answer["changed"] is changed
    made = {"high": 7, "low": 3, "owner": "ana", "log": "+", "by": 2}
    assert run("get", catalog, "k").json() == made


def test_a_patch_is_rebased_where_nothing_overlaps(run: Commands, catalog: str) -> None:
    token = put(run, catalog, "k", {"a": 1, "b": 1})
    run("patch", catalog, "k", '[{"op": "replace", "path": "/a", "value": 2}]')
    mine = '[{"op": "replace", "path": "/b", "value": 2}]'
    run("patch", catalog, "k", mine, "--if-match", token, code=4)
    done = run("patch", catalog, "k", mine, "--if-match", token, "--rebase").json()
    assert done["rebased_from"] == token
    theirs = '[{"op": "replace", "path": "/a", "value": 3}]'
    error = run("patch", catalog, "k", theirs, "--if-match", token, "--rebase", code=4).error()
    assert "'/a'" in error


def test_attributes_can_be_read_and_written(run: Commands, catalog: str) -> None:
    put(run, catalog, "k", 1)
    run("put", catalog, "k", '{"team": "sales"}', "--attributes")
    run("patch", catalog, "k", '{"level": 2}', "--merge", "--attributes")
    assert run("get", catalog, "k", "--attributes").json() == {"team": "sales", "level": 2}
    assert run("get", catalog, "k").json() == 1
    assert '+  "level": 2' in run("diff", catalog, "k", "--attributes").stdout


def test_a_document_is_deleted_conditionally(run: Commands, catalog: str) -> None:
    token = put(run, catalog, "k", 1)
    run("delete", catalog, "k", "--if-match", "1-beef", code=4)
    run("delete", catalog, "k", "--if-match", token)
    run("get", catalog, "k", code=3)
    run("delete", catalog, "k")


def test_keys_are_listed_that_contain_a_text(run: Commands, catalog: str) -> None:
    for key in ("tables/orders", "views/Orders", "top"):
        put(run, catalog, key, {"n": key})
    found = run("get", catalog, "--contains", "orders").lines()
    assert [each["key"] for each in found] == ["tables/orders", "views/Orders"]
    values = run("get", catalog, "--contains", "ORD", "--prefix", "v", "--values").lines()
    assert [each["value"] for each in values] == [{"n": "views/Orders"}]
    run("get", catalog, "top", "--contains", "x", code=2)
    run("get", "--contains", "x", code=2)


def test_the_log_of_a_key_that_never_existed_is_an_error(run: Commands, catalog: str) -> None:
    put(run, catalog, "k", 1)
    put(run, catalog, "gone", 1)
    run("delete", catalog, "gone")
    told = run("log", catalog, "typo", code=3)
    assert "there never was a document 'typo'" in told.error()
    run("log", catalog, "typo", "--last", "1", code=3)
    assert len(run("log", catalog, "gone").lines()) == 2
    assert run("log", catalog, "k", "--after", "3").lines() == []


def test_earlier_revisions_can_be_read_until_they_are_compacted(
    run: Commands, catalog: str
) -> None:
    for value in (1, 2, 3):
        put(run, catalog, "k", value)
    times = [each["time"] for each in run("log", catalog).lines()]
    assert run("get", catalog, "k", "--revision", "1").json() == 1
    assert run("get", catalog, "k", "--at", times[1]).json() == 2
    assert run("compact", catalog, "2").json()["floor"] == 2
    assert "410 revision_compacted" in run("get", catalog, "k", "--revision", "1", code=3).error()
    run("compact", catalog, "2", code=4)
    run("get", catalog, "k", "--revision", "99", code=3)
    told = run("log", catalog)
    assert [each["revision"] for each in told.lines()] == [3]
    assert "begins after revision 2" in told.error()
    run("log", catalog, "--after", "1", code=3)


def test_keys_and_catalogs_are_listed(run: Commands, catalog: str) -> None:
    for key in ("a/1", "a/2", "b\n\x1b[31m"):
        put(run, catalog, key, {"n": key})
    listed = run("get", catalog).lines()
    assert [each["key"] for each in listed] == ["a/1", "a/2", "b\n\x1b[31m"]
    assert set(listed[0]) == {"key", "etag", "revision", "create_revision"}
    assert run("get", catalog, "--output=pretty").stdout.splitlines() == [
        "a/1",
        "a/2",
        r"b\n\x1b[31m",
    ]
    values = run("get", catalog, "--prefix=a/", "--values", "--revision=1").lines()
    assert [(each["key"], each["value"], each["attributes"]) for each in values] == [
        ("a/1", {"n": "a/1"}, {})
    ]
    (found,) = run("get", "--prefix", catalog).lines()
    assert (found["catalog"], found["revision"], found["floor"]) == (catalog, 3, 0)
    run("get", catalog + "none", code=3)


def test_differences_between_revisions_and_files(
    run: Commands, catalog: str, tmp_path: Path
) -> None:
    put(run, catalog, "k", {"b": 1, "a": [1, 2]})
    put(run, catalog, "other", 0)
    put(run, catalog, "k", {"a": [1, 2, 3], "b": 1})
    last = run("diff", catalog, "k").stdout
    assert last.startswith(f"--- {catalog}/k (revision 2)\n+++ {catalog}/k (revision 3)\n")
    assert [line for line in last.splitlines()[2:] if line[0] in "+-"] == [
        "-    2",
        "+    2,",
        "+    3",
    ]
    patch = [{"op": "add", "path": "/a/2", "value": 3}]
    for revisions in ((), ("1",), ("1", "3"), ("2", "3")):
        assert run("diff", catalog, "k", *revisions, "--patch").json() == patch
    assert run("diff", catalog, "k", "0", "1", "--patch").json()[0]["path"] == ""
    assert run("diff", catalog, "k", "3", "--patch").json() == []
    assert run("diff", catalog, "k", "3").stdout == ""
    file = tmp_path / "local.json"
    file.write_text('{"a": [1.0, 2, 3], "b": 2}')
    assert run("diff", catalog, "k", f"@{file}", "--patch").json() == [
        {"op": "replace", "path": "/b", "value": 2}
    ]
    assert '+  "b": 2' in run("diff", catalog, "k", "-", stdin=file.read_text()).stdout
    run("delete", catalog, "k")
    assert run("diff", catalog, "k", "--patch").json() == [{"op": "remove", "path": ""}]
    assert "+++" in run("diff", catalog, "k", "1", "4").stdout
    run("diff", catalog, "never", code=3)
    run("diff", catalog, "never", "1", "2", code=3)
    run("diff", catalog, "k", "1", "99", code=3)


def test_no_name_and_no_value_adds_a_line_to_a_difference(
    run: Commands, catalog: str, tmp_path: Path
) -> None:
    """Whoever named a document would write what isn't so, or what a terminal acts on."""
    hostile = "k\n+++ forged\r\x1b[31m\x07\u009b\u2028\u202e"
    named = catalog + hostile
    for number in range(2):
        put(run, named, hostile, {hostile: [hostile, number]})
    file = tmp_path / "lines.ndjson"
    file.write_text(json.dumps({"key": hostile, "value": {hostile: 2}}) + "\n")
    options: tuple[tuple[tuple[str, ...], int], ...] = (
        ((hostile,), 0),
        (("--from", "0"), 0),
        (("--from", "1"), 0),
        (("--from", "1", "--patch", "--output=pretty"), 0),
        (("--file", str(file)), 1),
        (("--file", str(file), "--patch", "--output=pretty"), 1),
    )
    for given, code in options:
        lines = run("diff", named, *given, code=code).stdout.split("\n")
        assert all(line.isprintable() for line in lines), given
        assert not any(line.startswith("+++ forged") for line in lines), given


def test_a_difference_names_items_of_declared_lists_by_key(run: Commands, catalog: str) -> None:
    put(run, catalog, "k", {"f": [{"n": "a"}, {"n": "b"}]})
    with Gateway(run.url) as gateway:
        declared = {"arrays": [{"keys": "*", "pointer": "/f", "item_key": ["n"]}]}
        gateway.catalog(catalog).settings.put(declared)
    wanted = '{"f": [{"n": "b", "x": 1}, {"n": "a"}]}'
    patch = run("diff", catalog, "k", "-", "--patch", stdin=wanted)
    assert patch.json() == {
        "patch": [{"op": "add", "path": "/f/b/x", "value": 1}],
        "array_primary_keys": {},
    }
    run("patch", catalog, "k", "-", stdin=patch.stdout)
    assert run("get", catalog, "k").json() == {"f": [{"n": "a"}, {"n": "b", "x": 1}]}
    assert run("diff", catalog, "k", "-", "--patch", stdin=wanted).json() == []


def test_a_transaction_is_done_as_a_whole(run: Commands, catalog: str, tmp_path: Path) -> None:
    put(run, catalog, "old", 1)
    file = tmp_path / "rename.json"
    file.write_text(
        json.dumps(
            {
                "compare": [{"key": "new", "absent": True}],
                "then": [
                    {"action": "move", "from": "old", "to": "new"},
                    {"action": "get", "key": "new"},
                    {"action": "get", "key": "none"},
                ],
                "message": "its own",
            }
        )
    )
    done = run("transaction", catalog, f"@{file}").json()
    assert (done["succeeded"], done["revision"]) == (True, 2)
    assert done["results"][1]["value"] == 1
    assert "value" not in done["results"][2]
    put(run, catalog, "old", 2)
    error = run("transaction", catalog, f"@{file}", code=4).error()
    assert "412 precondition_failed" in error
    assert "'new'" in error
    otherwise = {"compare": [{"key": "new", "absent": True}], "else": [{"action": "touch"}]}
    told = run("transaction", catalog, json.dumps(otherwise), "-m", "touched").json()
    assert told["succeeded"] is False
    dry = run("transaction", catalog, '{"then": [{"action": "touch"}]}', "--dry-run").json()
    assert dry["dry_run"] is True
    messages = [each["message"] for each in run("log", catalog).lines()]
    assert messages == [None, "its own", None, "touched"]


def test_a_write_can_require_unchanged_ranges(run: Commands, catalog: str) -> None:
    put(run, catalog, "tables/a=b/1", 1)
    put(run, catalog, "other", 1, "--if-unchanged-under", "tables/a=b/=1")
    put(run, catalog, "tables/c", 1)
    told = run("delete", catalog, "other", "--if-unchanged-under=tables/=1", code=4)
    assert "they changed at revision 3, after 1" in told.stderr
    assert run("put", catalog, "k", "1", "--if-unchanged-under", "tables/", code=2).stderr
