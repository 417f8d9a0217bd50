"""Lists as apt has them become documents, a version at a time."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` isn't installed")

from docs.examples.packages_index import Index, indexes, opened, packages, parse_stanza

MAIN = """Package: bash
Version: 5.2.15-2+b2
Architecture: amd64
Depends: base-files (>= 2.1.12), debianutils (>= 5.6-0.1)
Installed-Size: 7164
Description: GNU Bourne Again SHell
Tag: admin::TODO, devel::interpreter,
 role::program

Package: zsh
Version: 5.9-4
Architecture: amd64
Description: shell
 with a second line
"""
SECURITY = """Package: zsh
Version: 5.9-4+deb12u1
Architecture: amd64

Package: bash
Version: 5.2.15-2+b2
Architecture: amd64
Depends: base-files (>= 2.1.12), debianutils (>= 5.6-0.1)
Installed-Size: 7164
"""


def test_a_field_may_continue_on_further_lines() -> None:
    assert parse_stanza("A: 1\nB: x,\n y\n\tz\nno field\n lost\nC:") == {
        "A": "1",
        "B": "x,\ny\nz",
        "C": "",
    }


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_lists_are_found_and_read_however_they_are_compressed(tmp_path: Path, suffix: str) -> None:
    name = "deb.debian.org_debian-security_dists_bookworm-security_main_binary-amd64_Packages"
    path = tmp_path / (name + suffix)
    write = {"": Path.write_bytes, ".gz": _gzip, ".xz": _xz}[suffix]
    write(path, MAIN.encode())
    (tmp_path / "deb.debian.org_debian_dists_bookworm_InRelease").write_text("")

    assert indexes(tmp_path) == [Index(path, "bookworm-security", "main", "amd64")]
    with opened(path) as plain:
        assert plain.read() == MAIN.encode()


def _gzip(path: Path, content: bytes) -> int:
    return path.write_bytes(gzip.compress(content))


def _xz(path: Path, content: bytes) -> int:
    return path.write_bytes(lzma.compress(content))


def test_a_package_has_the_versions_of_all_lists(spark: Any, tmp_path: Path) -> None:
    chosen = []
    for suite, text in (("bookworm", MAIN), ("security", SECURITY)):
        path = tmp_path / f"x_dists_{suite}_main_binary-amd64_Packages"
        path.write_text(text)
        chosen.append(Index(path, suite, "main", "amd64"))

    rows = packages(spark, chosen, tmp_path).collect()

    documents = {row["key"]: json.loads(row["document"]) for row in rows}
    assert len(rows) == len(documents) == 2
    assert documents["zsh"]["versions"].keys() == {"5.9-4", "5.9-4+deb12u1"}
    assert documents["zsh"]["versions"]["5.9-4"]["description"] == "shell\nwith a second line"
    [bash] = documents["bash"]["versions"].values()
    assert bash["suites"] == ["bookworm", "security"]
    assert bash["depends"] == ["base-files (>= 2.1.12)", "debianutils (>= 5.6-0.1)"]
    assert bash["installed_size"] == 7164
    assert bash["tag"] == ["admin::TODO", "devel::interpreter", "role::program"]
