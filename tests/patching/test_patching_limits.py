"""What a patch may cost is bounded, and a bound says which, how much and where."""

import json

import pytest
from hypothesis import given, settings
from patch_strategies import patched_documents

from patching import (
    ABSENT,
    DEFAULT_LIMITS,
    LimitExceeded,
    Limits,
    PatchError,
    apply,
    apply_within,
    diff,
    equal,
    merge,
    parse,
)


def exceeded(limit, document, patch, **limits):
    with pytest.raises(LimitExceeded) as caught:
        apply(document, patch, limits=Limits(**limits))
    error = caught.value
    assert (error.code, error.limit, error.maximum) == ("limit_exceeded", limit, limits[limit])
    assert error.actual > error.maximum
    return error


def size(document):
    return len(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())


def copying(source, path):
    return {"op": "copy", "from": source, "path": path}


def test_copies_that_double_the_document_are_stopped():
    patch = [copying("", f"/{n}") for n in range(40)]
    error = exceeded("copy_growth_bytes_max", {"a": "x" * 100}, patch, copy_growth_bytes_max=10**6)
    assert error.operation == 13  # 2**13 * 100 bytes and more
    assert error.pointer == ""


def test_copy_growth_is_the_sum_over_the_patch():
    document = {"a": "x" * 98}  # 100 bytes as JSON
    patch = [copying("/a", "/b"), copying("/a", "/c")]
    assert len(apply(document, patch, limits=Limits(copy_growth_bytes_max=200))) == 3
    error = exceeded("copy_growth_bytes_max", document, patch, copy_growth_bytes_max=199)
    assert (error.operation, error.actual) == (1, 200)


def nested(levels, core=None):
    value = {} if core is None else core
    for _ in range(levels):
        value = {"n": value}
    return value


def test_depth_counts_the_pointer_and_the_value():
    document = nested(3)  # /n/n/n is {}
    limits = Limits(depth_max=5)
    apply(document, [{"op": "add", "path": "/n/n/n/x", "value": [1]}], limits=limits)
    error = exceeded(
        "depth_max", document, [{"op": "add", "path": "/n/n/n/x", "value": [[]]}], depth_max=5
    )
    assert (error.actual, error.operation, error.pointer) == (6, 0, "/n/n/n/x")


def test_the_depth_limit_applies_to_a_patch_parsed_with_looser_limits():
    patch = parse([{"op": "remove", "path": "/a"}, {"op": "add", "path": "/b", "value": [[[]]]}])
    error = exceeded("depth_max", {"a": 1}, patch, depth_max=3)
    assert (error.operation, error.pointer) == (1, "/b")


def test_the_depth_limit_applies_to_copies():
    document = {"a": [[]], "b": nested(2)}
    assert apply(document, [copying("/a", "/b/n/x")], limits=Limits(depth_max=5))
    error = exceeded("depth_max", document, [copying("/a", "/b/n/x")], depth_max=4)
    assert (error.actual, error.operation, error.pointer) == (5, 0, "/b/n/x")


def test_the_depth_limit_applies_to_moves():
    document = {"a": [[]], "b": nested(2), "c": 1}
    patch = [{"op": "remove", "path": "/c"}, {"op": "move", "from": "/a", "path": "/b/n/x"}]
    assert apply(document, patch, limits=Limits(depth_max=5))
    error = exceeded("depth_max", document, patch, depth_max=4)
    assert (error.actual, error.operation, error.pointer) == (5, 1, "/b/n/x")


def test_moves_that_nest_too_deeply_are_refused():
    document = {f"c{n}": nested(80) for n in range(60)}
    patch = []
    for n in range(59):  # each chain goes to the end of the next one
        patch.append({"op": "move", "from": f"/c{n}", "path": f"/c{n + 1}" + "/n" * 80 + "/x"})
    error = exceeded("depth_max", document, patch, depth_max=100)
    assert error.actual > 4000
    exceeded("depth_max", document, [*patch, copying("/c59", "/d")], depth_max=100)


