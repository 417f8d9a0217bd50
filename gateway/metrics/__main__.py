"""Prints docs/metrics.md."""

from gateway.metrics.table import markdown

print(markdown(), end="")
