"""Prometheus metrics over all workers of a gateway; ``table`` has every one of them.

Nothing here is imported before the server has forked: the library decides when it is imported
whether its values live in memory or in files that several processes share.
"""
