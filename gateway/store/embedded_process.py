"""A child process that ends with the process that started it, and what it left in its log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
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
    """Starts the program, its output going to a file that is written anew.

    It is killed when this process ends in whatever way (on Linux alone). `on_exit` is called in a
    thread once it ended. Raises `OSError` when it can't be started.
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
                    start_new_session=True,  # a terminal's Ctrl-C is for its parent, not for it
                )
        except OSError as error:
            answer.put(error)
            return
        answer.put(process)
        process.wait()
        on_exit(process)

    # The kernel's signal comes when the starting *thread* ends, so that thread has to stay.
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
