"""The operations beyond RFC 6902 change what they say, record it plainly, and refuse the rest."""

from typing import Any

import pytest
from extended_calls import content, effective, extended, refused, run

from patching import (
    ABSENT,
    DocumentAbsent,
    LimitExceeded,
    Limits,
    PatchConflict,
    PathMissing,
    apply,
    apply_extended,
    equal,
)


def op(name, path, **members):
    return {"op": name, "path": path, **members}


def add(path, value, **options):
    return op("add", path, value=value, **options)


D = {"l": ["a", 1, {"x": 1}], "o": {"n": 1, "f": 1.5, "s": "1", "t": True, "null": None}}

# document, operation, effective patch
RECORDED = [
    (D, op("add_to_set", "/l", value="b"), [add("/l/3", "b")]),
    (D, op("add_to_set", "/l", value="a"), []),
    (D, op("add_to_set", "/l", value=1.0), []),
    (D, op("add_to_set", "/l", value=True), [add("/l/3", True)]),
    (D, op("add_to_set", "/l", value={"x": 1.0}), []),
    (D, op("add_to_set", "/l", value=None), [add("/l/3", None)]),
    (["a"], op("add_to_set", "", value="b"), [add("/1", "b")]),
    (D, op("add_to_set", "/new", value="b", create_parents=True), [add("/new", ["b"])]),
    (D, op("add_to_set", "/p/q", value=1, create_parents=True), [add("/p", {"q": [1]})]),
    (ABSENT, op("add_to_set", "/p", value=1, create_parents=True), [add("", {"p": [1]})]),
    (D, op("pull", "/l", value="a"), [op("remove", "/l/0")]),
    (D, op("pull", "/l", value={"x": 1}), [op("remove", "/l/2")]),
    (D, op("pull", "/l", value=True), []),
    (D, op("pull", "/l", value="z"), []),
    ([1, 2, 1.0, 1], op("pull", "", value=1), [op("remove", f"/{n}") for n in (3, 2, 0)]),
    (D, op("increment", "/o/n"), [op("replace", "/o/n", value=2)]),
    (D, op("increment", "/o/n", value=-3), [op("replace", "/o/n", value=-2)]),
    (D, op("increment", "/o/n", value=0.5), [op("replace", "/o/n", value=1.5)]),
    (D, op("increment", "/o/f", value=1), [op("replace", "/o/f", value=2.5)]),
    (D, op("increment", "/o/n", value=0), []),
    (D, op("increment", "/l/1", value=1), [op("replace", "/l/1", value=2)]),
    (D, op("increment", "/o/new/n", create_parents=True), [add("/o/new", {"n": 1})]),
    (D, op("increment", "/o/n", create_parents=True), [op("replace", "/o/n", value=2)]),
    (2**63 - 2, op("increment", ""), [op("replace", "", value=2**63 - 1)]),
    (D, op("set", "/o/n", value=2), [op("replace", "/o/n", value=2)]),
    (D, op("set", "/o/n", value=1.0), []),
    (D, op("set", "/o/new", value=2), [add("/o/new", 2)]),
    (D, op("set", "/l/1", value=2), [op("replace", "/l/1", value=2)]),
    (D, op("set", "/p/q", value=2, create_parents=True), [add("/p", {"q": 2})]),
    (D, op("set", "", value=2), [op("replace", "", value=2)]),
    (ABSENT, op("set", "", value=2), [add("", 2)]),
    (ABSENT, op("set", "/p", value=2, create_parents=True), [add("", {"p": 2})]),
    (D, op("max", "/o/n", value=2), [op("replace", "/o/n", value=2)]),
    (D, op("max", "/o/n", value=1.0), []),
    (D, op("max", "/o/f", value=1), []),
    (D, op("min", "/o/f", value=1), [op("replace", "/o/f", value=1)]),
    (D, op("min", "/o/n", value=2), []),
    (2**53, op("max", "", value=2**53 + 1), [op("replace", "", value=2**53 + 1)]),
    (D, op("max", "/o/new", value=-1, create_parents=True), [add("/o/new", -1)]),
    (ABSENT, op("min", "/n", value=3, create_parents=True), [add("", {"n": 3})]),
    (D, op("append_text", "/o/s", value="2"), [op("replace", "/o/s", value="12")]),
    (D, op("append_text", "/o/s", value="1"), [op("replace", "/o/s", value="11")]),
    (D, op("append_text", "/o/s", value="1", once=True), []),
    (D, op("append_text", "/o/s", value=""), []),
    (D, op("append_text", "/o/s", value="é", max_length=2), [op("replace", "/o/s", value="1é")]),
    (D, op("append_text", "/o/t2", value="a", create_parents=True), [add("/o/t2", "a")]),
    (D, op("stamp", "/o/n", value="revision"), []),
    (D, op("stamp", "/z/y", value="author"), []),
    (ABSENT, op("stamp", "/n", value="time"), []),
    (D, add("/o/p/q/r", 1, create_parents=True), [add("/o/p", {"q": {"r": 1}})]),
    (D, add("/o/p", 1, create_parents=True), [add("/o/p", 1)]),
    (D, add("/o/n", 2, create_parents=True), [op("replace", "/o/n", value=2)]),
    (D, add("/l/2/y/z", 1, create_parents=True), [add("/l/2/y", {"z": 1})]),
    (D, add("/l/-", 1, create_parents=True), [add("/l/3", 1)]),
    (ABSENT, add("/a/b", 1, create_parents=True), [add("", {"a": {"b": 1}})]),
    (D, add("/a/0", 1, create_parents=True), [add("/a", {"0": 1})]),
    (D, op("remove", "/o/n", if_exists=True), [op("remove", "/o/n")]),
    (D, op("remove", "/o/z", if_exists=True), []),
    (D, op("remove", "/z/y/x", if_exists=True), []),
    (D, op("remove", "/l/3", if_exists=True), []),
    (D, op("remove", "/l/-", if_exists=True), []),
    (D, op("remove", "/o/null", if_exists=True), [op("remove", "/o/null")]),
    (D, op("remove", "", if_exists=True), [op("remove", "")]),
    (ABSENT, op("remove", "", if_exists=True), []),
    (ABSENT, op("remove", "/a", if_exists=True), []),
    (ABSENT, add("", 1), [add("", 1)]),
    # RFC 6902 in an extended patch: the record has positions, and nothing that changes nothing
    (D, add("/l/-", 1), [add("/l/3", 1)]),
    (D, add("/l/0", "a"), [add("/l/0", "a")]),
    (D, add("/o/n", 1.0), []),
    (D, op("replace", "/o/n", value=1), []),
    (D, op("replace", "/o/t", value=1), [op("replace", "/o/t", value=1)]),
    (D, op("replace", "/l/0", value=None), [op("replace", "/l/0", value=None)]),
    (D, op("test", "/o/n", value=1), []),
    (D, {"op": "copy", "from": "/o/n", "path": "/l/-"}, [op("copy", "/l/3") | {"from": "/o/n"}]),
    (D, {"op": "copy", "from": "/o/n", "path": "/o/n"}, []),
    (D, {"op": "move", "from": "/l/2", "path": "/l/-"}, []),
    (D, {"op": "move", "from": "/l/0", "path": "/l/-"}, [op("move", "/l/2") | {"from": "/l/0"}]),
    (D, {"op": "move", "from": "/o/n", "path": "/o/n"}, []),
]


