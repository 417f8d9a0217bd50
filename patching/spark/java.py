"""Whether Spark can be started here: it runs on Java 17 or 21."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

INSTALL: Final = "apt-get install openjdk-17-jre-headless"
_OLDEST: Final = 17
_ASK_S: Final = 30
_version = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissing(Exception):
    """There is no Java that Spark runs on; the text says what to install."""


def require_java() -> None:
    """Raises JavaMissing. Looks where Spark does: in JAVA_HOME, or else on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    found = shutil.which(java)
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on this machine"
        raise JavaMissing(f"Spark needs Java 17 or 21, and there is none {where}: {INSTALL}")
    told = subprocess.run(
        [found, "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False
    )
    match = _version.search(told.stderr + told.stdout)
    if match is None:
        raise JavaMissing(f"{found} doesn't say which Java it is; Spark needs 17 or 21: {INSTALL}")
    if int(match[1]) < _OLDEST:
        raise JavaMissing(f"{found} is Java {match[1]}; Spark needs 17 or 21: {INSTALL}")
