"""Measures the gateway against the loops it replaces; run with `python -m benchmarks`.

Every figure is a ratio of two numbers measured in the same run, on the same machine and
the same mongod, in interleaved rounds: absolute numbers don't travel between machines,
ratios mostly do.
"""