@pytest.mark.parametrize(("document", "operation", "recorded"), RECORDED, ids=str)
def test_an_operation_is_recorded_as_its_effective_plain_patch(document, operation, recorded):
    result = run(document, operation)
    assert repr(sorted_members(result.effective)) == repr(sorted_members(recorded))
    if not recorded:
        assert result.content is document
    if operation["op"] in ("add", "replace", "copy", "move") and "create_parents" not in operation:
        assert equal(apply(document, [operation]), result.content)


def sorted_members(patch):
    return [dict(sorted(each.items())) for each in patch]


REFUSED = [
    (D, op("add_to_set", "/new", value="b"), PathMissing),
    (D, op("add_to_set", "/o", value="b"), PatchConflict),
    (D, op("add_to_set", "/o/null", value="b", create_parents=True), PatchConflict),
    (D, op("add_to_set", "/o/null/x", value="b", create_parents=True), PathMissing),
    (D, op("pull", "/new", value="b"), PathMissing),
    (D, op("pull", "/o/s", value="1"), PatchConflict),
    (D, op("increment", "/o/s"), PatchConflict),
    (D, op("increment", "/o/t"), PatchConflict),
    (D, op("increment", "/o/null"), PatchConflict),
    (D, op("increment", "/o/z"), PathMissing),
    (2**63 - 1, op("increment", ""), PatchConflict),
    (-(2**63), op("increment", "", value=-1), PatchConflict),
    (1.7e308, op("increment", "", value=1.7e308), PatchConflict),
    (10**400, op("increment", "", value=0.5), PatchConflict),
    (ABSENT, op("increment", "/n", value=2**63, create_parents=True), PatchConflict),
    (D, op("set", "/p/q", value=1), PathMissing),
    (D, op("set", "/l/3", value=1), PathMissing),
    (D, op("set", "/l/-", value=1), PathMissing),
    (D, op("set", "/o/s/q", value=1, create_parents=True), PathMissing),
    (D, op("max", "/o/z", value=1), PathMissing),
    (D, op("max", "/o/s", value=1), PatchConflict),
    (D, op("min", "/o/t", value=0), PatchConflict),
    (D, op("append_text", "/o/z", value="a"), PathMissing),
    (D, op("append_text", "/o/n", value="a"), PatchConflict),
    (D, op("append_text", "/o/s", value="ab", max_length=2), PatchConflict),
    (D, op("append_text", "/o/z", value="ab", max_length=1, create_parents=True), PatchConflict),
    (ABSENT, op("set", "/p", value=1), DocumentAbsent),
    (ABSENT, op("max", "", value=1), DocumentAbsent),
    (ABSENT, op("append_text", "", value="a"), DocumentAbsent),
    (D, add("/p/q", 1), PathMissing),
    (D, add("/o/s/q", 1, create_parents=True), PathMissing),
    (D, add("/l/5/q", 1, create_parents=True), PathMissing),
    (D, add("/l/x/q", 1, create_parents=True), PathMissing),
    (D, add("/l/-/q", 1, create_parents=True), PathMissing),
    (D, add("/p/-", 1, create_parents=True), PatchConflict),
    (D, op("remove", "/o/z"), PathMissing),
    (ABSENT, op("add_to_set", "/p", value=1), DocumentAbsent),
    (ABSENT, op("pull", "", value=1), DocumentAbsent),
    (ABSENT, op("increment", ""), DocumentAbsent),
    (ABSENT, op("remove", ""), DocumentAbsent),
    (ABSENT, op("replace", "", value=1), DocumentAbsent),
    (ABSENT, add("/a", 1), DocumentAbsent),
    (ABSENT, {"op": "copy", "from": "", "path": "/a"}, DocumentAbsent),
]


