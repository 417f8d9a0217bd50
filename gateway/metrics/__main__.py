"""Prints docs/metrics.md."""

from gateway.metrics.definitions import markdown

print(markdown(), end="")
