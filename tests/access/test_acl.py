"""What an acl is, and what it says about whom: it only narrows, and never an admin."""

from __future__ import annotations

import copy
import re
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access import ANONYMOUS, Grant, Principal, Role
from gateway.access.acl import NAMES_MAX, AclMalformed, acl_of, may_read, may_write
from gateway.access.principal import matches
from gateway.decide.draft import checked_attributes
from gateway.errors import AttributesInvalid

ANN = Principal("ann", (Grant(Role.WRITE, "*"),))
ADMIN = Principal("zoe", (Grant(Role.ADMIN, "team/*"), Grant(Role.READ, "*")))


@pytest.mark.parametrize("attributes", [None, {}, {"team": "x"}, {"acl": {}}])
def test_without_lists_every_principal_may_read_and_write(attributes: Any) -> None:
    assert may_read(ANN, "c", attributes)
    assert may_write(ANN, "c", attributes)


@pytest.mark.parametrize(
    ("patterns", "listed"),
    [
        (["ann"], True),
        (["bob", "ann"], True),
        (["a*"], True),
        (["*"], True),
        (["*n*"], True),
        ([], False),
        (["bob"], False),
        (["Ann"], False),
        (["an"], False),
        (["ann "], False),
        (["?nn"], False),
        (["b*"], False),
    ],
)
def test_a_list_allows_the_principals_that_match_one_of_its_patterns(
    patterns: list[str], listed: bool
) -> None:
    assert may_read(ANN, "c", {"acl": {"read": patterns}}) == listed
    assert may_write(ANN, "c", {"acl": {"write": patterns}}) == listed


def test_the_read_list_and_the_write_list_are_independent() -> None:
    assert may_write(ANN, "c", {"acl": {"read": []}})
    assert may_read(ANN, "c", {"acl": {"write": []}})
    only_write: Any = {"acl": {"read": ["bob"], "write": ["ann"]}}
    assert may_write(ANN, "c", only_write)
    assert not may_read(ANN, "c", only_write)


def test_admins_of_the_catalog_are_never_restricted() -> None:
    closed: Any = {"acl": {"read": [], "write": []}}
    assert may_read(ADMIN, "team/c", closed)
    assert may_write(ADMIN, "team/c", closed)
    assert not may_read(ADMIN, "other", closed)
    assert may_read(ANONYMOUS, "c", closed), "without access control everybody is one"


MALFORMED: list[tuple[Any, str]] = [
    (None, "/acl"),
    ("ann", "/acl"),
    (["ann"], "/acl"),
    ({"reed": []}, "/acl/reed"),
    ({"a/b": []}, "/acl/a~1b"),
    ({"read": "ann"}, "/acl/read"),
    ({"read": None}, "/acl/read"),
    ({"read": {}}, "/acl/read"),
    ({"read": ["ann"], "write": ["ann", 1]}, "/acl/write/1"),
    ({"read": [""]}, "/acl/read/0"),
    ({"read": [["ann"]]}, "/acl/read/0"),
]


@pytest.mark.parametrize(("acl", "pointer"), MALFORMED)
def test_a_malformed_acl_names_its_pointer_and_allows_only_admins(acl: Any, pointer: str) -> None:
    with pytest.raises(AclMalformed) as refused:
        acl_of({"acl": acl})
    assert refused.value.pointer == pointer
    assert not may_read(ANN, "team/c", {"acl": acl})
    assert not may_write(ANN, "team/c", {"acl": acl})
    assert may_read(ADMIN, "team/c", {"acl": acl})


@pytest.mark.parametrize("right", ["read", "write"])
def test_a_list_that_is_written_has_a_hundred_names_at_most(right: str) -> None:
    few: Any = {"acl": {right: ["b*" * 256] * NAMES_MAX}}
    assert checked_attributes(few, "k", 64 * 1024) == few
    for acl, pointer in (
        ({right: ["bob"] * (NAMES_MAX + 1)}, f"/acl/{right}"),
        ({right: ["bob", "b" * 513]}, f"/acl/{right}/1"),
    ):
        with pytest.raises(AttributesInvalid) as refused:
            checked_attributes({"acl": acl}, "k", 64 * 1024)
        assert refused.value.pointer == pointer


def test_longer_lists_that_are_already_stored_still_apply_and_are_matched_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matched: list[str] = []

    def counted(pattern: str, name: str) -> bool:
        matched.append(pattern)
        return matches(pattern, name)

    monkeypatch.setattr("gateway.access.acl.matches", counted)
    named = f"{uuid.uuid4().hex}a"  # which the pattern *b never matches
    long: Any = {"acl": {"read": [f"*{named}"] * 12_000, "write": ["*b"] * 12_000 + ["ann"]}}
    somebody = Principal(f"x{named}", (Grant(Role.WRITE, "*"),))
    assert not may_read(ANN, "c", long)
    assert len(matched) == 12_000
    for _ in range(1000):
        assert not may_read(ANN, "c", copy.deepcopy(long) if _ == 0 else long)
    assert len(matched) == 12_000, "by what the acl says, whichever object it is"
    assert may_read(somebody, "c", long)
    assert may_write(ANN, "c", long)
    assert not may_write(somebody, "c", long)
    broken: Any = {"acl": {"read": [*long["acl"]["read"], 1]}}
    assert not may_read(somebody, "c", broken)


@given(
    st.text("ab*", max_size=12),
    st.text("ab", max_size=12),
)
def test_a_star_matches_any_text(pattern: str, name: str) -> None:
    expected = re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None
    assert matches(pattern, name) == expected


def test_thousands_of_stars_are_matched_without_backtracking() -> None:
    assert matches("*" * 60_000 + "n", "ann")
    assert not matches("*a" * 30_000, "a" * 255)