@pytest.mark.parametrize(("document", "operation", "error"), REFUSED, ids=str)
def test_an_operation_that_does_not_fit_is_refused_and_the_error_names_its_pointer(
    document, operation, error
):
    caught = refused(
        error, document, {"op": "type", "path": "/no", "value": "undefined"}, operation
    )
    assert type(caught) is error
    assert (caught.operation, caught.pointer) == (1, operation["path"])


def test_set_operations_are_idempotent():
    for change in (op("add_to_set", "/l", value={"x": [1]}), op("pull", "/l", value="a")):
        once = content(D, change)
        assert run(once, change).content is once
        assert run(D, change, change).content == once


def test_a_pull_of_many_small_items_is_recorded_by_the_remaining_list_if_shorter():
    document = {"l": [0] * 500 + ["kept"]}
    recorded = effective(document, op("pull", "/l", value=0))
    assert recorded == [op("replace", "/l", value=["kept"])]
    document = {"l": [0] * 500 + ["kept" * 10_000]}
    assert len(effective(document, op("pull", "/l", value=0))) == 500


def test_a_record_never_has_more_operations_than_the_limit():
    document = {"l": [0] * 9 + ["kept"], "m": [1] * 9 + [2], "a": 1}
    limits = Limits(operations_max=10)
    pulls = [op("pull", "/l", value=0), op("pull", "/m", value=1)]
    result = run(document, *pulls, limits=limits)
    assert result.effective == [add("", {"l": ["kept"], "m": [2], "a": 1})]
    result = run({"l": [0] * 20 + ["x" * 9999]}, pulls[0], limits=limits)
    assert [each["path"] for each in result.effective] == ["/l"]


