"""Parts of lists whose items have keys, and of forced reverts, each with a mistake in it; see
``breakages``."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import patching
from gateway.decide.owning import owning
from gateway.decide.performing import reverted
from gateway.decide.reverting import Revert
from patching import NO_LISTS, Extended

_apply_extended = patching.apply_extended
_first: dict[int, tuple[object, list[dict[str, Any]]]] = {}


def as_first_lowered(document: Any, patch: Any, **named: Any) -> Extended:
    """A patch that names items by key does later what it came to by index when it was first tried,
    where that fits."""
    known = _first.get(id(patch))
    if known is not None and named.get("lists"):
        by_index = patching.parse_extended({"patch": known[1]})
        try:
            return _apply_extended(document, by_index, **{**named, "lists": NO_LISTS})
        except patching.PatchError:
            pass
    done = _apply_extended(document, patch, **named)
    _first[id(patch)] = patch, done.effective
    return done


def always_pinned(*given: Any, **named: Any) -> bool:  # noqa: ARG001
    return True


def nothing_displaced(*given: Any) -> list[str]:  # noqa: ARG001
    return []


def nothing_written(self: object, revision: int) -> list[Any]:  # noqa: ARG001
    return []


def owning_whole_arrays(edit: Any, draft: Any, revision: int, limits: Any, lists: Any) -> Any:  # noqa: ARG001
    return owning(edit, draft, revision, limits, NO_LISTS)


def reverted_by_index(*given: Any) -> Any:
    return reverted(*given[:-1], replace(given[-1], lists=NO_LISTS))


def force_what_is_beside(edit: Revert, *given: Any) -> Any:
    """Of a place that is forced, what is beside it, too."""
    content = tuple(pointer.rpartition("/")[0] for pointer in edit.forced.content)
    return reverted(replace(edit, forced=replace(edit.forced, content=content)), *given)
