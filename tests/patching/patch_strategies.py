"""Generated documents, and patches that mostly hit what is in them.

Hypothesis draws seeds, and how large things are, which shrinks; the rest is made of a seed by
`random`. Drawn one by one, the hundred choices of a case take far longer than its test.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from patching import PatchError, apply, join_pointer

# names that look like indexes, escapes and ends of arrays, so that they turn up everywhere
NAMES = ["a", "b", "", "0", "1", "01", "-", "~", "/", "~1", "é"]
SCALARS = [None, True, False, 0, 1, 1.0, 2, -1, 2.5, 2**53 + 1, "", "a", "é", "1"]

# Of seeds below 2**24 Hypothesis prefers none.
randoms = st.integers(0, 2**24 - 1).map(Random)


def document(random: Random, leaves: int, arrays: float = 0.5) -> Any:
    """Nested anyhow, with about so many scalars; of its containers, so many are arrays."""
    if random.random() * (leaves + 1) < 1:
        return random.choice(SCALARS)
    size = random.randint(0, 4)
    children = [document(random, (leaves - 1) // max(size, 1), arrays) for _ in range(size)]
    if random.random() < arrays:
        return children
    return dict(zip(random.sample(NAMES, size), children, strict=True))


def container(random: Random, leaves: int) -> Any:
    """Such a document that is not empty."""
    found = document(random, leaves)
    return found if found and isinstance(found, dict | list) else container(random, leaves)


documents = st.builds(document, randoms, st.integers(0, 12))
objects = st.builds(document, randoms, st.integers(0, 12), st.just(0.0))
containers = st.builds(container, randoms, st.integers(1, 12))


def locations(value: Any, tokens: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The tokens of everything in `value`, the whole included."""
    found = [tokens]
    if isinstance(value, dict):
        for name, child in value.items():
            found += locations(child, (*tokens, name))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            found += locations(child, (*tokens, str(index)))
    return found


def at(value: Any, tokens: tuple[str, ...]) -> Any:
    for token in tokens:
        value = value[int(token)] if isinstance(value, list) else value[token]
    return value


LOOK_ALIKES = [(True, 1), (False, 0), (1, 1.0), (0, False), ("1", 1), (1.0, True), (None, False)]


def look_alike(value: Any) -> Any:
    """`value` with each scalar exchanged for one that Python or a reader may take for it."""
    if isinstance(value, dict):
        return {name: look_alike(child) for name, child in reversed(value.items())}
    if isinstance(value, list):
        return [look_alike(child) for child in value]
    for scalar, other in LOOK_ALIKES:
        if type(value) is type(scalar) and value == scalar:
            return other
    return value


def pointer(random: Random, document: Any) -> str:
    """Mostly a location of `document`; else one beside or below it, existing or not."""
    tokens = random.choice(locations(document))
    how = random.choice(["there", "there", "there", "below", "below", "beside", "end"])
    here = at(document, tokens)
    if how == "end" and isinstance(here, list):
        tokens = (*tokens, str(len(here) + random.randint(-1, 1)))
    elif how == "below":
        tokens = (*tokens, random.choice(NAMES))
    elif how == "beside" and tokens:
        tokens = (*tokens[:-1], random.choice(NAMES))
    return join_pointer(tokens)


def operation(random: Random, state: Any) -> dict[str, Any]:
    name = random.choice(["add", "remove", "replace", "move", "copy", "test"])
    path = pointer(random, state)
    if name == "remove":
        return {"op": name, "path": path}
    if name in ("move", "copy"):
        return {"op": name, "from": pointer(random, state), "path": path}
    if name == "test" and random.randrange(4):
        tokens = random.choice(locations(state))
        value = at(state, tokens)
        if random.random() < 0.5:
            value = look_alike(value)
        return {"op": name, "path": join_pointer(tokens), "value": value}
    return {"op": name, "path": path, "value": document(random, random.randrange(12))}


@st.composite
def patches(draw: st.DrawFn, document: Any, *, max_size: int = 6) -> list[dict[str, Any]]:
    """Operations of which each was made for the state that those before it leave. `remove` of the
    whole document is left out: after it there is nothing to be made for."""
    patch: list[dict[str, Any]] = []
    state = document
    for random in draw(st.lists(randoms, min_size=1, max_size=max_size)):
        made = operation(random, state)
        if made["op"] == "remove" and made["path"] == "":
            continue
        try:
            state = apply(state, [made])
        except PatchError:
            if random.randrange(4):  # mostly leave out what fails, or hardly any patch applies
                continue
        patch.append(made)
    return patch


@st.composite
def patched_documents(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    document = draw(containers)
    return document, draw(patches(document))
