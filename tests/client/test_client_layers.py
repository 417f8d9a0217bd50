"""The patch language needs no client, and the client knows nothing of the service."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.test_layers import ROOT, files, imports


def loaded_by(module: str) -> set[str]:
    """The top-level packages there are after importing ``module`` alone, and `patching.client`."""
    script = f"import {module}, sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=True, cwd=ROOT
    )
    names = done.stdout.split()
    return {name.split(".")[0] for name in names} | {n for n in names if n == "patching.client"}


def test_the_patch_language_does_no_io() -> None:
    loaded = loaded_by("patching")
    assert "patching" in loaded
    assert not {"urllib3", "patching.client"} & loaded


def test_the_client_loads_nothing_of_the_service() -> None:
    loaded = loaded_by("patching.client")
    assert {"urllib3", "patching.client"} <= loaded
    assert not {"gateway", "flask", "pymongo"} & loaded


@pytest.mark.parametrize("module", ["gateway", "flask", "pymongo", "pyspark"])
def test_the_client_imports_nothing_of_the_service(module: str) -> None:
    found = files("patching/client")
    assert found
    for path in found:
        assert not [name for name in imports(path) if name.split(".")[0] == module], path


def test_the_client_uses_the_public_patch_language_alone() -> None:
    for path in files("patching/client"):
        assert not [name for name in imports(path) if name.startswith("patching._")], path
