"""A model of the commit protocol, explored state by state: see docs/commit-loop.md, *The model*."""
