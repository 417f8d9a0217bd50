"""Run tests while some or all of their processes are suspended now and then, for up to a second
and a half: a test that fails then depends on time.

    python -m tests.random_pauses tests/http tests/commit    # whatever pytest takes
    python -m tests.random_pauses --pause-seed 2 tests/http
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from contextlib import suppress

import psutil


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_pauses", add_help=False)
    parser.add_argument("--pause-seed", type=int, default=1)
    chosen, arguments = parser.parse_known_args()
    luck = random.Random(chosen.pause_seed)
    tests = subprocess.Popen([sys.executable, "-m", "pytest", *arguments])
    while tests.poll() is None:
        time.sleep(luck.uniform(0.1, 0.8))
        stopped = _some_of(psutil.Process(tests.pid), luck)
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        time.sleep(luck.uniform(0.2, 1.5))
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()
    return tests.returncode


def _some_of(tests: psutil.Process, luck: random.Random) -> list[psutil.Process]:
    """Often all, for then time passes between any two lines. Not those that a test has stopped."""
    with suppress(psutil.NoSuchProcess):
        found = [tests, *tests.children(recursive=True)]
        share = 1.0 if luck.random() < 0.4 else 0.5
        return [each for each in found if luck.random() < share and _runs(each)]
    return []


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_STOPPED)
    return False


if __name__ == "__main__":
    sys.exit(main())
