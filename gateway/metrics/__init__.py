"""Prometheus metrics of all workers of a gateway; ``definitions`` lists them.

Nothing here may be imported before the server has forked: at its import, the library decides
whether its values are in memory or in files that several processes share.
"""
