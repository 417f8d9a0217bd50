"""A Debian ``Packages`` index as documents: real metadata to try things with.

A document is a package. Its key is the package's name, and it contains the package's versions::

    "bash": {"name": "bash", "versions": {"5.2.15-2+b2": {"architecture": "amd64",
        "suites": ["bookworm"], "depends": ["base-files (>= 2.1.12)", …], "installed_size": 7164, …

So a version from another suite is one ``add``, and no patch replaces another one's. The module
reads the lists that ``apt-get update`` left on this machine, and fetches nothing.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

LISTS: Final = Path("/var/lib/apt/lists")
_HELPER: Final = Path("/usr/lib/apt/apt-helper")
_SUFFIXES: Final = ("", ".lz4", ".xz", ".gz")
_NAME: Final = re.compile(
    r".*?_dists_(?P<suite>.+?)_(?P<component>[^_]+)_binary-(?P<architecture>[^_]+)_Packages"
)
_STANZA_SCHEMA: Final = "key string, version string, entry string"
_STANZA_ARROW: Final = pa.schema(
    [("key", pa.string()), ("version", pa.string()), ("entry", pa.string())]
)
_SCHEMA: Final = "key string, document string"
_ARROW: Final = pa.schema([("key", pa.string()), ("document", pa.string())])
# Relations and tags. The order of relations has a meaning, so they stay lists.
_LISTS: Final = frozenset(
    (
        *("Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances", "Breaks", "Conflicts"),
        *("Replaces", "Provides", "Built-Using", "Static-Built-Using", "Tag"),
    )
)
_NUMBERS: Final = frozenset(("Size", "Installed-Size"))


class IndexUnreadable(Exception):
    """A list can't be read on this machine; the text says what would help."""


@dataclass(frozen=True, slots=True)
class Index:
    """The list of one suite, component and architecture."""

    path: Path
    suite: str
    component: str
    architecture: str


def indexes(folder: Path = LISTS) -> list[Index]:
    """Return the lists in ``folder``, by name; [] if ``apt-get update`` never ran."""
    found = []
    for path in sorted(folder.glob("*_Packages*")):
        name = path.name
        for suffix in _SUFFIXES[1:]:
            name = name.removesuffix(suffix)
        match = _NAME.fullmatch(name)
        if match:
            found.append(Index(path, *match.group("suite", "component", "architecture")))
    return found


def packages(spark: SparkSession, chosen: Sequence[Index], folder: Path) -> DataFrame:
    """Return (key, document) of all packages in the ``chosen`` lists together.

    If two lists have the same version of a package, the document has it once, with both suites.
    The lists are written to ``folder`` as plain text, which Spark reads in pieces. The folder has
    to stay until the frame was used, and the executors must see it. IndexUnreadable, ValueError.
    """
    if not chosen:
        raise ValueError("no index was chosen")
    stanzas = None
    for number, index in enumerate(chosen):
        plain = folder / f"{number}.packages"
        with opened(index.path) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        text = spark.read.option("lineSep", "\n\n").text(plain.as_uri())
        some = text.mapInArrow(_Stanzas(index.suite, index.component).batches, _STANZA_SCHEMA)
        stanzas = some if stanzas is None else stanzas.unionByName(some)
    assert stanzas is not None
    by_package = stanzas.repartition("key").sortWithinPartitions("key", "version", "entry")
    return by_package.mapInArrow(_documents, _SCHEMA)


def parse_stanza(text: str) -> dict[str, str]:
    """Return the fields of a stanza. Line ends join a field's continuation lines.

    A line that is neither a field nor a continuation is left out without an error.
    """
    fields: dict[str, str] = {}
    name = ""
    for line in text.split("\n"):
        if line[:1] in (" ", "\t"):
            if name:
                fields[name] += "\n" + line[1:]
            continue
        name, colon, value = line.partition(":")
        if colon and name:
            fields[name] = value.strip()
        else:
            name = ""
    return fields


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open the list, decompressed. IndexUnreadable."""
    if path.suffix == ".lz4":
        with _lz4(path) as plain:
            yield plain
    elif path.suffix == ".xz":
        with lzma.open(path) as plain:
            yield plain
    elif path.suffix == ".gz":
        with gzip.open(path) as plain:
            yield plain  # type: ignore[misc]
    else:
        with path.open("rb") as plain:
            yield plain


@contextmanager
def _lz4(path: Path) -> Iterator[IO[bytes]]:
    """Decompress with apt's own helper if it is there, else with the lz4 command."""
    if _HELPER.exists():
        command = [str(_HELPER), "cat-file", str(path)]
    elif shutil.which("lz4"):
        command = ["lz4", "-dc", str(path)]
    else:
        raise IndexUnreadable(f"{path} is compressed with lz4: apt-get install lz4")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout
        process.stdout.read()  # the command would complain if the pipe were closed early
    if process.returncode:
        raise IndexUnreadable(f"{' '.join(command)} ended with {process.returncode}")


@dataclass(frozen=True)
class _Stanzas:
    """Turns the texts of stanzas into (package, version, entry of that version)."""

    suite: str
    component: str

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [row for text in batch.column(0).to_pylist() if (row := self._row(text))]
            if rows:
                columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=_STANZA_ARROW)

    def _row(self, text: str) -> tuple[str, str, str] | None:
        fields = parse_stanza(text.strip("\n"))
        name, version = fields.pop("Package", ""), fields.pop("Version", "")
        if not name or not version:
            return None
        entry: dict[str, Any] = {"component": self.component, "suites": [self.suite]}
        entry |= {_member(field): _typed(field, value) for field, value in fields.items()}
        return name, version, msgspec.json.encode(entry, order="sorted").decode()


def _documents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return a document for the rows of each package, which follow one another."""
    name: str | None = None
    versions: dict[str, Any] = {}
    for batch in batches:
        rows: list[tuple[str, str]] = []
        columns = [batch.column(field).to_pylist() for field in ("key", "version", "entry")]
        for key, version, text in zip(*columns, strict=True):
            if key != name:
                rows += _document(name, versions)
                name, versions = key, {}
            _add(versions, version, msgspec.json.decode(text))
        if rows:
            yield _batch(rows)
    if last := _document(name, versions):
        yield _batch(last)


def _add(versions: dict[str, Any], version: str, entry: dict[str, Any]) -> None:
    """Add a version. One of a second architecture gets the architecture in its name."""
    known = versions.get(version)
    if known is None:
        versions[version] = entry
    elif known.get("architecture") == entry.get("architecture"):
        known["suites"] = sorted({*known["suites"], *entry["suites"]})
    else:
        _add(versions, f"{version} {entry.get('architecture')}", entry)


def _document(name: str | None, versions: dict[str, Any]) -> list[tuple[str, str]]:
    if name is None:
        return []
    document = {"name": name, "versions": versions}
    return [(name, msgspec.json.encode(document).decode())]


def _batch(rows: list[tuple[str, str]]) -> pa.RecordBatch:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _member(field: str) -> str:
    return field.lower().replace("-", "_")


def _typed(field: str, value: str) -> Any:
    if field in _NUMBERS and value.isdigit():
        return int(value)
    if field in _LISTS:
        return [part for each in value.replace("\n", " ").split(",") if (part := each.strip())]
    return value
