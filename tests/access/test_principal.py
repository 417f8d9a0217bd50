"""A pattern matches whole names, case-sensitively; a grant gives its role and those below."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access import ANONYMOUS, NOBODY, Grant, Principal, Role
from gateway.access.principal import checked_name, grant_text, parse_grant, principal

TEXTS = st.text("ab*/.%", max_size=8)


@given(TEXTS, st.text("ab/.%*", max_size=10))
def test_a_pattern_matches_like_its_regular_expression(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL)
    assert Principal("p", (Grant(Role.READ, pattern),)).may(Role.READ, name) == bool(expected)


def test_a_pattern_of_many_stars_is_matched_quickly() -> None:
    asked = Principal("p", (Grant(Role.READ, "*a" * 400 + "b"),))
    assert not asked.may(Role.READ, "a" * 500)


def test_a_role_includes_those_below_it() -> None:
    for held in Role:
        asked = Principal("p", (Grant(held, "c"),))
        assert [asked.may(role, "c") for role in Role] == [role <= held for role in Role]
        assert not any(asked.may(role, "d") for role in Role)


def test_anonymous_may_do_everything_and_nobody_may_do_nothing() -> None:
    for role in Role:
        assert ANONYMOUS.may(role, "c\n/x")
        assert not NOBODY.may(role, "c")
        assert not NOBODY.may(role, "")


@pytest.mark.parametrize("text", ["read:*", "write:a:b", "admin:urn:li:(x,y)/*", "read: é\n"])
def test_a_parsed_grant_is_written_back_unchanged(text: str) -> None:
    assert grant_text(parse_grant(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "read", "read:", "Read:*", "own:*", ":*", "read *", "read:a\0", "read:\ud800", 7, None],
)
def test_an_invalid_grant_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"grant|pattern"):
        parse_grant(text)


@pytest.mark.parametrize("name", ["ann", "a b", "é", "urn:x", "$where", "a.b", "*"])
def test_names_are_any_visible_text(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " a", "a ", "a\nb", "a\0", "\ud800", "\u202e", "x" * 256, "anonymous", {"$ne": 1}, 7],
)
def test_invalid_names_are_refused(name: object) -> None:
    with pytest.raises(ValueError, match="name"):
        checked_name(name)


def test_one_invalid_grant_refuses_the_whole_list() -> None:
    with pytest.raises(ValueError, match="grant"):
        principal("ann", ["read:*", {"$gt": ""}])
    for grants in ("read:*", {"read": "*"}, None, ["read:*"] * 1001):
        with pytest.raises(ValueError, match="grants"):
            principal("ann", grants)
