"""The patterns of a catalog's schemas are compiled by one call: they are bounded together."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.decide.settings import parse_settings
from gateway.errors import AboveLimit, SettingsInvalid


def with_patterns(*patterns: str, **more: Any) -> dict[str, Any]:
    properties = {f"p{n}": {"pattern": each} for n, each in enumerate(patterns)}
    return {"schemas": {"*": {"properties": properties, **more}}}


LARGE = [rf"(\pL|\pN){{1,5}}x{n}" for n in range(40)]


def test_ordinary_patterns_are_accepted_and_equal_ones_count_once() -> None:
    usual = [rf"^[a-z0-9_.-]{{1,63}}{n}$" for n in range(200)]
    settings = parse_settings(with_patterns(*usual, *[LARGE[0]] * 100))
    settings.require_valid("k", {"p0": "a0"}, 10)


@pytest.mark.parametrize(
    "asked",
    [
        with_patterns(*LARGE),
        with_patterns(patternProperties=dict.fromkeys(LARGE, True)),
        with_patterns(**{"$defs": {"unused": {"anyOf": [{"pattern": each} for each in LARGE]}}}),
        {"schemas": {str(n): {"pattern": each} for n, each in enumerate(LARGE)}},
        with_patterns(*(f"^{n}$" for n in range(501))),
        with_patterns("(?x) # " + "x" * 32_768),
        with_patterns("".join(f"(?P<n{n}>a)?" for n in range(3_000))),
        with_patterns(*("|".join(f"a{n}" for n in range(each, 2_000)) for each in range(4))),
    ],
    ids=[
        *("properties", "names", "unused", "several schemas", "many"),
        *("a long one", "long to be read", "long together"),
    ],
)
def test_too_many_patterns_are_refused_and_stored_ones_fail_every_document(
    asked: dict[str, Any],
) -> None:
    with pytest.raises(SettingsInvalid, match=r"patterns of the catalog|different patterns"):
        parse_settings(asked)
    accepted = parse_settings(asked, accepted=True)
    heavy = [each for each in accepted.schemas if each.validator is None]
    assert heavy
    with pytest.raises(AboveLimit) as refused:
        heavy[-1].require_valid("k", {}, 2)
    assert refused.value.limit == "schema_patterns_bytes_max"


@pytest.mark.parametrize(
    "wide",
    [r"[^\W\d_]", "[a-\U0010ffff]", r"[\x{100}-\x{10ffff}]", r"[[^a]b]", r"(?-i)(?mi:[^\W\d])"],
)
def test_case_insensitive_sets_are_bounded_before_any_pattern_is_compiled(wide: str) -> None:
    """Each takes 2 ms, and hardly a byte compiled: thousands in one pattern took seconds."""
    parse_settings(with_patterns(*(f"(?i){wide}{n}" for n in range(16))))
    for asked in (
        with_patterns(*(f"(?i){wide}{n}" for n in range(17))),
        with_patterns("(?i)" + wide * 1_500),
    ):
        with pytest.raises(SettingsInvalid, match="case-insensitive sets"):
            parse_settings(asked)
        (kept,) = parse_settings(asked, accepted=True).schemas
        assert kept.validator is None


@pytest.mark.parametrize(
    "usual", ["[a-z0-9]", r"[\w.\-/]", r"[^\s/]", "[\u00e0-\u00ff]", "[[:alpha:]]"]
)
def test_ordinary_sets_may_ignore_case_without_limit(usual: str) -> None:
    parse_settings(with_patterns(*(f"(?i)^{usual}+{n}" for n in range(200))))


def test_a_pattern_that_is_too_large_by_itself_is_named() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        parse_settings(with_patterns("^a$", r"(\pL{90}){90}"))
    assert caught.value.pointer == "/schemas/*/properties/p1/pattern"
