"""One meaning each: no two public classes have one name, and few files; none differ by an *s*."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from tests.test_layers import ROOT, files

# File names that two packages share, each for the same thing. None is to be added; one that is gone
# goes from here.
SHARED_FILES = {
    "__main__",
    "applications",
    "catalogs",
    "conditions",
    "errors",
    "history",
    "listing",
    "reverts",
    "transactions",
    "uploads",
}


def modules() -> list[Path]:
    return [*files("gateway"), *files("patching")]


def class_names() -> Counter[str]:
    """Without those for asyncio, which have the names of the client that blocks."""
    return Counter(
        node.name
        for path in modules()
        if path.stem != "aio"
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def file_names() -> Counter[str]:
    return Counter(path.stem for path in modules() if path.name != "__init__.py")


def pairs(names: Counter[str]) -> set[str]:
    """Those that are there with an *s* and without."""
    return {name for name in names if f"{name}s" in names}


def twice(names: Counter[str]) -> set[str]:
    return {name for name, count in names.items() if count > 1}


def test_no_two_public_classes_have_one_name() -> None:
    assert class_names().total() > 500, f"hardly any class was found in {ROOT}"
    assert twice(class_names()) == set()


def test_few_files_share_a_name() -> None:
    assert twice(file_names()) == SHARED_FILES
    assert len(SHARED_FILES) <= 10


def test_no_two_class_or_file_names_differ_only_by_an_s() -> None:
    assert pairs(class_names()) == set()
    assert pairs(file_names()) == set()
    assert pairs(Counter(["Draft", "Drafts", "Acl"])) == {"Draft"}
