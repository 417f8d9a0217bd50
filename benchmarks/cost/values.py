"""JSON values, pointers and patterns whose sizes are choices: what costs grow with.

Nothing here knows what the gateway does with them. A value is made of few fragments, repeated.
"""

from __future__ import annotations

from typing import Any

from benchmarks.cost.choices import Choices

Json = Any

_SCALARS: tuple[Json, ...] = (
    *(0, 1, 0.5, 1e300, -1e-300, 10**18, True, None),
    *("", "a", "x" * 40, "\u00e9\u20ac\U0001f600", "same", '\\"\n'),
)
_FRAGMENTS = (
    *(r"\pL", r"\PL", "[a-z]", r"[^\W\d_]", ".", "a", r"\d", r"(?i)[\PL\PL]", "\u00e9"),
    *(r"[\x{100}-\x{10ffff}]", "(a|b|ab)", r"\b", r"(?i)ss"),
)
NAMES = ("a", "b", "f", "s", "tags", "id")


class Room:
    """What may still be made of a body: programs stay below the gateway's limits of size."""

    def __init__(self, values: int, size_bytes: int) -> None:
        self.values, self.size_bytes = values, size_bytes

    def times(self, wanted: int, fragment: Json) -> int:
        """How often a fragment may be repeated; what that takes is taken."""
        values, size = weight(fragment)
        fitting = min(wanted, self.values // max(values, 1), self.size_bytes // max(size, 1))
        self.values -= fitting * values
        self.size_bytes -= fitting * size
        return max(fitting, 0)


def weight(value: Json) -> tuple[int, int]:
    """Values in it, and about its bytes as JSON."""
    if isinstance(value, dict):
        inside = [weight(each) for each in value.values()]
        names = sum(len(name) + 4 for name in value)
        return 1 + sum(v for v, _ in inside), 2 + names + sum(s for _, s in inside)
    if isinstance(value, list):
        inside = [weight(each) for each in value]
        return 1 + sum(v for v, _ in inside), 2 + sum(s + 1 for _, s in inside)
    return 1, len(value.encode()) + 2 if isinstance(value, str) else 24


def value(choices: Choices, room: Room, depth: int = 0) -> Json:
    """A scalar, or a fragment that is repeated in a list or object, or nested."""
    kind = choices.pick(
        ("scalar", "list", "object", "items", "nested", "text", "numbered", "pairs")
        if depth < 3
        else ("scalar", "text")
    )
    if kind == "scalar":
        return choices.pick(_SCALARS)
    if kind == "text":
        length = choices.number(1, 200_000 if depth < 2 else 2_000)
        return choices.pick(("x", "\u00e9", "a1", "\\")) * room.times(length, "x")
    if kind == "nested":
        made = choices.pick(_SCALARS)
        as_list = choices.chance(0.5)
        for _ in range(min(choices.number(1, 95), 95 - 10 * depth)):
            made = [made] if as_list else {choices_name(as_list): made}
        return made
    fragment = value(choices, room, depth + 1)
    count = room.times(choices.number(1, 100_000), fragment)
    if kind == "list":
        return [fragment] * count
    if kind == "numbered":
        return list(range(count))
    if kind == "pairs":
        return [[fragment, index] for index in range(count)]
    if kind == "items":
        modulus = choices.pick((count or 1, 1, 10))
        name = choices.pick(NAMES)
        return [{name: f"same{index % modulus}", "v": fragment} for index in range(count)]
    return {f"m{index}": fragment for index in range(count)}


def choices_name(as_list: bool) -> str:
    return "a" if not as_list else "b"


def pointers(of: Json, choices: Choices) -> list[str]:
    """Some pointers into a document, its ends and middles, by index and by key."""
    found = [""]
    here, pointer = of, ""
    for _ in range(4):
        if isinstance(here, dict) and here:
            names = list(here)
            name = names[min(int(choices.share() * len(names)), len(names) - 1)]
            here, pointer = here[name], f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        elif isinstance(here, list) and here:
            place = min(int(choices.share() * len(here)), len(here) - 1)
            item = here[place]
            if isinstance(item, dict) and item:
                found.append(f"{pointer}/{next(iter(item.values()))}")
            here, pointer = item, f"{pointer}/{place}"
        else:
            break
        found.append(pointer)
    found.append(f"{pointer}/absent")
    found.append("/deep" * choices.number(1, 98))
    return found


def pattern(choices: Choices, length_max: int = 1_000) -> str:
    """A regular expression: a fragment repeated, in a class or group, perhaps counted."""
    fragment = choices.pick(_FRAGMENTS)
    body = fragment * max(1, min(choices.number(1, length_max), length_max // len(fragment)))
    form = choices.pick(("plain", "class", "group", "counted", "folded"))
    if form == "class" and "[" not in body and "(" not in body:
        body = f"[{body}]"
    elif form == "group":
        body = f"({body}|{fragment}x)*"
    elif form == "counted":
        body = f"({fragment}|y){{1,{choices.number(1, 1000)}}}"
    elif form == "folded" and not body.startswith("(?i)"):
        body = f"(?i){body}"
    return body + choices.pick(("", "a", "$", "x0"))
