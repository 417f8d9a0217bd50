"""Installations of a part of the requirements, made in no time of what is installed here."""

from __future__ import annotations

import sys
import tomllib
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE: list[str] = PROJECT["dependencies"]


def distributions(requirements: Iterable[str]) -> dict[str, Distribution]:
    """What an installation of ``requirements`` brings, by name."""
    found: dict[str, Distribution] = {}
    to_look_at = [(Requirement(each), "") for each in requirements]
    seen: set[tuple[str, str]] = set()
    while to_look_at:
        requirement, extra = to_look_at.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found[name] = distribution(name)
        for of in ("", *requirement.extras):
            if (name, of) not in seen:
                seen.add((name, of))
                to_look_at += [(Requirement(each), of) for each in found[name].requires or ()]
    return found


def installation(folder: Path, *requirements: str, project: bool = True) -> Path:
    """The Python of a virtual environment in ``folder`` that has these and nothing else, and the
    project (``project``) without its own requirements."""
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    places = {ROOT / name for name in ("gateway", "patching") if project}
    for each in distributions(requirements).values():
        tops = {file.parts[0] for file in each.files or ()}
        places |= {Path(str(each.locate_file(top))) for top in tops - {"..", "__pycache__"}}
    for place in places:
        (packages / place.name).symlink_to(place)
    return folder / "bin" / "python"
