"""A search for what a request costs everybody else: CPU that holds up a worker, and memory.

``python -m benchmarks --only cost`` searches for a while and prints the worst that it found;
``python -m benchmarks.cost`` has the options: how long, from which seed, one finding again.
"""
