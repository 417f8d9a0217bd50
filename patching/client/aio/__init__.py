"""The client for asyncio: the names of `patching.client`, with methods to be awaited.

    async with Gateway("http://gateway:8080", token=token) as gateway:
        catalog = gateway.catalog("shop")
        orders = await catalog.get("orders")
        await catalog.patch("orders", [{"op": "add", "path": "/tier", "value": 2}], if_match=orders)

Both clients carry out the same plans, so they send the same requests, and send them again for the
same reasons after the same pauses. Values, terms and errors are those of `patching.client`. Needs
the extra ``asyncio``.
"""

try:
    import httpx2 as httpx2
except ImportError as _error:
    raise ImportError(
        "the client for asyncio needs httpx2, which the extra asyncio of metadata-gateway brings"
    ) from _error

from patching.client.aio._client import Catalog, Feed, Gateway, Pin, Transaction, Upload

__all__ = ["Catalog", "Feed", "Gateway", "Pin", "Transaction", "Upload"]
