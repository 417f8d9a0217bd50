"""The metadata gateway: shared JSON metadata behind HTTP, every acknowledged change kept.

Data flows one way: ``http`` -> ``commits`` -> ``store``. ``commits`` uses the patch language of
the separate package ``patching``, which knows nothing of the gateway.
"""
