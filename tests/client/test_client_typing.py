"""Programs that use the client are type-checked as they expect."""

from __future__ import annotations

import subprocess
import sys

from tests.test_layers import ROOT


def test_the_typing_test_passes() -> None:
    """Also its `type: ignore` comments: mypy reports those that ignore nothing."""
    done = subprocess.run(
        (sys.executable, "-m", "mypy", "tests/typing/client_api.py"),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
