"""PySpark's daemon, which has imported what its forks need before it forks them.

A session has a daemon for each kind of worker, and a fork whenever one was killed or is busy.
PySpark's own leaves imports to the forks, as imports may start threads, which forks don't have:
numpy's would, unless they are forbidden.

Where the Python has no tests, it was sent the library, which is left to the forks.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

from pyspark.daemon import manager

if __name__ == "__main__":
    worker = sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"
    library = ["patching.spark.datasource"]
    needed = [worker, "pyarrow"]
    if worker == "pyspark.worker":  # it runs the tasks
        needed += ["pandas"]
        library += ["patching.spark.source", "patching.spark.sink"]
    if importlib.util.find_spec("tests") is not None:
        needed += library
    for name in needed:
        importlib.import_module(name)
    gc.freeze()  # a fork collects after each task: not all these modules again
    manager()
