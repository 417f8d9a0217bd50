"""``python -m patching.spark``, and the file that ``spark-submit`` is given."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a file, its folder comes first: the modules in it are none that anybody asks for so.
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [path for path in sys.path if not path or str(Path(path).resolve()) != here]
    from patching.spark.cli import main

    main()
