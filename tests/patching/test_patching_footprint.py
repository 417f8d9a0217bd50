"""A footprint covers what a patch reads and writes, so that patches that don't meet commute."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from patch_strategies import at, containers, locations, patched_documents, patches

from patching import ABSENT, PatchError, apply, equal, split_pointer
from patching.footprints import Footprint, footprint, overlap

DOCUMENT = {"l": [1, 2], "o": {"0": 1, "-": 2, "x": {"y": 1}}}


def fp(reads=(), writes=()):
    return Footprint(frozenset(reads), frozenset(writes))


TABLE = [
    ({"op": "test", "path": "/l/0", "value": 1}, fp(["/l/0"]), fp(["/l/0"])),
    ({"op": "replace", "path": "/l/0", "value": 1}, fp([], ["/l/0"]), fp([], ["/l/0"])),
    ({"op": "add", "path": "/l/0", "value": 1}, fp([], ["/l"]), fp([], ["/l"])),
    ({"op": "add", "path": "/l/-", "value": 1}, fp([], ["/l"]), fp([], ["/l"])),
    ({"op": "remove", "path": "/l/1"}, fp([], ["/l"]), fp([], ["/l"])),
    ({"op": "add", "path": "/o/0", "value": 1}, fp([], ["/o/0"]), fp([], ["/o"])),
    ({"op": "remove", "path": "/o/-"}, fp([], ["/o/-"]), fp([], ["/o"])),
    ({"op": "add", "path": "/o/x/z", "value": 1}, fp([], ["/o/x/z"]), fp([], ["/o/x/z"])),
    ({"op": "add", "path": "/o/01", "value": 1}, fp([], ["/o/01"]), fp([], ["/o/01"])),
    ({"op": "copy", "from": "/l/0", "path": "/o/0"}, fp(["/l/0"], ["/o/0"]), fp(["/l/0"], ["/o"])),
    (
        {"op": "move", "from": "/l/0", "path": "/o/q"},
        fp(["/l/0"], ["/l", "/o/q"]),
        fp(["/l/0"], ["/l", "/o/q"]),
    ),
    ({"op": "move", "from": "/o/x", "path": "/o/x"}, fp(["/o/x"]), fp(["/o/x"])),
    ({"op": "replace", "path": "", "value": 1}, fp([], [""]), fp([], [""])),
]


@pytest.mark.parametrize(("operation", "with_document", "without"), TABLE)
def test_footprint_of_one_operation(operation, with_document, without):
    assert footprint([operation], DOCUMENT) == with_document
    assert footprint([operation]) == without


def test_each_operation_is_analysed_on_the_state_after_the_earlier_ones():
    patch = [
        {"op": "add", "path": "/n", "value": {}},
        {"op": "add", "path": "/n/0", "value": 1},
        {"op": "replace", "path": "/o", "value": []},
        {"op": "add", "path": "/o/0", "value": 1},
    ]
    assert footprint(patch, DOCUMENT).writes == {"/n", "/n/0", "/o"}


def test_operations_after_one_that_does_not_fit_get_their_widest_footprint():
    patch = [{"op": "test", "path": "/l", "value": 0}, {"op": "remove", "path": "/o/0"}]
    assert footprint(patch, DOCUMENT) == fp(["/l"], ["/o"])


@pytest.mark.parametrize(
    ("a", "b", "met"),
    [
        (fp(["/a"]), fp(["/a"]), []),
        (fp(["/a"]), fp([], ["/a"]), ["/a"]),
        (fp([], ["/a"]), fp(["/a"]), ["/a"]),
        (fp([], ["/a"]), fp([], ["/a"]), ["/a"]),
        (fp([], ["/a"]), fp([], ["/ab"]), []),
        (fp([], ["/a/b"]), fp([], ["/a/c"]), []),
        (fp([], ["/a/b"]), fp([], ["/a"]), ["/a/b"]),
        (fp([], ["/a"]), fp([], ["/a/b/c"]), ["/a"]),
        (fp([], [""]), fp(["/a/b/c"]), [""]),
        (fp(["/x", "/y"], ["/z"]), fp([], [""]), ["/x", "/y", "/z"]),
        (fp(["/a"], ["/b"]), fp(["/b/1"], ["/c"]), ["/b"]),
        (fp([], ["/a~1b"]), fp([], ["/a"]), []),
        (fp(), fp([], [""]), []),
    ],
)
def test_overlap_names_pointers_of_the_first_footprint(a, b, met):
    assert overlap(a, b) == met
    assert bool(overlap(b, a)) == bool(met)


def test_footprints_can_be_added():
    assert fp(["/a"], ["/b"]) | fp(["/c"], ["/b", "/d"]) == fp(["/a", "/c"], ["/b", "/d"])


@settings(max_examples=200)
@given(patched_documents(), st.booleans())
def test_a_patch_changes_nothing_outside_its_writes(case, informed):
    document, patch = case
    try:
        after = apply(document, patch)
    except PatchError:
        return
    writes = [split_pointer(each) for each in touched(patch, document, informed).writes]
    for tokens in locations(document):
        if all(tokens[: len(each)] != each and each[: len(tokens)] != tokens for each in writes):
            assert equal(at(after, tokens), at(document, tokens))


@st.composite
def rival_patches(draw):
    document = draw(st.fixed_dictionaries({"a": containers, "0": containers, "b": containers}))
    return document, draw(patches(document, max_size=2)), draw(patches(document, max_size=2))


@settings(max_examples=200)
@given(rival_patches(), st.booleans())
def test_patches_that_do_not_overlap_commute(case, informed):
    document, first, second = case
    try:
        after_first, after_second = apply(document, first), apply(document, second)
    except PatchError:
        return
    if overlap(touched(first, document, informed), touched(second, document, informed)):
        event("overlap")
        return
    event("independent")
    assert equal(apply(after_first, second), apply(after_second, first))


def touched(patch, document, informed):
    return footprint(patch, document if informed else ABSENT)
