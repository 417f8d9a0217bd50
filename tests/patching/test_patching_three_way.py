"""Three-way merges, held to what patches that do not meet come to, and to what a dispute means."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from patch_strategies import SCALARS, at, document, locations, randoms

from patching import ABSENT, apply, diff, equal, join_pointer, parse_lists, split_pointer, three_way
from patching.canonical_json import canonical
from patching.footprints import footprint, overlap
from patching.merging import Dispute, Merged
from tests.cases import cases

LISTS = parse_lists([{"pointer": "/fields", "item_key": ["id"]}, {"pointer": "/tags", "set": True}])


@pytest.mark.parametrize(
    ("base", "wanted", "now", "content", "disputed"),
    [
        ({"a": 1}, {"a": 0}, {"a": 1, "b": 2}, {"a": 0, "b": 2}, []),
        ({"a": 1}, {"a": 0}, {"a": 2}, {"a": 2}, ["/a"]),
        ({"a": 1}, {}, {"a": 1, "b": 2}, {"b": 2}, []),
        ({"a": 1}, {}, {"a": 2}, {"a": 2}, ["/a"]),
        ({}, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}, []),
        ({}, {"a": 1}, {"a": 2}, {"a": 2}, ["/a"]),
        ({"a": 1}, {"a": 0}, {}, {}, ["/a"]),
        ({"a": 1}, {"a": 0}, {"a": 0}, {"a": 0}, []),
        ({"a": {"x": 1}}, {}, {"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "y": 2}}, ["/a"]),
        ([1, 2], [0, 2], [1, 3], [0, 3], []),
        ([1, 2], [0, 2], [1, 2, 3], [1, 2, 3], [""]),
        ([1, 2], [1], [1, 2], [1], []),
        # It is unknown whether it is the same item: it is one value.
        ([{"x": 1, "y": 1}], [{"x": 0, "y": 1}], [{"x": 1, "y": 2}], [{"x": 1, "y": 2}], ["/0"]),
        (1, ABSENT, 1, ABSENT, []),
        (1, ABSENT, 2, 2, [""]),
        (ABSENT, 1, ABSENT, 1, []),
        (ABSENT, 1, 2, 2, [""]),
        (1, 0, ABSENT, ABSENT, [""]),
        (1, ABSENT, ABSENT, ABSENT, []),
        (1, True, 1.0, True, []),
    ],
)
def test_a_change_is_merged_into_another_state(
    base: Any, wanted: Any, now: Any, content: Any, disputed: list[str]
) -> None:
    merged = three_way(base, wanted, now)
    assert merged.content == content
    assert [each.pointer for each in merged.disputes] == disputed


def test_a_dispute_shows_both_values_and_can_be_forced() -> None:
    base, wanted, now = {"a": 1, "b": 1}, {"b": 0}, {"a": 2, "b": 1}
    dispute = Dispute("/a", 2, ABSENT)
    assert three_way(base, wanted, now) == Merged({"a": 2, "b": 0}, (dispute,))
    forced = replace(dispute, forced=True)
    assert three_way(base, wanted, now, force=True) == Merged({"b": 0}, (forced,))


def test_lists_are_merged_by_the_keys_of_their_items() -> None:
    base = {"fields": [{"id": 1, "t": "int"}, {"id": 2, "t": "int"}], "tags": ["a", "b"]}
    wanted = {"fields": [{"id": 1, "t": "text"}, {"id": 2, "t": "int"}], "tags": ["a"]}
    now = {
        "fields": [{"id": 2, "t": "int"}, {"id": 1, "t": "int", "doc": "x"}, {"id": 3}],
        "tags": ["c", "b", "a"],
    }
    merged = three_way(base, wanted, now, lists=LISTS)
    assert merged.disputes == ()
    assert merged.content == {
        "fields": [{"id": 2, "t": "int"}, {"id": 1, "t": "text", "doc": "x"}, {"id": 3}],
        "tags": ["c", "a"],
    }
    now["fields"][1]["t"] = "long"
    merged = three_way(base, wanted, now, lists=LISTS)
    assert merged.disputes == (Dispute("/fields/1/t", "long", "text"),)
    # What comes back goes behind what it followed; without keys, it is one value.
    back = three_way({"tags": ["a", "d"]}, {"tags": ["a", "b", "d"]}, {"tags": ["d", "a", "x"]},
                     lists=LISTS)  # fmt: skip
    assert back.content == {"tags": ["d", "a", "b", "x"]}
    odd = three_way({"fields": [{"id": 1}]}, {"fields": []}, {"fields": [{"id": 1}, 7]},
                    lists=LISTS)  # fmt: skip
    assert [each.pointer for each in odd.disputes] == ["/fields"]


def edited(random: Random, value: Any, arrays: float) -> Any:
    """``value`` after a few changes."""
    for _ in range(random.randint(0, 3)):
        place = random.choice(locations(value))
        pointer = join_pointer(place)
        inside = at(value, place)
        new = document(random, random.randint(0, 3), arrays)
        if isinstance(inside, dict) and random.random() < 0.6:
            name = random.choice(["a", "b", "new", ""])
            value = apply(
                value, [{"op": "add", "path": pointer + join_pointer([name]), "value": new}]
            )
        elif isinstance(inside, list) and random.random() < 0.6:
            value = apply(value, [{"op": "add", "path": f"{pointer}/-", "value": new}])
        elif place and random.random() < 0.5:
            value = apply(value, [{"op": "remove", "path": pointer}])
        else:
            value = apply(
                value, [{"op": "replace", "path": pointer, "value": random.choice(SCALARS)}]
            )
    return value


@st.composite
def threes(draw: Any, arrays: float = 0.4) -> tuple[Any, Any, Any]:
    random = draw(randoms)
    base = document(random, draw(st.integers(0, 14)), arrays)
    return base, edited(random, base, arrays), edited(random, base, arrays)


def test_force_at_a_pointer_applies_to_disputes_below_it() -> None:
    base, wanted = {"a": {"x": 1}, "b": 1, "ab": 1}, {"a": {"x": 0}, "b": 0, "ab": 0}
    now = {"a": {"x": 2}, "b": 2, "ab": 2}
    merged = three_way(base, wanted, now, force_at=["/a", "/missing"])
    assert merged.content == {"a": {"x": 0}, "b": 2, "ab": 2}
    assert {each.pointer: each.forced for each in merged.disputes} == {
        "/a/x": True,
        "/b": False,
        "/ab": False,
    }


@cases(100)
@given(threes())
def test_undoing_a_change_at_once_restores_the_state_before(three: tuple[Any, Any, Any]) -> None:
    base, wanted, now = three
    assert three_way(base, wanted, base) == Merged(wanted, ())
    assert equal(three_way(base, base, now).content, now)
    assert three_way(base, wanted, wanted).disputes == ()
    assert equal(three_way(base, wanted, wanted).content, wanted)
    assert equal(three_way(base, wanted, base, lists=LISTS).content, wanted)


@cases(100)
@given(threes())
def test_a_merge_is_symmetric(three: tuple[Any, Any, Any]) -> None:
    base, wanted, now = three
    one, other = three_way(base, wanted, now), three_way(base, now, wanted)
    places = [each.pointer for each in one.disputes]
    assert sorted(places) == sorted(each.pointer for each in other.disputes)
    if not places:
        assert equal(one.content, other.content)


@cases(100)
@given(threes(arrays=0.0))
def test_non_overlapping_changes_of_objects_are_both_kept(three: tuple[Any, Any, Any]) -> None:
    _require_both(*three, disputable=False)


@cases(100)
@given(threes(arrays=0.5))
def test_undisputed_non_overlapping_changes_are_both_kept(three: tuple[Any, Any, Any]) -> None:
    _require_both(*three, disputable=True)


def _require_both(base: Any, wanted: Any, now: Any, *, disputable: bool) -> None:
    """The oracle: patches that don't meet, done one after the other."""
    change, since = (diff(base, each, compact=False) for each in (wanted, now))
    if overlap(footprint(change, base), footprint(since, base)):
        return
    merged = three_way(base, wanted, now)
    if disputable and merged.disputes:
        return
    assert merged.disputes == ()
    assert equal(merged.content, apply(now, change))


@cases(100)
@given(threes())
def test_force_changes_only_disputed_places(three: tuple[Any, Any, Any]) -> None:
    base, wanted, now = three
    kept, forced = three_way(base, wanted, now), three_way(base, wanted, now, force=True)
    assert tuple(replace(each, forced=True) for each in kept.disputes) == forced.disputes
    assert not any(each.forced for each in kept.disputes)
    for each in kept.disputes:
        assert not _same(each.now, each.wanted)
        for source, told in ((now, each.now), (wanted, each.wanted), (kept.content, each.now),
                             (forced.content, each.wanted)):  # fmt: skip
            assert _same(_at(source, each.pointer), told)
        assert not _same(_at(base, each.pointer), each.now)
    if not kept.disputes:
        assert kept == forced


def _same(one: Any, other: Any) -> bool:
    return one is other or (ABSENT not in (one, other) and canonical(one) == canonical(other))


def _at(value: Any, pointer: str) -> Any:
    """ABSENT where there is nothing. A list whose length others changed is one value, so no index
    of a dispute is another item's."""
    for token in split_pointer(pointer):
        if isinstance(value, dict):
            value = value.get(token, ABSENT)
        elif isinstance(value, list):
            value = value[int(token)]
        else:
            return ABSENT
    return value