def test_operations_share_the_parts_they_do_not_touch():
    document = {"a": {"l": [1]}, "b": {"deep": []}}
    after = content(document, op("add_to_set", "/a/l", value=2))
    assert after == {"a": {"l": [1, 2]}, "b": {"deep": []}}
    assert after["b"] is document["b"]


def test_recorded_values_are_not_modified_by_later_operations():
    value = {"l": []}
    result = run(
        {"s": []}, op("add_to_set", "/s", value=value), op("add_to_set", "/s/0/l", value=1)
    )
    assert result.content == {"s": [{"l": [1]}]}
    assert result.effective == [add("/s/0", {"l": []}), add("/s/0/l/0", 1)]
    assert value == {"l": []}


def exceeded(limit, document, *operations, **limits):
    error = refused(LimitExceeded, document, *operations, limits=Limits(**limits))
    assert (error.limit, error.maximum) == (limit, limits[limit])
    return error


def test_the_limits_of_plain_patches_apply():
    deep = add("/a/b/c", {}, create_parents=True)
    run({}, deep, limits=Limits(depth_max=4))
    exceeded("depth_max", {}, deep, depth_max=3)
    exceeded("depth_max", {"l": []}, op("add_to_set", "/l", value=[[]]), depth_max=3)
    set_max = {"result_bytes_max": 20}
    exceeded("result_bytes_max", {"l": []}, op("add_to_set", "/l", value="x" * 20), **set_max)
    exceeded("result_bytes_max", {}, add("/a/b", "x" * 9, create_parents=True), **set_max)
    copies = [{"op": "copy", "from": "", "path": f"/{n}"} for n in range(9)]
    error = exceeded("copy_growth_bytes_max", {"a": "x" * 99}, *copies, copy_growth_bytes_max=500)
    assert (error.operation, error.pointer) == (2, "")
    moves = [{"op": "move", "from": "/a", "path": "/b/x"}]
    exceeded("depth_max", {"a": [[]], "b": {}}, *moves, depth_max=3)


def test_the_work_of_a_patch_is_bounded():
    document = {"l": [[n] for n in range(10_000)]}
    many = [op("add_to_set", "/l", value=[n]) for n in range(1000)]
    error = refused(LimitExceeded, document, *many)
    assert error.limit == "items_examined_max"
    assert error.operation > 50
    assert error.pointer == "/l"


def test_a_stamp_is_written_only_by_a_commit_that_changes_something() -> None:
    stamps = [
        op("stamp", f"/by/{what}", value=what, create_parents=True)
        for what in ("time", "revision", "author")
    ]
    after = content({"n": 1}, op("set", "/n", value=2), *stamps)
    assert after == {
        "n": 2,
        "by": {"time": "2025-11-25T10:00:00.000000Z", "revision": 7, "author": "ada"},
    }
    assert run(after, op("set", "/n", value=2), *stamps).content is after


@pytest.mark.parametrize(
    "operations",
    [
        [op("remove", "/n", if_exists=True), op("set", "/n", value=1)],
        [op("pull", "/tags", value="a"), op("add_to_set", "/tags", value="a")],
        [op("add", "/spare", value=1), op("remove", "/spare")],
    ],
)
def test_a_change_that_a_patch_undoes_itself_is_not_stamped(operations: list[Any]) -> None:
    before = {"n": 1, "tags": ["a"]}
    stamps = [op("stamp", "/at", value="time"), op("stamp", "/in", value="revision")]
    assert equal(content(before, *operations, *stamps), before)


def test_a_patch_outside_a_commit_cannot_stamp() -> None:
    patch = extended([op("set", "/n", value=2), op("stamp", "/t", value="time")])
    with pytest.raises(PatchConflict, match="'stamp' works only in a commit"):
        apply_extended({}, patch, document_bytes=2)


def test_appending_to_a_text_counts_its_size_as_work() -> None:
    appends = [op("append_text", "", value="x" * 100_000)] * 20
    refused(LimitExceeded, "", *appends, limits=Limits(items_examined_max=50_000))
