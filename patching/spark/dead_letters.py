"""Rows that could not be written, one JSON object a line, in a file for each attempt of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

_UNFINISHED: Final = ".unfinished"


class DeadLetters:
    """The file is made with its first row, and has its name when the attempt is done: what an
    attempt that failed had put aside stays behind as ``….unfinished``, its successor starts over.
    """

    def __init__(self, folder: str, name: str) -> None:
        self._path = Path(folder) / f"{name}.jsonl"
        self._file: BinaryIO | None = None

    def add(self, letter: dict[str, Any]) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = Path(f"{self._path}{_UNFINISHED}").open("wb")  # noqa: SIM115 - see finish
        self._file.write(msgspec.json.encode(letter) + b"\n")

    def finish(self) -> str | None:
        """The file's path; None where there was nothing to put aside."""
        if self._file is None:
            return None
        self.close()
        return str(Path(f"{self._path}{_UNFINISHED}").rename(self._path))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
