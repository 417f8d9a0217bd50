"""Under `array_primary_keys` items are addressed by key, whatever their order."""

import pytest
from extended_calls import content, effective, refused, run

from patching import (
    ABSENT,
    InvalidPatch,
    LimitExceeded,
    Limits,
    PatchConflict,
    PathMissing,
    TestFailed,
)

US = "␟"
KEYED = {"/fields": ["path"], "/fields/*/tags": ["scheme", "by/name"]}
TAG = {"scheme": "s", "by": {"name": "n"}, "note": 1}
D = {
    "fields": [
        {"path": "id", "n": 1},
        {"path": "user.name", "description": "d", "tags": [TAG]},
        {"path": 5},
        {"no": "key"},
        {"path": True},
    ]
}


def op(name, path, **members):
    return {"op": name, "path": path, **members}


def add(path, value, **options):
    return op("add", path, value=value, **options)


def moving(name, source, path):
    return {"op": name, "from": source, "path": path}


F = "/fields"
TAGS = f"{F}/user.name/tags"

RECORDED = [
    (add(f"{F}/id", {"n": 2}), [op("replace", f"{F}/0", value={"path": "id", "n": 2})]),
    (add(f"{F}/id", {"path": "id", "n": 1.0}), []),
    (add(f"{F}/new", {"n": 2}), [add(f"{F}/5", {"path": "new", "n": 2})]),
    (add(f"{F}/new", {"n": 2, "path": "new"}), [add(f"{F}/5", {"n": 2, "path": "new"})]),
    (add(f"{F}/5", {"n": 2}), [op("replace", f"{F}/2", value={"path": 5, "n": 2})]),
    (add(f"{F}/true", {"n": 2}), [op("replace", f"{F}/4", value={"path": True, "n": 2})]),
    (add(f"{F}/0", {}), [add(f"{F}/5", {"path": "0"})]),
    (add(f"{F}/-", {}), [add(f"{F}/5", {"path": "-"})]),
    (add(f"{F}/user.name/description", None), [op("replace", f"{F}/1/description", value=None)]),
    (add(f"{F}/id/new", None), [add(f"{F}/0/new", None)]),
    (op("replace", f"{F}/id", value={}), [op("replace", f"{F}/0", value={"path": "id"})]),
    (op("replace", f"{F}/id/n", value=None), [op("replace", f"{F}/0/n", value=None)]),
    (op("replace", f"{F}/id/path", value="x"), [op("replace", f"{F}/0/path", value="x")]),
    (op("remove", f"{F}/user.name"), [op("remove", f"{F}/1")]),
    (op("remove", f"{F}/nobody", if_exists=True), []),
    (op("remove", f"{F}/nobody/x/y", if_exists=True), []),
    (op("remove", f"{F}/id/n"), [op("remove", f"{F}/0/n")]),
    (op("test", f"{F}/5", value={"path": 5}), []),
    (op("undefined", f"{F}/0"), []),
    (op("undefined", f"{F}/-"), []),
    (op("and", F, apply=[op("defined", "/id"), op("undefined", "/0")]), []),
    (op("contains", f"{TAGS}/s{US}n/by/name", value="n"), []),
    (op("increment", f"{F}/id/n"), [op("replace", f"{F}/0/n", value=2)]),
    (op("max", f"{F}/id/n", value=5), [op("replace", f"{F}/0/n", value=5)]),
    (op("set", f"{F}/id/n", value=5), [op("replace", f"{F}/0/n", value=5)]),
    (op("increment", f"{TAGS}/s{US}n/note"), [op("replace", f"{F}/1/tags/0/note", value=2)]),
    (
        add(f"{TAGS}/s{US}m", {"note": 2}),
        [add(f"{F}/1/tags/1", {"by": {"name": "m"}, "scheme": "s", "note": 2})],
    ),
    (
        add(f"{TAGS}/s{US}m/note", 2, create_parents=True),
        [add(f"{F}/1/tags/1", {"by": {"name": "m"}, "scheme": "s", "note": 2})],
    ),
    (
        add(f"{F}/new/tags/s{US}m/note", 2, create_parents=True),
        [
            add(
                f"{F}/5",
                {"path": "new", "tags": [{"by": {"name": "m"}, "scheme": "s", "note": 2}]},
            )
        ],
    ),
    (op("add_to_set", f"{F}/id/list", value=1, create_parents=True), [add(f"{F}/0/list", [1])]),
    (op("pull", TAGS, value=TAG), [op("remove", f"{F}/1/tags/0")]),
    (moving("move", f"{F}/id", f"{F}/id"), []),
    (moving("move", f"{F}/id", f"{F}/renamed"), [add(f"{F}/0/path", "renamed")]),
    (moving("move", f"{F}/id", "/id"), [moving("move", f"{F}/0", "/id")]),
    (
        moving("move", f"{F}/id", f"{F}/user.name"),
        [
            moving("move", f"{F}/0", f"{F}/0"),
            op("remove", f"{F}/1"),
            add(f"{F}/0/path", "user.name"),
        ],
    ),
    (
        moving("move", f"{F}/id", f"{F}/true"),
        [moving("move", f"{F}/0", f"{F}/3"), op("remove", f"{F}/4"), add(f"{F}/3/path", "true")],
    ),
    (
        moving("move", f"{F}/true", f"{F}/id"),
        [moving("move", f"{F}/4", f"{F}/0"), op("remove", f"{F}/1"), add(f"{F}/0/path", "id")],
    ),
    (moving("move", f"{F}/id/n", f"{F}/5/n"), [moving("move", f"{F}/0/n", f"{F}/2/n")]),
    (
        moving("copy", f"{F}/id", f"{F}/twin"),
        [moving("copy", f"{F}/0", f"{F}/5"), add(f"{F}/5/path", "twin")],
    ),
    (
        moving("copy", f"{F}/id", f"{F}/5"),
        [moving("copy", f"{F}/0", f"{F}/2"), op("remove", f"{F}/3"), add(f"{F}/2/path", "5")],
    ),
    (moving("copy", f"{F}/id", f"{F}/id"), []),
    (
        moving("copy", f"{F}/id", f"{TAGS}/a{US}b"),
        [
            moving("copy", f"{F}/0", f"{F}/1/tags/1"),
            add(f"{F}/1/tags/1/scheme", "a"),
            add(f"{F}/1/tags/1/by", {"name": "b"}),
        ],
    ),
]


