"""Generated documents, and patches that mostly hit what is in them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from patching import PatchError, apply, join_pointer

# names that look like indexes, escapes and ends of arrays, so that they turn up everywhere
NAMES = ["a", "b", "", "0", "1", "01", "-", "~", "/", "~1", "é"]

scalars = st.sampled_from([None, True, False, 0, 1, 1.0, 2, -1, 2.5, 2**53 + 1, "", "a", "é", "1"])
documents = st.recursive(
    scalars,
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.sampled_from(NAMES), children, max_size=4)
    ),
    max_leaves=12,
)
containers = documents.filter(lambda value: isinstance(value, dict | list) and bool(value))


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


@st.composite
def pointers(draw: st.DrawFn, document: Any) -> str:
    """Mostly a location of `document`; else one beside or below it, existing or not."""
    tokens = draw(st.sampled_from(locations(document)))
    how = draw(st.sampled_from(["there", "there", "there", "below", "below", "beside", "end"]))
    here = at(document, tokens)
    if how == "end" and isinstance(here, list):
        tokens = (*tokens, str(len(here) + draw(st.integers(-1, 1))))
    elif how == "below":
        tokens = (*tokens, draw(st.sampled_from(NAMES)))
    elif how == "beside" and tokens:
        tokens = (*tokens[:-1], draw(st.sampled_from(NAMES)))
    return join_pointer(tokens)


@st.composite
def operations(draw: st.DrawFn, document: Any) -> dict[str, Any]:
    name = draw(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]))
    path = draw(pointers(document))
    if name == "remove":
        return {"op": name, "path": path}
    if name in ("move", "copy"):
        return {"op": name, "from": draw(pointers(document)), "path": path}
    if name == "test" and draw(st.integers(0, 3)):
        tokens = draw(st.sampled_from(locations(document)))
        value = at(document, tokens)
        if draw(st.booleans()):
            value = look_alike(value)
        return {"op": name, "path": join_pointer(tokens), "value": value}
    return {"op": name, "path": path, "value": draw(documents)}


@st.composite
def patches(draw: st.DrawFn, document: Any, *, max_size: int = 6) -> list[dict[str, Any]]:
    """Operations of which each was drawn for the state that those before it leave. `remove` of the
    whole document is left out: after it there is nothing to draw from."""
    patch: list[dict[str, Any]] = []
    state = document
    for _ in range(draw(st.integers(1, max_size))):
        operation = draw(operations(state))
        if operation["op"] == "remove" and operation["path"] == "":
            continue
        try:
            state = apply(state, [operation])
        except PatchError:
            if draw(st.integers(0, 3)):  # mostly leave out what fails, or hardly any patch applies
                continue
        patch.append(operation)
    return patch


@st.composite
def patched_documents(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    document = draw(containers)
    return document, draw(patches(document))
