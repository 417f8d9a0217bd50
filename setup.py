"""Makes the page at ``/docs`` when the package is built; all else is in ``pyproject.toml``."""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class Build(build_py):
    def run(self) -> None:
        script = Path(__file__).parent / "docs" / "api_page" / "build.py"
        runpy.run_path(str(script), run_name="__main__")
        super().run()


setup(cmdclass={"build_py": Build})