@pytest.mark.parametrize(("operation", "recorded"), RECORDED, ids=str)
def test_an_address_means_the_item_with_this_key_in_the_record_its_position(operation, recorded):
    result = run(D, operation, keyed=KEYED)
    same_place = [each for each in recorded if each.get("from") != each["path"]]
    assert result.effective == same_place
    if not recorded:
        assert result.content is D


REFUSED = [
    (add(f"{F}/nobody/x", 1), PathMissing),
    (op("remove", f"{F}/nobody"), PathMissing),
    (op("remove", f"{F}/0"), PathMissing),
    (op("replace", f"{F}/nobody", value={}), PathMissing),
    (op("test", f"{F}/nobody", value={}), TestFailed),
    (op("defined", f"{F}/0"), TestFailed),
    (moving("move", f"{F}/id/n", f"{F}/nobody/n"), PathMissing),
    (op("replace", f"{F}/id/path", value="user.name"), PatchConflict),
    (add(f"{F}/id/path", "user.name"), PatchConflict),
    (op("set", f"{F}/id/path", value="other"), PatchConflict),
    (op("set", f"{F}/new/path", value=["x"], create_parents=True), PatchConflict),
    (op("append_text", f"{F}/id/path", value="2"), PatchConflict),
    (op("set", f"{F}/id", value={"path": "other"}), InvalidPatch),
    (op("add_to_set", F, value={"path": "id"}), PatchConflict),
    (add(F, [{"path": "a"}, {"path": "a"}]), PatchConflict),
    (moving("copy", f"{F}/id/n", f"{F}/new"), PatchConflict),
    (add(f"{TAGS}/s{US}n", {"scheme": "other"}), InvalidPatch),
    (add(f"{F}/id", {"path": "other"}), InvalidPatch),
    (add(f"{F}/5", {"path": "6"}), InvalidPatch),
    (add(f"{F}/id", {"path": None}), InvalidPatch),
    (add(f"{F}/id", {"path": ["id"]}), InvalidPatch),
    (add(f"{F}/id", "text"), InvalidPatch),
    (op("replace", f"{F}/id", value=[]), InvalidPatch),
    (add(f"{TAGS}/s{US}n", {"by": "n"}), InvalidPatch),
    (add(f"{TAGS}/s", {}), InvalidPatch),
    (op("defined", f"{TAGS}/s{US}n{US}m"), InvalidPatch),
    (op("not", TAGS, apply=[op("defined", "/s")]), InvalidPatch),
]


