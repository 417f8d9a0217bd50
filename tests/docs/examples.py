"""The examples of a page, carried out as they stand there: blocks marked `run`, in order.

    ```sh run
    curl -s http://127.0.0.1:8080/livez
    ```
    ```json output
    {"status":"alive"}
    ```

All `sh` blocks of a page are one shell session (`bash -euo pipefail`); a `python` block is a
program of its own. `…` in an output stands for any text within a line, and a line of it alone for
any lines. JSON is compared as JSON, its members in any order, however it is laid out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, Block, Page
from tests.patience import RUN_S
from tests.ports import own_port

WRITTEN_URL = "http://127.0.0.1:8080"
# The port of a receiver that a page starts.
WRITTEN_PORT = "9187"


@dataclass(frozen=True, slots=True)
class Example:
    block: Block
    expected: Block | None
    """What it must print, where the page says so."""


def examples(page: Page) -> list[Example]:
    blocks = page.blocks()
    found = []
    for position, block in enumerate(blocks):
        following = blocks[position + 1] if position + 1 < len(blocks) else None
        is_output = following is not None and "output" in following.marks
        if "run" in block.marks:
            found.append(Example(block, following if is_output else None))
        elif is_output:
            raise AssertionError(f"{page.name}:{block.line}: an output, but nothing is run")
    return found


def run(page: Page, url: str, directory: Path) -> list[str]:
    """What each example printed, against the gateway at `url`; AssertionError where one fails."""
    found = examples(page)
    script = "set -euo pipefail\n"
    port = str(own_port())
    for number, example in enumerate(found):
        code = example.block.content.replace(WRITTEN_URL, url).replace(WRITTEN_PORT, port)
        if example.block.language == "python":
            program = directory / f"example_{number}.py"
            program.write_text(code)
            code = f"python {program}\n"
        # What it prints goes to a file of its own, in the same shell.
        script += f"exec >{directory}/{number}.out\necho 'block {number}' >&2\n{code}\n"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        ("bash", "-c", script), cwd=directory, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        at = re.findall(r"^block (\d+)$", done.stderr, re.MULTILINE)
        line = found[int(at[-1])].block.line if at else 0
        raise AssertionError(f"{page.name}:{line} failed: {done.stderr[-2000:]}")
    return [(directory / f"{number}.out").read_text() for number in range(len(found))]


def check(page: Page, example: Example, printed: str) -> None:
    """AssertionError unless `printed` is what the page says."""
    if example.expected is None:
        return
    where = f"{page.name}:{example.expected.line}"
    expected = example.expected.content
    if example.expected.language == "json":
        assert matches(json.loads(expected), json.loads(printed)), f"{where}:\n{printed}"
        return
    lines = [line.rstrip() for line in printed.replace("\r", "").strip().splitlines()]
    assert _pattern(expected).fullmatch("\n".join(lines)), f"{where}:\n{printed}"


def matches(expected: Any, found: Any) -> bool:
    """`"…"` is any value, and `"…"` as a member any further members; within text, any text."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return False
        named = expected.keys() - {"…"}
        if "…" not in expected and named != found.keys():
            return False
        return all(name in found and matches(expected[name], found[name]) for name in named)
    if isinstance(expected, list):
        if not isinstance(found, list) or len(expected) != len(found):
            return False
        return all(map(matches, expected, found))
    if expected == "…":
        return True
    if isinstance(expected, str) and "…" in expected:
        return isinstance(found, str) and _pattern(expected).fullmatch(found) is not None
    return type(expected) is type(found) and bool(expected == found)


def _pattern(text: str) -> re.Pattern[str]:
    lines = []
    for line in text.strip().splitlines():
        if line.strip() == "…":
            lines.append("(?:.*\n?)*?")
        else:
            lines.append(".*".join(map(re.escape, line.rstrip().split("…"))) + "\n?")
    return re.compile("".join(lines))
