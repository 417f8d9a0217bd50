"""What an acl is, and what it says about whom: it only narrows, and never an admin."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.access import ANONYMOUS, Grant, Principal, Role
from gateway.access.acl import AclMalformed, acl_of, may_read, may_write

ANN = Principal("ann", (Grant(Role.WRITE, "*"),))
ADMIN = Principal("zoe", (Grant(Role.ADMIN, "team/*"), Grant(Role.READ, "*")))


@pytest.mark.parametrize("attributes", [None, {}, {"team": "x"}, {"acl": {}}])
def test_without_lists_nobody_is_narrowed(attributes: Any) -> None:
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
def test_a_list_lets_in_whom_one_of_its_patterns_stands_for(
    patterns: list[str], listed: bool
) -> None:
    assert may_read(ANN, "c", {"acl": {"read": patterns}}) == listed
    assert may_write(ANN, "c", {"acl": {"write": patterns}}) == listed


def test_each_list_is_for_itself() -> None:
    assert may_write(ANN, "c", {"acl": {"read": []}})
    assert may_read(ANN, "c", {"acl": {"write": []}})
    only_write: Any = {"acl": {"read": ["bob"], "write": ["ann"]}}
    assert may_write(ANN, "c", only_write)
    assert not may_read(ANN, "c", only_write)


def test_admins_of_the_catalog_are_never_narrowed() -> None:
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
def test_what_is_no_acl_is_told_where_and_lets_in_admins_alone(acl: Any, pointer: str) -> None:
    with pytest.raises(AclMalformed) as refused:
        acl_of({"acl": acl})
    assert refused.value.pointer == pointer
    assert not may_read(ANN, "team/c", {"acl": acl})
    assert not may_write(ANN, "team/c", {"acl": acl})
    assert may_read(ADMIN, "team/c", {"acl": acl})