@pytest.mark.parametrize(("operation", "error"), REFUSED, ids=str)
def test_an_operation_that_does_not_fit_is_refused_with_the_address_as_given(operation, error):
    caught = refused(error, D, op("defined", F), operation, keyed=KEYED)
    assert type(caught) is error
    assert caught.operation == 1
    nested = [operation["path"] + each["path"] for each in operation.get("apply", ())]
    assert caught.pointer in (operation["path"], *nested)
    if error is InvalidPatch:
        assert caught.member in ("path", "value")


def test_a_source_that_is_missing_is_named_as_given():
    error = refused(PathMissing, D, moving("copy", f"{F}/nobody", "/x"), keyed=KEYED)
    assert error.pointer == f"{F}/nobody"
    error = refused(
        InvalidPatch, D, moving("copy", f"{TAGS}/half", "/x"), keyed={F: ["path"], TAGS: ["a", "b"]}
    )
    assert (error.pointer, error.member) == (f"{TAGS}/half", "from")


@pytest.mark.parametrize(
    "operation", [op("defined", f"{F}/b"), add(f"{F}/c", {}), add(f"{F}/a/x", 1)]
)
def test_two_stored_items_with_one_key_are_a_conflict(operation):
    document = {"fields": [{"path": "a"}, {"path": "b"}, {"path": "a"}]}
    error = refused(PatchConflict, document, operation, keyed=KEYED)
    assert type(error) is PatchConflict
    assert "items 0 and 2" in error.detail
    assert '"a"' in error.detail
    number_and_text = {"fields": [{"path": 1}, {"path": "1"}]}
    refused(PatchConflict, number_and_text, operation, keyed=KEYED)


def test_a_keyed_pointer_that_leads_to_no_array_has_no_items():
    for other in ({"id": 1}, "text", None):
        document = {"fields": other}
        refused(TestFailed, document, op("defined", f"{F}/id"), keyed=KEYED)
        for change in (add(f"{F}/id", {}), op("remove", f"{F}/id")):
            error = refused(PatchConflict, document, change, keyed=KEYED)
            assert (type(error), error.pointer) == (PatchConflict, f"{F}/id")
        assert run(document, op("remove", f"{F}/id", if_exists=True), keyed=KEYED).effective == []


def test_a_missing_keyed_array_is_created_as_an_array():
    change = add(f"{F}/a/tags/s{US}n/note", 1, create_parents=True)
    field = {"path": "a", "tags": [{"by": {"name": "n"}, "scheme": "s", "note": 1}]}
    assert content({}, change, keyed=KEYED) == {"fields": [field]}
    assert content(ABSENT, change, keyed=KEYED) == {"fields": [field]}
    item = add("/a", {"n": 1}, create_parents=True)
    assert content(ABSENT, item, keyed={"": ["k"]}) == [{"k": "a", "n": 1}]
    refused(PathMissing, {}, add(f"{F}/a", {}), keyed=KEYED)


def test_escapes_and_separators_in_addresses():
    keyed = {"/a~1b": ["k"], "/m": ["a~1b/c"]}
    document = {"a/b": [{"k": "x/y~z"}, {"k": f"p{US}q"}, {"k": ""}], "m": [{"a/b": {"c": 1.0}}]}
    removals = [op("remove", f"/a~1b/{key}") for key in ("x~1y~0z", f"p{US}q", "")]
    assert content(document, *removals, op("remove", "/m/1"), keyed=keyed) == {"a/b": [], "m": []}


