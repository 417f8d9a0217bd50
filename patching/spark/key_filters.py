"""The conditions of a query on the column ``key`` that a reader takes upon itself.

Spark looks no more at a filter that was taken, so rows are held to it exactly; names, beginning and
ends only keep what can't hold from being asked for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import datasource as spark

_KEY: Final = ("key",)
_BYTES_MAX: Final = 1024  # a longer key can be asked of no gateway, unless it is set to take it
_TOP: Final = "\U0010ffff"
# Spark orders strings by their UTF-8, the gateway and Python by code points: it is one order.
_TESTS: Final[dict[type[spark.Filter], Callable[[Any, Any], bool]]] = {
    spark.EqualTo: operator.eq,
    spark.EqualNullSafe: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.In: lambda key, values: key in values,
    spark.StringStartsWith: lambda key, value: key.startswith(value),
    spark.IsNotNull: lambda _key, _value: True,
}


def is_taken(each: spark.Filter) -> bool:
    """Whether `Keys` can hold rows to it."""
    value = getattr(each, "value", "")
    texts = value if isinstance(each, spark.In) else [value]
    return (
        type(each) in _TESTS
        and getattr(each, "attribute", None) == _KEY
        and all(isinstance(text, str) and len(text.encode()) <= _BYTES_MAX for text in texts)
    )


@dataclass(frozen=True)
class Keys:
    """The keys that hold all of ``filters``, each of which `is_taken`."""

    filters: Sequence[spark.Filter] = ()

    def holds(self, key: str) -> bool:
        return all(_TESTS[type(each)](key, getattr(each, "value", None)) for each in self.filters)

    @property
    def names(self) -> list[str] | None:
        """The only ones that can hold, ascending; None: the filters name none."""
        found: set[str] | None = None
        for each in self.filters:
            if isinstance(each, spark.EqualTo | spark.EqualNullSafe | spark.In):
                found = set(each.value) if isinstance(each, spark.In) else {each.value}
                break
        return None if found is None else sorted(key for key in found if key and self.holds(key))

    @property
    def prefix(self) -> str:
        """The longest of which it is asked that keys begin with it."""
        found = [each.value for each in self.filters if isinstance(each, spark.StringStartsWith)]
        return max(found, key=len, default="")

    @property
    def after(self) -> str:
        """No key up to it holds."""
        found = [each.value for each in self.filters if isinstance(each, spark.GreaterThan)]
        least = [each.value for each in self.filters if isinstance(each, spark.GreaterThanOrEqual)]
        return max([*found, *map(_below, least)], default="")

    @property
    def until(self) -> str | None:
        """No key above it holds."""
        ends = (spark.LessThan, spark.LessThanOrEqual)
        return min((each.value for each in self.filters if isinstance(each, ends)), default=None)


def _below(text: str) -> str:
    """A text below it, with few keys in between."""
    if not text:
        return ""
    last = ord(text[-1]) - 1
    if last < 0 or 0xD800 <= last < 0xE000:  # no text has surrogates
        return text[:-1]
    return text[:-1] + chr(last) + _TOP
