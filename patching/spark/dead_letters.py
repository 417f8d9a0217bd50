"""Rows that a sink put aside, read back as rows that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from patching.spark.columns import COLUMNS, DELTAS, PROBLEM, READ_AS
from patching.spark.json_values import encode
from patching.spark.options import OptionRefused, Options

# All that a row can ask for; of each row, the others are null.
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
        """Raises OptionRefused where there is no such folder."""
        assert options.dead_letters is not None
        self._folder = Path(options.dead_letters)
        if not self._folder.is_dir():
            raise OptionRefused("deadLetters", f"there is no folder {options.dead_letters!r}")

    def partitions(self) -> list[InputPartition]:
        return [LettersFile(str(path)) for path in sorted(self._folder.glob("*.jsonl"))]

    def rows(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """On an executor. Of no partitions, Spark makes one of its own."""
        if not isinstance(partition, LettersFile):
            return
        with Path(partition.path).open("rb") as lines:
            for line in lines:
                letter = msgspec.json.decode(line, type=_Letter)
                row = {**letter.row, PROBLEM: _told(letter.problem)}
                yield tuple(_column(row, name) for name in LETTERS_SCHEMA.fieldNames())


def _column(row: dict[str, Any], name: str) -> Any:
    """What was a struct is a text again: JSON, as its column takes it."""
    value = row.get(name)
    if value is None:
        value = row.get(READ_AS.get(name, name))
    if value is None or isinstance(value, str) or name == "delete":
        return value
    return encode(value).decode() if name in _JSON else str(value)


def _told(problem: dict[str, Any]) -> str:
    return f"{problem.get('code')}: {problem.get('detail')}"
