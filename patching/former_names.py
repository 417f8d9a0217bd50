"""Former names of things that have moved: they still work, and warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module


def former_names(module: str, moved: Mapping[str, str]) -> Callable[[str], object]:
    """A ``__getattr__`` for ``module``. ``moved`` says where its former names are now.

    Raises AttributeError for a name that ``module`` never had.
    """

    def find(name: str) -> object:
        place = moved.get(name)
        if place is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is deprecated: use {place}", DeprecationWarning, 2)
        found_in, _, attribute = place.rpartition(".")
        return getattr(import_module(found_in), attribute)

    return find


def by_module(names: Mapping[str, str]) -> dict[str, str]:
    """The present places of names that only moved. ``names``: by module, separated by spaces."""
    return {name: f"{module}.{name}" for module, text in names.items() for name in text.split()}
