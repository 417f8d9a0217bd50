"""The PySpark data source ``metadata``. Needs the extra ``spark``.

    from patching.spark import register

    register(spark)
    rows.write.format("metadata").mode("append").option("url", …).option("catalog", …).save()

It speaks HTTP alone. The package has to be installed where the executors' Python finds it.
"""

from .datasource import MetadataDataSource, register
from .options import OptionRefused, Options

__all__ = ["MetadataDataSource", "OptionRefused", "Options", "register"]