def test_a_literal_pattern_takes_precedence_over_a_wildcard():
    keyed = {"/*/l": ["k"], "/a/l": ["j"]}
    document = {"a": {"l": [{"j": 1, "k": 2}]}, "b": {"l": [{"j": 1, "k": 2}]}}
    patch = [op("remove", "/a/l/1/k"), op("remove", "/b/l/2/j")]
    assert content(document, *patch, keyed=keyed) == {
        "a": {"l": [{"j": 1}]},
        "b": {"l": [{"k": 2}]},
    }


def test_many_addresses_in_one_array_cost_no_search_each():
    document = {"fields": [{"path": f"f{n}", "n": n} for n in range(2000)]}
    changes = [op("increment", f"{F}/f{n}/n") for n in range(400)]
    changes += [add(f"{F}/g{n}", {}) for n in range(300)]
    changes += [op("replace", f"{F}/f{n}", value={"n": 0}) for n in range(200)]
    changes += [op("remove", f"{F}/f{n}") for n in range(100)]
    limits = Limits(items_examined_max=40_000)
    after = run(document, *changes, keyed=KEYED, limits=limits).content["fields"]
    assert len(after) == 2200
    assert after[0] == {"path": "f100", "n": 0}
    assert after[-1] == {"path": "g299"}
    error = refused(
        LimitExceeded, document, *changes, keyed=KEYED, limits=Limits(items_examined_max=1999)
    )
    assert (error.limit, error.operation) == ("items_examined_max", 0)


def test_addresses_are_looked_up_in_the_state_after_the_earlier_operations():
    changes = [
        op("remove", f"{F}/id"),
        add(f"{F}/id", {"n": 9}),
        moving("move", f"{F}/id", f"{F}/k"),
        add(f"{F}/id", {}),
        op("test", f"{F}/k/n", value=9),
    ]
    fields = content(D, *changes, keyed=KEYED)["fields"]
    assert fields == [*D["fields"][1:], {"path": "k", "n": 9}, {"path": "id"}]
    assert len(effective(D, *changes, keyed=KEYED)) == 4


def test_items_are_looked_up_again_after_they_have_moved():
    tags = [[{"t": key, "n": key * 2} for key in keys] for keys in ("ab", "ba", "acb")]
    document = {"fields": [{"path": str(n), "tags": each} for n, each in enumerate(tags)]}
    keyed = {"/fields": ["path"], "/fields/*/tags": ["t"]}
    look = [op("test", f"{F}/{n}/tags/a/n", value="aa") for n in (1, 2)]
    patch = [*look, op("remove", f"{F}/0"), *look]
    assert len(content(document, *patch, keyed=keyed)["fields"]) == 2


def test_an_item_replaced_by_its_index_in_between_is_looked_up_again():
    document = {"fields": [{"path": "id", "tags": [{"t": "a"}]}]}
    keyed = {"/fields": ["path"], "/fields/id/tags": ["t"]}
    patch = [
        op("defined", f"{F}/id/tags/a"),
        moving("move", f"{F}/id", f"{F}/x"),
        op("replace", f"{F}/x/tags/0", value={"t": "b"}),  # no rule for /fields/x/tags
        moving("move", f"{F}/x", f"{F}/id"),
        op("undefined", f"{F}/id/tags/a"),
        op("defined", f"{F}/id/tags/b"),
    ]
    assert content(document, *patch, keyed=keyed) == {
        "fields": [{"path": "id", "tags": [{"t": "b"}]}]
    }


def test_a_limit_names_the_address_as_given():
    change = add(f"{TAGS}/s{US}m", {})  # its keys reach deeper than the value as given
    run(D, change, keyed=KEYED, limits=Limits(depth_max=6))
    error = refused(
        LimitExceeded, D, op("defined", ""), change, keyed=KEYED, limits=Limits(depth_max=5)
    )
    assert (error.operation, error.pointer) == (1, change["path"])
    copying = moving("copy", f"{F}/user.name", "/copy")
    limits = Limits(copy_growth_bytes_max=9)
    error = refused(LimitExceeded, D, copying, keyed=KEYED, limits=limits)
    assert error.pointer == f"{F}/user.name"
