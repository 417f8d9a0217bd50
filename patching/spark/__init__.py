"""The PySpark data source ``metadata``. Needs PySpark: a cluster's own, or the extra ``spark``.

    from patching.spark import register

    register(spark)
    rows.write.format("metadata").mode("append").option("url", …).option("catalog", …).save()

It speaks only HTTP. The Python of every executor must find the package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patching.spark.datasource import MetadataDataSource, batch_writer, register
    from patching.spark.options import OptionRefused, Options
    from patching.spark.typed_columns import typed

__all__ = ["MetadataDataSource", "OptionRefused", "Options", "batch_writer", "register", "typed"]

_MODULES = {
    "MetadataDataSource": "datasource",
    "OptionRefused": "options",
    "Options": "options",
    "batch_writer": "datasource",
    "register": "datasource",
    "typed": "typed_columns",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: `patching-spark --help` needs no PySpark.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
