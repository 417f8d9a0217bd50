"""``python -m patching.spark``, and the file that ``spark-submit`` is given."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # As a file, it has its folder first on the path, where its modules would hide others.
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [path for path in sys.path if not path or str(Path(path).resolve()) != here]
    from patching.spark.cli import main

    main()