def test_a_move_that_nests_nothing_deeper_is_not_refused():
    document = nested(30)
    patch = [{"op": "move", "from": "/n", "path": "/m"}]
    assert apply(document, patch, limits=Limits(depth_max=31)) == {"m": nested(29)}


def test_the_result_may_take_as_many_bytes_as_allowed_and_no_more():
    patch = [{"op": "add", "path": "/b", "value": "é"}]
    result = {"a": 1, "b": "é"}
    assert apply({"a": 1}, patch, limits=Limits(result_bytes_max=size(result))) == result
    error = exceeded("result_bytes_max", {"a": 1}, patch, result_bytes_max=size(result) - 1)
    assert error.actual == size(result)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/a", "value": "xx"},
        {"op": "replace", "path": "", "value": {"a": "xx"}},
        {"op": "add", "path": "", "value": {"a": "xx"}},
        {"op": "add", "path": "/b", "value": 1},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "move", "from": "/a", "path": "/long"},
    ],
)
def test_every_operation_that_enlarges_a_document_must_keep_the_size_limit(operation):
    document = {"a": "x"}
    exceeded("result_bytes_max", document, [operation], result_bytes_max=size(document))


def test_a_patch_that_shrinks_an_oversized_document_is_accepted():
    document = {"a": "x" * 100, "b": 1}
    limits = Limits(result_bytes_max=50)
    for patch in (
        [{"op": "remove", "path": "/b"}],
        [{"op": "replace", "path": "/b", "value": 2}],
        [{"op": "test", "path": "/b", "value": 1}],
    ):
        after, bound = apply_within(document, patch, limits=limits, document_bytes=size(document))
        assert bound == size(after)
        assert apply(document, patch, limits=limits) == after
    assert merge(document, {"b": None}, limits=limits) == {"a": "x" * 100}


def test_a_value_that_is_removed_again_does_not_count():
    patch = [
        {"op": "add", "path": "/b", "value": "x" * 100},
        {"op": "remove", "path": "/b"},
    ]
    assert apply({"a": 1}, patch, limits=Limits(result_bytes_max=20)) == {"a": 1}


@settings(max_examples=200)
@given(patched_documents())
def test_the_bound_that_apply_within_returns_is_never_too_low(case):
    document, patch = case
    try:
        after, bound = apply_within(document, patch, document_bytes=size(document))
    except PatchError:
        return
    assert after is ABSENT or size(after) <= bound


def test_apply_within_measures_when_the_bound_would_pass_the_limit():
    limits = Limits(result_bytes_max=100)
    document, bound = {"n": 0}, 7
    bounds = set()
    for n in range(1, 300):
        document, bound = apply_within(
            document,
            [{"op": "replace", "path": "/n", "value": n}],
            limits=limits,
            document_bytes=bound,
        )
        bounds.add(bound)
        assert bound <= 100
    assert {9, 98} <= bounds  # exact after measuring, and grown to the limit before


def test_merge_must_keep_the_limits_of_depth_and_size():
    with pytest.raises(LimitExceeded) as caught:
        merge({}, {"a": {"b": []}}, limits=Limits(depth_max=2))
    assert (caught.value.limit, caught.value.actual) == ("depth_max", 3)
    with pytest.raises(LimitExceeded) as caught:
        merge({"a": 1}, {"b": 1}, limits=Limits(result_bytes_max=12))
    assert (caught.value.limit, caught.value.actual) == ("result_bytes_max", 13)


@pytest.mark.parametrize("field", ["operations_max", "depth_max", "result_bytes_max"])
def test_limits_refuse_negative_bounds(field):
    with pytest.raises(ValueError, match=field):
        Limits(**{field: -1})


def test_limits_refuse_a_depth_that_recursion_could_not_follow():
    with pytest.raises(ValueError, match="depth_max"):
        Limits(depth_max=301)
    limits = Limits(depth_max=300)
    document, deeper = nested(299), nested(299, {"x": 1})
    assert equal(merge(document, deeper, limits=limits), deeper)
    assert len(diff(document, deeper, limits=limits)) == 1
    assert DEFAULT_LIMITS.depth_max == 100
