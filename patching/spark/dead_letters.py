"""Dead letters, the rows that a sink put aside: a line for each, with the row and its problem.

Tasks write them to files, the driver says which of these count, and a read gives the rows back as
a sink takes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from patching.spark.columns import COLUMNS, DELTAS, PROBLEM, READ_AS
from patching.spark.json_values import encode
from patching.spark.options import OptionRefused, Options
from patching.spark.outcomes import UNFINISHED, OutcomeCounts


class LettersUnseen(Exception):
    """The driver can't say which dead letters count, so nobody would read them."""


class DeadLetters:
    """The file of one attempt of a task, created with its first letter. It is ``….unfinished``
    until the driver knows that the attempt counts (``settle_letters``). The file of an attempt that
    failed or lost keeps this name."""

    def __init__(self, folder: str, name: str) -> None:
        self._path = Path(folder) / f"{name}.jsonl"
        self._file: BinaryIO | None = None

    def add(self, letter: dict[str, Any]) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = Path(f"{self._path}{UNFINISHED}").open("wb")  # noqa: SIM115 - see finish
        self._file.write(msgspec.json.encode(letter) + b"\n")

    def finish(self) -> str | None:
        """Close the file; returns the path that it will get, None if there are no letters."""
        if self._file is None:
            return None
        self.close()
        return str(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def settle_letters(
    folder: str | None, origin: str, counts: OutcomeCounts, *, replaces: bool
) -> None:
    """Give the files of the attempts that count, which ``counts`` names, their final names. Called
    once, on the driver. Raises LettersUnseen.

    ``replaces``: all rows were decided again, so delete the files of earlier starts of the job. If
    the job was finished before, in any catalog, these files are all that there is.
    """
    if folder is None:
        return
    paths = []
    for path in map(Path, counts.dead_letters):
        begun = Path(f"{path}{UNFINISHED}")
        try:
            paths.append(str(begun.rename(path)))
        except OSError as error:
            raise LettersUnseen(
                f"dead letters are in {begun}, where an executor wrote them, but the driver can't"
                f" find or rename that file ({error}): deadLetterPath must be a folder that both"
                " share"
            ) from error
    counts.dead_letters = paths
    if replaces:
        for each in Path(folder).glob(f"{origin}-*.jsonl"):
            if str(each) not in paths:
                each.unlink(missing_ok=True)


# All columns that a row can have. Those that it doesn't use are null.
LETTERS_SCHEMA: Final = StructType(
    [
        StructField(name, BooleanType() if name == "delete" else StringType(), nullable=True)
        for name in (*COLUMNS, PROBLEM)
    ]
)
_JSON: Final = (*DELTAS, "attributes")


class _Letter(msgspec.Struct):
    row: dict[str, Any]
    problem: dict[str, Any]


@dataclass
class LettersFile(InputPartition):
    path: str


class LettersReader:
    """The letters in the folder of the option ``deadLetters``: a task for each finished file."""

    def __init__(self, options: Options) -> None:
        """Raises OptionRefused if there is no such folder."""
        assert options.dead_letters is not None
        self._folder = Path(options.dead_letters)
        if not self._folder.is_dir():
            raise OptionRefused("deadLetters", f"there is no folder {options.dead_letters!r}")

    def partitions(self) -> list[InputPartition]:
        return [LettersFile(str(path)) for path in sorted(self._folder.glob("*.jsonl"))]

    def rows(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of a file; runs on an executor. If there are no partitions, Spark makes one of
        its own."""
        if not isinstance(partition, LettersFile):
            return
        with Path(partition.path).open("rb") as lines:
            for line in lines:
                letter = msgspec.json.decode(line, type=_Letter)
                problem = f"{letter.problem.get('code')}: {letter.problem.get('detail')}"
                row = {**letter.row, PROBLEM: problem}
                yield tuple(_column(row, name) for name in LETTERS_SCHEMA.fieldNames())


def _column(row: dict[str, Any], name: str) -> Any:
    """The value of the column ``name``. A struct or map becomes JSON text, which its column
    takes."""
    value = row.get(name)
    if value is None:
        value = row.get(READ_AS.get(name, name))
    if value is None or isinstance(value, str) or name == "delete":
        return value
    return encode(value).decode() if name in _JSON else str(value)
